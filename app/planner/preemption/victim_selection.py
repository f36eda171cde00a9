"""The choice of victims: take candidates in order, drop the unnecessary ones; if that set is refused, search other sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, islice
from math import lcm
from typing import NamedTuple, Protocol

from app.domain.snapshot import Allocation
from app.planner.decisions import DecisionReason
from app.planner.preemption.candidates import Candidate
from app.planner.preemption.ordering import SetPreference, set_preference
from app.planner.preemption.subset_search import SubsetSearch

MAX_WEIGHED_SETS = 1000
"""The most sets of the first candidates that are judged for one waiter if every set has to be judged as a whole."""

EXACT_CANDIDATES = 12
"""The number of first candidates whose sets are searched exhaustively."""


class _WholeCosts(NamedTuple):
    each: list[int]
    below: int | None


class VictimSearch(Protocol):
    """The parts of an attempt that the choice of victims needs."""

    needs: list[tuple[int, str, int]]
    """(Level of the waiter's path, key, units) of each shortage."""
    excess: list[tuple[str, int]] | None
    """(Key, units) that have to leave the waiter's own policy before conditional candidates are allowed; None if they cannot
    be."""
    policies_taking_back: frozenset[str]
    """The policies that could preempt the waiter again after the set that was judged last."""
    must_weigh_sets: bool
    """True if every set has to be judged as a whole before it is chosen."""
    set_refusal: DecisionReason
    """The reason if the rules forbid a set as a whole."""

    @property
    def may_weigh_more(self) -> bool:
        """True if this pass may judge another set for the waiter."""

    def could_suffice(self) -> bool:
        """True if all candidates together cover the needs."""

    def candidates(self) -> Iterator[Candidate]:
        """Yield the candidates in order."""

    def units_for_needs(self, allocation: Allocation) -> list[int]:
        """Return the units of each need that an allocation would free."""

    def units_for_excess(self, allocation: Allocation) -> list[int]:
        """Return the units of each excess that an allocation would free."""

    def cost(self, allocation: Allocation) -> Fraction:
        """Return the cost of preempting an allocation."""

    def allows(self, victims: Sequence[Candidate]) -> bool:
        """True if a set may be preempted as a whole."""


@dataclass(frozen=True, slots=True)
class VictimBounds:
    """The bounds on a set of victims."""

    max_victims: int | None = None
    """The most victims; None if there is no bound."""
    cost_below: int | None = None
    """The bound below which the cost has to stay, in GPU-minutes; None if there is no bound."""


def choose_victims(search: VictimSearch, bounds: VictimBounds) -> tuple[Candidate, ...] | DecisionReason:
    """Return the victims in the order of candidates, or the reason why no set is allowed."""
    if not search.could_suffice():
        return DecisionReason.NOT_ENOUGH
    prefix = _take_in_order(search, search.candidates())
    if prefix is None:
        return DecisionReason.NOT_ENOUGH
    remaining = _give_back(search, prefix)
    fault = _find_fault(search, remaining, bounds)
    if fault is None:
        return remaining
    if search.must_weigh_sets:
        return _choose_by_weighing(search, bounds, fault, remaining)
    alternatives = [*_search_first_candidates(search, bounds), *_without_condition(search, prefix, bounds)]
    return min(alternatives, key=lambda victims: _preference(search, victims), default=fault)


def _choose_by_weighing(
    search: VictimSearch, bounds: VictimBounds, fault: DecisionReason, refused: Sequence[Candidate]
) -> tuple[Candidate, ...] | DecisionReason:
    """Return another set if every set has to be judged as a whole: 1. in order, without the policies that could preempt the
    waiter again 2. the best set of the first candidates that `may_weigh_more` allows to judge."""
    refused_signatures = {_signature(refused)} if fault is search.set_refusal else set[frozenset[object]]()
    for victims in chain(_sets_sparing_policies(search, bounds), islice(_sets_by_preference(search, bounds), MAX_WEIGHED_SETS)):
        if _signature(victims) in refused_signatures:
            continue
        if not search.may_weigh_more:
            return DecisionReason.NOT_WEIGHED
        if search.allows(victims):
            return victims
        refused_signatures.add(_signature(victims))
    return fault


def _signature(victims: Iterable[Candidate]) -> frozenset[object]:
    """Return a value that is equal for sets that take the same amounts from each policy."""
    allocations = (allocation for _, allocation, _ in victims)
    traits = (
        (allocation.component, tuple(sorted(allocation.amounts.items())), allocation.checkpointed_ms is None, allocation.chain)
        for allocation in allocations
    )
    return frozenset(Counter(traits).items())


def _sets_by_preference(search: VictimSearch, bounds: VictimBounds) -> Iterator[tuple[Candidate, ...]]:
    """Yield the sets of the first candidates in which every victim is necessary: 1. the fewest 2. the cheapest 3. the first in
    order."""
    first = tuple(islice(search.candidates(), EXACT_CANDIDATES))
    needs = [units for _, _, units in search.needs]
    contributions = [search.units_for_needs(allocation) for _, allocation, _ in first]
    costs = _as_whole_numbers([search.cost(allocation) for _, allocation, _ in first], bounds.cost_below)
    sets = SubsetSearch(range(len(first)), contributions, needs)
    for size in range(1, (len(first) if bounds.max_victims is None else min(bounds.max_victims, len(first))) + 1):
        sets_of_size = (positions for positions in sets.of_size(size) if _all_needed(positions, contributions, needs))
        for _, positions in sorted(
            (sum(costs.each[position] for position in positions), positions) for positions in sets_of_size
        ):
            yield tuple(first[position] for position in positions)


def _sets_sparing_policies(search: VictimSearch, bounds: VictimBounds) -> Iterator[tuple[Candidate, ...]]:
    """Yield sets taken in order, each without the policies that could preempt the waiter again after the set that was judged
    last."""
    spared_components = set[str]()
    while search.policies_taking_back - spared_components:
        spared_components |= search.policies_taking_back
        prefix = _take_in_order(
            search, (candidate for candidate in search.candidates() if candidate[1].component not in spared_components)
        )
        if prefix is None:
            return
        remaining = _give_back(search, prefix)
        if bounds.max_victims is not None and len(remaining) > bounds.max_victims:
            return
        yield remaining


def _take_in_order(search: VictimSearch, candidates: Iterable[Candidate]) -> list[Candidate] | None:
    """Return the first candidates in order that cover the needs together; None if all candidates do not suffice."""
    open_needs, victims = [units for _, _, units in search.needs], []
    for candidate in candidates:
        victims.append(candidate)
        open_needs = [
            open_units - units for open_units, units in zip(open_needs, search.units_for_needs(candidate[1]), strict=True)
        ]
        if max(open_needs) <= 0:
            return victims
    return None


def _give_back(search: VictimSearch, victims: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the victims without the unnecessary ones. The last victim is tried first."""
    surplus, remaining = _surplus(search, victims), []
    for candidate in reversed(victims):
        surplus_without = [units - freed for units, freed in zip(surplus, search.units_for_needs(candidate[1]), strict=True)]
        if min(surplus_without) >= 0:
            surplus = surplus_without
        else:
            remaining.append(candidate)
    return tuple(reversed(remaining))


def _surplus(search: VictimSearch, victims: Iterable[Candidate]) -> list[int]:
    """Return the units of each need that the victims free beyond it."""
    surplus = [-units for _, _, units in search.needs]
    for _, allocation, _ in victims:
        surplus = [units + freed for units, freed in zip(surplus, search.units_for_needs(allocation), strict=True)]
    return surplus


def _find_fault(search: VictimSearch, victims: Sequence[Candidate], bounds: VictimBounds) -> DecisionReason | None:
    if bounds.max_victims is not None and len(victims) > bounds.max_victims:
        return DecisionReason.TOO_MANY
    if not search.allows(victims):
        return search.set_refusal
    if bounds.cost_below is not None and _cost(search, victims) >= bounds.cost_below:
        return DecisionReason.TOO_DEAR
    return None


def _search_first_candidates(search: VictimSearch, bounds: VictimBounds) -> Iterator[tuple[Candidate, ...]]:
    """Yield the best of all sets of the first candidates: 1. the fewest 2. the cheapest 3. the first in order."""
    first = tuple(islice(search.candidates(), EXACT_CANDIDATES))
    needs = [units for _, _, units in search.needs]
    contributions = [search.units_for_needs(allocation) for _, allocation, _ in first]
    unconditional = [position for position, (_, _, permit) in enumerate(first) if not permit.requires_entering_share]
    without_condition = SubsetSearch(unconditional, [contributions[position] for position in unconditional], needs)
    excess = [units for _, units in search.excess or ()]
    excess_contributions = [search.units_for_excess(allocation) for _, allocation, _ in first]
    all_contributions = [
        [*contribution, *excess_contribution]
        for contribution, excess_contribution in zip(contributions, excess_contributions, strict=True)
    ]
    with_condition = SubsetSearch(range(len(first)), all_contributions, [*needs, *excess])
    costs = _as_whole_numbers([search.cost(allocation) for _, allocation, _ in first], bounds.cost_below)
    max_size = len(first) if bounds.max_victims is None else min(bounds.max_victims, len(first))
    for size in range(1, max_size + 1):
        sets_of_size = without_condition.of_size(size)
        if len(unconditional) < len(first):
            sets_of_size = chain(
                sets_of_size,
                (positions for positions in with_condition.of_size(size) if _all_needed(positions, contributions, needs)),
            )
        priced = ((sum(costs.each[position] for position in positions), positions) for positions in sets_of_size)
        best = min((priced_set for priced_set in priced if costs.below is None or priced_set[0] < costs.below), default=None)
        if best is not None:
            yield tuple([first[position] for position in best[1]])
            return


def _all_needed(positions: Sequence[int], contributions: Sequence[Sequence[int]], needs: Sequence[int]) -> bool:
    """True if every victim is necessary. Only needs count: preemptions that just bring the waiter within its share could repeat
    without end."""
    surplus = [sum(contributions[position][need] for position in positions) - units for need, units in enumerate(needs)]
    return all(
        any(spare < units for spare, units in zip(surplus, contributions[position], strict=True)) for position in positions
    )


def _without_condition(
    search: VictimSearch, first: Iterable[Candidate], bounds: VictimBounds
) -> Iterator[tuple[Candidate, ...]]:
    """Yield the set taken in order from unconditional candidates only, if `first` has a conditional candidate."""
    if not any(permit.requires_entering_share for _, _, permit in first):
        return
    prefix = _take_in_order(
        search, (candidate for candidate in search.candidates() if not candidate[2].requires_entering_share)
    )
    if prefix is not None:
        victims = _give_back(search, prefix)
        if _find_fault(search, victims, bounds) is None:
            yield victims


def _preference(search: VictimSearch, victims: Sequence[Candidate]) -> SetPreference:
    return set_preference([position for position, _, _ in victims], _cost(search, victims))


def _cost(search: VictimSearch, victims: Iterable[Candidate]) -> Fraction:
    return sum((search.cost(allocation) for _, allocation, _ in victims), start=Fraction())


def _as_whole_numbers(costs: Sequence[Fraction], cost_below: int | None) -> _WholeCosts:
    """Return the costs and their bound as whole multiples of one unit."""
    unit = lcm(*(cost.denominator for cost in costs))
    return _WholeCosts([int(cost * unit) for cost in costs], None if cost_below is None else cost_below * unit)
