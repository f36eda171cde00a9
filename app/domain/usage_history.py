"""What was used of a pool over the last hours, for who looks: one time after the other, and what it was then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Units = tuple[int | None, ...]
"""One number for each time; None: the pool did not list the key then, or too many others used more."""

POOL = "pool"
"""The name of the series of all that was used. No component is called so: theirs have a slash."""


@dataclass(frozen=True, slots=True)
class History:
    """A pool at several times, the newest last."""

    times_ms: tuple[int, ...]
    capacity: Mapping[str, Units]
    """Key → what there was."""
    series: Mapping[str, Mapping[str, Units]]
    """`pool`, then components (`type/name`) in order → key → what was used."""

    def __bool__(self) -> bool:
        """Whether anything was noted."""
        return bool(self.times_ms)
