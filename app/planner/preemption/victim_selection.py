"""Which of those who may be taken are: take in order, give back what is not needed; if that may not be, look at other sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, islice
from math import lcm
from typing import NamedTuple, Protocol, TypeAlias

from app.domain.snapshot import Allocation
from app.planner.decisions import DecisionReason
from app.planner.preemption.candidates import Candidate, CandidatePosition
from app.planner.preemption.subset_search import SubsetSearch

MAX_WEIGHED_SETS = 1000
"""How many sets of the first candidates are weighed for one waiter at most, where each has to be."""

EXACT_CANDIDATES = 12
"""Of how many candidates, the first ones, every set is looked at."""


class _WholeCosts(NamedTuple):
    each: list[int]
    below: int | None


SetPreference: TypeAlias = tuple[int, Fraction, tuple[CandidatePosition, ...]]


class VictimSearch(Protocol):
    """An ask as far as choosing its victims goes."""

    needs: list[tuple[int, str, int]]
    """(How far up its path, key, units) of what is short."""
    excess: list[tuple[str, int]] | None
    """What of its own policy has to leave for those to be taken who may be on that condition only."""
    policies_taking_back: frozenset[str]
    """Of the set that was last asked about: the policies that could take it straight back."""
    must_weigh_sets: bool
    """Whether every set has to be weighed as a whole before it may be taken."""
    set_refusal: DecisionReason
    """Why a set is refused that the rules do not allow as a whole."""

    @property
    def may_weigh_more(self) -> bool:
        """Whether there is time in this pass to weigh another one for it."""

    def could_suffice(self) -> bool:
        """Whether all it may take covers what is short."""

    def candidates(self) -> Iterator[Candidate]:
        """Those it may take, in order."""

    def units_for_needs(self, allocation: Allocation) -> list[int]:
        """What one brings to each need."""

    def units_for_excess(self, allocation: Allocation) -> list[int]:
        """What one brings towards the condition."""

    def cost(self, allocation: Allocation) -> Fraction:
        """What stopping one costs."""

    def allows(self, victims: Sequence[Candidate]) -> bool:
        """Whether a set may be taken as a whole."""


@dataclass(frozen=True, slots=True)
class VictimBounds:
    """What a set of victims has to keep to."""

    max_victims: int | None = None
    """How many it may have."""
    cost_below: int | None = None
    """What it may not cost, in GPU-minutes."""


def choose_victims(search: VictimSearch, bounds: VictimBounds) -> tuple[Candidate, ...] | DecisionReason:
    """The victims, in the order of candidates; or why there is no allowed set."""
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
    """Another set, where each has to be weighed as a whole: what is taken in order if those policies are spared that could take
    it back; else the best of all sets of the first candidates, as far as there is time for it."""
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
    """The same for sets that differ only in who it is, and not in what is taken of whom."""
    allocations = (allocation for _, allocation, _ in victims)
    traits = (
        (allocation.component, tuple(sorted(allocation.amounts.items())), allocation.checkpointed_ms is None, allocation.chain)
        for allocation in allocations
    )
    return frozenset(Counter(traits).items())


def _sets_by_preference(search: VictimSearch, bounds: VictimBounds) -> Iterator[tuple[Candidate, ...]]:
    """The sets of the first candidates of whom nobody could stay: 1. the fewest 2. the cheapest 3. the first in order."""
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
    """What is taken in order if those policies are spared that could take back what was weighed last, one after the other."""
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
    """In order until it fits; None if all of them do not suffice."""
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
    """Without those, the last first, but for whom it fits all the same."""
    surplus, remaining = _surplus(search, victims), []
    for candidate in reversed(victims):
        surplus_without = [units - freed for units, freed in zip(surplus, search.units_for_needs(candidate[1]), strict=True)]
        if min(surplus_without) >= 0:
            surplus = surplus_without
        else:
            remaining.append(candidate)
    return tuple(reversed(remaining))


def _surplus(search: VictimSearch, victims: Iterable[Candidate]) -> list[int]:
    """What they bring beyond each need."""
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
    """The best of all sets of the first candidates: the fewest, then the cheapest, then the first in order."""
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
    """Whether none could stay: stopping one only so that the waiter lies within its share could go on for ever."""
    surplus = [sum(contributions[position][need] for position in positions) - units for need, units in enumerate(needs)]
    return all(
        any(spare < units for spare, units in zip(surplus, contributions[position], strict=True)) for position in positions
    )


def _without_condition(
    search: VictimSearch, first: Iterable[Candidate], bounds: VictimBounds
) -> Iterator[tuple[Candidate, ...]]:
    """What is taken in order from those who may be taken without a condition, if there was one."""
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
    """1. fewer victims 2. lower total cost 3. the order of candidates."""
    return len(victims), _cost(search, victims), tuple(position for position, _, _ in victims)


def _cost(search: VictimSearch, victims: Iterable[Candidate]) -> Fraction:
    return sum((search.cost(allocation) for _, allocation, _ in victims), start=Fraction())


def _as_whole_numbers(costs: Sequence[Fraction], cost_below: int | None) -> _WholeCosts:
    """Costs, and what they have to stay below, as whole numbers of one small coin."""
    unit = lcm(*(cost.denominator for cost in costs))
    return _WholeCosts([int(cost * unit) for cost in costs], None if cost_below is None else cost_below * unit)
