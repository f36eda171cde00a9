"""The state of a parked task, and the exceptions that end or prevent its run."""

from __future__ import annotations

from kombu.exceptions import OperationalError

from poolkeeper.errors import PoolkeeperError, Unavailable

PARKED = "PARKED"
"""The state of a task that waits for its first grant, or after a preemption for its next grant."""


class TaskNotGranted(PoolkeeperError):  # noqa: N818 - as its sibling in `poolkeeper.errors`
    """The result of a task that never ran, or will not run again: message, status of its request, code of the reason or None.

    It is stored as the result, so its arguments are plain text.
    """

    def __init__(self, message: str, status: str = "", code: str | None = None) -> None:
        super().__init__(message, status, code)
        self.status, self.code = status, code

    def __str__(self) -> str:
        return str(self.args[0])


class NotParked(Unavailable, OperationalError):  # noqa: N818 - as its sibling
    """A task could not be parked, because Poolkeeper cannot be reached. Celery treats this like an unreachable broker."""


class Preempted(BaseException):
    """The end of the body because the units are released; the task is parked again. `except Exception` does not catch it."""
