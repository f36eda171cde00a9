"""A client under whose feet the server dies: it repeats what was not answered, and remembers everything that was."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeVar

from app.domain.errors import StoreUnavailable
from app.domain.states import RequestState
from app.store.connection import connect
from tests.support.world import World

WORKSPACE: Final = "load"
PATIENCE_S: Final = 60
_Answer = TypeVar("_Answer")


class RetryingClient(World):
    """A client that submits and releases, and records every reply that it got."""

    def __init__(self, url: str, number: int, noticed: Any) -> None:
        super().__init__(connect(url, timeout_s=2), WORKSPACE)
        self.number, self.random, self.noticed = number, Random(number), noticed
        self.acknowledged: dict[str, tuple[str, int | None]] = {}
        self.allocations: list[tuple[str, int]] = []
        self.outages: list[str] = []

    def retry(self, call: Callable[[], _Answer]) -> _Answer:
        """Repeat the same call until it is answered; each try waits a little for the server by itself."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return call()
            except StoreUnavailable as away:
                self.outages.append(away.reason)
                with self.noticed.get_lock():
                    self.noticed.value += 1
                if time.monotonic() > until:
                    raise

    def submit_one(self, name: str) -> None:
        """Submit one request, with an id and a key of its own."""
        ask = self.request_spec("tu"[self.number % 2], gpu=1)
        request = self.retry(lambda: self.ledger.submit(WORKSPACE, ask, f"key-{name}", name))
        self.acknowledged[name] = (str(request.status), request.fence)
        if request.status is RequestState.ALLOCATED:
            self.allocations.append((name, request.fence or 0))

    def release_one(self) -> None:
        """Give one back."""
        name, fence = self.allocations.pop(self.random.randrange(len(self.allocations)))
        request = self.retry(lambda: self.ledger.release(WORKSPACE, name, fence))
        self.acknowledged[name] = (str(request.status), request.fence)

    def poll_waiters(self) -> None:
        """Poll the queued requests, as they may have been granted since."""
        for name in [name for name, (status, _) in self.acknowledged.items() if status == "queued"]:
            request = self.retry(lambda name=name: self.get(name))  # type: ignore[misc]
            self.acknowledged[name] = (str(request.status), request.fence)
            if request.status is RequestState.ALLOCATED:
                self.allocations.append((name, request.fence or 0))


def run_client(
    url: str, number: int, operations: int, answered: Any, noticed: Any
) -> tuple[dict[str, tuple[str, int | None]], list[str]]:
    """Return the last reply for each request, and the errors while the server was away; count the replies as they come."""
    witness = RetryingClient(url, number, noticed)
    for turn in range(operations):
        if witness.allocations and witness.random.random() < 0.5:
            witness.release_one()
        else:
            witness.submit_one(f"{number}-{turn}")
        if turn % 10 == 0:
            witness.poll_waiters()
        with answered.get_lock():
            answered.value += 1
    return witness.acknowledged, witness.outages
