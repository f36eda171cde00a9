"""When those who wait may start: the queue is played through many times, each time with other run times.

How long something runs is drawn from how long others of its component have run, given that it runs so long already; a promised
walltime and the time to leave bound it. Whoever fits is started in the order of the queue, under the limits of its accounts,
what is reserved for fixed work and what is kept by the holds there are. Nobody new comes, nobody is preempted and nobody gets
a hold: so what is said holds as far as the future is like the past.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from random import Random

from app.planner.estimates.pool_state import SimulationState
from app.planner.estimates.simulation import QueueSimulation, WorkLimitExceeded

MAX_DRAWS, MIN_DRAWS = 200, 10
MAX_WORK = 200_000
"""How often somebody who runs or waits is looked at in all, about."""
EARLIEST_QUANTILE, LIKELY_QUANTILE, LATEST_QUANTILE = 0.02, 0.5, 0.98


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When it starts, in seconds from now; the latest is None where a guess was needed."""

    earliest_s: float
    likely_s: float
    latest_s: float | None


class NoEstimate(StrEnum):
    """Why nothing can be said of somebody."""

    NOTHING_KNOWN = "nothing is known of how long those run that it waits for"
    NOT_IN_SIGHT = "in most of the futures played through, nothing that ends lets it in"
    TOO_FAR = "it stands too far behind to be worked out"


def estimate_starts(state: SimulationState, seed: int = 0) -> list[StartEstimate | NoEstimate]:
    """When each of those who wait may start, or why nothing can be said of it."""
    count, draws = _find_affordable(state, seed)
    random = Random(seed)
    start_times, known_start_times = defaultdict[int, list[float]](list), defaultdict[int, list[float]](list)
    for number in range(draws):
        for index, start in QueueSimulation(state, count, random, slow_victims=number >= int(LATEST_QUANTILE * draws)).starts():
            start_times[index].append(start.seconds)
            if not start.is_guess:
                known_start_times[index].append(start.seconds)
    has_run_times = state.all_run_times.total > 0
    return [
        _estimate(start_times[index], known_start_times[index], draws)
        or _no_estimate(is_simulated=index < count, has_run_times=has_run_times)
        for index in range(len(state.waiters))
    ]


def _find_affordable(state: SimulationState, seed: int) -> tuple[int, int]:
    """How many of those who wait, the first ones, can be played through in bounded time, and how often: found by trying."""
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


def _estimate(times: list[float], known_times: list[float], draws: int) -> StartEstimate | None:
    """What is common of the times in all plays; those that rest on a guess are as good as never for the latest."""
    all_times, known_times = [
        sorted([*times_found, *[inf] * (draws - len(times_found))]) for times_found in (times, known_times)
    ]
    earliest, likely, latest = (
        all_times[int(EARLIEST_QUANTILE * draws)],
        all_times[int(LIKELY_QUANTILE * draws)],
        known_times[int(LATEST_QUANTILE * draws)],
    )
    return StartEstimate(earliest, likely, latest if latest < inf else None) if likely < inf else None


def _no_estimate(*, is_simulated: bool, has_run_times: bool) -> NoEstimate:
    if not is_simulated:
        return NoEstimate.TOO_FAR
    return NoEstimate.NOT_IN_SIGHT if has_run_times else NoEstimate.NOTHING_KNOWN
