"""The stack of one account: its running allocations in the order in which they fill its reserved amounts.

Every key has an edge. An allocation below it is in share; an allocation at it or beyond it is borrowed. When an allocation is
removed or inserted, the edge moves past the few allocations whose side changes. No other allocation is read.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from app.domain.amounts import Amounts
from app.domain.snapshot import Allocation

NO_EDGE = 1 << 62
"""A position beyond all others: the edge of a key on which no allocation is borrowed."""


class ReservedStack:
    """Allocations by position, and the edge of each share key."""

    def __init__(self, reserved: Amounts, keys: Iterable[str], allocations: Mapping[int, Allocation]) -> None:
        self._reserved = {key: reserved.get(key, 0) for key in keys}
        self._allocations = dict(allocations)
        self._positions = sorted(allocations)
        self._units_below: dict[str, int] = {}
        self.edges: dict[str, int] = {}
        """Share key → the first position at which an allocation is borrowed on it."""
        for key in self._reserved:
            self._units_below[key], self.edges[key] = 0, NO_EDGE
            self._raise_edge(key, 0)

    def insert(self, position: int, allocation: Allocation) -> list[Allocation]:
        """Insert an allocation. Return the allocations that have become borrowed on some key; the inserted one may be among
        them."""
        insort(self._positions, position)
        self._allocations[position] = allocation
        changed = []
        for key, edge in self.edges.items():
            if position < edge and (units := allocation.amounts.get(key, 0)):
                self._units_below[key] += units
                changed += self._lower_edge(key)
        return changed

    def remove(self, position: int) -> list[Allocation]:
        """Remove the allocation at a position. Return the allocations that have come into share on some key."""
        index = bisect_left(self._positions, position)
        allocation = self._allocations.pop(position)
        del self._positions[index]
        changed = []
        for key, edge in self.edges.items():
            if position <= edge and (units := allocation.amounts.get(key, 0)):
                if position < edge:
                    self._units_below[key] -= units
                changed += self._raise_edge(key, bisect_left(self._positions, edge))
        return changed

    def units_beyond(self, key: str, position: int) -> int:
        """Return the units by which the allocation at a position and all allocations below it exceed the reserved amount
        together."""
        first = bisect_left(self._positions, self.edges[key])
        last = bisect_left(self._positions, position)
        units_above_edge = sum(self._allocations[each].amounts.get(key, 0) for each in self._positions[first : last + 1])
        return self._units_below[key] + units_above_edge - self._reserved[key]

    def _raise_edge(self, key: str, start: int) -> list[Allocation]:
        """Move the edge up from an index, past all allocations that fit into reserved."""
        below, reserved, allocations_in_share = self._units_below[key], self._reserved[key], []
        self.edges[key] = NO_EDGE
        for index in range(start, len(self._positions)):
            allocation = self._allocations[self._positions[index]]
            units = allocation.amounts.get(key, 0)
            if units == 0:
                continue
            if below + units > reserved:
                self.edges[key] = self._positions[index]
                break
            below += units
            allocations_in_share.append(allocation)
        self._units_below[key] = below
        return allocations_in_share

    def _lower_edge(self, key: str) -> list[Allocation]:
        """Move the edge down until the allocations below it fit into reserved."""
        borrowed_allocations = []
        index = bisect_left(self._positions, self.edges[key])
        while self._units_below[key] > self._reserved[key]:
            index -= 1
            allocation = self._allocations[self._positions[index]]
            if units := allocation.amounts.get(key, 0):
                self._units_below[key] -= units
                self.edges[key] = self._positions[index]
                borrowed_allocations.append(allocation)
        return borrowed_allocations
