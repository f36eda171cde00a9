"""The rules of one pool at one moment: what waiters may take of each policy, judged once per standing and kind of holder."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

from app.domain.snapshot import Allocation, Terms
from app.planner.books import Books
from app.planner.cost import Costs
from app.planner.rules import Grounds, Rule, Standing, discipline, grounds
from app.planner.shares import Kind

Place: TypeAlias = tuple[float, int, int]
"""Where an allocation stands in the order of candidates."""

Candidate: TypeAlias = tuple[Place, Allocation, Grounds]
"""Who may be taken: its place, the allocation, and on what grounds."""


@dataclass(slots=True)
class Takable:
    """What a waiter of some standing may take of one policy."""

    parts: list[tuple[list[Allocation], Grounds]]
    units: Mapping[str, int]
    """What all of it holds."""
    candidates: list[Candidate] | None = None
    """In order; made when somebody asks for it."""


@dataclass(slots=True)
class _Known:
    """What is known of one policy as long as its stack does not move."""

    kinds: tuple[Kind, ...]
    takable: dict[Standing, Takable] = field(default_factory=dict)


class Court:
    """The rules of one pool at one moment, and the answers they have given."""

    def __init__(self, terms: Terms, books: Books, costs: Costs) -> None:
        self.rules: tuple[Rule, ...] = discipline(terms)
        self.books = books
        self.costs = costs
        self.by_class = terms.discipline == "classes"
        self._known: dict[str, _Known] = {}
        self._policies = sorted(books.tree.paths, key=lambda component: books.tree.policy(component).priority)

    def kinds(self, component: str) -> tuple[Kind, ...]:
        """Who runs under a policy."""
        return self.books.shares.kinds(component)

    def takable(self, component: str, standing: Standing) -> Takable:
        """What a waiter may take of a policy."""
        kinds, known = self.kinds(component), self._known.get(component)
        if known is None or known.kinds is not kinds:
            known = self._known[component] = _Known(kinds)
        found = known.takable.get(standing)
        if found is None:
            found = known.takable[standing] = self._judge(kinds, standing)
        return found

    def _judge(self, kinds: Iterable[Kind], standing: Standing) -> Takable:
        parts: list[tuple[list[Allocation], Grounds]] = []
        for kind in kinds:
            members = kind.members
            for ground in grounds(self.rules, standing, kind):
                newer = members if ground.after is None else members[_first_after(members, ground.after) :]
                if newer:
                    parts.append((newer, ground))
                members = members[: len(members) - len(newer)]
        units: dict[str, int] = defaultdict(int)
        for members, _ in parts:
            for holder in members:
                for key, held in holder.amounts.items():
                    units[key] += held
        return Takable(parts, units)

    def candidates(self, component: str, takable: Takable) -> list[Candidate]:
        """The same, one by one and in order.

        `reserved`: 1. lowest rank 2. newest 3. id. `classes`: 1. lowest cost 2. lowest class 3. newest 4. id.
        """
        if takable.candidates is None:
            age, cost = self.books.shares.age, self.costs.of
            priority = self.books.tree.policy(component).priority
            takable.candidates = sorted(
                (
                    ((cost(holder) if self.by_class else priority, holder.preemption_class, -age[holder.id]), holder, ground)
                    for members, ground in takable.parts
                    for holder in reversed(members)
                ),
                key=place,
            )
        return takable.candidates

    def by_priority(self) -> Iterator[list[str]]:
        """The policies, in sets of which each comes wholly before the next among the candidates."""
        if self.by_class:
            yield self._policies
            return
        for _, policies in groupby(self._policies, key=lambda component: self.books.tree.policy(component).priority):
            yield list(policies)


def place(candidate: Candidate) -> Place:
    """Where a candidate stands in the order."""
    return candidate[0]


def _first_after(members: list[Allocation], fence: int) -> int:
    return bisect_right(members, fence, key=lambda holder: holder.fence)
