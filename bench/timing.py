"""Timing: the median of several rounds, so that a short delay of the machine does not count."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence


def per_call_us(act: Callable[[], object], calls: int, rounds: int = 5) -> float:
    """Return the microseconds of a call: the median over rounds of `calls` calls."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            act()
        times.append((time.perf_counter() - start) / calls * 1e6)
    return statistics.median(times)


def side_by_side_us(
    ours: Callable[[], object], floor: Callable[[], object], calls: int, rounds: int = 9
) -> tuple[float, float]:
    """Return the microseconds of a call of each, as medians. Their rounds alternate, so that other load affects both alike."""
    pairs = [(per_call_us(ours, calls, 1), per_call_us(floor, calls, 1)) for _ in range(rounds)]
    return statistics.median(ours_us for ours_us, _ in pairs), statistics.median(floor_us for _, floor_us in pairs)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


def machine() -> str:
    """Return the cores and the memory of this machine."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory_gib:.0f} GiB"
