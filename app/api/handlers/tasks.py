"""Tasks of a queue, such as Celery's: parked until what they need is granted, then sent off, then begun by one worker."""

from __future__ import annotations

from contextlib import suppress

from app.api.component_access import other_component, require_request_id_visible, require_submittable
from app.api.idempotency import read_idempotency_key
from app.api.routing import Call
from app.api.schemas.inputs import AcknowledgeBody, EmptyBody
from app.api.schemas.tasks import TaskResponse
from app.domain.errors import NotFound
from app.domain.tasks import Task, TaskSpec


def park_task(call: Call, body: TaskSpec) -> TaskResponse:
    """Keep a task's message until its request is granted; then it is sent to the broker of the workspace.

    With an `Idempotency-Key` it may be repeated: the same key and body give the same answer, also when the task is over. With
    `instead_of` a running task gives up its allocation and is parked again in one step.
    """
    key = read_idempotency_key(call)
    require_submittable(call, body.request)
    if body.instead_of:
        with suppress(NotFound):  # what is gone is a stale fence, to whoever asks
            require_request_id_visible(call, body.instead_of.request)
    task = call.services.tasks.park_task(call.workspace, body, key, call.token.as_limited)
    # of a key that was known it may be another's by now, under the same name
    return TaskResponse.of(_visible_task(call, task) if task.component else task)


def get_task(call: Call, task: str) -> TaskResponse:
    """One task and the request it has now. Of one that is over nothing is kept."""
    return TaskResponse.of(_visible_task(call, call.services.tasks.get(call.workspace, task)))


def cancel_task(call: Call, task: str, body: EmptyBody) -> TaskResponse:
    """Give up a task that has not begun; its worker is told that it will never run."""
    if call.token.is_limited:
        _visible_task(call, call.services.tasks.get(call.workspace, task))
    return TaskResponse.of(call.services.tasks.cancel(call.workspace, task))


def acknowledge_task_end(call: Call, task: str, body: AcknowledgeBody) -> None:
    """Say, as a worker of a task that will never run, that you have heard so: it is not told again, and nothing is kept."""
    if call.token.is_limited:
        _visible_task(call, call.services.tasks.get(call.workspace, task))
    call.services.tasks.acknowledge_end(call.workspace, task, body.request)


def _visible_task(call: Call, task: Task) -> Task:
    """The task, if the caller may see it."""
    if not call.token.can_see(task.component_type, task.component):
        raise other_component("this task is of a component that this token is not for")
    return task
