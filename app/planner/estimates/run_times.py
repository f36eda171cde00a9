"""The distribution of run times, counted in steps. Running allocations count too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import log2

STEPS_PER_DOUBLING = 4
"""The number of steps in which a run time doubles: neighbouring steps differ by less than a fifth."""


def step_of(seconds: float) -> int:
    """Return the step of a run time."""
    return int(STEPS_PER_DOUBLING * log2(1 + max(0.0, seconds)))


def shortest_of(step: int) -> float:
    """Return the shortest run time of a step."""
    return float(2 ** (step / STEPS_PER_DOUBLING) - 1)


class RunTimes:
    """The distribution of run times: the number of allocations that ended in each step, and the ages of running ones.

    Running allocations show that long run times exist (the estimate of Kaplan and Meier, in steps).
    """

    def __init__(self, ended: Mapping[int, int], running: Iterable[int] = ()) -> None:
        ages = Counter(running)
        self.total = sum(ended.values())
        at_risk = self.total + sum(ages.values())
        self._step_count = max([*ended, *ages], default=-1) + 1
        self._survival = [1.0]
        for step in range(self._step_count):
            ended_in_step = ended.get(step, 0)
            self._survival.append(self._survival[-1] * (1 - ended_in_step / at_risk if at_risk else 1.0))
            at_risk -= ended_in_step + ages[step]

    def draw(self, quantile: float, age_s: float) -> float | None:
        """Return a whole run time for an allocation of this age, at a quantile of its distribution. None if the run time is
        longer than all observed ones."""
        step = step_of(age_s)
        survived = self._survival[min(step, self._step_count)]
        survivors = (1 - quantile) * survived
        if step >= self._step_count or survivors <= self._survival[-1]:
            return None
        low, high = step, self._step_count
        while low < high:  # find the first step after which fewer than `survivors` are left
            middle = (low + high) // 2
            low, high = (low, middle) if self._survival[middle + 1] < survivors else (middle + 1, high)
        begin, end = max(age_s, shortest_of(low)), shortest_of(low + 1)
        part = (self._survival[low] - survivors) / (self._survival[low] - self._survival[low + 1])
        return begin + min(1.0, max(0.0, part)) * max(0.0, end - begin)

    def guess(self, quantile: float, age_s: float) -> float:
        """Return a whole run time beyond all observed ones, for `draw` that returned None: each doubling is half as likely."""
        longest = max(1.0, age_s, shortest_of(self._step_count) if self.total else 0.0)
        survived, rest = self._survival[min(step_of(age_s), self._step_count)], self._survival[-1]
        part = min(1.0, (1 - quantile) * survived / rest) if rest else 1 - quantile
        return longest / max(0.001, part)
