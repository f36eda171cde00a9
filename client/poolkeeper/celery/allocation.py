"""What a running task holds, and how it leaves if it has to: `self.allocation`.

There is one for each run, not one for each task: threads of a worker run the same task at the same time. What the heartbeats
learn reaches the body in its own thread or process only while it is in the body. Before and after it, when results are stored
and the next tasks sent, nobody is interrupted.
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

from poolkeeper.celery.exceptions import PARKED, NotGranted, Preempted
from poolkeeper.celery.publish_hook import PATIENCE_S, Parcel, Parking, insist, mark, stores
from poolkeeper.errors import (
    AllocationLost,
    Conflict,
    NotFound,
    PoolkeeperError,
    Refused,
    StaleFence,
    TooManyRequests,
    Unavailable,
)
from poolkeeper.heartbeats import Heartbeats, now_s
from poolkeeper.http_client import new_key
from poolkeeper.models import Heartbeat

if TYPE_CHECKING:
    from poolkeeper.celery.task import PoolTask

log = logging.getLogger(__name__)

LEAVING = frozenset({"checkpoint", "terminate"})
"""Directives of who has to leave and still holds the units."""

_pool_child = 0


@signals.worker_process_init.connect(weak=False)
def _in_child(**_: object) -> None:
    global _pool_child
    if current_process().daemon:  # the pool `solo` says this of the worker itself
        _pool_child = os.getpid()


def in_pool_child() -> bool:
    """Whether this process runs one task at a time for a parent that notices its end."""
    return _pool_child == os.getpid()


def _is_dying() -> bool:
    """Whether what is in flight ends the process; should that take too long it may still be killed."""
    return in_pool_child() and isinstance(sys.exc_info()[1], (SystemExit, KeyboardInterrupt))


class Allocation:
    """What a task holds. This one is nothing, of a task that is called directly or run eagerly, and is never asked to leave."""

    request: str | None = None
    """The request that was granted."""
    fence: int | None = None
    """The number that proves it, for whoever wants to check it."""
    pool: str | None = None
    """Where the units are."""
    resources: Mapping[str, int] = {}
    """What is held."""
    resume: bool = False
    """Whether the task ran before and had to leave."""
    checkpoint_reference: str | None = None
    """What the last `checkpointed` said, to go on from."""

    @property
    def directive(self) -> str:
        """What the task has to do: `continue`, `checkpoint`, `terminate`; `kill` if it has lost the units."""
        return "continue"

    @property
    def deadline(self) -> datetime | None:
        """By when, by the service's clock."""
        return None

    @property
    def lost(self) -> bool:
        """Whether the units are not its own any more."""
        return False

    def should_checkpoint(self) -> bool:
        """Whether to save the work now, and to say so by `checkpointed`, because the task has to leave."""
        return self.directive in LEAVING

    def checkpointed(self, reference: str | None = None) -> None:
        """The work is saved, under this reference. If that was asked for the task leaves with it: `Preempted` ends the body.

        A routine save that cannot be told, as the service is away, is only noted in the log. Who was asked to leave goes on
        telling for a minute, and then leaves anyway.
        """

    def progress(self) -> None:
        """The work is being saved, and it takes a while."""

    def defer(self, seconds: int) -> None:
        """It cannot be saved now; in so many seconds, perhaps."""

    def failed(self) -> None:
        """It cannot be saved."""


