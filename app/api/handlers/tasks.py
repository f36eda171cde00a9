"""Tasks of a queue such as Celery: parked until their request is granted, then sent, then started by one worker."""

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
    """Park a task: keep its message until its request is granted, then send it to the broker of the workspace.

    With an `Idempotency-Key` the call may be repeated: the same key and body give the same answer, even after the end of the
    task. With `instead_of` a running task gives up its allocation and is parked again in one step.
    """
    key = read_idempotency_key(call)
    require_submittable(call, body.request)
    if body.instead_of:
        with suppress(NotFound):  # a request that is gone is refused as a stale fence, for every token
            require_request_id_visible(call, body.instead_of.request)
    task = call.services.tasks.park_task(call.workspace, body, key, call.token.as_limited)
    # a repeated key may return a task that another component has parked under the same name since
    return TaskResponse.of(_visible_task(call, task) if task.component else task)


def get_task(call: Call, task: str) -> TaskResponse:
    """Return a task and its present request. A task that is done is not kept."""
    return TaskResponse.of(_visible_task(call, call.services.tasks.get(call.workspace, task)))


def cancel_task(call: Call, task: str, body: EmptyBody) -> TaskResponse:
    """Cancel a task that has not started. Its broker gets the message that it will never run."""
    if call.token.is_limited:
        _visible_task(call, call.services.tasks.get(call.workspace, task))
    return TaskResponse.of(call.services.tasks.cancel(call.workspace, task))


def acknowledge_task_end(call: Call, task: str, body: AcknowledgeBody) -> None:
    """Confirm that a worker got the message that the task will never run. It is not sent again, and the task is deleted."""
    if call.token.is_limited:
        _visible_task(call, call.services.tasks.get(call.workspace, task))
    call.services.tasks.acknowledge_end(call.workspace, task, body.request)


def _visible_task(call: Call, task: Task) -> Task:
    """Return the task. Raise HttpRefusal if the token cannot see its component."""
    if not call.token.can_see(task.component_type, task.component):
        raise other_component("this task is of a component that this token is not for")
    return task
