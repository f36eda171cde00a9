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
from app.planner.decisions import Why
from app.planner.preemption.candidates import Candidate, Place
from app.planner.preemption.subset_search import Sets

WEIGHED = 1000
"""How many sets of the first candidates are weighed for one waiter at most, where each has to be."""

EXACT_OVER = 12
"""Of how many candidates, the first ones, every set is looked at."""


class _Prices(NamedTuple):
    each: list[int]
    below: int | None


Merit: TypeAlias = tuple[int, Fraction, tuple[Place, ...]]


class Docket(Protocol):
    """An ask as far as choosing its victims goes."""

    needs: list[tuple[int, str, int]]
    """(How far up its path, key, units) of what is short."""
    beyond: list[tuple[str, int]] | None
    """What of its own policy has to leave for those to be taken who may be on that condition only."""
    takers_back: frozenset[str]
    """Of the set that was last asked about: the policies that could take it straight back."""
    weighs: bool
    """Whether every set has to be weighed as a whole before it may be taken."""
    forbidden: Why
    """Why a set is refused that the rules do not allow as a whole."""

    @property
    def may_weigh(self) -> bool:
        """Whether there is time in this pass to weigh another one for it."""

    def could_suffice(self) -> bool:
        """Whether all it may take covers what is short."""

    def candidates(self) -> Iterator[Candidate]:
        """Those it may take, in order."""

    def brings(self, holder: Allocation) -> list[int]:
        """What one brings to each need."""

    def moves(self, holder: Allocation) -> list[int]:
        """What one brings towards the condition."""

    def cost(self, holder: Allocation) -> Fraction:
        """What stopping one costs."""

    def allows(self, chosen: Sequence[Candidate]) -> bool:
        """Whether a set may be taken as a whole."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a set of victims has to keep to."""

    most: int | None = None
    """How many it may have."""
    below: int | None = None
    """What it may not cost, in GPU-minutes."""


def choose(case: Docket, bounds: Bounds) -> tuple[Candidate, ...] | Why:
    """The victims, in the order of candidates; or why there is no allowed set."""
    if not case.could_suffice():
        return Why.NOT_ENOUGH
    taken = _take(case, case.candidates())
    if taken is None:
        return Why.NOT_ENOUGH
    kept = _give_back(case, taken)
    fault = _fault(case, kept, bounds)
    if fault is None:
        return kept
    if case.weighs:
        return _weighed(case, bounds, fault, kept)
    others = [*_search(case, bounds), *_unconditional(case, taken, bounds)]
    return min(others, key=lambda chosen: _merit(case, chosen), default=fault)


def _weighed(case: Docket, bounds: Bounds, fault: Why, refused: Sequence[Candidate]) -> tuple[Candidate, ...] | Why:
    """Another set, where each has to be weighed as a whole: what is taken in order if those policies are spared that could take
    it back; else the best of all sets of the first candidates, as far as there is time for it."""
    known = {_alike(refused)} if fault is case.forbidden else set[frozenset[object]]()
    for chosen in chain(_sparing(case, bounds), islice(_by_merit(case, bounds), WEIGHED)):
        if _alike(chosen) in known:
            continue
        if not case.may_weigh:
            return Why.NOT_WEIGHED
        if case.allows(chosen):
            return chosen
        known.add(_alike(chosen))
    return fault


def _alike(chosen: Iterable[Candidate]) -> frozenset[object]:
    """The same for sets that differ only in who it is, and not in what is taken of whom."""
    held = (holder for _, holder, _ in chosen)
    said = ((one.component, tuple(sorted(one.amounts.items())), one.checkpointed_ms is None, one.chain) for one in held)
    return frozenset(Counter(said).items())


def _by_merit(case: Docket, bounds: Bounds) -> Iterator[tuple[Candidate, ...]]:
    """The sets of the first candidates of whom nobody could stay: 1. the fewest 2. the cheapest 3. the first in order."""
    first = tuple(islice(case.candidates(), EXACT_OVER))
    needs = [units for _, _, units in case.needs]
    brought = [case.brings(holder) for _, holder, _ in first]
    costs = _whole([case.cost(holder) for _, holder, _ in first], bounds.below)
    sets = Sets(range(len(first)), brought, needs)
    for size in range(1, (len(first) if bounds.most is None else min(bounds.most, len(first))) + 1):
        found = (places for places in sets.of(size) if _all_needed(places, brought, needs))
        for _, places in sorted((sum(costs.each[place] for place in places), places) for places in found):
            yield tuple(first[place] for place in places)


