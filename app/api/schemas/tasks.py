"""Response models of tasks."""

from __future__ import annotations

from app.api.schemas.requests import RequestResponse
from app.api.schemas.response_model import ResponseModel, Time, optional_time_of
from app.domain.tasks import Task, TaskStatus


class TaskResponse(ResponseModel):
    """A task, and the request it has now."""

    task: str
    name: str
    status: TaskStatus
    """`delayed`: it waits for its time, and has no request yet. `parked`: its request waits. `granted`: it is to be sent.
    `sent`: no worker has begun it yet. `started`. `ended`: it will never run, of which its worker is told, or all is over."""
    request: RequestResponse | None
    not_before: Time | None
    sent: int
    """How often it was sent under the fence it has."""
    lost: int
    """How often its worker was lost."""

    @classmethod
    def of(cls, task: Task) -> TaskResponse:
        """Return the response for a task."""
        return cls.model_construct(
            task=task.id,
            name=task.name,
            status=task.status,
            request=RequestResponse.of(task.request) if task.request else None,
            not_before=optional_time_of(task.not_before_ms),
            sent=task.sent,
            lost=task.lost,
        )
