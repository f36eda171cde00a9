"""The usage history of a pool over the last hours: its capacity and use at a series of times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

UnitSeries = tuple[int | None, ...]
"""One number of units for each time. None: the pool did not list the key then, or this component used too little to be kept."""

POOL_SERIES = "pool"
"""The name of the series of the whole pool. No component has it, because component names contain a slash."""


@dataclass(frozen=True, slots=True)
class UsageHistory:
    """A pool at several times, in order of time."""

    times_ms: tuple[int, ...]
    capacity: Mapping[str, UnitSeries]
    """Key → the capacity at each time."""
    series: Mapping[str, Mapping[str, UnitSeries]]
    """`pool`, then components (`type/name`) in order → key → the units in use."""
    peaks: Mapping[str, Mapping[str, UnitSeries]]
    """The highest use between the previous time and this one, with the same keys as `series`."""

    def __bool__(self) -> bool:
        """True if there is any sample."""
        return bool(self.times_ms)
