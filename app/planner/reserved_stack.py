"""A stack: one account's running allocations as they fill its reserved, one upon the other.

On every key there is an edge: what lies below it is in share, what lies at it or beyond is borrowed. When somebody leaves or
comes back, the edge moves past those few whose side changes; nobody else is looked at.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from app.domain.amounts import Amounts
from app.domain.snapshot import Allocation

NOWHERE = 1 << 62
"""A place beyond all others: the edge of a key on which nobody is borrowed."""


class Stack:
    """Allocations by their places, and the edge of every share key."""

    def __init__(self, reserved: Amounts, keys: Iterable[str], holders: Mapping[int, Allocation]) -> None:
        self._reserved = {key: reserved.get(key, 0) for key in keys}
        self._holders = dict(holders)
        self._places = sorted(holders)
        self._below: dict[str, int] = {}
        self.edges: dict[str, int] = {}
        """Share key → the place from which on all are borrowed on it."""
        for key in self._reserved:
            self._below[key], self.edges[key] = 0, NOWHERE
            self._rise(key, 0)

    def put(self, place: int, holder: Allocation) -> list[Allocation]:
        """Somebody comes in at a place. Answers who is borrowed now and was not, itself maybe among them."""
        insort(self._places, place)
        self._holders[place] = holder
        changed = []
        for key, edge in self.edges.items():
            if place < edge and (units := holder.amounts.get(key, 0)):
                self._below[key] += units
                changed += self._sink(key)
        return changed

    def take(self, place: int) -> list[Allocation]:
        """Somebody leaves its place. Answers who is in share now and was not, on some key."""
        at = bisect_left(self._places, place)
        holder = self._holders.pop(place)
        del self._places[at]
        changed = []
        for key, edge in self.edges.items():
            if place <= edge and (units := holder.amounts.get(key, 0)):
                if place < edge:
                    self._below[key] -= units
                changed += self._rise(key, bisect_left(self._places, edge))
        return changed

    def beyond(self, key: str, place: int) -> int:
        """By how many units somebody, with all that lies below it, is beyond reserved."""
        first = bisect_left(self._places, self.edges[key])
        last = bisect_left(self._places, place)
        upon = sum(self._holders[each].amounts.get(key, 0) for each in self._places[first : last + 1])
        return self._below[key] + upon - self._reserved[key]

    def _rise(self, key: str, at: int) -> list[Allocation]:
        """Move the edge up from an index, past all that fits into reserved."""
        below, reserved, passed = self._below[key], self._reserved[key], []
        self.edges[key] = NOWHERE
        for index in range(at, len(self._places)):
            holder = self._holders[self._places[index]]
            units = holder.amounts.get(key, 0)
            if units == 0:
                continue
            if below + units > reserved:
                self.edges[key] = self._places[index]
                break
            below += units
            passed.append(holder)
        self._below[key] = below
        return passed

    def _sink(self, key: str) -> list[Allocation]:
        """Move the edge down until what lies below it fits into reserved."""
        passed = []
        at = bisect_left(self._places, self.edges[key])
        while self._below[key] > self._reserved[key]:
            at -= 1
            holder = self._holders[self._places[at]]
            if units := holder.amounts.get(key, 0):
                self._below[key] -= units
                self.edges[key] = self._places[at]
                passed.append(holder)
        return passed
