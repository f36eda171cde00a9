"""How long allocations run, as far as it is known: counted in steps, those that still run among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import log2

STEPS_OF_A_DOUBLING = 4
"""How finely run times are told apart: two beside each other differ by less than a fifth."""


def step_of(seconds: float) -> int:
    """The step in which a run time is counted."""
    return int(STEPS_OF_A_DOUBLING * log2(1 + max(0.0, seconds)))


def begin_of(step: int) -> float:
    """The shortest run time of a step."""
    return float(2 ** (step / STEPS_OF_A_DOUBLING) - 1)


class Past:
    """How long allocations run: of those that have ended how many in each step, and of those that run how far they are, which
    says as much of the long ones (Kaplan and Meier's estimate, in steps)."""

    def __init__(self, ended: Mapping[int, int], running: Iterable[int] = ()) -> None:
        ages = Counter(running)
        self.total = sum(ended.values())
        at_risk = self.total + sum(ages.values())
        self._last = max([*ended, *ages], default=-1) + 1
        self._survival = [1.0]
        for step in range(self._last):
            over = ended.get(step, 0)
            self._survival.append(self._survival[-1] * (1 - over / at_risk if at_risk else 1.0))
            at_risk -= over + ages[step]

    def draw(self, rank: float, age_s: float) -> float | None:
        """The run time in all of one that has run so long and of whose kind a part of `rank` ends sooner; None if it is longer
        than anything that is known."""
        step = step_of(age_s)
        survived = self._survival[min(step, self._last)]
        wanted = (1 - rank) * survived
        if step >= self._last or wanted <= self._survival[-1]:
            return None
        low, high = step, self._last
        while low < high:  # the first step after which fewer are left than that
            middle = (low + high) // 2
            low, high = (low, middle) if self._survival[middle + 1] < wanted else (middle + 1, high)
        begin, end = max(age_s, begin_of(low)), begin_of(low + 1)
        part = (self._survival[low] - wanted) / (self._survival[low] - self._survival[low + 1])
        return begin + min(1.0, max(0.0, part)) * max(0.0, end - begin)

    def guess(self, rank: float, age_s: float) -> float:
        """The same of one that runs longer than anything that is known: as much longer again in every second case."""
        longest = max(1.0, age_s, begin_of(self._last) if self.total else 0.0)
        survived, rest = self._survival[min(step_of(age_s), self._last)], self._survival[-1]
        part = min(1.0, (1 - rank) * survived / rest) if rest else 1 - rank
        return longest / max(0.001, part)
