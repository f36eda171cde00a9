"""The base of tasks that run only while what they need is granted."""

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
"""How long to try to say that a last word was heard."""
ACKNOWLEDGEMENT_ATTRIBUTE = "poolkeeper_hears"
"""The attribute of a task's request by which a last word is acknowledged once it is stored."""
REPARK_AFTER_S = 30
"""When a message that could not be parked is looked at again."""


class PoolTask(Task[P, R]):
    """`@app.task(base=PoolTask, component="team", resources={"gpu": 1})`: it runs only while that is granted.

    What is asked is as in `Client.submit`; each of these may be given for one call, too: `apply_async(args, resources=…)`,
    `s(…).set(resources=…)`, `send_task(name, resources=…)`, an entry of beat. What is None is the service's default.
    """

    abstract = True
    Request = "poolkeeper.celery.worker_request:PoolRequest"
    track_started = True

    component: str | None = None
    """Who asks; it has to be said."""
    component_type: str | None = None
    pools: Sequence[str] | None = None
    """The pools that may grant it, instead of any."""
    resources: Mapping[str, int] | None = None
    """What it needs; it or `settings` has to be said."""
    settings: Mapping[str, Any] | None = None
    preemptible: bool | None = None
    preemption_class: int | None = None
    checkpoint: str | None = None
    """`manual` or `auto`: it can save its work, and is asked to before it is terminated."""
    checkpoint_minutes: int | None = None
    walltime_s: int | None = None
    lease_s: int | EllipsisType | None = ...
    """How soon a worker that is gone is noticed; None is never, for one call 0 is."""
    labels: Mapping[str, str] | None = None
    """The label `task` is added, with the task's name."""
    preemption_retries: int | None = None
    """How often it may be parked again after it had to leave; it has nothing to do with `max_retries`."""
    redeliveries: int | None = None
    """How often it is sent anew after its worker was lost."""
    reports_started = True

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        """Check the options of the task, and install the hook."""
        super().on_bound(app)
        if getattr(cls, "name", None) is None:  # a base of tasks
            return
        if not cls.component:
            raise ImproperlyConfigured(f"task {cls.name} does not say who asks: component=…")
        if cls.resources is None and cls.settings is None:
            raise ImproperlyConfigured(f"task {cls.name} does not say what it needs: resources={{…}}, or {{}} for none")
        if "reports_started" not in vars(cls):
            # Celery would say so of every message that arrives, and some of ours are not run.
            cls.reports_started, cls.track_started = bool(cls.track_started), False
        install(app)

    @property
    def allocation(self) -> TaskAllocation:
        """The allocation of the run."""
        allocation: TaskAllocation = vars(self.request).get(ALLOCATION_ATTRIBUTE, NO_ALLOCATION)
        return allocation

    def apply_async(self, *args: Any, **options: Any) -> AsyncResult[R]:
        """Park the task. The options of its request are accepted beside Celery's."""
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
        if allocation.is_body_reached:  # it calls itself
            return super().__call__(*args, **kwargs)
        allocation.is_body_reached = True
        result: R = self.run(*args, **kwargs) if allocation.is_entered else allocation.run(self.run, args, kwargs)
        return result

    def _begin(self) -> GrantedAllocation | None:
        """Return the allocation of this run, started now if it is new; None if the task needs none. Raise Ignore if it must not
        run.
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
        """Count a task with a result in its chord; the process that stored the result may have died before.

        Counting twice is harmless if the backend keeps the parts by their names. A backend that only counts is left alone.
        """
        if request.chord and not getattr(self.backend, "implements_incr", False):
            came_to = self.backend.get_task_meta(str(request.id))
            self.backend.on_chord_part_return(request, came_to["status"], came_to["result"])

    def _park_here(self, request: Context) -> None:
        """Somebody published it without asking: it is parked with all that its message said."""
        signature = self.signature_from_request(request, retries=request.retries, add_to_parent=False)
        try:
            signature.apply_async()
        except NotParked as error:
            log.warning("task %s could not be parked, it is put back into its queue: %s", request.id, error)
            with publishing_directly():
                signature.apply_async(countdown=REPARK_AFTER_S)
        raise Ignore(f"{request.id} is parked until what it needs is granted")

    def _end_unrun(self, request: Context, notice: Mapping[str, Any]) -> None:
        """Store the result of a task that will never run. The notice is repeated until a worker acknowledges it."""
        end, is_repeated = notice["ended"], int(notice.get("tries") or 1) > 1
        message, status, code = str(end["message"]), str(end["status"]), end.get("code")
        is_expired = code == "not_polled"
        is_revoked = status == "cancelled" or is_expired
        has_result = stores_result(self, request)
        if self._is_replaced(request, notice):
            raise Ignore(f"{request.id} is another task's name by now")
        if is_over(self, request) and (is_repeated or not is_revoked):  # else it is marked as revoked by who has revoked it
            self._count_in_chord(request)
            self._acknowledge_end(request, notice)
            raise Ignore(f"{request.id} has a result already")
        if (
            not has_result and not self._acknowledge_end(request, notice) and is_repeated
        ):  # no result tells that somebody has heard it before
            raise Ignore(f"{request.id} was told to be over")
        if not is_revoked:
            vars(request)[ACKNOWLEDGEMENT_ATTRIBUTE] = notice if has_result else None
            raise TaskNotGranted(f"task {request.id} does not run: {message}", status, code)
        self.backend.mark_as_revoked(str(request.id), message, request=request, store_result=has_result)
        signals.task_revoked.send(sender=self, request=request, terminated=False, signum=None, expired=is_expired)
        if has_result:
            self._acknowledge_end(request, notice)
        raise Ignore(f"{request.id} is revoked: {message}")

    def _is_replaced(self, request: Context, notice: Mapping[str, Any]) -> bool:
        """True if a task of the same id is not over; False if that cannot be found out."""
        try:
            task = install(self.app).client.task(task_key(str(request.id)))
        except PoolkeeperError:
            return False
        return task.status != "ended" or bool(task.request and notice.get("request") not in (None, task.request.id))

    def _acknowledge_end(self, request: Context, notice: Mapping[str, Any]) -> bool:
        """Acknowledge the notice that the task will never run. False if it was acknowledged before."""
        client, path = install(self.app).client, f"/tasks/{task_key(str(request.id))}/heard"
        try:
            retry_until(
                lambda: client.call("POST", path, body={"request": notice.get("request")}), time.monotonic() + ACKNOWLEDGE_FOR_S
            )
        except (NotFound, Conflict):
            return False
        except PoolkeeperError as error:
            log.warning("that task %s is over could not be acknowledged, it may be told again: %s", request.id, error)
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
    """Release the units when the result is stored, whatever it is."""
    if not isinstance(task, PoolTask):
        return
    if isinstance(allocation := vars(task.request).pop(ALLOCATION_ATTRIBUTE, None), GrantedAllocation):
        allocation.end(state, retval)
    if (notice := vars(task.request).pop(ACKNOWLEDGEMENT_ATTRIBUTE, None)) and state == states.FAILURE:
        task._acknowledge_end(task.request, notice)
