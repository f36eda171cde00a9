"""The clock of the ledger: the time of Redis, or a time that tests move by hand."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """The time that a script gets."""

    def now_ms(self) -> int | None:
        """Return milliseconds since 1970, or None if the script shall ask Redis."""


class RedisClock:
    """The time of the Redis server, read once at the top of each script. No clock of a client or API host matters."""

    def now_ms(self) -> None:
        """Return None: the script asks Redis."""


class ManualClock:
    """A time that stands still until it is moved, for tests and simulations."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        return self._now_ms

    def advance(self, seconds: float) -> None:
        """Move the time forward, to the nearest millisecond."""
        if seconds < 0:
            raise ValueError(f"time does not go back, not even by {-seconds} s")
        self._now_ms += round(seconds * 1000)

    def set_back(self, seconds: float) -> None:
        """Move the time back, like the clock of a machine that is corrected."""
        self._now_ms -= round(seconds * 1000)
