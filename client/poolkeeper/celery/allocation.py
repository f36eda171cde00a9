"""The allocation of a running task, `self.allocation`, and its end by a preemption.

Each run has an allocation of its own, because threads of a worker may run the same task at the same time. A directive
interrupts the body, in its thread or process, only while the body runs. The steps before and after the body are not
interrupted: there results are stored and tasks are sent.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any

from billiard.process import current_process
from celery import signals, states
from celery.app.task import Context
from celery.exceptions import Ignore, Reject
from celery.utils.nodenames import gethostname
from kombu.exceptions import EncodeError

from poolkeeper.celery.exceptions import PARKED, Preempted, TaskNotGranted
from poolkeeper.celery.publish_hook import RETRY_FOR_S, ParkCall, PublishHook, retry_until, set_state, stores_result
from poolkeeper.errors import (
    AllocationLost,
    ApiError,
    Conflict,
    NotFound,
    PoolkeeperError,
    StaleFence,
    TooManyRequests,
    Unavailable,
)
from poolkeeper.heartbeats import HeartbeatThread, now_s, raising_loss
from poolkeeper.http_client import new_key
from poolkeeper.models import Heartbeat

if TYPE_CHECKING:
    from poolkeeper.celery.task import PoolTask

log = logging.getLogger(__name__)

LEAVE_DIRECTIVES = frozenset({"checkpoint", "terminate"})
"""The directives to leave under which the task still holds its units."""

_pool_child_pid = 0


@signals.worker_process_init.connect(weak=False)
def _note_pool_child(**_: object) -> None:
    global _pool_child_pid
    if current_process().daemon:  # with the pool `solo` the signal comes in the worker itself
        _pool_child_pid = os.getpid()


def in_pool_child() -> bool:
    """True if this process runs one task at a time for a parent that notices its end."""
    return _pool_child_pid == os.getpid()


def _is_dying() -> bool:
    """True if the present exception ends the process. The process may still be killed if its end takes too long."""
    return in_pool_child() and isinstance(sys.exc_info()[1], (SystemExit, KeyboardInterrupt))


class TaskAllocation:
    """The allocation of a task. This base class is for a direct or eager call, which holds no units and gets no directive."""

    request: str | None = None
    """The request that was granted."""
    fence: int | None = None
    """The fence, by which other systems recognise calls of an older allocation."""
    pool: str | None = None
    """The pool of the units."""
    resources: Mapping[str, int] = {}
    """The units of each key."""
    resume: bool = False
    """True if the task ran before and had to leave."""
    checkpoint_reference: str | None = None
    """The reference of the last `checkpoint_done`, from which the work resumes."""

    @property
    def directive(self) -> str:
        """Return `continue`, `checkpoint` or `terminate`; `kill` if the units are lost."""
        return "continue"

    @property
    def deadline(self) -> datetime | None:
        """Return the deadline of the directive by the clock of the service; None without a deadline."""
        return None

    @property
    def lost(self) -> bool:
        """True if the units are lost."""
        return False

    def should_checkpoint(self) -> bool:
        """True if the task has to leave: save the work now, and report it by `checkpoint_done`."""
        return self.directive in LEAVE_DIRECTIVES

    def checkpoint_done(self, reference: str | None = None) -> None:
        """Report that the work is saved under this reference. If the task has to leave, `Preempted` ends the body.

        A routine checkpoint that cannot be reported is only logged. After a directive the report is retried for a minute. Then
        the task leaves without a report.
        """

    def progress(self) -> None:
        """Report that the work is still being saved."""

    def defer(self, seconds: int) -> None:
        """Report that the work can be saved only after this many seconds."""

    def checkpoint_failed(self) -> None:
        """Report that the work cannot be saved."""


class GrantedAllocation(TaskAllocation):
    """The units of one run of a task."""

    def __init__(self, hook: PublishHook, task: PoolTask[Any, Any], request: Context, grant: Mapping[str, Any]) -> None:
        self.request, self.fence = str(grant["request"]), int(grant["fence"])
        self.pool, self.resources = grant.get("pool"), dict(grant.get("resources") or {})
        self.resume, self.checkpoint_reference = bool(grant.get("resume")), grant.get("checkpoint_reference")
        self.successor: ParkCall | None = None
        self.is_unstored = False  # a result is not stored, because the result backend cannot be reached
        self.is_entered = self.is_body_reached = False  # the body of the run; the task's own function in it
        self._lease_s: int | None = grant.get("lease_s")
        self._hook, self._task, self._context = hook, task, request
        self._client, self._request_and_fence = hook.client, (self.request, self.fence)
        self._body_thread, self._is_interrupted, self._lock = 0, False, Lock()  # the thread that runs the body, 0 for none
        callbacks = self._on_directive, lambda message: log.warning("task %s: %s", request.id, message)
        self._heartbeats = HeartbeatThread(self._client, self.request, self.fence, self._lease_s, now_s(), *callbacks)

    @property
    def directive(self) -> str:
        return self._heartbeats.directive

    @property
    def deadline(self) -> datetime | None:
        return self._heartbeats.deadline

    @property
    def lost(self) -> bool:
        return self._heartbeats.loss_reason is not None

    @property
    def left(self) -> bool:
        """True if the units were released unfinished."""
        return self._heartbeats.left

    def checkpoint_done(self, reference: str | None = None) -> None:
        must_leave = self.directive in LEAVE_DIRECTIVES
        if must_leave:
            set_state(self._task, self._context, PARKED)
        is_reported = self._report_checkpoint("completed", RETRY_FOR_S if must_leave else 0, reference=reference)
        if not self.left and (self.directive == "terminate" or (must_leave and not is_reported)):
            self.vacate()
        if self.left:
            raise Preempted(f"{self.request} has left")
        if must_leave:  # the allocation was reprieved
            self.set_started()

    def progress(self) -> None:
        self._report_checkpoint("progress")

    def defer(self, seconds: int) -> None:
        self._report_checkpoint("defer", seconds=seconds)

    def checkpoint_failed(self) -> None:
        self._report_checkpoint("failed")

    # ---- from the beginning to the end

    def begin(self) -> None:
        """Start the run under this fence. Raise Ignore if another worker has started it, or the service cannot be reached."""
        runner = f"{gethostname()[:64]}:{os.getpid()}:{new_key()}"
        until_s = time.monotonic() + min(RETRY_FOR_S, self._lease_s or RETRY_FOR_S)
        try:
            retry_until(lambda: self._report(lambda: self._client.start(*self._request_and_fence, runner)), until_s)
        except (AllocationLost, NotFound, Conflict) as error:
            raise Ignore(f"{self._context.id} does not run: {error}") from None
        except PoolkeeperError as error:
            log.error("task %s could not start, it will be sent again: %s", self._context.id, error)
            raise Ignore(f"{self._context.id} could not start: {error}") from None

    def start_heartbeats(self) -> None:
        """Send heartbeats until `end`. Register the allocation before with the code that ends the run, else the lease never
        ends.
        """
        self._heartbeats.start()

    def run(self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the body and return its result. Raise Ignore if the task has left, or if its result no longer counts."""
        self.is_entered = True
        try:
            try:
                self._enter_body()
                result = body(*args, **kwargs)
            finally:
                if not _is_dying():
                    self._leave_body()
        except Preempted:
            self._leave_body()
            if not (self.left or self.lost):
                self.vacate()
            raise Ignore(f"{self._context.id} had to leave, and is parked again") from None
        except Exception:
            self._require_units()
            raise
        self._require_units()
        return result

    def set_started(self) -> None:
        """Set the state STARTED, if the task reports it."""
        if self._task.reports_started:
            set_state(self._task, self._context, states.STARTED, {"pid": os.getpid(), "hostname": self._context.hostname})

    def end(self, state: str | None, value: object) -> None:
        """Release the units after the result is stored. `state` is None if the result could not be stored."""
        if _is_dying():
            return  # heartbeats go on until the process is gone, and its parent reports its end
        try:
            if not self.left:
                self._settle(state, value)
        except StaleFence as error:
            log.warning("task %s had lost its units when it ended: %s", self._context.id, error)
        except PoolkeeperError as error:
            log.error("task %s could not release its units, they are freed when its lease ends: %s", self._context.id, error)
        finally:
            self._heartbeats.stop()

    def vacate(self) -> None:
        """Release the units of an unfinished run. The task is parked again."""
        set_state(self._task, self._context, PARKED)
        try:
            try:
                self._release("vacated")
            except Conflict as conflict:
                if conflict.code != "not_leaving":
                    raise
                self._release("lost")
        except (StaleFence, NotFound) as error:
            log.warning("task %s had lost its units when it left: %s", self._context.id, error)
        except PoolkeeperError as error:
            log.error(
                "task %s could not report that it has left, its units are freed when its lease ends: %s",
                self._context.id,
                error,
            )
        self._heartbeats.left = True
        self._heartbeats.stop()

    def _settle(self, state: str | None, value: object) -> None:
        if self.successor is not None and state is not None:
            if state != states.RETRY:
                set_state(self._task, self._context, PARKED, forget_result=True)
            try:
                self._hook.park(self.successor, {"request": self.request, "fence": self.fence})
            except (StaleFence, TooManyRequests, Unavailable):
                raise
            except (ApiError, EncodeError) as error:
                self._fail_successor(error)
        elif state is None or self.is_unstored or (isinstance(value, Reject) and getattr(value, "requeue", False)):
            set_state(self._task, self._context, PARKED)
            self._release("lost")
        else:
            is_success = state in (states.SUCCESS, states.IGNORED)
            self._release("lost" if self.lost else "succeeded" if is_success else "failed")

    def _fail_successor(self, error: Exception) -> None:
        """Store a failure as the result, because the message that the task published again can never be parked."""
        log.error("task %s cannot be parked again: %s", self._context.id, error)
        result = TaskNotGranted(
            f"task {self._context.id} cannot be parked again: {error}", "refused", getattr(error, "code", None)
        )
        self._task.backend.mark_as_failure(
            str(self._context.id), result, request=self._context, store_result=stores_result(self._task, self._context)
        )
        self._release("failed")

    def _require_units(self) -> None:
        """Raise Ignore if the units were taken back before the run ended: another run decides the result."""
        if self.directive == "continue" and not self._heartbeats.suspected:
            return
        try:
            self._report(lambda: self._client.heartbeat(*self._request_and_fence))
        except (AllocationLost, NotFound) as error:
            self.successor = None
            raise Ignore(f"{self._context.id} had lost its units before it ended: {error}") from None
        except PoolkeeperError as error:
            log.warning("task %s ended, and could not check that it still had its units: %s", self._context.id, error)

    def _release(self, outcome: str) -> None:
        retry_until(lambda: self._client.release(*self._request_and_fence, outcome), time.monotonic() + RETRY_FOR_S)

    def _report_checkpoint(self, state: str, patience_s: float = 0, **fields: Any) -> bool:
        """Report a checkpoint. Return False if no answer came, or if it was refused without a directive."""
        must_leave, until_s = self.directive in LEAVE_DIRECTIVES, time.monotonic() + patience_s
        try:
            retry_until(
                lambda: self._report(lambda: self._client.checkpoint(*self._request_and_fence, state, **fields)), until_s
            )
        except AllocationLost:
            raise
        except PoolkeeperError as error:
            if must_leave and not isinstance(error, (Unavailable, TooManyRequests)):
                raise
            log.warning("task %s could not report its checkpoint as %s: %s", self._context.id, state, error)
            return False
        return True

    def _report(self, call: Callable[[], Heartbeat]) -> None:
        """Make a call that is answered like a heartbeat. Raise AllocationLost if the units are gone."""
        with raising_loss():
            self._heartbeats.report(call)

    # ---- directives to leave

    def _enter_body(self) -> None:
        with self._lock:
            self._body_thread = get_ident()
        if self.directive in ("terminate", "kill"):
            raise Preempted(f"{self.request} has to leave before its work has started")

    def _leave_body(self) -> None:
        with self._lock:
            if self._body_thread and self._is_interrupted:  # the exception may not have arrived yet
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._body_thread), None)
            self._body_thread = 0

    def _on_directive(self, directive: str) -> None:
        if directive not in ("terminate", "kill"):
            return
        with self._lock:
            if not self._body_thread:
                return
            log.warning("task %s: %s", self._context.id, directive)
            if in_pool_child():
                os.kill(os.getpid(), signal.SIGTERM if directive == "terminate" else signal.SIGKILL)
            elif not self._is_interrupted:
                self._is_interrupted = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._body_thread), ctypes.py_object(Preempted))
