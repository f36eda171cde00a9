"""The nudge listener: a thread of the worker's main process that claims nudges, and sends a task for each in its time.

Of many workers, one claims a nudge and sends the task. If this fails, the next tick does the work.
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
"""The longest sleep in seconds without a nudge."""
RETRY_S = 1.0
"""Seconds of pause after an error."""
JOIN_TIMEOUT_S = 2.0
"""Seconds to wait for the end of the thread."""


class NudgeListener:
    """The thread that claims nudges, and sends a task for each when its time has come."""

    def __init__(self, nudges: Nudges, send: Callable[[str], object]) -> None:
        self._nudges, self._subscription, self._send = nudges, nudges.subscribe(), send
        self._due: dict[str, float] = {}
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="nudges", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Claimed nudges without a task are left to the next tick."""
        self._stopping.set()
        self._subscription.close()
        self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        with self._subscription:
            while not self._stopping.is_set():
                try:
                    self._run_once()
                except StoreUnavailable as away:
                    log.debug("a nudge is left to the next tick: %s", away)
                except Exception as error:  # any error of a library: without this thread no nudge would be claimed any more
                    log.warning("a nudge is left to the next tick: %s", error)
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
