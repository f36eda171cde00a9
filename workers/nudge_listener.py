"""A worker's ear: a thread of its main process hears who is nudged, and sends a task for each, not sooner than it may.

Of many workers one claims a nudge and sends. All of it is a short cut: what goes wrong here is done by the next tick.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event, Thread

from app.domain.errors import StoreUnavailable
from app.store.nudges import Nudges

log = logging.getLogger(__name__)

IDLE_TIMEOUT_S = 10.0
"""How long it sleeps when it has nothing to send."""
RETRY_S = 1.0
"""After something went wrong."""
JOIN_TIMEOUT_S = 2.0
"""How long its end is waited for."""


class NudgeListener:
    """Hears nudges, claims them, and sends each when its time has come."""

    def __init__(self, nudges: Nudges, send: Callable[[str], object]) -> None:
        self._nudges, self._subscription, self._send = nudges, nudges.subscribe(), send
        self._due: dict[str, float] = {}
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="nudges", daemon=True)

    def start(self) -> None:
        """Listen from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Hear nothing any more; what was to be sent is left to the tick."""
        self._stopping.set()
        self._subscription.close()
        self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        with self._subscription:
            while not self._stopping.is_set():
                try:
                    self._run_once()
                except StoreUnavailable as away:
                    log.debug("a nudge is left to the tick: %s", away)
                except Exception as error:  # of any library below; without this thread nothing would be heard any more
                    log.warning("a nudge is left to the tick: %s", error)
                    self._stopping.wait(RETRY_S)

    def _run_once(self) -> None:
        for workspace in self._subscription.wait(self._seconds_until_due()):
            wait_s = self._nudges.claim_nudge(workspace)
            if wait_s is not None:
                self._due.setdefault(workspace, time.monotonic() + wait_s)
        now = time.monotonic()
        for workspace in [workspace for workspace, due in self._due.items() if due <= now]:
            del self._due[workspace]
            self._send(workspace)

    def _seconds_until_due(self) -> float:
        return max(0.0, min(self._due.values(), default=time.monotonic() + IDLE_TIMEOUT_S) - time.monotonic())
