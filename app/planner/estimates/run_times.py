"""The distribution of run times: counted in steps, running allocations included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import log2

STEPS_PER_DOUBLING = 4
"""The number of steps in which a run time doubles: neighbours differ by less than a fifth."""


def step_of(seconds: float) -> int:
    """Return the step in which a run time is counted."""
    return int(STEPS_PER_DOUBLING * log2(1 + max(0.0, seconds)))


def shortest_of(step: int) -> float:
    """Return the shortest run time of a step."""
    return float(2 ** (step / STEPS_PER_DOUBLING) - 1)


class RunTimes:
    """How long allocations run: the number that ended in each step, and the age of those that run, which tell of the long
    run times (the estimate of Kaplan and Meier, in steps)."""

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
        """Return the whole run time of an allocation of that age, at that quantile of its kind; None if it is longer than
        any observed run time."""
        step = step_of(age_s)
        survived = self._survival[min(step, self._step_count)]
        survivors = (1 - quantile) * survived
        if step >= self._step_count or survivors <= self._survival[-1]:
            return None
        low, high = step, self._step_count
        while low < high:  # the first step after which fewer are left than that
            middle = (low + high) // 2
            low, high = (low, middle) if self._survival[middle + 1] < survivors else (middle + 1, high)
        begin, end = max(age_s, shortest_of(low)), shortest_of(low + 1)
        part = (self._survival[low] - survivors) / (self._survival[low] - self._survival[low + 1])
        return begin + min(1.0, max(0.0, part)) * max(0.0, end - begin)

    def guess(self, quantile: float, age_s: float) -> float:
        """Return the same for an allocation that runs longer than any observed run time: each doubling is half as likely."""
        longest = max(1.0, age_s, shortest_of(self._step_count) if self.total else 0.0)
        survived, rest = self._survival[min(step_of(age_s), self._step_count)], self._survival[-1]
        part = min(1.0, (1 - quantile) * survived / rest) if rest else 1 - quantile
        return longest / max(0.001, part)
