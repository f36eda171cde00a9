"""The base class of tasks that run only while their units are granted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from types import EllipsisType, FunctionType
from typing import Any, ParamSpec, TypeVar

from celery import Celery, Task, signals, states
from celery.app.task import Context
from celery.exceptions import Ignore, ImproperlyConfigured
from celery.result import AsyncResult

from poolkeeper.celery.allocation import GrantedAllocation, TaskAllocation
from poolkeeper.celery.exceptions import NotParked, TaskNotGranted
from poolkeeper.celery.message import GRANT_HEADER, task_key
from poolkeeper.celery.publish_hook import (
    ALLOCATION_ATTRIBUTE,
    install,
    is_over,
    publishing_directly,
    retry_until,
    stores_result,
)
from poolkeeper.celery.result_backend import retry_storing
from poolkeeper.errors import Conflict, NotFound, PoolkeeperError

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

log = logging.getLogger(__name__)

NO_ALLOCATION = TaskAllocation()
ACKNOWLEDGE_FOR_S = 5.0
"""The seconds for which the acknowledgement of an end is retried."""
ACKNOWLEDGEMENT_ATTRIBUTE = "poolkeeper_hears"
"""The attribute of a task's request with the end notice, which is acknowledged after the result is stored."""
REPARK_AFTER_S = 30
"""The seconds after which a worker gets a message again if it could not park the task."""
NOT_GRANTED = {"preempted": "has no preemption_retries left", "expired": "has no redeliveries left"}
"""Status of the request → predicate of the text of TaskNotGranted; for any other status "does not run"."""


