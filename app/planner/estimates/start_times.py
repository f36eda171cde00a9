"""Estimates of start times: the queue is simulated many times, each time with other run times.

A run time is drawn from those of the component, for the age of the allocation. A promised walltime and the deadline of a victim
bound it. A waiter that fits is started in queue order, within the limits of its accounts, its fixed share and the units that
existing holds keep. The simulation submits and preempts no request, and makes no new hold. An estimate assumes that future run
times are like past ones.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from random import Random

from app.planner.estimates.pool_state import EndBasis, SimulationState
from app.planner.estimates.simulation import QueueSimulation, WorkLimitExceeded

MAX_DRAWS, MIN_DRAWS = 200, 10
MAX_WORK = 200_000
"""The approximate number of allocations and waiters examined in all simulations of one estimate."""
EARLIEST_QUANTILE, LIKELY_QUANTILE, LATEST_QUANTILE = 0.02, 0.5, 0.98


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """The start of a waiter, in seconds from now. `latest_s` is None if it depends on a guess."""

    earliest_s: float
    likely_s: float
    latest_s: float | None
    is_guess: bool = False
    """True if the likely time, too, depends on few run times, or on a run time longer than all observed ones."""


class NoEstimate(StrEnum):
    """The reason why a waiter has no estimate."""

    NOTHING_KNOWN = "no run times are known for the allocations that it waits for"
    NOT_IN_SIGHT = "in most simulated runs, it is not granted when an allocation ends"
    TOO_FAR = "it is too far back in the queue for an estimate"


def estimate_starts(state: SimulationState, seed: int = 0) -> list[StartEstimate | NoEstimate]:
    """Return for each waiter its estimate, or the reason why it has none."""
    count, draws = _find_affordable(state, seed)
    random = Random(seed)
    start_times, known_start_times = defaultdict[int, list[float]](list), defaultdict[int, list[float]](list)
    sure_counts = Counter[int]()
    for number in range(draws):
        for index, start in QueueSimulation(state, count, random, slow_victims=number >= int(LATEST_QUANTILE * draws)).starts():
            start_times[index].append(start.seconds)
            sure_counts[index] += start.basis is EndBasis.KNOWN
            if start.basis is not EndBasis.GUESS:
                known_start_times[index].append(start.seconds)
    has_run_times = state.all_run_times.total > 0
    return [
        _estimate(start_times[index], known_start_times[index], draws, is_guess=sure_counts[index] <= LIKELY_QUANTILE * draws)
        or _no_estimate(is_simulated=index < count, has_run_times=has_run_times)
        for index in range(len(state.waiters))
    ]


def _find_affordable(state: SimulationState, seed: int) -> tuple[int, int]:
    """Return the number of waiters (the first ones) that can be simulated in bounded time, and the number of simulations. A
    trial simulation measures both."""
    count = len(state.waiters)
    while True:
        simulation = QueueSimulation(state, count, Random(seed))
        try:
            for _ in simulation.starts(MAX_WORK / MIN_DRAWS if count > MIN_DRAWS else inf):
                pass
        except WorkLimitExceeded:
            count = max(MIN_DRAWS, count // 2)
        else:
            return count, max(MIN_DRAWS, min(MAX_DRAWS, MAX_WORK // max(1, simulation.work)))


def _estimate(times: list[float], known_times: list[float], draws: int, *, is_guess: bool) -> StartEstimate | None:
    """Return the quantiles of the start times of all simulations. For the latest start, a time that depends on a guess counts
    as infinite."""
    all_times, known_times = [
        sorted([*times_found, *[inf] * (draws - len(times_found))]) for times_found in (times, known_times)
    ]
    earliest, likely, latest = (
        all_times[int(EARLIEST_QUANTILE * draws)],
        all_times[int(LIKELY_QUANTILE * draws)],
        known_times[int(LATEST_QUANTILE * draws)],
    )
    return StartEstimate(earliest, likely, latest if latest < inf else None, is_guess) if likely < inf else None


def _no_estimate(*, is_simulated: bool, has_run_times: bool) -> NoEstimate:
    if not is_simulated:
        return NoEstimate.TOO_FAR
    return NoEstimate.NOT_IN_SIGHT if has_run_times else NoEstimate.NOTHING_KNOWN
