"""Tasks of a queue, such as Celery's: parked until what they need is granted, then sent off, then begun by one worker."""

from __future__ import annotations

from contextlib import suppress

from app.api.errors import Refusal
from app.api.handlers.requests import check_ask, check_holder, idempotency_key
from app.api.routing import Call
from app.api.schemas.inputs import EmptyAsk, HeardAsk, StartAsk
from app.api.schemas.requests import BeatAnswer, TaskAnswer
from app.domain.errors import NotFound
from app.domain.tasks import Task, TaskAsk


def park(call: Call, body: TaskAsk) -> TaskAnswer:
    """Keep a task's message until its request is granted; then it is sent to the broker of the workspace.

    With an `Idempotency-Key` it may be repeated: the same key and body give the same answer, also when the task is over. With
    `instead_of` a running task gives up its allocation and is parked again in one step.
    """
    key = idempotency_key(call)
    check_ask(call, body.request)
    if body.instead_of:
        with suppress(NotFound):  # what is gone is a stale fence, to whoever asks
            check_holder(call, body.instead_of.request)
    task = call.services.tasks.park(call.workspace, body, key)
    # of a key that was known it may be another's by now, under the same name
    return TaskAnswer.of(_own(call, task) if task.component else task)


def show(call: Call, task: str) -> TaskAnswer:
    """One task and the request it has now. Of one that is over nothing is kept."""
    return TaskAnswer.of(_own(call, call.services.tasks.look(call.workspace, task)))


def cancel(call: Call, task: str, body: EmptyAsk) -> TaskAnswer:
    """Give up a task that has not begun; its worker is told that it will never run."""
    if call.token.is_limited:
        _own(call, call.services.tasks.look(call.workspace, task))
    return TaskAnswer.of(call.services.tasks.cancel(call.workspace, task))


def heard(call: Call, task: str, body: HeardAsk) -> None:
    """Say, as a worker of a task that will never run, that you have heard so: it is not told again, and nothing is kept."""
    if call.token.is_limited:
        _own(call, call.services.tasks.look(call.workspace, task))
    call.services.tasks.heard(call.workspace, task, body.request)


def start(call: Call, request: str, body: StartAsk) -> BeatAnswer:
    """Begin what was granted, task or not: the lease runs from now on, and no other runner may begin it under this fence."""
    check_holder(call, request)
    return BeatAnswer.of(request, call.services.tasks.start(call.workspace, request, body.fence, body.runner))


def _own(call: Call, task: Task) -> Task:
    """The task, if the caller may see it."""
    if not call.token.may_see(task.component_type, task.component):
        raise Refusal(403, "other_component", "this task is of a component that this token is not for")
    return task
