"""The search for all sets of one size that cover the needs; branches that cannot cover them are skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class SubsetSearch:
    """Sets of members, each of which contributes units to every need."""

    def __init__(self, members: Sequence[int], contributions: Sequence[Sequence[int]], needs: Sequence[int]) -> None:
        self._members = members
        self._contributions = contributions
        self._needs = needs
        self._upper_bounds = [self._bounds_from(start) for start in range(len(members) + 1)]
        """Index of a member → need → size → the sum of the `size` largest contributions from this member on."""

    def _bounds_from(self, start: int) -> list[list[int]]:
        tops = []
        for need in range(len(self._needs)):
            sums = [0]
            for units in sorted((contributions[need] for contributions in self._contributions[start:]), reverse=True):
                sums.append(sums[-1] + units)
            tops.append(sums)
        return tops

    def of_size(self, size: int) -> Iterator[tuple[int, ...]]:
        """Yield the members of every set of a size that covers all needs, in order."""
        return self._extend(0, size, self._needs)

    def _extend(self, start: int, size: int, open_needs: Sequence[int]) -> Iterator[tuple[int, ...]]:
        if size == 0:
            yield ()
            return
        for index in range(start, len(self._members) - size + 1):
            if any(tops[size] < open_units for tops, open_units in zip(self._upper_bounds[index], open_needs, strict=True)):
                return
            still_open = [open_units - units for open_units, units in zip(open_needs, self._contributions[index], strict=True)]
            if size > 1 or max(still_open) <= 0:
                yield from (
                    (self._members[index], *rest_of_set) for rest_of_set in self._extend(index + 1, size - 1, still_open)
                )
