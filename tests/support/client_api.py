"""The API that the client is tested on, and what only its Redis can do: deadlines that pass, and preemptions."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from app.domain.clock import ManualClock
from app.store.connection import RedisClient
from app.store.ledger import Ledger
from tests.support import preemptions


@dataclass(frozen=True)
class Api:
    """An API on a port of the loopback address."""

    port: int
    redis: Callable[[], AbstractContextManager[RedisClient]]

    @property
    def url(self) -> str:
        """Return the URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    def lapse(self, workspace: str) -> int:
        """Expire every lease, as after an hour without heartbeats; return how many."""
        with self.redis() as redis:
            return Ledger(redis, in_an_hour()).clean_up(workspace).expired_leases

    def preempt(self, workspace: str, waiter: str, request: str, fence: int) -> None:
        """Preempt an allocation for a waiter of the pool `gpus`."""
        with self.redis() as redis:
            preemptions.preempt(redis, waiter, [(request, fence)], workspace=workspace)

    def depart(self, workspace: str) -> None:
        """Enforce the deadlines of preempted allocations, as after an hour."""
        with self.redis() as redis:
            preemptions.depart(redis, workspace=workspace, clock=in_an_hour())

    def sweep(self, workspace: str) -> int:
        """Expire the leases that have lapsed by now; return how many."""
        with self.redis() as redis:
            return Ledger(redis).clean_up(workspace).expired_leases


def in_an_hour() -> ManualClock:
    """Return a clock that is an hour ahead."""
    return ManualClock(int(time.time() * 1000) + 3_600_000)
