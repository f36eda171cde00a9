"""What may become of a task beside what Celery knows: a state, and three ways not to go on."""

from __future__ import annotations

from kombu.exceptions import OperationalError

from poolkeeper.errors import PoolkeeperError, Unavailable

PARKED = "PARKED"
"""The state of a task whose request has not been granted, and of one that had to leave and waits for its next turn."""


class TaskNotGranted(PoolkeeperError):  # noqa: N818 - as its sibling in `poolkeeper.errors`
    """The task never ran, or will not run again: why, how its request ended, and the code of the reason if there is one.

    It is stored as the result, so it is made of nothing but text.
    """

    def __init__(self, message: str, status: str = "", code: str | None = None) -> None:
        super().__init__(message, status, code)
        self.status, self.code = status, code

    def __str__(self) -> str:
        return str(self.args[0])


class NotParked(Unavailable, OperationalError):  # noqa: N818 - as its sibling
    """Poolkeeper was not reached, so the task was not sent; for Celery it is as a broker that is away."""


class Preempted(BaseException):
    """The body ends here as the units are given up; the task is parked again. No error: `except Exception` lets it pass."""
