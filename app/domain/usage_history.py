"""What was used of a pool over the last hours, for who looks: one time after the other, and what it was then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

UnitSeries = tuple[int | None, ...]
"""One number for each time; None: the pool did not list the key then, or too many others used more."""

POOL_SERIES = "pool"
"""The name of the series of all that was used. No component is called so: theirs have a slash."""


@dataclass(frozen=True, slots=True)
class UsageHistory:
    """A pool at several times, the newest last."""

    times_ms: tuple[int, ...]
    capacity: Mapping[str, UnitSeries]
    """Key → what there was."""
    series: Mapping[str, Mapping[str, UnitSeries]]
    """`pool`, then components (`type/name`) in order → key → what was used."""
    peaks: Mapping[str, Mapping[str, UnitSeries]]
    """The highest use between the previous time and this one, by the same keys."""

    def __bool__(self) -> bool:
        """Whether anything was noted."""
        return bool(self.times_ms)
