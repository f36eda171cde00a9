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

from app.planner.estimates.pool_state import Scene
from app.planner.estimates.simulation import Play, TooMuch

DRAWS, FEWEST = 200, 10
LOOKS = 200_000
"""How often somebody who runs or waits is looked at in all, about."""
EARLIEST, LIKELY, LATEST = 0.02, 0.5, 0.98


@dataclass(frozen=True, slots=True)
class Outlook:
    """When it starts, in seconds from now; the latest is None where a guess was needed."""

    earliest_s: float
    likely_s: float
    latest_s: float | None


class Unforeseen(StrEnum):
    """Why nothing can be said of somebody."""

    NOTHING_KNOWN = "nothing is known of how long those run that it waits for"
    NOT_IN_SIGHT = "in most of the futures played through, nothing that ends lets it in"
    TOO_FAR = "it stands too far behind to be worked out"


def foresee(scene: Scene, seed: int = 0) -> list[Outlook | Unforeseen]:
    """When each of those who wait may start, or why nothing can be said of it."""
    count, draws = _affordable(scene, seed)
    random = Random(seed)
    times, known = defaultdict[int, list[float]](list), defaultdict[int, list[float]](list)
    for draw in range(draws):
        for at, start in Play(scene, count, random, dawdling=draw >= int(LATEST * draws)).starts():
            times[at].append(start.seconds)
            if not start.guessed:
                known[at].append(start.seconds)
    anything = scene.everybody.total > 0
    return [
        _outlook(times[at], known[at], draws) or _unforeseen(played=at < count, anything_known=anything)
        for at in range(len(scene.waiting))
    ]


def _affordable(scene: Scene, seed: int) -> tuple[int, int]:
    """How many of those who wait, the first ones, can be played through in bounded time, and how often: found by trying."""
    count = len(scene.waiting)
    while True:
        play = Play(scene, count, Random(seed))
        try:
            for _ in play.starts(LOOKS / FEWEST if count > FEWEST else inf):
                pass
        except TooMuch:
            count = max(FEWEST, count // 2)
        else:
            return count, max(FEWEST, min(DRAWS, LOOKS // max(1, play.work)))


def _outlook(times: list[float], known: list[float], draws: int) -> Outlook | None:
    """What is common of the times in all plays; those that rest on a guess are as good as never for the latest."""
    whole, known = [sorted([*some, *[inf] * (draws - len(some))]) for some in (times, known)]
    earliest, likely, latest = whole[int(EARLIEST * draws)], whole[int(LIKELY * draws)], known[int(LATEST * draws)]
    return Outlook(earliest, likely, latest if latest < inf else None) if likely < inf else None


def _unforeseen(*, played: bool, anything_known: bool) -> Unforeseen:
    if not played:
        return Unforeseen.TOO_FAR
    return Unforeseen.NOT_IN_SIGHT if anything_known else Unforeseen.NOTHING_KNOWN
