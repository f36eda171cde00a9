"""The inputs of a division as shares: usage, demand, limit and guarantee of every account of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import TypeAlias

from app.domain.amounts import Amounts
from app.planner.fair_share.piecewise_linear import TOLERANCE
from app.planner.fair_share.share_tree import Branch, Leaf

Share: TypeAlias = tuple[int, ...]
"""One number per key, in 1/scale of the pool's capacity."""

SHARE_BITS = 72
"""The least number of bits of the scale of shares, so that rounding errors are tiny."""


class NormalisedShares:
    """The shares of every account, by name. The scale makes every amount an exact share."""

    def __init__(self, capacity: Amounts, root: Branch) -> None:
        common = lcm(*(units for units in capacity.values() if units))
        self.keys = tuple(sorted(capacity))
        self.scale = common << max(TOLERANCE.bit_length(), SHARE_BITS - common.bit_length())
        self.units = {key: self.scale // capacity[key] if capacity[key] else 0 for key in self.keys}
        self.whole: Share = tuple(self.scale if unit else 0 for unit in self.units.values())
        self.nothing: Share = (0,) * len(self.keys)
        self.usage: dict[str, Share] = {}
        self.demand: dict[str, Share] = {}
        self.limit: dict[str, Share] = {}
        self.guarantee: dict[str, Share] = {root.name: self.whole}
        self._measure(root)
        self._infer_guarantees(root)

    def _share(self, amounts: Amounts) -> Share:
        if not amounts:
            return self.nothing
        return tuple(amounts.get(key, 0) * unit for key, unit in self.units.items())

    def _measure(self, account: Leaf | Branch) -> None:
        name = account.name
        if isinstance(account, Branch):
            for child in account.children:
                self._measure(child)
            self.usage[name] = self.total([self.usage[child.name] for child in account.children])
            self.demand[name] = self.total([self.demand[child.name] for child in account.children])
        else:
            self.usage[name] = self._share(account.usage)
            self.demand[name] = tuple(map(max, self._share(account.demand), self.usage[name]))
        self.limit[name] = self._limit_share(account.limit)

    def _limit_share(self, limit: Amounts) -> Share:
        if not limit:
            return self.whole
        return tuple(
            limit[key] * unit if key in limit else whole
            for (key, unit), whole in zip(self.units.items(), self.whole, strict=True)
        )

    def total(self, shares: Sequence[Share]) -> Share:
        """Return the sum of shares, key by key."""
        return tuple(map(sum, zip(*shares, strict=True))) if shares else self.nothing

    def _infer_guarantees(self, account: Branch) -> None:
        """Infer the guarantee of each key that a child with other guarantees does not name, as its part of the parent's
        guarantee."""
        above = self.guarantee[account.name]
        child_guarantees = [(child, self._share(child.guarantee)) for child in account.children]
        shares = [list(own) for _, own in child_guarantees]
        for index, key in enumerate(self.keys):
            inferred_shares = {
                number: above[index] * part.numerator // part.denominator
                for number, (child, own) in enumerate(child_guarantees)
                if child.guarantee
                and key not in child.guarantee
                and (part := self._largest_guaranteed_part(child.guarantee, own, above))
            }
            unassigned, inferred_total = (
                max(0, above[index] - sum(own[index] for _, own in child_guarantees)),
                sum(inferred_shares.values()),
            )
            for number, inferred in inferred_shares.items():
                shares[number][index] = inferred * unassigned // inferred_total if inferred_total > unassigned else inferred
        for (child, _), share in zip(child_guarantees, shares, strict=True):
            self.guarantee[child.name] = tuple(share)
            if isinstance(child, Branch):
                self._infer_guarantees(child)

    def _largest_guaranteed_part(self, guarantee: Amounts, own: Share, above: Share) -> Fraction:
        """Return the largest part of the parent's guarantee that a child has, over all keys."""
        parts = [
            Fraction(own_share, parent_share)
            for key, own_share, parent_share in zip(self.keys, own, above, strict=True)
            if parent_share and key in guarantee
        ]
        return max(parts, default=Fraction(0))
