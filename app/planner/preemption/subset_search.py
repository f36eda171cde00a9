"""All sets of a size that bring enough, without looking at those that cannot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class Sets:
    """Sets of members, each of which brings something to every need."""

    def __init__(self, names: Sequence[int], brought: Sequence[Sequence[int]], needs: Sequence[int]) -> None:
        self._names = names
        self._brought = brought
        self._needs = needs
        self._best = [self._tops(start) for start in range(len(names) + 1)]
        """First member → need → what so many of the largest from there on bring together."""

    def _tops(self, start: int) -> list[list[int]]:
        tops = []
        for need in range(len(self._needs)):
            sums = [0]
            for units in sorted((brought[need] for brought in self._brought[start:]), reverse=True):
                sums.append(sums[-1] + units)
            tops.append(sums)
        return tops

    def of(self, size: int) -> Iterator[tuple[int, ...]]:
        """The names of the members of every set of a size that covers all needs, in order."""
        return self._from(0, size, self._needs)

    def _from(self, start: int, size: int, left: Sequence[int]) -> Iterator[tuple[int, ...]]:
        if size == 0:
            yield ()
            return
        for place in range(start, len(self._names) - size + 1):
            if any(tops[size] < short for tops, short in zip(self._best[place], left, strict=True)):
                return
            rest = [short - units for short, units in zip(left, self._brought[place], strict=True)]
            if size > 1 or max(rest) <= 0:
                yield from ((self._names[place], *others) for others in self._from(place + 1, size - 1, rest))
