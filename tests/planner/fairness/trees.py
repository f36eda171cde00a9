"""Random trees under which a pool is shared."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from app.domain.amounts import Amounts
from app.planner.fairness.tree import Branch, Leaf

KEYS = ("cpu", "gpu", "memory", "slots")


class Grower:
    """Grows trees. `fine`: how many units each key of the pool has at most; few units make many coincidences."""

    def __init__(self, random: Random, fine: int, groups: bool = True, modes: Sequence[str] = ("fair_share", "fifo")) -> None:
        self._random, self._groups, self._modes = random, groups, modes
        keys = random.sample(KEYS, random.randint(1, len(KEYS) - 1))
        self.capacity = {key: random.randint(max(2, fine // 4), fine) for key in sorted(keys)}
        self._count = 0

    def tree(self) -> Branch:
        """A whole tree, the pool at its root."""
        return self._branch(self.capacity, "pool", self._groups, "fair_share")

    def _branch(self, left: Amounts, name: str, groups: bool, mode: str) -> Branch:
        remaining = dict(left)
        children: list[Leaf | Branch] = []
        for _ in range(self._random.randint(0 if name != "pool" else 1, 3)):
            guarantee = self._part_of(remaining) if self._random.random() < 0.5 else {}
            for key, units in guarantee.items():
                remaining[key] -= units
            children.append(self._child(guarantee, groups))
        return Branch(name, mode=mode, children=tuple(children), guarantee={} if name == "pool" else left)  # type: ignore[arg-type]

    def _child(self, guarantee: Amounts, groups: bool) -> Leaf | Branch:
        self._count += 1
        name, weight = f"n{self._count}", self._random.choice((1, 1, 1, 2, 3, 7, 10))
        limit = {}
        if self._random.random() < 0.3:
            key = self._random.choice(list(self.capacity))
            limit = {key: self._random.randint(guarantee.get(key, 0), self.capacity[key])}
        if groups and self._random.random() < 0.7:
            branch = self._branch(guarantee, name, False, self._random.choice(self._modes))
            return Branch(name, weight, branch.mode, branch.children, guarantee, limit)
        usage = self._asked() if self._random.random() < 0.6 else {}
        more = self._asked() if self._random.random() < 0.8 else {}
        demand = {key: usage.get(key, 0) + more.get(key, 0) for key in (*usage, *more)}
        return Leaf(name, weight, usage, demand, guarantee, limit)

    def _asked(self) -> dict[str, int]:
        most = self._random.choice((0.3, 0.6, 2))
        return {key: self._random.randint(0, int(units * most)) for key, units in self.capacity.items() if self._random.random() < 0.8}

    def _part_of(self, remaining: Amounts) -> dict[str, int]:
        return {key: self._random.randint(0, units) for key, units in remaining.items() if self._random.random() < 0.7}
