"""Dividing a pool's capacity among those under it: curves from the leaves up, then levels from the root down."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import gt

from app.domain.amounts import Amounts
from app.planner.fair_share.inputs import Given, Share
from app.planner.fair_share.piecewise_linear import (
    NEAR,
    Curve,
    Place,
    Polyline,
    aligned,
    answer,
    find,
    in_turn,
    of_leaf,
    stretched,
    together,
)
from app.planner.fair_share.share_tree import Branch


@dataclass(frozen=True, slots=True)
class Node:
    """Shares of one node, aligned to the keys of its division, in 1/scale of the pool's capacity."""

    fair: Share
    usage: Share
    demand: Share
    """At least the usage."""
    guarantee: Share
    """As it counts, so with what is inferred."""
    limit: Share
    """The whole where it is unset."""


@dataclass(frozen=True, slots=True)
class Division:
    """What everybody is due: nodes by name."""

    scale: int
    """What 1 is."""
    keys: tuple[str, ...]
    nodes: Mapping[str, Node]
    units: Mapping[str, int]
    """What one unit of a key is; 0 where the pool has none."""

    def share(self, amounts: Amounts) -> Share:
        """Amounts as a share."""
        return tuple(amounts.get(key, 0) * unit for key, unit in self.units.items())


def divide(capacity: Amounts, root: Branch) -> Division:
    """The fair shares of a whole tree."""
    given = Given(capacity, root)
    fair = _Dividing(given).divide(root)
    nodes = {
        name: Node(due, given.usage[name], given.demand[name], given.guarantee[name], given.limit[name])
        for name, due in fair.items()
    }
    return Division(given.scale, given.keys, nodes, given.units)


class _Dividing:
    """One division. A curve tells what a node takes at a level of the one above, and which level of its own that is."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._scale = given.scale
        self._curves: dict[str, Curve] = {}
        self._fair: dict[str, Share] = {}

    def divide(self, root: Branch) -> dict[str, Share]:
        """The fair share of every node."""
        self._climb(root)
        least = self._sum([self._curves[child.name] for child in root.children], 0)
        most = tuple(map(max, least, self._given.limit[root.name]))
        self._fair[root.name] = self._descend(root, Place(self._stop(root, most), most))
        return self._fair

    # Up

    def _climb(self, node: Branch) -> None:
        least = min((child.weight for child in node.children), default=1)
        for turn, child in enumerate(node.children):
            if isinstance(child, Branch):
                self._climb(child)
                own = self._own(child)
            else:
                own = of_leaf(self._given.usage[child.name], self._given.demand[child.name], self._scale)
            curve = answer(own, self._given.guarantee[child.name], self._given.limit[child.name], self._scale)
            if node.mode == "fifo":
                stretched(curve, 1, 1, turn * self._scale)
            else:
                stretched(curve, least, child.weight)
            self._curves[child.name] = curve
        aligned([self._curves[child.name] for child in node.children])

    def _top(self, node: Branch) -> int:
        """The level at which every child is offered the whole."""
        return len(node.children) * self._scale if node.mode == "fifo" else self._scale

    def _own(self, node: Branch) -> Polyline:
        curves = [self._curves[child.name] for child in node.children]
        if not curves:
            return Polyline([0], [[0] for _ in self._given.keys])
        merge = in_turn if node.mode == "fifo" else together
        return merge(curves, self._top(node), len(self._given.keys))

    # Down

    def _stop(self, root: Branch, most: Share) -> int:
        """The level at which the root has nothing more to give: as far as it exceeds its limit on no key."""
        curves = [self._curves[child.name] for child in root.children]
        levels = sorted({0, self._top(root), *chain.from_iterable(curve.at for curve in curves)})

        def exceeds(level: int) -> bool:
            return any(map(gt, self._sum(curves, level), most))

        end = bisect_left(levels, True, lo=1, key=exceeds)
        level = levels[end - 1]
        if end == len(levels):
            return level
        low, high = self._sum(curves, level, after=True), self._sum(curves, levels[end])
        rises = [(top - here, there - here) for top, here, there in zip(most, low, high, strict=True) if there > top]
        if any(left <= NEAR for left, _ in rises):
            return level
        return level + min(left * (levels[end] - level) // rise for left, rise in rises)

    def _sum(self, curves: Sequence[Curve], level: int, after: bool = False) -> Share:
        return self._given.total([find(curve, level, after).values for curve in curves])

    def _descend(self, node: Branch, place: Place) -> Share:
        """Give everybody below a branch what is due to it when the branch is at a level; the sum is at most the promised."""
        level, after, step = place.level, place.after, 1
        while True:
            places = [find(self._curves[child.name], level, after) for child in node.children]
            total = self._given.total([place.values for place in places])
            if level == 0 or not any(map(gt, total, place.values)):
                break
            level, after, step = max(0, level - step), False, 2 * step
        shares = []
        for child, at in zip(node.children, places, strict=True):
            fair = self._descend(child, at) if isinstance(child, Branch) else at.values
            self._fair[child.name] = fair
            shares.append(fair)
        return self._given.total(shares)
