"""Random trees of accounts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from app.domain.amounts import Amounts
from app.planner.fair_share.share_tree import Branch, Leaf, Mode

KEYS = ("cpu", "gpu", "memory", "slots")
WEIGHTS = (1, 1, 1, 2, 3, 7, 10)


class TreeGenerator:
    """A generator of trees. The guarantees below a node are never more than its own.

    `fine`: the most units of a key in the pool; few units give many coincidences. `groups`: the greatest depth of groups.
    """

    def __init__(
        self,
        random: Random,
        *,
        fine: int,
        groups: int = 1,
        keys: int = 3,
        modes: Sequence[Mode] = ("fair_share", "fifo"),
        limits: bool = True,
    ) -> None:
        self._random, self._groups, self._modes, self._limits = random, groups, modes, limits
        named = random.sample(KEYS, random.randint(1, keys))
        self.capacity = {key: random.randint(max(2, fine // 4), fine) for key in sorted(named)}
        self._count = 0

    def tree(self) -> Branch:
        """Return a whole tree, with the pool at its root."""
        return Branch("pool", children=self._children(self.capacity, self._groups, fewest=1))

    def _children(self, left: Amounts, groups: int, fewest: int = 0) -> tuple[Leaf | Branch, ...]:
        remaining = dict(left)
        children: list[Leaf | Branch] = []
        for _ in range(self._random.randint(fewest, 3)):
            guarantee = self._part_of(remaining) if self._random.random() < 0.5 else {}
            for key, units in guarantee.items():
                remaining[key] -= units
            children.append(self._child(guarantee, groups))
        return tuple(children)

    def _child(self, guarantee: Amounts, groups: int) -> Leaf | Branch:
        self._count += 1
        name, weight = f"n{self._count}", self._random.choice(WEIGHTS)
        limit = {}
        if self._limits and self._random.random() < 0.3:
            key = self._random.choice(list(self.capacity))
            limit = {key: self._random.randint(guarantee.get(key, 0), self.capacity[key])}
        if groups and self._random.random() < 0.7:
            mode = self._random.choice(self._modes)
            return Branch(name, weight, mode, self._children(guarantee, groups - 1), guarantee, limit)
        usage = self._random_amounts() if self._random.random() < 0.6 else {}
        more = self._random_amounts() if self._random.random() < 0.8 else {}
        demand = {key: usage.get(key, 0) + more.get(key, 0) for key in (*usage, *more)}
        return Leaf(name, weight, usage, demand, guarantee, limit)

    def _random_amounts(self) -> dict[str, int]:
        most = self._random.choice((30, 60, 200))
        return {
            key: self._random.randint(0, units * most // 100)
            for key, units in self.capacity.items()
            if self._random.random() < 0.8
        }

    def _part_of(self, remaining: Amounts) -> dict[str, int]:
        return {key: self._random.randint(0, units) for key, units in remaining.items() if self._random.random() < 0.7}


def all_accounts(node: Leaf | Branch) -> Iterator[Leaf | Branch]:
    """Yield a node and all nodes below it."""
    yield node
    if isinstance(node, Branch):
        for child in node.children:
            yield from all_accounts(child)
