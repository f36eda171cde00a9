"""The hook: tasks that are to be parked are kept from the broker and given to Poolkeeper instead.

One `Parking` an app, made when the first task that needs it is bound, or by `install`. Its connection to Poolkeeper is made
when it is first needed, and a forked child may go on using it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from celery import Celery, Task, states
from celery.app.task import Context
from celery.exceptions import ImproperlyConfigured
from kombu import Producer
from kombu.exceptions import EncodeError

from poolkeeper import Client
from poolkeeper.celery import revoke_hook, task_options
from poolkeeper.celery.exceptions import PARKED, NotParked
from poolkeeper.celery.message import SENT, Captured, Recorder, remaining_s, task_key
from poolkeeper.errors import Conflict, NotFound, PoolkeeperError, TooManyRequests, Unavailable
from poolkeeper.http_client import new_key, pause_s

if TYPE_CHECKING:
    from poolkeeper.celery.allocation import Held
    from poolkeeper.celery.task import PoolTask

Answer = TypeVar("Answer")

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""How long a worker goes on asking while Poolkeeper is away."""

ROOM_S = 0.1
"""Between two looks whether a task of that name is still there."""

ENDING = ("started", "ended")
"""How a task stands that may be over soon."""

RUN = "poolkeeper_run"
"""The attribute of a running task's request that has its allocation."""

_aside: ContextVar[bool] = ContextVar("poolkeeper_aside", default=False)


@dataclass
class Parcel:
    """A task on its way to Poolkeeper, under one key however often it is tried."""

    task: PoolTask[Any, Any]
    captured: Captured
    call: Mapping[str, Any]
    key: str = field(default_factory=new_key)
    until: float | None = None

    def ask(self) -> dict[str, Any]:
        """As the service takes it."""
        ask = task_options.asked(self.task, self.call)
        if (wait_s := remaining_s(self.captured, datetime.now(UTC))) is not None:
            ask["request"]["queue_ttl_s"] = wait_s
        not_before = self.captured.not_before
        return ask | {
            "task": task_key(self.captured.id),
            "message": self.captured.document,
            "not_before": not_before.isoformat() if not_before else None,
        }


CONFIGURED = ("url", "token", "workspace", "timeout_s", "tries")
"""What `app.conf.poolkeeper` may say."""


class Parking:
    """What an app's tasks need of Poolkeeper."""

    def __init__(self, app: Celery) -> None:
        self._app, self._lock = app, Lock()
        self._client: Client | None = None
        self._publish: Callable[..., Any] | None = None

    @property
    def client(self) -> Client:
        """As `app.conf.poolkeeper` says (`url`, `token`, `workspace`), and what it does not say as any client."""
        if self._client is None:
            said = self._app.conf.get("poolkeeper") or {}
            if unknown := sorted(said.keys() - CONFIGURED):
                raise ImproperlyConfigured(f"app.conf.poolkeeper says {unknown[0]!r}; it may say {', '.join(CONFIGURED)}")
            self._client = Client(**said)
        return self._client

    # ---- the hook

    def wrap(self) -> None:
        """From now on no task of ours is published by this app."""
        amqp = vars(self._app.amqp)
        self._publish = amqp.get("send_task_message")
        amqp["send_task_message"] = self.send

    def send(self, producer: Producer, name: str, message: Any, **options: Any) -> Any:
        """In place of `app.amqp.send_task_message`."""
        publish, task = self._celerys(), self.task(name)
        if _aside.get() or (task is None and self._is_anothers(name)):
            return publish(producer, name, message, **options)
        if task is None:  # not known here, but whoever finds it may know it: then it asks what this call says
            if call := task_options.said(options, None):
                options["headers"] = {**(options.get("headers") or {}), task_options.HEADER: call}
            return publish(producer, name, message, **options)
        headers = {field: value for field, value in (options.pop("headers", None) or {}).items() if field != SENT}
        if call := task_options.said(options, {**message.headers, **headers}):
            headers[task_options.HEADER] = call

        parcel: Parcel | None = None

        def keep(captured: Captured) -> None:
            nonlocal parcel  # Celery may try again, and then it is still the same one
            parcel = parcel or Parcel(task, captured, call)
            self.keep(parcel, self._running(captured))

        recorder = Recorder(self._app, producer, options.get("exchange_type"), keep)
        return publish(recorder, name, message, headers=headers, **options)

    def task(self, name: str) -> PoolTask[Any, Any] | None:
        """The task of this name, if it is one of ours; what was declared and not looked at yet is looked at now."""
        from poolkeeper.celery.task import PoolTask

        try:
            task = self._app.tasks.get(name)
        except RuntimeError:  # it does not want to be, so nothing of ours is there yet
            return None
        return task if isinstance(task, PoolTask) else None

    def _is_anothers(self, name: str) -> bool:
        """Whether the app knows the task, or will not be asked: then it is Celery's alone."""
        try:
            return name in self._app.tasks
        except RuntimeError:
            return True

    def keep(self, parcel: Parcel, running: Held | None) -> None:
        """Park it; by the task itself while it runs, as soon as it has ended."""
        if running:
            running.successor = parcel
            return
        if parcel.captured.headers.get("retries"):  # its state is RETRY
            self.park(parcel)
            return
        marked = mark(parcel.task, self._context(parcel.captured), PARKED, anew=True)
        try:
            self.park(parcel)
        except (PoolkeeperError, EncodeError) as trouble:
            if marked and not getattr(trouble, "lost", False) and not isinstance(trouble, Conflict):
                _forget(parcel.task, parcel.captured.id)
            raise

    def park(self, parcel: Parcel, instead_of: Mapping[str, Any] | None = None) -> None:
        """Give it to Poolkeeper; NotParked if that is away, in a worker for longer than a while."""
        body = parcel.ask() | ({"instead_of": dict(instead_of)} if instead_of else {})
        at_work = self._app.current_worker_task is not None
        parcel.until = parcel.until or time.monotonic() + (PATIENCE_S if at_work else 0)
        try:
            while not self._is_parked(body, parcel, at_work=at_work):
                time.sleep(ROOM_S)
        except Unavailable as away:
            raise _not_parked(away) from away
        except (TypeError, ValueError) as error:
            raise EncodeError(f"the message of task {parcel.captured.id} has headers that are no JSON: {error}") from error

    def _is_parked(self, body: Mapping[str, Any], parcel: Parcel, *, at_work: bool) -> bool:
        """Whether it is now, or was already; not yet if what has its name is about to end."""
        until, name = parcel.until or 0, task_key(parcel.captured.id)
        try:
            insist(lambda: self.client.park(body, parcel.key), until)
        except Conflict as trouble:
            if trouble.code != "task_exists" or not at_work:
                raise
        else:
            return True
        # It is the last of those that a task, which has not given back its units yet, was replaced by; or whoever is run again
        # after a loss sends again what it had sent.
        try:
            known = insist(lambda: self.client.task(name), until)
        except NotFound:
            return is_over(parcel.task, self._context(parcel.captured))
        if known.status in ENDING and time.monotonic() < until:
            return False
        log.warning("task %s is parked already", parcel.captured.id)
        return True

    def cancel(self, task_id: str) -> bool:
        """Whether it was given up before anybody began it."""
        try:
            self.client.cancel_task(task_key(task_id))
        except PoolkeeperError as refused:
            if getattr(refused, "status", 0) not in (404, 409):
                log.warning("whether %s is parked is not known, so only the workers are told: %s", task_id, refused)
            return False
        return True

    def _celerys(self) -> Callable[..., Any]:
        """The function that is wrapped; made now, if Celery had not made it yet, as it looks at the configuration only once."""
        with self._lock:
            if self._publish is None:
                amqp = vars(self._app.amqp)
                amqp.pop("send_task_message")
                self._publish = self._app.amqp.send_task_message
                amqp["send_task_message"] = self.send
        return self._publish

    def _running(self, captured: Captured) -> Held | None:
        """The allocation of the task that sends itself again."""
        task = self._app.current_worker_task
        if task is None or task.request.id != captured.id:
            return None
        held: Held | None = vars(task.request).get(RUN)
        return held

    def _context(self, captured: Captured) -> Context:
        """What a result backend may want to know of it."""
        args, kwargs, _ = captured.body
        properties = {name: captured.document["properties"].get(name) for name in ("reply_to", "correlation_id")}
        return Context(captured.headers, args=args, kwargs=kwargs, **properties)


