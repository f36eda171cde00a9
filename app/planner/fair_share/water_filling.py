"""The division of a pool's capacity among its accounts: curves from the leaves up, then levels from the root down."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import gt

from app.domain.amounts import Amounts
from app.planner.fair_share.inputs import NormalisedShares, Share
from app.planner.fair_share.piecewise_linear import (
    TOLERANCE,
    Curve,
    CurvePoint,
    Polyline,
    add_curves,
    align,
    concatenate_curves,
    evaluate,
    leaf_polyline,
    offer_curve,
    stretch,
)
from app.planner.fair_share.share_tree import Branch


@dataclass(frozen=True, slots=True)
class AccountShares:
    """The shares of one account, aligned to the keys of its division, in 1/scale of the pool's capacity."""

    fair: Share
    usage: Share
    demand: Share
    """The demand; at least the usage."""
    guarantee: Share
    """The effective guarantee, with the inferred parts."""
    limit: Share
    """The limit; the whole pool if it is unset."""


@dataclass(frozen=True, slots=True)
class Division:
    """The fair share of every account, by name."""

    scale: int
    """The share of the whole pool."""
    keys: tuple[str, ...]
    accounts: Mapping[str, AccountShares]
    units: Mapping[str, int]
    """Key → the share of one unit; 0 if the pool has no units of it."""

    def share(self, amounts: Amounts) -> Share:
        """Return amounts as a share, one number per key."""
        return tuple(amounts.get(key, 0) * unit for key, unit in self.units.items())


def divide(capacity: Amounts, root: Branch) -> Division:
    """Return the fair shares of a whole tree."""
    inputs = NormalisedShares(capacity, root)
    fair_shares = _WaterFilling(inputs).divide(root)
    accounts = {
        name: AccountShares(fair, inputs.usage[name], inputs.demand[name], inputs.guarantee[name], inputs.limit[name])
        for name, fair in fair_shares.items()
    }
    return Division(inputs.scale, inputs.keys, accounts, inputs.units)


class _WaterFilling:
    """One division. A curve gives the amounts that an account takes at a level of its parent, and its own level there."""

    def __init__(self, inputs: NormalisedShares) -> None:
        self._inputs = inputs
        self._scale = inputs.scale
        self._curves: dict[str, Curve] = {}
        self._fair: dict[str, Share] = {}

    def divide(self, root: Branch) -> dict[str, Share]:
        """Return account → its fair share."""
        self._build_curves(root)
        least = self._sum([self._curves[child.name] for child in root.children], 0)
        most = tuple(map(max, least, self._inputs.limit[root.name]))
        self._fair[root.name] = self._assign(root, CurvePoint(self._root_level(root, most), most))
        return self._fair

    # Up

    def _build_curves(self, branch: Branch) -> None:
        least = min((child.weight for child in branch.children), default=1)
        for number, child in enumerate(branch.children):
            if isinstance(child, Branch):
                self._build_curves(child)
                polyline = self._polyline_of(child)
            else:
                polyline = leaf_polyline(self._inputs.usage[child.name], self._inputs.demand[child.name], self._scale)
            curve = offer_curve(polyline, self._inputs.guarantee[child.name], self._inputs.limit[child.name], self._scale)
            if branch.mode == "fifo":
                stretch(curve, 1, 1, number * self._scale)
            else:
                stretch(curve, least, child.weight)
            self._curves[child.name] = curve
        align([self._curves[child.name] for child in branch.children])

    def _top(self, branch: Branch) -> int:
        """Return the level at which every child is offered the whole."""
        return len(branch.children) * self._scale if branch.mode == "fifo" else self._scale

    def _polyline_of(self, branch: Branch) -> Polyline:
        curves = [self._curves[child.name] for child in branch.children]
        if not curves:
            return Polyline([0], [[0] for _ in self._inputs.keys])
        merge = concatenate_curves if branch.mode == "fifo" else add_curves
        return merge(curves, self._top(branch), len(self._inputs.keys))

    # Down

    def _root_level(self, root: Branch, most: Share) -> int:
        """Return the highest level of the root at which no key of the sum exceeds `most`."""
        curves = [self._curves[child.name] for child in root.children]
        levels = sorted({0, self._top(root), *chain.from_iterable(curve.offers for curve in curves)})

        def exceeds(level: int) -> bool:
            return any(map(gt, self._sum(curves, level), most))

        end = bisect_left(levels, True, lo=1, key=exceeds)
        level = levels[end - 1]
        if end == len(levels):
            return level
        low, high = self._sum(curves, level, after=True), self._sum(curves, levels[end])
        rises = [(top - here, there - here) for top, here, there in zip(most, low, high, strict=True) if there > top]
        if any(room <= TOLERANCE for room, _ in rises):
            return level
        return level + min(room * (levels[end] - level) // rise for room, rise in rises)

    def _sum(self, curves: Sequence[Curve], level: int, after: bool = False) -> Share:
        return self._inputs.total([evaluate(curve, level, after).values for curve in curves])

    def _assign(self, branch: Branch, point: CurvePoint) -> Share:
        """Set the share of every account below a branch for a level of the branch. The sum is at most the branch's share."""
        level, after, step = point.level, point.after, 1
        while True:
            points = [evaluate(self._curves[child.name], level, after) for child in branch.children]
            total = self._inputs.total([point.values for point in points])
            if level == 0 or not any(map(gt, total, point.values)):
                break
            level, after, step = max(0, level - step), False, 2 * step
        shares = []
        for child, point in zip(branch.children, points, strict=True):
            fair = self._assign(child, point) if isinstance(child, Branch) else point.values
            self._fair[child.name] = fair
            shares.append(fair)
        return self._inputs.total(shares)