class Held(Allocation):
    """Units held for one run of a task."""

    def __init__(self, parking: Parking, task: PoolTask[Any, Any], request: Context, sent: Mapping[str, Any]) -> None:
        self.request, self.fence = str(sent["request"]), int(sent["fence"])
        self.pool, self.resources = sent.get("pool"), dict(sent.get("resources") or {})
        self.resume, self.checkpoint_reference = bool(sent.get("resume")), sent.get("checkpoint_reference")
        self.successor: Parcel | None = None
        self.unstored = False  # there is something to store, and the store is away
        self.entered = self.reached = False  # its body, and the task's own function in it
        self._lease_s: int | None = sent.get("lease_s")
        self._parking, self._task, self._context = parking, task, request
        self._client, self._held = parking.client, (self.request, self.fence)
        self._body, self._interrupted, self._lock = 0, False, Lock()  # the thread that is in the body
        self._heartbeats = Heartbeats(self._client, self.request, self.fence, self._lease_s, now_s(), self._told)

    @property
    def directive(self) -> str:
        return self._heartbeats.directive

    @property
    def deadline(self) -> datetime | None:
        return self._heartbeats.deadline

    @property
    def lost(self) -> bool:
        return self._heartbeats.lost_because is not None

    @property
    def left(self) -> bool:
        """Whether the units were given back unfinished."""
        return self._heartbeats.left

    def checkpointed(self, reference: str | None = None) -> None:
        asked = self.directive in LEAVING
        if asked:
            mark(self._task, self._context, PARKED)
        told = self._checkpoint("completed", PATIENCE_S if asked else 0, reference=reference)
        if not self.left and (self.directive == "terminate" or (asked and not told)):
            self.vacate()
        if self.left:
            raise Preempted(f"{self.request} has left")
        if asked:  # and may stay after all
            self.mark_started()

    def progress(self) -> None:
        self._checkpoint("progress")

    def defer(self, seconds: int) -> None:
        self._checkpoint("defer", seconds=seconds)

    def failed(self) -> None:
        self._checkpoint("failed")

    # ---- from the beginning to the end

    def begin(self) -> None:
        """Be the one who runs under this fence; Ignore if somebody else is, or the service cannot be asked."""
        runner = f"{gethostname()[:64]}:{os.getpid()}:{new_key()}"
        until = time.monotonic() + min(PATIENCE_S, self._lease_s or PATIENCE_S)
        try:
            insist(lambda: self._say(lambda: self._client.start(*self._held, runner)), until)
        except (AllocationLost, NotFound, Conflict) as refused:
            raise Ignore(f"{self._context.id} is not to be run: {refused}") from None
        except PoolkeeperError as trouble:
            log.error("task %s was not begun, it will be sent again: %s", self._context.id, trouble)
            raise Ignore(f"{self._context.id} was not begun: {trouble}") from None

    def keep(self) -> None:
        """From now on, until its end; who gives it back has to know of it before, or it would be kept for ever."""
        self._heartbeats.start()

    def run(self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the body returns; Ignore if it has left, or what it made does not count any more."""
        self.entered = True
        try:
            try:
                self._enter()
                made = body(*args, **kwargs)
            finally:
                if not _is_dying():
                    self._over()
        except Preempted:
            self._over()
            if not (self.left or self.lost):
                self.vacate()
            raise Ignore(f"{self._context.id} had to leave, and is parked again") from None
        except Exception:
            self._check()
            raise
        self._check()
        return made

    def mark_started(self) -> None:
        """The task's state, if anybody wants it."""
        if self._task.tells_start:
            mark(self._task, self._context, states.STARTED, {"pid": os.getpid(), "hostname": self._context.hostname})

    def end(self, state: str | None, value: object) -> None:
        """The units are given back, now that what came of it is stored; without a state nothing could be."""
        if _is_dying():
            return  # heartbeats go on until the process is gone, which its parent tells
        try:
            if not self.left:
                self._give_back(state, value)
        except StaleFence as gone:
            log.warning("task %s had lost its units when it ended: %s", self._context.id, gone)
        except PoolkeeperError as trouble:
            log.error(
                "task %s could not give back its units, they come back when its lease lapses: %s", self._context.id, trouble
            )
        finally:
            self._heartbeats.stop()

    def vacate(self) -> None:
        """Leave unfinished; the task is parked again."""
        mark(self._task, self._context, PARKED)
        try:
            try:
                self._release("vacated")
            except Conflict as stays:
                if stays.code != "not_leaving":
                    raise
                self._release("lost")
        except (StaleFence, NotFound) as gone:
            log.warning("task %s had lost its units when it left: %s", self._context.id, gone)
        except PoolkeeperError as trouble:
            log.error("task %s could not say that it has left, its lease will lapse: %s", self._context.id, trouble)
        self._heartbeats.left = True
        self._heartbeats.stop()

    def _give_back(self, state: str | None, value: object) -> None:
        if self.successor is not None and state is not None:
            if state != states.RETRY:
                mark(self._task, self._context, PARKED, anew=True)
            try:
                self._parking.park(self.successor, {"request": self.request, "fence": self.fence})
            except (StaleFence, TooManyRequests, Unavailable):
                raise
            except (Refused, EncodeError) as refused:
                self._fail(refused)
        elif state is None or self.unstored or (isinstance(value, Reject) and getattr(value, "requeue", False)):
            mark(self._task, self._context, PARKED)
            self._release("lost")
        else:
            self._release("succeeded" if state in (states.SUCCESS, states.IGNORED) else "failed")

    def _fail(self, refused: Exception) -> None:
        """What it came to cannot be parked, now or later, so that is its result."""
        log.error("task %s cannot be parked again: %s", self._context.id, refused)
        why = NotGranted(
            f"task {self._context.id} cannot be parked again: {refused}", "refused", getattr(refused, "code", None)
        )
        self._task.backend.mark_as_failure(
            str(self._context.id), why, request=self._context, store_result=stores(self._task, self._context)
        )
        self._release("failed")

    def _check(self) -> None:
        """Ignore if the units were taken from it before it had ended: it is for somebody else now to say what comes of it."""
        if self.directive == "continue" and not self._heartbeats.suspected:
            return
        try:
            self._say(lambda: self._client.heartbeat(*self._held))
        except (AllocationLost, NotFound) as gone:
            self.successor = None
            raise Ignore(f"{self._context.id} had lost its units before it ended: {gone}") from None
        except PoolkeeperError as trouble:
            log.warning("task %s ends without knowing whether its units were still its own: %s", self._context.id, trouble)

    def _release(self, outcome: str) -> None:
        insist(lambda: self._client.release(*self._held, outcome), time.monotonic() + PATIENCE_S)

    def _checkpoint(self, state: str, patience_s: float = 0, **more: Any) -> bool:
        """Whether it could be said. Who has not to leave is not disturbed by a word that is refused, nobody by an outage."""
        asked, until = self.directive in LEAVING, time.monotonic() + patience_s
        try:
            insist(lambda: self._say(lambda: self._client.checkpoint(*self._held, state, **more)), until)
        except AllocationLost:
            raise
        except PoolkeeperError as trouble:
            if asked and not isinstance(trouble, (Unavailable, TooManyRequests)):
                raise
            log.warning("task %s could not say that its checkpoint is %s: %s", self._context.id, state, trouble)
            return False
        return True

    def _say(self, word: Callable[[], Heartbeat]) -> None:
        """Something that is answered like a heartbeat; AllocationLost if the units are gone."""
        try:
            self._heartbeats.say(word)
        except StaleFence as gone:
            raise AllocationLost(str(gone)) from gone

    # ---- having to leave

    def _enter(self) -> None:
        with self._lock:
            self._body = get_ident()
        if self.directive in ("terminate", "kill"):
            raise Preempted(f"{self.request} has to leave before it has begun")

    def _over(self) -> None:
        with self._lock:
            if self._body and self._interrupted:  # and it may not have arrived yet
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._body), None)
            self._body = 0

    def _told(self, directive: str) -> None:
        if directive not in ("terminate", "kill"):
            return
        with self._lock:
            if not self._body:
                return
            log.warning("task %s: %s", self._context.id, directive)
            if in_pool_child():
                os.kill(os.getpid(), signal.SIGTERM if directive == "terminate" else signal.SIGKILL)
            elif not self._interrupted:
                self._interrupted = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._body), ctypes.py_object(Preempted))
