"""The lock of reconcile passes: one process at a time reconciles a workspace, and no trigger is lost.

A trigger is a nudge or a tick. A reconcile pass must not be late. So its job lock is short, a pass extends it, and no trigger
is dropped:

1. Take the lock. If another process has it, record in Redis that this trigger was skipped.
2. Run a pass (`app.service.reconcile`).
3. Run another pass while there is more to do, or a trigger was skipped meanwhile.
4. Release the lock. If there is still more to do, a nudge triggers the next pass.

Releasing the lock and recording a skipped trigger are one atomic script each, so a trigger finds the lock free or is recorded.
After a skipped tick, wait for the pass of the other process, but no longer than its lock lasts. If that process has died, run
the pass here.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Literal, Protocol

from app.domain.errors import StoreUnavailable
from app.store.nudges import BeginOutcome, Nudges, PassResult, PassTrigger

log = logging.getLogger(__name__)

JobOutcome = Literal["done", "idle", "skipped", "failed"]
"""The outcome of a job in one workspace. `idle`: nothing to do; `skipped`: another process has the job lock."""

RECONCILE_LOCK_S = 1
MAX_LOCKED_S = 5
"""Seconds for which passes of one workspace follow each other, at most, before the next workspace."""
MAX_PASSES = 20
"""The most passes that follow each other."""
MAX_PASS_S = 30
"""Seconds for which one pass extends its lock, at most. After that another process may take it."""
RETRY_S = 0.05
"""Seconds after which a skipped tick tries again to take the lock."""

_OUTCOMES: Mapping[BeginOutcome, JobOutcome] = {"begun": "done", "seen": "done", "idle": "idle", "held": "skipped"}


class ReconcilePass(Protocol):
    """One bounded pass over a workspace: a `Reconciler`."""

    def run(self, workspace: str) -> bool:
        """Run the pass. Return True if there is more to do at once."""
        ...


class ReconcileLock:
    """The reconcile passes of a workspace under its job lock, with their durations."""

    def __init__(
        self,
        nudges: Nudges,
        reconciler: ReconcilePass,
        monotonic: Callable[[], float] = time.monotonic,
        lock_s: float = RECONCILE_LOCK_S,
    ) -> None:
        self._nudges, self._reconciler, self._monotonic, self._lock_s = nudges, reconciler, monotonic, lock_s

    def run(self, workspace: str, trigger: PassTrigger = "tick") -> JobOutcome:
        """Take the lock and run passes. Return `done` also if another process has served this trigger."""
        token_prefix, deadline = secrets.token_hex(8), self._monotonic() + MAX_LOCKED_S
        try:
            outcome = self._nudges.begin_reconcile(workspace, f"{token_prefix}.1", self._lock_s, trigger)
            number = 1
            while outcome == "begun" and self._run_pass(workspace, token_prefix, number, deadline):
                number += 1
        except StoreUnavailable:
            raise
        except Exception:
            log.exception("reconcile of workspace %s failed", workspace)
            return "failed"
        return _OUTCOMES[outcome]

    def run_skipped(self, workspaces: Iterable[str]) -> dict[str, JobOutcome]:
        """Run a pass in each workspace that a tick skipped, as soon as its lock is free. A workspace with a long pass stays
        `skipped`."""
        outcomes, waiting = dict[str, JobOutcome](), sorted(workspaces)
        deadline = self._monotonic() + self._lock_s + 2 * RETRY_S
        while waiting and self._monotonic() < deadline:
            time.sleep(RETRY_S)
            outcomes |= {workspace: self.run(workspace, "missed") for workspace in waiting}
            waiting = [workspace for workspace in waiting if outcomes[workspace] == "skipped"]
        return outcomes

    def _run_pass(self, workspace: str, token_prefix: str, number: int, deadline: float) -> bool:
        """Run one pass. Return True if the lock is kept for the next one."""
        token, started_s = f"{token_prefix}.{number}", self._monotonic()
        result: PassResult = "failed"
        try:
            with self._extending_lock(workspace, token):
                result = "more" if self._reconciler.run(workspace) else "nothing"
        finally:
            now = self._monotonic()
            next_token = f"{token_prefix}.{number + 1}" if number < MAX_PASSES and now < deadline else None
            goes_on = self._nudges.finish_reconcile(workspace, token, next_token, self._lock_s, now - started_s, result)
        return goes_on

    @contextmanager
    def _extending_lock(self, workspace: str, token: str) -> Iterator[None]:
        pass_ended, deadline = Event(), time.monotonic() + MAX_PASS_S

        def extend() -> None:
            while not pass_ended.wait(self._lock_s / 4) and time.monotonic() < deadline:
                with suppress(StoreUnavailable):
                    if not self._nudges.extend_lock(workspace, token, self._lock_s):
                        return

        thread = Thread(target=extend, name="reconcile lock", daemon=True)
        thread.start()
        try:
            yield
        finally:
            pass_ended.set()
            thread.join()  # else the thread could take the lock again after its release
