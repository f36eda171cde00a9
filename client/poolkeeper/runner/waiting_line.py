"""The line of a wait: position in the queue, time waited, estimated start, and the reason.

The line is drawn again in place, so it has to fit into the terminal. If it does not fit, the less important parts are left out.
If the rest is still too long, it is cut between two words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from poolkeeper.formatting import duration, few_run_times, parse_time, shorten


@dataclass(frozen=True, slots=True)
class WaitDetails:
    """The estimated start in words, and the reason of the wait: verdict and sentence. A part that is not known is empty."""

    start: str = ""
    verdict: str = ""
    reason: str = ""


def read_details(pools: Sequence[Mapping[str, Any]], now: datetime | None = None) -> WaitDetails:
    """Return the details from the pools of an answer: the earliest likely start, and the first reason."""
    estimates = [estimate for pool in pools if (estimate := pool.get("estimated_start"))]
    soonest = min(estimates, key=lambda estimate: parse_time(estimate["likely"]), default=None)
    blocked = next((pool for pool in pools if pool.get("sentence")), {})
    start = _describe_start(soonest, now or datetime.now(UTC)) if soonest else ""
    return WaitDetails(start, blocked.get("verdict") or "", blocked.get("sentence") or "")


def _describe_start(estimate: Mapping[str, Any], now: datetime) -> str:
    minutes = max(0, math.ceil((parse_time(estimate["likely"]) - now).total_seconds() / 60))
    start = f"likely in {duration(minutes * 60)}" if minutes else "likely any moment"
    return start + few_run_times(estimate)


def waiting_line(position: Mapping[str, int], since: str, waited_s: int, details: WaitDetails, width: int) -> str:
    """Return the line in at most `width` characters."""
    place, short_place, waited = describe_positions(position), _short_positions(position), duration(waited_s)
    start = f", {details.start}" if details.start else ""
    reason = f": {details.reason}" if details.reason else ""
    lines = (
        f"{place}, since {since} ({waited}){start}{reason}",
        f"{place}, for {waited}{start}{reason}",
        f"{short_place}, for {waited}{start}{reason}",
        f"{short_place}{start}{reason}",
        f"{short_place}{reason}",
    )
    return next((line for line in lines if len(line) <= width), shorten(lines[-1], width))


def describe_positions(position: Mapping[str, int]) -> str:
    """Return `waiting in gpus: 3rd in the queue, 2 ahead`."""
    positions = [
        f"in {pool}: {ordinal(place)} in the queue{f', {place - 1} ahead' if place > 1 else ''}"
        for pool, place in position.items()
    ]
    return f"waiting {'; '.join(positions)}" if positions else "waiting"


def _short_positions(position: Mapping[str, int]) -> str:
    """Return `3rd in gpus`, and `3rd in gpus, 1st in spare`."""
    return ", ".join(f"{ordinal(place)} in {pool}" for pool, place in position.items()) or "waiting"


def ordinal(number: int) -> str:
    """Return `1st`, `2nd`, `11th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
