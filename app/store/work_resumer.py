"""Resumes the work that bounded scripts leave, so that no workspace keeps Redis from the others.

1. A process whose script left work pauses as long as that script took.
2. It takes the job lock `resume` of the workspace. If another process has the lock, that process resumes the work.
3. It runs `resume_unfinished`, and pauses as long as the script took, until no work is left.
4. It releases the lock, and looks once more: a script may have left work after the last call and found the lock taken.

The lock saves work, and no rule depends on it: every call is atomic. If the process dies, the lock lapses, and the next call,
reconcile or cleanup goes on.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol
from weakref import WeakSet

from app.domain.errors import StoreUnavailable

log = logging.getLogger(__name__)

LOCK, LOCK_S = "resume", 1
"""The name and the seconds of the lock. It lapses soon after its process died: a call takes a few milliseconds, and work under
two locks does no harm."""
LOCK_RENEWAL_S = 0.3
HELD_PAUSE_S = 0.01
"""Seconds before another look at the lock of another process."""
MAX_PAUSE_S = 0.25
"""The longest pause after a call, in seconds. A script ends much sooner: a longer call has waited for Redis, not kept it
busy."""
MAX_CALLS = 100_000
"""The calls for a workspace after which the resumer gives up: enough for millions of waiters, but finite if keys are
damaged."""
TURN_CALLS = 50
"""The most calls for a workspace before the background goes on to the next."""


class ResumableLedger(Protocol):
    """The methods of the ledger that the resumer needs."""

    def resume_unfinished(self, workspace: str) -> bool:
        """Resume unfinished work by one call. Return True if more is left."""
        ...

    def take_job_lock(self, workspace: str, job: str, token: str, ttl_s: int) -> bool:
        """Take a job lock, or prolong it. Return False if another token has it."""
        ...

    def release_job_lock(self, workspace: str, job: str, token: str) -> None:
        """Release a job lock, if this token still has it."""
        ...


class WorkResumer:
    """The resumption of the unfinished work of a workspace, until none is left."""

    def __init__(self, ledger: ResumableLedger, pause: Callable[[float], None] = time.sleep) -> None:
        self._ledger, self._pause = ledger, pause

    def finish(self, workspace: str, max_calls: int = MAX_CALLS, *, waits: bool = True, script_s: float = 0) -> bool:
        """Resume until no work is left. Return False if more is left after `max_calls`.

        `script_s` is the seconds of the script that left the work, and the pause before the first call. That call needs no
        lock, because mostly it is the last. While another process has the lock, wait for it, or (`waits` False) leave the work
        to it and return True.
        """
        if script_s:
            self._pause(min(script_s, MAX_PAUSE_S))
        calls, token = 1, secrets.token_hex(8)
        if not self._resume(workspace):
            return True
        while calls < max_calls:
            if not self._ledger.take_job_lock(workspace, LOCK, token, LOCK_S):
                if not waits:
                    return True
                calls += 1
                self._pause(HELD_PAUSE_S)
                continue
            try:
                calls += self._resume_locked(workspace, token, max_calls - calls)
            finally:
                self._ledger.release_job_lock(workspace, LOCK, token)
            if not self._resume(workspace):
                return True
        return False

    def _resume_locked(self, workspace: str, token: str, max_calls: int) -> int:
        """Resume under the lock, until no work is left or `max_calls` are made. Return the number of calls."""
        renewal = time.monotonic() + LOCK_RENEWAL_S
        for call in range(1, max_calls + 1):
            if not self._resume(workspace):
                return call
            if time.monotonic() > renewal:
                self._ledger.take_job_lock(workspace, LOCK, token, LOCK_S)
                renewal = time.monotonic() + LOCK_RENEWAL_S
        return max_calls

    def _resume(self, workspace: str) -> bool:
        start = time.monotonic()
        more = self._ledger.resume_unfinished(workspace)
        if more:
            self._pause(min(time.monotonic() - start, MAX_PAUSE_S))
        return more


class BackgroundResumer:
    """A thread that resumes unfinished work, so that no answer waits for it. It starts with the first work."""

    def __init__(self, resumer: WorkResumer) -> None:
        self._resumer = resumer
        self._thread: threading.Thread | None = None
        self._forget()
        _INSTANCES.add(self)

    def add(self, workspace: str, script_s: float = 0) -> None:
        """Add a workspace whose work the thread resumes soon, after a pause of `script_s`.

        A workspace that already waits for its turn is not added again; then the longest pause counts.
        """
        with self._lock:
            is_waiting = workspace in self._waiting
            self._waiting[workspace] = max(script_s, self._waiting.get(workspace, 0))
            if is_waiting:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="poolkeeper-resume", daemon=True)
                self._thread.start()
        self._queue.put(workspace)

    def _run(self) -> None:
        while True:
            workspace = self._queue.get()
            with self._lock:
                script_s = self._waiting.pop(workspace)
            try:
                if not self._resumer.finish(workspace, TURN_CALLS, waits=False, script_s=script_s):
                    self.add(workspace)  # behind the others, because its work may never end
            except StoreUnavailable as error:
                log.warning("unfinished work of workspace %s is left to the workers: %s", workspace, error)
            except Exception:
                log.exception("unfinished work of workspace %s cannot be resumed", workspace)

    def _forget(self) -> None:
        """Forget the thread and the queue, at the start and after a fork, which does not copy the thread."""
        self._lock, self._queue = threading.Lock(), SimpleQueue[str]()
        self._waiting: dict[str, float] = {}
        """Workspace → the seconds to pause before its turn."""
        self._thread = None


_INSTANCES: WeakSet[BackgroundResumer] = WeakSet()


def _forget_all_after_fork() -> None:
    for instance in list(_INSTANCES):
        instance._forget()


os.register_at_fork(after_in_child=_forget_all_after_fork)
