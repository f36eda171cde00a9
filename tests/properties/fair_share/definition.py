"""The fair share of every account, calculated slowly from the definitions in exact fractions: a branch's level is bisected.

It knows nothing of the curves that it is compared with. Trees must be small, as each level of them is a search in a
search.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from app.domain.amounts import Amounts
from app.planner.fair_share.share_tree import Branch, Leaf

Vector: TypeAlias = tuple[Fraction, ...]

HALVINGS = (24, 32, 40)
"""Of the pool, of a group, of a group in a group: a search must not feel how coarse the one inside it is."""


def shares(capacity: Amounts, root: Branch, guarantees: dict[str, Vector]) -> dict[str, Vector]:
    """Return the fair share of every account, with the keys in order of name."""
    keys = sorted(capacity)
    fair_shares: dict[str, Vector] = {}
    top = _node(root, 0, capacity, keys, guarantees)
    top.give(Fraction(1), fair_shares)
    return fair_shares


def _vector(amounts: Amounts, capacity: Amounts, keys: list[str], unset: int = 0) -> Vector:
    return tuple(Fraction(amounts[key], capacity[key]) if key in amounts else Fraction(unset) for key in keys)


class _Node:
    """A node of the tree: F, M and S as they are defined."""

    top = Fraction(1)
    """The highest level."""
    halvings = 0

    def __init__(self, name: str, weight: int, guarantee: Vector, limit: Vector) -> None:
        self.name, self.weight = name, weight
        self.guarantee, self.limit = guarantee, limit
        self._known: dict[Fraction, Vector] = {}

    def takes(self, level: Fraction) -> Vector:
        """Return F(level)."""
        raise NotImplementedError

    @cached_property
    def bounds(self) -> list[tuple[Fraction, Fraction]]:
        """Return G and L of each key."""
        bounds = []
        rows = zip(self.takes(Fraction(0)), self.takes(self.top), self.guarantee, self.limit, strict=True)
        for low, high, guarantee, limit in rows:
            most = min(high, max(low, limit))
            bounds.append((min(most, max(low, guarantee)), most))
        return bounds

    def level(self, offer: Fraction) -> Fraction:
        """Return M(offer)."""
        low, high = Fraction(0), self.top
        if self._may_reach(high, offer):
            return high
        for _ in range(self.halvings):
            middle = (low + high) / 2
            low, high = (middle, high) if self._may_reach(middle, offer) else (low, middle)
        return low

    def _may_reach(self, level: Fraction, offer: Fraction) -> bool:
        return all(
            taken <= min(guaranteed + offer, most) if offer == 0 or offer > most - guaranteed else taken < guaranteed + offer
            for taken, (guaranteed, most) in zip(self.takes(level), self.bounds, strict=True)
        )

    def answers(self, offer: Fraction) -> Vector:
        """Return S(offer)."""
        if offer not in self._known:
            self._known[offer] = self.takes(self.level(offer))
        return self._known[offer]

    def give(self, offer: Fraction, fair_shares: dict[str, Vector]) -> None:
        """Write down its fair share, and those of all below."""
        fair_shares[self.name] = self.answers(offer)


class _Leaf(_Node):
    top = Fraction(2)
    usage: Vector = ()
    demand: Vector = ()

    def takes(self, level: Fraction) -> Vector:
        if level <= 1:
            return tuple(min(used, level * max(self.usage)) for used in self.usage)
        return tuple(used + (level - 1) * (demand - used) for used, demand in zip(self.usage, self.demand, strict=True))

    def level(self, offer: Fraction) -> Fraction:
        rows = zip(self.bounds, self.usage, self.demand, strict=True)
        return min(self._of_key(offer, *bounds, used, demand) for bounds, used, demand in rows)

    def _of_key(self, offer: Fraction, guaranteed: Fraction, most: Fraction, used: Fraction, demand: Fraction) -> Fraction:
        """Return the level of one key for its offer: the solution of the equation of the water level."""
        value = min(guaranteed + offer, most)
        if value > used:
            return 1 + (value - used) / (demand - used)
        if value == used and (offer == 0 or offer > most - guaranteed):
            return Fraction(1) if demand > used else self.top
        return value / max(self.usage) if value else Fraction(0)


class _Branch(_Node):
    children: Sequence[_Node] = ()
    is_fifo = False

    def _offers(self, level: Fraction) -> list[Fraction]:
        if self.is_fifo:
            return [min(Fraction(1), max(Fraction(0), level - turn)) for turn in range(len(self.children))]
        least = min((child.weight for child in self.children), default=1)
        return [min(Fraction(1), level * child.weight / least) for child in self.children]

    def takes(self, level: Fraction) -> Vector:
        return self._total([child.answers(offer) for child, offer in zip(self.children, self._offers(level), strict=True)])

    def give(self, offer: Fraction, fair_shares: dict[str, Vector]) -> None:
        level = self.level(offer)
        for child, part in zip(self.children, self._offers(level), strict=True):
            child.give(part, fair_shares)
        fair_shares[self.name] = self._total([fair_shares[child.name] for child in self.children])

    def _total(self, vectors: Sequence[Vector]) -> Vector:
        return tuple(sum(parts, Fraction(0)) for parts in zip((Fraction(0),) * len(self.limit), *vectors, strict=True))


def _node(account: Leaf | Branch, depth: int, capacity: Amounts, keys: list[str], guarantees: dict[str, Vector]) -> _Node:
    limit = _vector(account.limit, capacity, keys, 1)
    kind = _Leaf if isinstance(account, Leaf) else _Branch
    account_of_tree = kind(account.name, account.weight, guarantees[account.name], limit)
    if isinstance(account, Leaf):
        assert isinstance(account_of_tree, _Leaf)
        account_of_tree.usage, account_of_tree.demand = (
            _vector(amounts, capacity, keys) for amounts in (account.usage, account.demand)
        )
    else:
        assert isinstance(account_of_tree, _Branch)
        account_of_tree.children = [_node(child, depth + 1, capacity, keys, guarantees) for child in account.children]
        account_of_tree.halvings = HALVINGS[depth]
        account_of_tree.is_fifo = account.mode == "fifo"
        account_of_tree.top = Fraction(len(account_of_tree.children) if account_of_tree.is_fifo else 1)
    return account_of_tree
