"""The share of each token in the time of a process for dry runs.

The dry runs of a process use one throwaway server in turn, and each first reads a whole workspace. So a token has one dry run
at a time. Over a long time it gets no more than its share of the server.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from app.domain.dry_run import RUN_TIMEOUT_S, DryRunUnavailable
from app.service.wait_slots import TokenShareUsed

BURST_S: Final = 2 * RUN_TIMEOUT_S
"""Seconds that a token may use at once after a long time without dry runs: two dry runs of the longest duration."""


class DryRunShares:
    """The seconds that each token has left. They grow by the token share of the time that passes, up to BURST_S."""

    def __init__(self, share_percent: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._share, self._monotonic = share_percent / 100, monotonic
        self._left: dict[str, tuple[float, float]] = {}  # token → seconds left, and the time to which this number belongs
        self._running: set[str] = set()
        self._lock = Lock()

    @contextmanager
    def turn(self, token: str | None) -> Iterator[None]:
        """Hold the turn of a token until its dry run ends. Raise TokenShareUsed if the token has no turn.

        A caller without a token always has a turn. The wait for other dry runs is not charged.
        """
        if token is None:
            yield
            return
        self._begin(token)
        start, was_run = self._monotonic(), True
        try:
            yield
        except DryRunUnavailable as error:
            was_run = error.reason != "busy"
            raise
        finally:
            self._end(token, self._monotonic() - start if was_run else 0)

    def remembered(self) -> int:
        """Return the number of tokens that have used a part of their share."""
        return len(self._left)

    def _begin(self, token: str) -> None:
        with self._lock:
            if token in self._running:
                raise TokenShareUsed("a dry run of this token is under way")
            left_s = self._seconds_left(token)
            if left_s < 0:
                wait_s = max(1, math.ceil(-left_s / self._share))
                raise TokenShareUsed(f"this token has used its share of the time for dry runs; again in {wait_s} s", wait_s)
            self._running.add(token)

    def _end(self, token: str, used_s: float) -> None:
        with self._lock:
            self._running.discard(token)
            now = self._monotonic()
            for other in [other for other in self._left if self._seconds_left(other) >= BURST_S]:
                del self._left[other]
            self._left[token] = self._seconds_left(token) - used_s, now

    def _seconds_left(self, token: str) -> float:
        now = self._monotonic()
        left_s, since = self._left.get(token, (BURST_S, now))
        return min(BURST_S, left_s + (now - since) * self._share)
