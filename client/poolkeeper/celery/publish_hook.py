"""The publish hook: tasks that need a grant go to Poolkeeper instead of the broker.

Each app has one `PublishHook`. It is made by `install`, or when the first `PoolTask` is bound. Its client is made at the first
use. A forked child may use the same client.
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
from poolkeeper.backoff import pause_s
from poolkeeper.celery import revoke_hook, task_options
from poolkeeper.celery.exceptions import PARKED, NotParked
from poolkeeper.celery.message import GRANT_HEADER, CapturedMessage, RecordingProducer, remaining_s, task_key
from poolkeeper.errors import ApiError, Conflict, NotFound, PoolkeeperError, TooManyRequests, Unavailable
from poolkeeper.http_client import new_key

if TYPE_CHECKING:
    from poolkeeper.celery.allocation import GrantedAllocation
    from poolkeeper.celery.task import PoolTask

Result = TypeVar("Result")

log = logging.getLogger(__name__)

RETRY_FOR_S = 60.0
"""The seconds for which a worker retries a call while Poolkeeper cannot be reached."""

RECHECK_S = 0.1
"""The seconds between two checks for a task of the same id."""

ENDING_STATES = ("started", "ended")
"""States of a task that may end soon."""

ALLOCATION_ATTRIBUTE = "poolkeeper_run"
"""The attribute of the request of a running task that holds its allocation."""

_publishes_directly: ContextVar[bool] = ContextVar("poolkeeper_aside", default=False)


@dataclass
class ParkCall:
    """The call that parks a task, under one idempotency key for all its tries."""

    task: PoolTask[Any, Any]
    message: CapturedMessage
    options: Mapping[str, Any]
    key: str = field(default_factory=new_key)
    until_s: float | None = None

    def body(self) -> dict[str, Any]:
        """Return the body of the call."""
        body = task_options.task_body(self.task, self.options)
        if (wait_s := remaining_s(self.message, datetime.now(UTC))) is not None:
            body["request"]["queue_ttl_s"] = wait_s
        not_before = self.message.not_before
        return body | {
            "task": task_key(self.message.id),
            "message": self.message.document,
            "not_before": not_before.isoformat() if not_before else None,
        }


CONFIGURATION_KEYS = ("url", "token", "workspace", "timeout_s", "tries")
"""The keys of `app.conf.poolkeeper`."""


class PublishHook:
    """The hook that parks the tasks of one app."""

    def __init__(self, app: Celery) -> None:
        self._app, self._lock = app, Lock()
        self._client: Client | None = None
        self._publish: Callable[..., Any] | None = None

    @property
    def client(self) -> Client:
        """Return the client that `app.conf.poolkeeper` configures; keys that are not there have their defaults."""
        if self._client is None:
            configuration = self._app.conf.get("poolkeeper") or {}
            if unknown := sorted(configuration.keys() - CONFIGURATION_KEYS):
                raise ImproperlyConfigured(
                    f"app.conf.poolkeeper has the unknown key {unknown[0]!r}; its keys are {', '.join(CONFIGURATION_KEYS)}"
                )
            self._client = Client(**configuration)
        return self._client

    # ---- the hook

    def wrap(self) -> None:
        """Replace `app.amqp.send_task_message`, so that the app publishes no PoolTask."""
        amqp = vars(self._app.amqp)
        self._publish = amqp.get("send_task_message")
        amqp["send_task_message"] = self.send

    def send(self, producer: Producer, name: str, message: Any, **options: Any) -> Any:
        """Park a PoolTask, and publish any other task, in place of `app.amqp.send_task_message`."""
        publish, task = self._celery_publish(), self.pool_task(name)
        if _publishes_directly.get() or (task is None and self._is_foreign(name)):
            return publish(producer, name, message, **options)
        if task is None:  # this app does not know the task; a worker that knows it parks it with the options of this call
            if call_options := task_options.pop_options(options, None):
                options["headers"] = {**(options.get("headers") or {}), task_options.OPTIONS_HEADER: call_options}
            return publish(producer, name, message, **options)
        headers = {field: value for field, value in (options.pop("headers", None) or {}).items() if field != GRANT_HEADER}
        if call_options := task_options.pop_options(options, {**message.headers, **headers}):
            headers[task_options.OPTIONS_HEADER] = call_options

        park_call: ParkCall | None = None

        def park(captured: CapturedMessage) -> None:
            nonlocal park_call  # a retry by Celery repeats the same call, with the same idempotency key
            park_call = park_call or ParkCall(task, captured, call_options)
            self.park_or_defer(park_call, self._own_allocation(captured))

        recording_producer = RecordingProducer(self._app, producer, options.get("exchange_type"), park)
        return publish(recording_producer, name, message, headers=headers, **options)

    def pool_task(self, name: str) -> PoolTask[Any, Any] | None:
        """Return the task of this name if it is a PoolTask; a lazily declared task is evaluated now."""
        from poolkeeper.celery.task import PoolTask

        try:
            task = self._app.tasks.get(name)
        except RuntimeError:  # the tasks cannot be evaluated now, so no PoolTask is registered
            return None
        return task if isinstance(task, PoolTask) else None

    def _is_foreign(self, name: str) -> bool:
        """True if the app knows the task (which is no PoolTask), or if the tasks of the app cannot be evaluated."""
        try:
            return name in self._app.tasks
        except RuntimeError:
            return True

    def park_or_defer(self, park_call: ParkCall, allocation: GrantedAllocation | None) -> None:
        """Park the task. If a running task publishes itself again, park it when the run has ended."""
        if allocation:
            allocation.successor = park_call
            return
        if park_call.message.headers.get("retries"):  # its state is RETRY
            self.park(park_call)
            return
        is_state_set = set_state(park_call.task, self._context(park_call.message), PARKED, forget_result=True)
        try:
            self.park(park_call)
        except (PoolkeeperError, EncodeError) as error:
            may_be_parked = isinstance(error, ApiError) and error.answer_lost
            if is_state_set and not may_be_parked and not isinstance(error, Conflict):
                _forget(park_call.task, park_call.message.id)
            raise

    def park(self, park_call: ParkCall, instead_of: Mapping[str, Any] | None = None) -> None:
        """Park the task. Raise NotParked if Poolkeeper cannot be reached; a worker first retries for `RETRY_FOR_S`."""
        body = park_call.body() | ({"instead_of": dict(instead_of)} if instead_of else {})
        in_worker = self._app.current_worker_task is not None
        park_call.until_s = park_call.until_s or time.monotonic() + (RETRY_FOR_S if in_worker else 0)
        try:
            while not self._is_parked(body, park_call, in_worker=in_worker):
                time.sleep(RECHECK_S)
        except Unavailable as error:
            raise _not_parked(error) from error
        except (TypeError, ValueError) as error:
            raise EncodeError(
                f"the message of task {park_call.message.id} has headers that JSON cannot hold: {error}"
            ) from error

    def _is_parked(self, body: Mapping[str, Any], park_call: ParkCall, *, in_worker: bool) -> bool:
        """True if this call or an earlier call has parked the task; False if the task of the same id is about to end."""
        until_s, name = park_call.until_s or 0, task_key(park_call.message.id)
        try:
            retry_until(lambda: self.client.park(body, park_call.key), until_s)
        except Conflict as conflict:
            if conflict.code != "task_exists" or not in_worker:
                raise
        else:
            return True
        # Either this task is the last successor of a replaced task that has not released its units yet; or a task runs again
        # after a loss, and sends again what it had sent.
        try:
            task = retry_until(lambda: self.client.task(name), until_s)
        except NotFound:
            return is_over(park_call.task, self._context(park_call.message))
        if task.status in ENDING_STATES and time.monotonic() < until_s:
            return False
        log.warning("task %s is parked already", park_call.message.id)
        return True

    def cancel(self, task_id: str) -> bool:
        """True if the task was cancelled before it was granted."""
        try:
            self.client.cancel_task(task_key(task_id))
        except PoolkeeperError as error:
            if not isinstance(error, (NotFound, Conflict)):
                log.warning("task %s could not be cancelled in Poolkeeper, so only the workers revoke it: %s", task_id, error)
            return False
        return True

    def _celery_publish(self) -> Callable[..., Any]:
        """Return the wrapped function. It is made now if Celery has not made it yet, because Celery reads its settings once."""
        with self._lock:
            if self._publish is None:
                amqp = vars(self._app.amqp)
                amqp.pop("send_task_message")
                self._publish = self._app.amqp.send_task_message
                amqp["send_task_message"] = self.send
        return self._publish

    def _own_allocation(self, message: CapturedMessage) -> GrantedAllocation | None:
        """Return the allocation of the running task that publishes itself again."""
        task = self._app.current_worker_task
        if task is None or task.request.id != message.id:
            return None
        allocation: GrantedAllocation | None = vars(task.request).get(ALLOCATION_ATTRIBUTE)
        return allocation

    def _context(self, message: CapturedMessage) -> Context:
        """Return the context that a result backend may need."""
        args, kwargs, _ = message.body
        properties = {name: message.document["properties"].get(name) for name in ("reply_to", "correlation_id")}
        return Context(message.headers, args=args, kwargs=kwargs, **properties)


def install(app: Celery) -> PublishHook:
    """Park the PoolTasks of this app, and cancel parked tasks that are revoked.

    The binding of a `PoolTask` calls this function. If a task may be sent by its name, or revoked, before the tasks of the app
    are evaluated, call it after the configuration of the app.
    """
    hook = vars(app).get("poolkeeper_parking")
    if not isinstance(hook, PublishHook):
        hook = vars(app)["poolkeeper_parking"] = PublishHook(app)
        hook.wrap()
        revoke_hook.wrap(app, hook.cancel)
    return hook


@contextmanager
def publishing_directly() -> Iterator[None]:
    """Send every task to the broker inside the block."""
    token = _publishes_directly.set(True)
    try:
        yield
    finally:
        _publishes_directly.reset(token)


def retry_until(call: Callable[[], Result], until_s: float) -> Result:
    """Return the result of the call, retried until `until_s`. Raise Unavailable or TooManyRequests after that."""
    tries = 0
    while True:
        try:
            return call()
        except (Unavailable, TooManyRequests) as error:
            tries += 1
            pause = pause_s(tries, error.retry_after_s)
            if time.monotonic() + pause >= until_s:
                raise
            time.sleep(pause)


def stores_result(task: Task[Any, Any], request: Context) -> bool:
    """True if the result of the task is stored."""
    ignore_result = vars(request).get("ignore_result")
    return not (task.ignore_result if ignore_result is None else ignore_result)


def set_state(task: Task[Any, Any], request: Context, state: str, meta: Any = None, *, forget_result: bool = False) -> bool:
    """Set the state of the task; with `forget_result`, first remove the result of an earlier run. Log errors of the backend."""
    if not stores_result(task, request) or request.id is None:
        return False
    try:
        if forget_result and is_over(task, request):
            task.backend.forget(request.id)
        task.backend.store_result(request.id, meta, state, request=request)
    except Exception:
        log.warning("the state of task %s could not be set to %s", request.id, state, exc_info=True)
        return False
    return True


def is_over(task: Task[Any, Any], request: Context) -> bool:
    """True if the task has a result; False if that is not known."""
    return get_state(task, request) in states.READY_STATES


def get_state(task: Task[Any, Any], request: Context) -> str | None:
    """Return the state of the task; None if it is not known."""
    if request.id is None or not stores_result(task, request) or not task.backend.persistent:
        return None
    with suppress(Exception):
        return str(task.backend.get_state(request.id))
    return None


def _forget(task: Task[Any, Any], task_id: str) -> None:
    with suppress(Exception):  # some backends cannot forget
        task.backend.forget(task_id)


def _not_parked(error: Unavailable) -> NotParked:
    not_parked = NotParked(
        error.detail, status=error.status, code=error.code, problem=error.problem, retry_after_s=error.retry_after_s
    )
    not_parked.repeated, not_parked.answer_lost = error.repeated, error.answer_lost
    return not_parked