def install(app: Celery) -> Parking:
    """Have the tasks of this app parked that are to be, and revoked wherever they are.

    It is done by itself as soon as a `PoolTask` is bound. Call it, once the app is configured, where a task may be sent by its
    name, or revoked, before anything has looked at the app's tasks.
    """
    installed = vars(app).get("poolkeeper_parking")
    if not isinstance(installed, Parking):
        installed = vars(app)["poolkeeper_parking"] = Parking(app)
        installed.wrap()
        revoke_hook.wrap(app, installed.cancel)
    return installed


@contextmanager
def published() -> Iterator[None]:
    """Inside, tasks are sent to the broker whatever they are."""
    token = _aside.set(True)
    try:
        yield
    finally:
        _aside.reset(token)


def insist(call: Callable[[], Answer], until: float) -> Answer:
    """What is answered, if need be after many tries until then; Unavailable or TooManyRequests in the end."""
    tried = 0
    while True:
        try:
            return call()
        except (Unavailable, TooManyRequests) as trouble:
            tried += 1
            pause = pause_s(tried, trouble.retry_after_s)
            if time.monotonic() + pause >= until:
                raise
            time.sleep(pause)


def stores(task: Task[Any, Any], request: Context) -> bool:
    """Whether anybody wants to know what becomes of it."""
    said = vars(request).get("ignore_result")
    return not (task.ignore_result if said is None else said)


def mark(task: Task[Any, Any], request: Context, state: str, meta: Any = None, *, anew: bool = False) -> bool:
    """Set the task's state, `anew` if it has a result of an earlier life; a backend that is away stops nothing."""
    if not stores(task, request) or request.id is None:
        return False
    try:
        if anew and is_over(task, request):
            task.backend.forget(request.id)
        task.backend.store_result(request.id, meta, state, request=request)
    except Exception:
        log.warning("the state of task %s could not be set to %s", request.id, state, exc_info=True)
        return False
    return True


def is_over(task: Task[Any, Any], request: Context) -> bool:
    """Whether there is a result already; False if that cannot be found out."""
    return state_of(task, request) in states.READY_STATES


def state_of(task: Task[Any, Any], request: Context) -> str | None:
    """Its state, if that can be found out."""
    if request.id is None or not stores(task, request) or not task.backend.persistent:
        return None
    with suppress(Exception):
        return str(task.backend.get_state(request.id))
    return None


def _forget(task: Task[Any, Any], task_id: str) -> None:
    with suppress(Exception):  # a backend may not be able to
        task.backend.forget(task_id)


def _not_parked(away: Unavailable) -> NotParked:
    trouble = NotParked(away.detail, status=away.status, code=away.code, problem=away.problem, retry_after_s=away.retry_after_s)
    trouble.repeated, trouble.lost = away.repeated, away.lost
    return trouble
