"""Where the time comes from: Redis itself, or a hand that moves it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """What says the time to a script."""

    def now_ms(self) -> int | None:
        """Milliseconds since 1970, or None: the script asks Redis."""


class RedisClock:
    """The time of the Redis server, read once at the top of each script: no clock of a client or API host matters."""

    def now_ms(self) -> None:
        """None: the script asks Redis."""


class ManualClock:
    """A time that stands still until it is moved, for tests and simulation."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._now_ms

    def advance(self, seconds: float) -> None:
        """Move on, to the nearest millisecond; never back."""
        if seconds < 0:
            raise ValueError(f"time does not go back, not even by {-seconds} s")
        self._now_ms += round(seconds * 1000)

    def set_back(self, seconds: float) -> None:
        """Go back, as the clock of a machine does when it is corrected."""
        self._now_ms -= round(seconds * 1000)
