"""The message of a parked task in the main process of a worker, which outlives the child that runs the task.

The main process reports ends that the child cannot report: its death, its time limit, a revocation. It calls Poolkeeper only
after the child is gone, and in a thread, because it serves other tasks.
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, Literal

from billiard.exceptions import Terminated, WorkerLostError
from celery import states
from celery.app.task import Context
from celery.worker import state as worker_state
from celery.worker.request import Request

from poolkeeper import Client
from poolkeeper.celery.exceptions import PARKED
from poolkeeper.celery.fork_safety import block_forks
from poolkeeper.celery.message import GRANT_HEADER, task_key
from poolkeeper.celery.publish_hook import RETRY_FOR_S, Result, get_state, install, retry_until, set_state
from poolkeeper.errors import NotFound, PoolkeeperError, StaleFence

log = logging.getLogger(__name__)

CHILD_LOSS_ERRORS = (WorkerLostError, Terminated, SystemExit, KeyboardInterrupt)
"""The errors by which billiard reports a child that ended before its task."""

WAITING_STATES = ("delayed", "parked")
"""States of a task that no worker can have started again."""

CHILD_EXIT_TIMEOUT_S = 15.0
"""The seconds that a killed child may take to end."""

CALL_TIMEOUT_S = 5.0
"""The seconds that one call from this process may take."""

_watch_lock = Lock()
_request_of_child: dict[int, PoolRequest] = {}
"""Process id of a watched child → its last message. Each child has one thread, for any number of tasks."""


class PoolRequest(Request):
    """The message of a parked task, from its arrival in a worker."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        header = self.request_dict.get(GRANT_HEADER)
        grant: Mapping[str, Any] = header if isinstance(header, Mapping) and not header.get("ended") else {}
        self._request, self._fence = grant.get("request"), grant.get("fence")
        self._context = Context(self.request_dict)
        # A task that started before a preemption or a loss is never late; nor is an end notice.
        self._is_never_late = isinstance(header, Mapping) and bool(header.get("begun") or header.get("ended"))
        self._is_reported, self._report_lock = False, Lock()

    # ---- callbacks of Celery

    def revoked(self) -> bool:
        """True if the task is revoked or expired. Then release its units unused."""
        is_revoked = super().revoked()
        if is_revoked:
            self._report_in_thread(self._release_unused)
        return is_revoked

    def maybe_expire(self) -> Literal[True] | None:
        """True if the task waited too long for its start, else None."""
        return None if self._is_never_late else super().maybe_expire()

    def on_accepted(self, pid: Any, time_accepted: float) -> None:
        """Watch the child that has the task."""
        super().on_accepted(pid, time_accepted)
        self._watch(int(pid))

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Release the units after the child was killed for its time limit."""
        super().on_timeout(soft, timeout)
        if not soft:
            self._report_in_thread(self._release)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """Handle a failure in the child. A living child reports it itself; the task of a lost child is parked again."""
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if self._request is None or not isinstance(error, CHILD_LOSS_ERRORS):
            return super().on_failure(exc_info, send_failed_event, return_ok)
        if self._is_revoked:
            super().on_failure(exc_info, send_failed_event, return_ok)
            return self._report_in_thread(self._release)
        worker_state.task_ready(self)
        self.acknowledge()  # Poolkeeper sends the task again, not the broker
        original_on_failure = super().on_failure
        return self._report_in_thread(
            lambda: self._report_lost(lambda: original_on_failure(exc_info, send_failed_event, return_ok))
        )

    @property
    def _is_revoked(self) -> bool:
        return bool(getattr(self, "_already_revoked", False))

    # ---- the child

    def _watch(self, pid: int) -> None:
        """Watch the child by a pidfd, if the system has them, because billiard detects its end later."""
        if not hasattr(os, "pidfd_open") or pid == os.getpid():
            return
        with _watch_lock, suppress(OSError):
            if pid not in _request_of_child:
                pidfd = os.pidfd_open(pid)
                Thread(target=_await_child_exit, args=(pid, pidfd), name=f"poolkeeper-watch-{pid}", daemon=True).start()
            _request_of_child[pid] = self

    def child_ended(self) -> None:
        """Report the end of the child that had this task last."""
        if self._request is not None and (self._is_revoked or self in worker_state.active_requests):
            self._report_once(self._release if self._is_revoked else self._report_lost)

    def _wait_for_child_exit(self) -> None:
        """Wait until no child runs the task."""
        pid, until_s = int(self.worker_pid or 0), time.monotonic() + CHILD_EXIT_TIMEOUT_S
        while pid not in (0, os.getpid()) and not _has_ended(pid) and time.monotonic() < until_s:
            time.sleep(0.02)

    # ---- reports

    def _report_in_thread(self, report: Callable[[], bool]) -> None:
        if self._request is not None:
            Thread(target=self._report_once, args=(report,), name=f"poolkeeper-{self.id}", daemon=True).start()

    def _report_once(self, report: Callable[[], bool]) -> None:
        with self._report_lock:
            if self._is_reported:
                return
            self._wait_for_child_exit()
            try:
                self._is_reported = report()
            except PoolkeeperError as error:
                log.error(
                    "the end of task %s could not be reported, its units are freed when its lease ends: %s", self.id, error
                )

    def _release(self, outcome: str = "failed") -> bool:
        with suppress(StaleFence, NotFound):  # the child released the units, or had lost them
            self._retry(lambda client: client.release(str(self._request), int(self._fence or 0), outcome))
        return True

    def _release_unused(self) -> bool:
        """Release the units, unless the run has started: another copy of the message may run."""
        with suppress(NotFound):
            if self._retry(lambda client: client.request(str(self._request))).started_at is None:
                return self._release()
        return True

    def _report_lost(self, on_unknown: Callable[[], None] | None = None) -> bool:
        """Release the task as lost, so that it is parked again, if it had no result when its child died.

        `on_unknown` is the reaction of Celery if the service does not know the task.
        """
        with block_forks():
            state = get_state(self.task, self._context)
        has_result = state in states.READY_STATES
        if has_result and not self.chord:  # with a chord, the next worker counts the task in the chord once more
            return self._release("succeeded" if state == states.SUCCESS else "failed")
        try:
            task = self._retry(lambda client: client.task(task_key(self.id)))
        except NotFound:
            if on_unknown and not has_result:
                with block_forks():
                    on_unknown()
            return has_result or on_unknown is not None
        if task.request and (task.request.id, task.request.fence) == (self._request, self._fence):
            log.warning("task %s lost its process, and is parked again", self.id)
            if not has_result:
                self._mark_parked()
            self._release("lost")
        elif task.status in WAITING_STATES and not has_result:  # its units were taken back before
            self._mark_parked()
        return True

    def _mark_parked(self) -> None:
        with block_forks():
            set_state(self.task, self._context, PARKED)

    def _retry(self, call: Callable[[Client], Result]) -> Result:
        client = install(self.task.app).client.clone(timeout_s=CALL_TIMEOUT_S, tries=1)

        def once() -> Result:
            with block_forks():
                return call(client)

        try:
            return retry_until(once, time.monotonic() + RETRY_FOR_S)
        finally:
            client.close()


def _await_child_exit(pid: int, pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll()
    os.close(pidfd)
    with _watch_lock:
        request = _request_of_child.pop(pid, None)
    if request is not None:
        request.child_ended()


def _has_ended(pid: int) -> bool:
    """True if the process has ended; the pool reaps it later."""
    try:
        if not hasattr(os, "waitid"):  # macOS
            os.kill(pid, 0)
            return False
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except (ChildProcessError, ProcessLookupError):
        return True