class PoolTask(Task[P, R]):
    """A task that runs only while its units are granted: `@app.task(base=PoolTask, component="team", resources={"gpu": 1})`.

    The options are those of `Client.submit`. Each may also be given for one call: `apply_async(args, resources=…)`,
    `s(…).set(resources=…)`, `send_task(name, resources=…)`, an entry of beat. None is the default of the service.
    """

    abstract = True
    Request = "poolkeeper.celery.worker_request:PoolRequest"
    track_started = True

    component: str | None = None
    """The component that requests the units; required."""
    component_type: str | None = None
    pools: Sequence[str] | None = None
    """The pools that may grant it; None is any pool."""
    resources: Mapping[str, int] | None = None
    """The units by key; this or `settings` is required."""
    settings: Mapping[str, Any] | None = None
    preemptible: bool | None = None
    preemption_class: int | None = None
    checkpoint: str | None = None
    """`manual` or `auto` if the task can save its work; then it gets the directive `checkpoint` before `terminate`."""
    checkpoint_minutes: int | None = None
    walltime_s: int | None = None
    lease_s: int | EllipsisType | None = ...
    """The seconds without a heartbeat after which the worker counts as lost; None (in the options of a call: 0) is never."""
    labels: Mapping[str, str] | None = None
    """The labels of the request; the label `task` with the name of the task is added."""
    preemption_retries: int | None = None
    """The most preemptions after which the task is parked again; independent of `max_retries`."""
    redeliveries: int | None = None
    """The most times that the task is sent again after its worker was lost."""
    reports_started = True

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        """Check the options of the task, and install the hook."""
        super().on_bound(app)
        if getattr(cls, "name", None) is None:  # a base class of tasks
            return
        if not cls.component:
            raise ImproperlyConfigured(f"task {cls.name} has no component: give component=…")
        if cls.resources is None and cls.settings is None:
            raise ImproperlyConfigured(f"task {cls.name} has no resources: give resources={{…}}, or {{}} for none")
        if "reports_started" not in vars(cls):
            # Celery would report a start for each message that arrives, and some of them are not run.
            cls.reports_started, cls.track_started = bool(cls.track_started), False
        install(app)

    @property
    def allocation(self) -> TaskAllocation:
        """Return the allocation of the run."""
        allocation: TaskAllocation = vars(self.request).get(ALLOCATION_ATTRIBUTE, NO_ALLOCATION)
        return allocation

    def apply_async(self, *args: Any, **options: Any) -> AsyncResult[R]:
        """Park the task. Options of its request are accepted as well as Celery's."""
        return super().apply_async(*args, **options)

    def __init_subclass__(cls, **more: Any) -> None:
        """Wrap `before_start` and `__call__` of a derived base, so that they run under the allocation."""
        super().__init_subclass__(**more)
        for name, under in (("before_start", _after_begin), ("__call__", _under_allocation)):
            if isinstance(own := vars(cls).get(name), FunctionType):
                setattr(cls, name, under(own))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        allocation = self._begin()
        if allocation is None:
            return self.run(*args, **kwargs) if self.request.is_eager else super().__call__(*args, **kwargs)
        if allocation.is_body_reached:  # the task calls itself
            return super().__call__(*args, **kwargs)
        allocation.is_body_reached = True
        result: R = self.run(*args, **kwargs) if allocation.is_entered else allocation.run(self.run, args, kwargs)
        return result

    def _begin(self) -> GrantedAllocation | None:
        """Return the allocation of this run, and start it if it is new; None for a direct or eager call. Raise Ignore if the
        task must not run.
        """
        request = self.request
        allocation: GrantedAllocation | None = vars(request).get(ALLOCATION_ATTRIBUTE)
        if allocation is not None or request.called_directly or request.is_eager:
            return allocation
        grant = request.get(GRANT_HEADER)
        if grant is None:
            self._park_here(request)
        retry_storing(self.app, self.backend)
        if grant.get("ended"):
            self._end_unrun(request, grant)
        allocation = GrantedAllocation(install(self.app), self, request, grant)
        allocation.begin()
        vars(request)[ALLOCATION_ATTRIBUTE] = allocation
        allocation.start_heartbeats()
        if is_over(self, request):
            self._count_in_chord(request)
            raise Ignore(f"{request.id} has a result already")
        allocation.set_started()
        return allocation

    def _count_in_chord(self, request: Context) -> None:
        """Count a task with a result in its chord, because the process that stored the result may have died before it counted
        the task.

        If the backend stores the parts of a chord by name, counting twice is harmless. With a backend that only counts parts,
        do nothing.
        """
        if request.chord and not getattr(self.backend, "implements_incr", False):
            came_to = self.backend.get_task_meta(str(request.id))
            self.backend.on_chord_part_return(request, came_to["status"], came_to["result"])

    def _park_here(self, request: Context) -> None:
        """Park a task that was published without a request, with all options of its message."""
        signature = self.signature_from_request(request, retries=request.retries, add_to_parent=False)
        try:
            signature.apply_async()
        except NotParked as error:
            log.warning("task %s could not be parked, it is put back into its queue: %s", request.id, error)
            with publishing_directly():
                signature.apply_async(countdown=REPARK_AFTER_S)
        raise Ignore(f"{request.id} is parked until its request is granted")

    def _end_unrun(self, request: Context, notice: Mapping[str, Any]) -> None:
        """Store the result of a task that will never run. The end notice is repeated until a worker acknowledges it."""
        end, is_repeated = notice["ended"], int(notice.get("tries") or 1) > 1
        message, status, code = str(end["message"]), str(end["status"]), end.get("code")
        is_expired = code == "not_polled"
        is_revoked = status == "cancelled" or is_expired
        has_result = stores_result(self, request)
        if self._is_replaced(request, notice):
            raise Ignore(f"{request.id} is the id of another task now")
        if is_over(self, request) and (is_repeated or not is_revoked):  # else the caller of revoke has stored that result
            self._count_in_chord(request)
            self._acknowledge_end(request, notice)
            raise Ignore(f"{request.id} has a result already")
        if (
            not has_result and not self._acknowledge_end(request, notice) and is_repeated
        ):  # without a result, nothing else shows that a worker handled it before
            raise Ignore(f"{request.id} has ended, which a worker has acknowledged before")
        if not is_revoked:
            vars(request)[ACKNOWLEDGEMENT_ATTRIBUTE] = notice if has_result else None
            raise TaskNotGranted(f"task {request.id} {NOT_GRANTED.get(status, 'does not run')}: {message}", status, code)
        self.backend.mark_as_revoked(str(request.id), message, request=request, store_result=has_result)
        signals.task_revoked.send(sender=self, request=request, terminated=False, signum=None, expired=is_expired)
        if has_result:
            self._acknowledge_end(request, notice)
        raise Ignore(f"{request.id} is revoked: {message}")

    def _is_replaced(self, request: Context, notice: Mapping[str, Any]) -> bool:
        """True if a task of the same id is not over; False if that is not known."""
        try:
            task = install(self.app).client.task(task_key(str(request.id)))
        except PoolkeeperError:
            return False
        return task.status != "ended" or bool(task.request and notice.get("request") not in (None, task.request.id))

    def _acknowledge_end(self, request: Context, notice: Mapping[str, Any]) -> bool:
        """Acknowledge the end notice of the task. Return False if it was acknowledged before."""
        client, path = install(self.app).client, f"/tasks/{task_key(str(request.id))}/heard"
        try:
            retry_until(
                lambda: client.call("POST", path, body={"request": notice.get("request")}), time.monotonic() + ACKNOWLEDGE_FOR_S
            )
        except (NotFound, Conflict):
            return False
        except PoolkeeperError as error:
            log.warning("the end of task %s could not be acknowledged, its message may come again: %s", request.id, error)
        return True


def _after_begin(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def before_start(self: PoolTask[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._begin()
        return original(self, *args, **kwargs)

    return before_start


def _under_allocation(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(self: PoolTask[..., Any], *args: Any, **kwargs: Any) -> Any:
        allocation = self._begin()
        return (
            original(self, *args, **kwargs)
            if allocation is None or allocation.is_entered
            else allocation.run(partial(original, self), args, kwargs)
        )

    return call


@signals.task_postrun.connect(weak=False)
def _release_after_run(task: object = None, state: str | None = None, retval: object = None, **_: object) -> None:
    """Release the units after the result is stored, whatever the result is."""
    if not isinstance(task, PoolTask):
        return
    if isinstance(allocation := vars(task.request).pop(ALLOCATION_ATTRIBUTE, None), GrantedAllocation):
        allocation.end(state, retval)
    if (notice := vars(task.request).pop(ACKNOWLEDGEMENT_ATTRIBUTE, None)) and state == states.FAILURE:
        task._acknowledge_end(task.request, notice)
