"""Timing: the median of rounds, so that one hiccup of the machine does not count."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence


def per_call_us(act: Callable[[], object], calls: int, rounds: int = 5) -> float:
    """Microseconds a call takes, the median over rounds of so many calls each."""
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
    """Microseconds a call of each takes: rounds in turn, so that both meet the same weather; the medians."""
    pairs = [(per_call_us(ours, calls, 1), per_call_us(floor, calls, 1)) for _ in range(rounds)]
    return statistics.median(ours_us for ours_us, _ in pairs), statistics.median(floor_us for _, floor_us in pairs)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share does not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


def machine() -> str:
    """What this was measured on."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory_gib:.0f} GiB"