def _sparing(case: Docket, bounds: Bounds) -> Iterator[tuple[Candidate, ...]]:
    """What is taken in order if those policies are spared that could take back what was weighed last, one after the other."""
    spared = set[str]()
    while case.takers_back - spared:
        spared |= case.takers_back
        taken = _take(case, (each for each in case.candidates() if each[1].component not in spared))
        if taken is None:
            return
        kept = _give_back(case, taken)
        if bounds.most is not None and len(kept) > bounds.most:
            return
        yield kept


def _take(case: Docket, candidates: Iterable[Candidate]) -> list[Candidate] | None:
    """In order until it fits; None if all of them do not suffice."""
    left, taken = [units for _, _, units in case.needs], []
    for candidate in candidates:
        taken.append(candidate)
        left = [short - units for short, units in zip(left, case.brings(candidate[1]), strict=True)]
        if max(left) <= 0:
            return taken
    return None


def _give_back(case: Docket, taken: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Without those, the last first, but for whom it fits all the same."""
    spare, kept = _spare(case, taken), []
    for candidate in reversed(taken):
        without = [units - brought for units, brought in zip(spare, case.brings(candidate[1]), strict=True)]
        if min(without) >= 0:
            spare = without
        else:
            kept.append(candidate)
    return tuple(reversed(kept))


def _spare(case: Docket, chosen: Iterable[Candidate]) -> list[int]:
    """What they bring beyond each need."""
    spare = [-units for _, _, units in case.needs]
    for _, holder, _ in chosen:
        spare = [units + brought for units, brought in zip(spare, case.brings(holder), strict=True)]
    return spare


def _fault(case: Docket, chosen: Sequence[Candidate], bounds: Bounds) -> Why | None:
    if bounds.most is not None and len(chosen) > bounds.most:
        return Why.TOO_MANY
    if not case.allows(chosen):
        return case.forbidden
    if bounds.below is not None and _cost(case, chosen) >= bounds.below:
        return Why.TOO_DEAR
    return None


def _search(case: Docket, bounds: Bounds) -> Iterator[tuple[Candidate, ...]]:
    """The best of all sets of the first candidates: the fewest, then the cheapest, then the first in order."""
    first = tuple(islice(case.candidates(), EXACT_OVER))
    needs = [units for _, _, units in case.needs]
    brought = [case.brings(holder) for _, holder, _ in first]
    free = [place for place, (_, _, grounds) in enumerate(first) if not grounds.within]
    without_condition = Sets(free, [brought[place] for place in free], needs)
    beyond = [units for _, units in case.beyond or ()]
    moved = [case.moves(holder) for _, holder, _ in first]
    both = [[*one, *other] for one, other in zip(brought, moved, strict=True)]
    with_condition = Sets(range(len(first)), both, [*needs, *beyond])
    costs = _whole([case.cost(holder) for _, holder, _ in first], bounds.below)
    most = len(first) if bounds.most is None else min(bounds.most, len(first))
    for size in range(1, most + 1):
        found = without_condition.of(size)
        if len(free) < len(first):
            found = chain(found, (places for places in with_condition.of(size) if _all_needed(places, brought, needs)))
        priced = ((sum(costs.each[place] for place in places), places) for places in found)
        best = min((each for each in priced if costs.below is None or each[0] < costs.below), default=None)
        if best is not None:
            yield tuple([first[place] for place in best[1]])
            return


def _all_needed(places: Sequence[int], brought: Sequence[Sequence[int]], needs: Sequence[int]) -> bool:
    """Whether none could stay: stopping one only so that the waiter lies within its share could go on for ever."""
    spare = [sum(brought[place][at] for place in places) - units for at, units in enumerate(needs)]
    return all(any(left < units for left, units in zip(spare, brought[place], strict=True)) for place in places)


def _unconditional(case: Docket, first: Iterable[Candidate], bounds: Bounds) -> Iterator[tuple[Candidate, ...]]:
    """What is taken in order from those who may be taken without a condition, if there was one."""
    if not any(grounds.within for _, _, grounds in first):
        return
    taken = _take(case, (candidate for candidate in case.candidates() if not candidate[2].within))
    if taken is not None:
        chosen = _give_back(case, taken)
        if _fault(case, chosen, bounds) is None:
            yield chosen


def _merit(case: Docket, chosen: Sequence[Candidate]) -> Merit:
    """1. fewer victims 2. lower total cost 3. the order of candidates."""
    return len(chosen), _cost(case, chosen), tuple(place for place, _, _ in chosen)


def _cost(case: Docket, chosen: Iterable[Candidate]) -> Fraction:
    return sum((case.cost(holder) for _, holder, _ in chosen), start=Fraction())


def _whole(costs: Sequence[Fraction], below: int | None) -> _Prices:
    """Costs, and what they have to stay below, as whole numbers of one small coin."""
    coin = lcm(*(cost.denominator for cost in costs))
    return _Prices([int(cost * coin) for cost in costs], None if below is None else below * coin)
