"""A parked task's message in the main process of a worker, which outlives the process that runs the task.

It notices what that one cannot say any more: that it died, was killed for being late, or was revoked. Everything that is said
to Poolkeeper is said in a thread, as this process has others to look after, and only when the child is really gone.
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
from poolkeeper.celery.fork_safety import unforked
from poolkeeper.celery.message import SENT, task_key
from poolkeeper.celery.publish_hook import PATIENCE_S, Answer, insist, install, mark, state_of
from poolkeeper.errors import NotFound, PoolkeeperError, StaleFence

log = logging.getLogger(__name__)

GONE = (WorkerLostError, Terminated, SystemExit, KeyboardInterrupt)
"""What is reported of a child that ended before its task did."""

WAITING = ("delayed", "parked")
"""How a task stands that nobody can have begun anew."""

DYING_S = 15.0
"""How long after it was killed a child may still be there."""

TRY_S = 5.0
"""How long one call from this process may take."""

_watching = Lock()
_given: dict[int, PoolRequest] = {}
"""What each child that is watched was given last: one thread for each of them, however many tasks it does."""


class PoolRequest(Request):
    """A parked task's message, from its arrival on."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        sent = self.request_dict.get(SENT)
        granted: Mapping[str, Any] = sent if isinstance(sent, Mapping) and not sent.get("ended") else {}
        self._request, self._fence = granted.get("request"), granted.get("fence")
        self._about = Context(self.request_dict)
        # One that had begun, and comes back after it had to leave or was lost, is never too late; nor is a last word.
        self._is_never_late = isinstance(sent, Mapping) and bool(sent.get("begun") or sent.get("ended"))
        self._said, self._saying = False, Lock()

    # ---- what Celery tells of it

    def revoked(self) -> bool:
        """Whether it is not to run, as it is revoked or too late: then its units are given back unused."""
        told = super().revoked()
        if told:
            self._apart(self._give_back_unused)
        return told

    def maybe_expire(self) -> Literal[True] | None:
        """Whether it waited too long to begin."""
        return None if self._is_never_late else super().maybe_expire()

    def on_accepted(self, pid: Any, time_accepted: float) -> None:
        """A child has it, and is watched from now on."""
        super().on_accepted(pid, time_accepted)
        self._watch(int(pid))

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """It took too long; its units are given back when its child has been killed."""
        super().on_timeout(soft, timeout)
        if not soft:
            self._apart(self._give_back)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """Its child failed at it, which is the child's to tell, or is gone."""
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if self._request is None or not isinstance(error, GONE):
            return super().on_failure(exc_info, send_failed_event, return_ok)
        if self._is_revoked:
            super().on_failure(exc_info, send_failed_event, return_ok)
            return self._apart(self._give_back)
        worker_state.task_ready(self)
        self.acknowledge()  # what is delivered again comes from Poolkeeper
        celerys = super().on_failure
        return self._apart(lambda: self._lost(lambda: celerys(exc_info, send_failed_event, return_ok)))

    @property
    def _is_revoked(self) -> bool:
        return bool(getattr(self, "_already_revoked", False))

    # ---- the child

    def _watch(self, child: int) -> None:
        """Notice its end at once, where the system lets us; billiard takes its time."""
        if not hasattr(os, "pidfd_open") or child == os.getpid():
            return
        with _watching, suppress(OSError):
            if child not in _given:
                ended = os.pidfd_open(child)
                Thread(target=_await_end, args=(child, ended), name=f"poolkeeper-watch-{child}", daemon=True).start()
            _given[child] = self

    def child_ended(self) -> None:
        """The child that was given this last is gone."""
        if self._request is not None and (self._is_revoked or self in worker_state.active_requests):
            self._once(self._give_back if self._is_revoked else self._lost)

    def _wait_for_end(self) -> None:
        """Returns when no child of ours has it any more."""
        pid, until = int(self.worker_pid or 0), time.monotonic() + DYING_S
        while pid not in (0, os.getpid()) and not _has_ended(pid) and time.monotonic() < until:
            time.sleep(0.02)

    # ---- what is said of it

    def _apart(self, say: Callable[[], bool]) -> None:
        if self._request is not None:
            Thread(target=self._once, args=(say,), name=f"poolkeeper-{self.id}", daemon=True).start()

    def _once(self, say: Callable[[], bool]) -> None:
        with self._saying:
            if self._said:
                return
            self._wait_for_end()
            try:
                self._said = say()
            except PoolkeeperError as trouble:
                log.error("of task %s it could not be said that it has ended, its lease will lapse: %s", self.id, trouble)

    def _give_back(self, outcome: str = "failed") -> bool:
        with suppress(StaleFence, NotFound):  # it did so itself, or had lost them
            self._insist(lambda client: client.release(str(self._request), int(self._fence or 0), outcome))
        return True

    def _give_back_unused(self) -> bool:
        """Unless it has begun: of two copies of a message it may be the other one that runs."""
        with suppress(NotFound):
            if self._insist(lambda client: client.request(str(self._request))).started_at is None:
                return self._give_back()
        return True

    def _lost(self, fail: Callable[[], None] | None = None) -> bool:
        """It is parked again, if it had not ended before its child did; `fail` is what Celery does if nobody else will."""
        with unforked():
            state = state_of(self.task, self._about)
        over = state in states.READY_STATES
        if over and not self.chord:  # else whoever has it next counts it in its chord once more
            return self._give_back("succeeded" if state == states.SUCCESS else "failed")
        try:
            known = self._insist(lambda client: client.task(task_key(self.id)))
        except NotFound:
            if fail and not over:
                with unforked():
                    fail()
            return over or fail is not None
        if known.request and (known.request.id, known.request.fence) == (self._request, self._fence):
            log.warning("task %s lost its process, and is parked again", self.id)
            if not over:
                self._mark_parked()
            self._give_back("lost")
        elif known.status in WAITING and not over:  # its units had been taken from it
            self._mark_parked()
        return True

    def _mark_parked(self) -> None:
        with unforked():
            mark(self.task, self._about, PARKED)

    def _insist(self, call: Callable[[Client], Answer]) -> Answer:
        client = install(self.task.app).client.twin(timeout_s=TRY_S, tries=1)

        def once() -> Answer:
            with unforked():
                return call(client)

        try:
            return insist(once, time.monotonic() + PATIENCE_S)
        finally:
            client.close()


def _await_end(child: int, ended: int) -> None:
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.poll()
    os.close(ended)
    with _watching:
        last = _given.pop(child, None)
    if last is not None:
        last.child_ended()


def _has_ended(child: int) -> bool:
    """Whether it runs no more; it is left to the pool to take notice of that."""
    try:
        if not hasattr(os, "waitid"):  # macOS
            os.kill(child, 0)
            return False
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except (ChildProcessError, ProcessLookupError):
        return True
