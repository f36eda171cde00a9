"""The base of tasks that run only while what they need is granted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial, wraps
from types import EllipsisType, FunctionType
from typing import Any, ParamSpec, TypeVar

from celery import Celery, Task, signals, states
from celery.app.task import Context
from celery.exceptions import Ignore, ImproperlyConfigured
from celery.result import AsyncResult

from poolkeeper.celery.allocation import Allocation, Held
from poolkeeper.celery.exceptions import NotGranted, NotParked
from poolkeeper.celery.message import SENT, task_key
from poolkeeper.celery.publish_hook import RUN, insist, install, is_over, published, stores
from poolkeeper.celery.result_backend import insist_on_storing
from poolkeeper.errors import Conflict, NotFound, PoolkeeperError

Given = ParamSpec("Given")
Made = TypeVar("Made", covariant=True)

log = logging.getLogger(__name__)

NOTHING = Allocation()
HEARING_S = 5.0
"""How long to try to say that a last word was heard."""
HEARS = "poolkeeper_hears"
"""The attribute of a task's request by which a last word is acknowledged once it is stored."""
BACK_S = 30
"""When a message that could not be parked is looked at again."""


class PoolTask(Task[Given, Made]):
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
    tells_start = True

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        """It is known what it asks for, and the app's tasks are parked from now on."""
        super().on_bound(app)
        if getattr(cls, "name", None) is None:  # a base of tasks
            return
        if not cls.component:
            raise ImproperlyConfigured(f"task {cls.name} does not say who asks: component=…")
        if cls.resources is None and cls.settings is None:
            raise ImproperlyConfigured(f"task {cls.name} does not say what it needs: resources={{…}}, or {{}} for none")
        if "tells_start" not in vars(cls):
            # Celery would say so of every message that arrives, and some of ours are not run.
            cls.tells_start, cls.track_started = bool(cls.track_started), False
        install(app)

    @property
    def allocation(self) -> Allocation:
        """What the task that runs here holds."""
        held: Allocation = vars(self.request).get(RUN, NOTHING)
        return held

    def apply_async(self, *args: Any, **options: Any) -> AsyncResult[Made]:
        """Park it; beside Celery's options there are those of what it asks for."""
        return super().apply_async(*args, **options)

    def __init_subclass__(cls, **more: Any) -> None:
        """What a base of one's own does before and around the task is done under the allocation, and only by who has it."""
        super().__init_subclass__(**more)
        for name, under in (("before_start", _after_claim), ("__call__", _within)):
            if isinstance(own := vars(cls).get(name), FunctionType):
                setattr(cls, name, under(own))

    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Made:
        held = self._claim()
        if held is None:
            return self.run(*args, **kwargs) if self.request.is_eager else super().__call__(*args, **kwargs)
        if held.reached:  # it calls itself
            return super().__call__(*args, **kwargs)
        held.reached = True
        made: Made = self.run(*args, **kwargs) if held.entered else held.run(self.run, args, kwargs)
        return made

    def _claim(self) -> Held | None:
        """What is held by the run that this is, or begins here; Ignore if it is not to be run. None if it needs nothing."""
        request = self.request
        held: Held | None = vars(request).get(RUN)
        if held is not None or request.called_directly or request.is_eager:
            return held
        sent = request.get(SENT)
        if sent is None:
            self._park_here(request)
        insist_on_storing(self.app, self.backend)
        if sent.get("ended"):
            self._end(request, sent)
        held = Held(install(self.app), self, request, sent)
        held.begin()
        vars(request)[RUN] = held
        held.keep()
        if is_over(self, request):
            self._count_in_chord(request)
            raise Ignore(f"{request.id} has a result already")
        held.mark_started()
        return held

    def _count_in_chord(self, request: Context) -> None:
        """What has a result is part of its chord, though who stored it may have died before it was counted.

        Twice is once, where a backend knows its parts by their names; where it only counts them it is left alone.
        """
        if request.chord and not getattr(self.backend, "implements_incr", False):
            came_to = self.backend.get_task_meta(str(request.id))
            self.backend.on_chord_part_return(request, came_to["status"], came_to["result"])

    def _park_here(self, request: Context) -> None:
        """Somebody published it without asking: it is parked with all that its message said."""
        again = self.signature_from_request(request, retries=request.retries, add_to_parent=False)
        try:
            again.apply_async()
        except NotParked as away:
            log.warning("task %s could not be parked, it is put back into its queue: %s", request.id, away)
            with published():
                again.apply_async(countdown=BACK_S)
        raise Ignore(f"{request.id} is parked until what it needs is granted")

    def _end(self, request: Context, sent: Mapping[str, Any]) -> None:
        """It will never run: that is its result. It is told until a worker says that it has heard."""
        ended, repeated = sent["ended"], int(sent.get("tries") or 1) > 1
        message, status, code = str(ended["message"]), str(ended["status"]), ended.get("code")
        late = code == "not_polled"
        revoked = status == "cancelled" or late
        tells = stores(self, request)
        if self._lives_on(request, sent):
            raise Ignore(f"{request.id} is another task's name by now")
        if is_over(self, request) and (repeated or not revoked):  # else it is marked as revoked by who has revoked it
            self._count_in_chord(request)
            self._hear(request, sent)
            raise Ignore(f"{request.id} has a result already")
        if not tells and not self._hear(request, sent) and repeated:  # no result tells that somebody has heard it before
            raise Ignore(f"{request.id} was told to be over")
        if not revoked:
            vars(request)[HEARS] = sent if tells else None
            raise NotGranted(f"task {request.id} does not run: {message}", status, code)
        self.backend.mark_as_revoked(str(request.id), message, request=request, store_result=tells)
        signals.task_revoked.send(sender=self, request=request, terminated=False, signum=None, expired=late)
        if tells:
            self._hear(request, sent)
        raise Ignore(f"{request.id} is revoked: {message}")

    def _lives_on(self, request: Context, sent: Mapping[str, Any]) -> bool:
        """Whether there is a task of its name that is not over; not, if that cannot be found out."""
        try:
            known = install(self.app).client.task(task_key(str(request.id)))
        except PoolkeeperError:
            return False
        return known.status != "ended" or bool(known.request and sent.get("request") not in (None, known.request.id))

    def _hear(self, request: Context, sent: Mapping[str, Any]) -> bool:
        """Say that it was heard that it will never run; False if somebody has said so before."""
        client, path = install(self.app).client, f"/tasks/{task_key(str(request.id))}/heard"
        try:
            insist(lambda: client.call("POST", path, body={"request": sent.get("request")}), time.monotonic() + HEARING_S)
        except (NotFound, Conflict):
            return False
        except PoolkeeperError as trouble:
            log.warning("that task %s is over could not be acknowledged, it may be told again: %s", request.id, trouble)
        return True


def _after_claim(own: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(own)
    def before_start(self: PoolTask[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._claim()
        return own(self, *args, **kwargs)

    return before_start


def _within(own: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(own)
    def call(self: PoolTask[..., Any], *args: Any, **kwargs: Any) -> Any:
        held = self._claim()
        return own(self, *args, **kwargs) if held is None or held.entered else held.run(partial(own, self), args, kwargs)

    return call


@signals.task_postrun.connect(weak=False)
def _give_back(task: object = None, state: str | None = None, retval: object = None, **_: object) -> None:
    """When the result has been stored, whatever it is."""
    if not isinstance(task, PoolTask):
        return
    if isinstance(held := vars(task.request).pop(RUN, None), Held):
        held.end(state, retval)
    if (told := vars(task.request).pop(HEARS, None)) and state == states.FAILURE:
        task._hear(task.request, told)
