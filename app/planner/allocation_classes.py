"""Kinds: the running allocations of one policy, sorted so that no rule tells those of one kind apart.

Sets of keys are masks: one bit per key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from app.domain.snapshot import Allocation
from app.planner.decisions import WhyNot


class Traits(NamedTuple):
    """What the rules may know of a holder."""

    held: int
    """The keys it holds."""
    shares: int
    """The share keys of the pool."""
    borrowed: tuple[int, ...]
    """The share keys on which it is borrowed, at its policy and at each group above."""
    preemption_class: int
    protected: WhyNot | None
    chain: str | None
    is_service: bool

    def is_in_share(self, level: int) -> bool:
        """Whether it asks a share key and is borrowed on none, at the account that far up its path."""
        return bool(self.held & self.shares) and not self.borrowed[level]

    def is_borrowed(self, short: int, level: int) -> bool:
        """Whether it is borrowed in the sense of the rules, at its policy and that far up: on a short share key that it holds;
        or it holds a short key that is none and is not in share."""
        return self._is_borrowed_at(0, short) and (level == 0 or self._is_borrowed_at(level, short))

    def _is_borrowed_at(self, level: int, short: int) -> bool:
        if short & self.borrowed[level]:
            return True
        return bool(short & self.held & ~self.shares) and not self.is_in_share(level)


@dataclass(slots=True, eq=False)
class Kind:
    """Allocations with the same traits."""

    traits: Traits
    _members: dict[str, Allocation] = field(default_factory=dict)
    _late: Mapping[str, int] | None = None
    """The order of grant, if somebody came who may be out of it."""
    _totals: dict[str, int] = field(default_factory=dict)

    @property
    def members(self) -> dict[str, Allocation]:
        """By id, in order of grant: put into it when somebody asks, as many may come at once."""
        if self._late is not None:
            self._members = {name: self._members[name] for name in sorted(self._members, key=self._late.__getitem__)}
            self._late = None
        return self._members

    def total(self, key: str) -> int:
        """How many units of a key all of them hold."""
        total = self._totals.get(key)
        if total is None:
            total = self._totals[key] = sum(holder.amounts.get(key, 0) for holder in self.members.values())
        return total

    def add(self, holder: Allocation, age: Mapping[str, int]) -> None:
        """One more."""
        self._members[holder.id] = holder
        self._late = age
        self._totals.clear()

    def remove(self, holder: Allocation) -> None:
        """One less."""
        del self._members[holder.id]
        self._totals.clear()


class Holdings:
    """What runs under one policy."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        """Only ever longer; one may be empty."""
        self.version = 0
        self._by_traits: dict[Traits, Kind] = {}

    def kind(self, traits: Traits) -> Kind:
        """The kind with these traits."""
        kind = self._by_traits.get(traits)
        if kind is None:
            kind = self._by_traits[traits] = Kind(traits)
            self.kinds.append(kind)
        return kind

    def remove(self, holder: Allocation, kind: Kind) -> None:
        """Somebody is not of this kind any more."""
        kind.remove(holder)
        self.version += 1

    def insert(self, holder: Allocation, kind: Kind, age: Mapping[str, int]) -> None:
        """Somebody is of this kind now."""
        kind.add(holder, age)
        self.version += 1
