"""Tasks: park, read, cancel, start, and acknowledge their end."""

from __future__ import annotations

from collections.abc import Container

from app.domain.errors import NotFound, RuleViolation
from app.domain.models import HeartbeatResult
from app.domain.names import is_task_name
from app.domain.tasks import OutboxStatus, Task, TaskSpec
from app.domain.workspace_limits import LimitedToken
from app.service.validation import checked_id, checked_key, checked_name, checked_number
from app.store.task_outbox import TaskStore
from app.store.workspaces import WorkspaceRegistry

_NO_BROKER = (
    "workspace {} has no broker, so its tasks cannot be sent: "
    "name one in the file of POOLKEEPER_BROKERS, and restart API and workers"
)


class Tasks:
    """The tasks of every workspace. Only workspaces with a broker accept tasks."""

    def __init__(self, store: TaskStore, registry: WorkspaceRegistry, workspaces_with_broker: Container[str]) -> None:
        self._store, self._registry, self._workspaces_with_broker = store, registry, workspaces_with_broker

    def park_task(self, workspace: str, spec: TaskSpec, key: str | None = None, token: LimitedToken | None = None) -> Task:
        """Park a task until its request is granted; then it is sent. Raise LimitReached beyond a limit."""
        if checked_name(workspace) not in self._workspaces_with_broker:
            raise RuleViolation("no_broker", _NO_BROKER.format(workspace))
        self._registry.add(workspace)
        return self._store.park_task(workspace, spec, checked_key(key), token)

    def get(self, workspace: str, task: str) -> Task:
        """Return a task."""
        return self._store.get_task(checked_name(workspace), checked_task(task))

    def cancel(self, workspace: str, task: str) -> Task:
        """Cancel a task that has not started."""
        return self._store.cancel_task(checked_name(workspace), checked_task(task))

    def acknowledge_end(self, workspace: str, task: str, request: str | None = None) -> None:
        """Record that a worker got the message that the task will never run, so that it is not sent again."""
        self._store.acknowledge_end(checked_name(workspace), checked_task(task), request and checked_id(request))

    def start(self, workspace: str, request: str, fence: int, runner: str) -> HeartbeatResult:
        """Start the work of an allocation: its lease begins, and no other runner may start it under this fence."""
        return self._store.start_task(checked_name(workspace), checked_id(request), checked_number("fence", fence), runner)

    def get_outbox_status(self, workspace: str) -> OutboxStatus:
        """Return the counts of the outbox."""
        return self._store.measure_outbox(checked_name(workspace))


def checked_task(task: str) -> str:
    if not is_task_name(task):
        raise NotFound("task", ascii(task)[:80])
    return task
