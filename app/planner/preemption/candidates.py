"""The rules of one pool at one moment: what waiters may take of each policy, judged once for all who stand to it alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

from app.domain.snapshot import Allocation, Snapshot
from app.planner.allocation_classes import Holdings, Kind, Traits
from app.planner.preemption.cost import Costs
from app.planner.preemption.rules import Grounds, Rule, Standing, discipline, grounds
from app.planner.projection import Books

Place: TypeAlias = tuple[float, int, int]
"""Where an allocation stands in the order of candidates."""

Candidate: TypeAlias = tuple[Place, Allocation, Grounds]
"""Who may be taken: its place, the allocation, and on what grounds."""

Choice: TypeAlias = tuple[Grounds, ...]
"""The grounds there are, those to stand on first."""


@dataclass(slots=True)
class Takable:
    """What a waiter of some standing may take of one policy."""

    grounds: dict[Kind, Choice] = field(default_factory=dict)
    _judged: int = 0
    _totals: dict[str, int] = field(default_factory=dict)
    _version: int = -1

    def is_fresh(self, holdings: Holdings) -> bool:
        """Whether nothing moved since the last time."""
        return self._version == holdings.version

    def refresh(self, holdings: Holdings, said: dict[Traits, Choice], judge: Callable[[Traits], Choice]) -> None:
        """Take in the kinds that are new since the last time, and forget the totals."""
        for kind in holdings.kinds[self._judged :]:
            choice = said.get(kind.traits)
            if choice is None:
                choice = said[kind.traits] = judge(kind.traits)
            if choice:
                self.grounds[kind] = choice
        self._judged = len(holdings.kinds)
        self._totals.clear()
        self._version = holdings.version

    def total(self, key: str) -> int:
        """How many units of a key all of it holds."""
        total = self._totals.get(key)
        if total is None:
            total = self._totals[key] = sum(_total(kind, choice, key) for kind, choice in self.grounds.items())
        return total


@dataclass(slots=True)
class _Sum:
    """How many units of a key a waiter of some standing may take of several policies."""

    parts: dict[str, int]
    total: int
    seen: int
    """How much of what moved is in it."""


class Court:
    """The rules of one pool, and the answers they have given."""

    def __init__(self, snapshot: Snapshot, books: Books, costs: Costs) -> None:
        self.rules: tuple[Rule, ...] = discipline(snapshot.terms)
        self.books = books
        self.costs = costs
        self.by_class = snapshot.terms.discipline == "classes"
        self._allocations = snapshot.allocations
        self._takable: dict[Standing, dict[str, Takable]] = defaultdict(dict)
        self._said: dict[Standing, dict[Traits, Choice]] = defaultdict(dict)
        self._by_cost: list[Allocation] = []
        self._sums: dict[tuple[str, int, int, Standing, str], _Sum] = {}
        self._benches: dict[str, dict[tuple[int, int], frozenset[str]]] = {}
        self.chains = {holder.chain for holder in snapshot.allocations}
        """Those of whom somebody runs."""
        policies = ((books.tree.policy(component).priority, component) for component in books.tree.paths)
        self._by_priority = [
            (priority, [component for _, component in alike])
            for priority, alike in groupby(sorted(policies), key=lambda each: each[0])
        ]

    def takable(self, component: str, standing: Standing) -> Takable:
        """What a waiter may take of a policy now."""
        judged = self._takable[standing]
        found = judged.get(component)
        if found is None:
            found = judged[component] = Takable()
        holdings = self.books.shares.holdings(component)
        if not found.is_fresh(holdings):
            found.refresh(holdings, self._said[standing], lambda traits: tuple(grounds(self.rules, standing, traits)))
        return found

    def benches(self, account: str) -> Mapping[tuple[int, int], frozenset[str]]:
        """(How many accounts lie between, priority) → the components of which that is so, of those below an account. Whoever
        meets them there stands to all of them alike."""
        found = self._benches.get(account)
        if found is None:
            tree, alike = self.books.tree, defaultdict(list)
            for component in tree.below[account]:
                between = tree.paths[component].index(account) - 1
                alike[between, tree.policy(component).priority].append(component)
            found = self._benches[account] = {at: frozenset(components) for at, components in alike.items()}
        return found

    def total(self, account: str, bench: tuple[int, int], standing: Standing, key: str) -> int:
        """How many units of a key a waiter of some standing may take of all policies of a bench."""
        components = self.benches(account).get(bench, frozenset())
        at, moved = (account, *bench, standing, key), self.books.shares.moved
        found = self._sums.get(at)
        if found is None:
            parts = {component: self.takable(component, standing).total(key) for component in components}
            found = self._sums[at] = _Sum(parts, sum(parts.values()), len(moved))
        elif found.seen < len(moved):
            for component in components.intersection(moved[found.seen :]):
                now = self.takable(component, standing).total(key)
                found.total += now - found.parts[component]
                found.parts[component] = now
            found.seen = len(moved)
        return found.total

    def candidates(self, takable: Callable[[str], Takable]) -> Iterator[Candidate]:
        """Who may be taken of each policy, one by one and in order, worked out as far as they are asked for.

        `reserved`: 1. lowest rank 2. newest 3. id. `classes`: 1. lowest cost 2. lowest class 3. newest 4. id.
        """
        return self._cheapest(takable) if self.by_class else self._lowest(takable)

    def _cheapest(self, takable: Callable[[str], Takable]) -> Iterator[Candidate]:
        kind_of = self.books.shares.kind_of
        cost, age = self.costs.of, self.books.shares.age
        for holder in self._in_order_of_cost():
            if holder.id in kind_of:
                choice = takable(holder.component).grounds.get(kind_of[holder.id])
                stand_on = _stand_on(choice, holder) if choice else None
                if stand_on is not None:
                    yield (cost(holder), holder.preemption_class, -age[holder.id]), holder, stand_on

    def _in_order_of_cost(self) -> list[Allocation]:
        if not self._by_cost:
            age, kind_of = self.books.shares.age, self.books.shares.kind_of
            for component in self.books.tree.paths:
                self.books.shares.holdings(component)  # only who was asked about has a kind
            kinds = ((each, kind_of.get(each.id)) for each in self._allocations)
            free = [each for each, kind in kinds if kind is None or kind.traits.protected is None]
            free.sort(key=lambda holder: age[holder.id], reverse=True)
            free.sort(key=attrgetter("preemption_class"))
            free.sort(key=self.costs.of)
            self._by_cost = free
        return self._by_cost

    def _lowest(self, takable: Callable[[str], Takable]) -> Iterator[Candidate]:
        for priority, components in self._by_priority:
            parts = [part for component in components for part in takable(component).grounds.items()]
            parts.sort(key=lambda part: part[0].traits.preemption_class)
            for preemption_class, alike in groupby(parts, key=lambda part: part[0].traits.preemption_class):
                yield from merge(*(self._newest(priority, preemption_class, kind, choice) for kind, choice in alike), key=place)

    def _newest(self, priority: int, preemption_class: int, kind: Kind, choice: Choice) -> Iterator[Candidate]:
        age = self.books.shares.age
        for holder in reversed(kind.members.values()):
            stand_on = _stand_on(choice, holder)
            if stand_on is not None:
                yield (priority, preemption_class, -age[holder.id]), holder, stand_on


def place(candidate: Candidate) -> Place:
    """Where a candidate stands in the order."""
    return candidate[0]


def _stand_on(choice: Choice, holder: Allocation) -> Grounds | None:
    """The first grounds that hold for this one."""
    return next((each for each in choice if each.after is None or holder.fence > each.after), None)


def _total(kind: Kind, choice: Choice, key: str) -> int:
    if any(each.after is None for each in choice):
        return kind.total(key)
    return sum(holder.amounts.get(key, 0) for holder in kind.members.values() if _stand_on(choice, holder))
