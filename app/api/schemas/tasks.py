"""Response models of tasks."""

from __future__ import annotations

from app.api.schemas.requests import RequestResponse
from app.api.schemas.response_model import ResponseModel, Time, optional_time_of
from app.domain.tasks import Task, TaskStatus


class TaskResponse(ResponseModel):
    """A task and its present request."""

    task: str
    """The id of the task."""
    name: str
    """The name of the function that it runs, for people."""
    status: TaskStatus
    """The state of the task. `delayed`: its time has not come, and it has no request yet. `parked`: its request waits.
    `granted`: it has to be sent. `sent`: no worker has started it yet. `started`: a worker has started it. `ended`: it is done,
    or will never run."""
    request: RequestResponse | None
    """The present request of the task; null while it is delayed."""
    not_before: Time | None
    """The time at which the task enters the queue; null: at once."""
    sent: int
    """The number of times that it was sent under its present fence."""
    lost: int
    """The number of times that its worker was lost."""

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
