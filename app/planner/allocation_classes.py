"""Equivalence classes of the running allocations of one policy: every rule treats the members of a class alike.

Sets of keys are masks: one bit per key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from app.domain.snapshot import Allocation
from app.planner.decisions import RefusalReason


class VictimTraits(NamedTuple):
    """The properties of an allocation that the rules may know."""

    keys: int
    """The keys that the allocation holds."""
    share_keys: int
    """The share keys of the pool."""
    borrowed: tuple[int, ...]
    """The share keys on which the allocation is borrowed: first at its policy, then at each group from the policy up."""
    preemption_class: int
    protection: RefusalReason | None
    chain: str | None
    is_service: bool

    def is_in_share(self, level: int) -> bool:
        """True if the allocation holds a share key, and is borrowed on no share key at that level of its path."""
        return bool(self.keys & self.share_keys) and not self.borrowed[level]

    def is_borrowed(self, short_keys: int, level: int) -> bool:
        """True if the rules treat the allocation as borrowed, at its policy and at that level.

        A short key that the allocation holds makes it borrowed in two cases. The key is a share key, and the allocation is
        borrowed on it; or the key is no share key, and the allocation is not in share.
        """
        return self._is_borrowed_at(0, short_keys) and (level == 0 or self._is_borrowed_at(level, short_keys))

    def _is_borrowed_at(self, level: int, short_keys: int) -> bool:
        if short_keys & self.borrowed[level]:
            return True
        return bool(short_keys & self.keys & ~self.share_keys) and not self.is_in_share(level)


@dataclass(slots=True, eq=False)
class AllocationClass:
    """The allocations of a policy that have the same traits."""

    traits: VictimTraits
    _allocations: dict[str, Allocation] = field(default_factory=dict)
    _grant_order: Mapping[str, int] | None = None
    """Id → place in the order of grant, if added members are not sorted yet; else None."""
    _totals: dict[str, int] = field(default_factory=dict)

    @property
    def members(self) -> dict[str, Allocation]:
        """Return the allocations by id, in order of grant. They are sorted when they are read, because many may be added at
        once."""
        if self._grant_order is not None:
            self._allocations = {
                name: self._allocations[name] for name in sorted(self._allocations, key=self._grant_order.__getitem__)
            }
            self._grant_order = None
        return self._allocations

    def total(self, key: str) -> int:
        """Return the units of a key that all members hold together."""
        total = self._totals.get(key)
        if total is None:
            total = self._totals[key] = sum(allocation.amounts.get(key, 0) for allocation in self.members.values())
        return total

    def add(self, allocation: Allocation, grant_order: Mapping[str, int]) -> None:
        self._allocations[allocation.id] = allocation
        self._grant_order = grant_order
        self._totals.clear()

    def remove(self, allocation: Allocation) -> None:
        del self._allocations[allocation.id]
        self._totals.clear()


class PolicyAllocations:
    """The running allocations of one policy, by class."""

    def __init__(self) -> None:
        self.classes: list[AllocationClass] = []
        """Classes are only ever appended; a class may be empty."""
        self.version = 0
        self._classes_by_traits: dict[VictimTraits, AllocationClass] = {}

    def class_of(self, traits: VictimTraits) -> AllocationClass:
        """Return the class with these traits. Make the class if it does not exist."""
        allocation_class = self._classes_by_traits.get(traits)
        if allocation_class is None:
            allocation_class = self._classes_by_traits[traits] = AllocationClass(traits)
            self.classes.append(allocation_class)
        return allocation_class

    def remove(self, allocation: Allocation, allocation_class: AllocationClass) -> None:
        allocation_class.remove(allocation)
        self.version += 1

    def insert(self, allocation: Allocation, allocation_class: AllocationClass, grant_order: Mapping[str, int]) -> None:
        allocation_class.add(allocation, grant_order)
        self.version += 1
