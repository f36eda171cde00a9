"""The state of a parked task, and the exceptions that end or prevent its run."""

from __future__ import annotations

from kombu.exceptions import OperationalError

from poolkeeper.errors import PoolkeeperError, Unavailable

PARKED = "PARKED"
"""The state of a task whose request has not been granted, and of one that had to leave and waits for its next turn."""


class TaskNotGranted(PoolkeeperError):  # noqa: N818 - as its sibling in `poolkeeper.errors`
    """The task never ran, or will not run again: the message, the status of its request, and the code of the reason if there is
    one.

    It is stored as the result, so its arguments are plain text.
    """

    def __init__(self, message: str, status: str = "", code: str | None = None) -> None:
        super().__init__(message, status, code)
        self.status, self.code = status, code

    def __str__(self) -> str:
        return str(self.args[0])


class NotParked(Unavailable, OperationalError):  # noqa: N818 - as its sibling
    """Poolkeeper could not be reached, so the task was not parked; to Celery it looks like a broker that is away."""


class Preempted(BaseException):
    """Ends the body because the units are released; the task is parked again. It is no Exception, so `except Exception` lets it
    pass.
    """
