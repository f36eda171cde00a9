"""Parked tasks: the message of a task is kept until its request is granted, and is dispatched then.

A task has one request at a time. It gets a new one if its worker is lost, if no worker starts it in time, or if it retries by
itself. The new request keeps the time of submission of the one before, and so its queue position among equals. The lease of a
granted task runs from its start; until then a start deadline watches it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AwareDatetime, Field, field_validator

from app.domain.amounts import Amounts
from app.domain.field_types import StrictModel
from app.domain.models import Request
from app.domain.names import TASK_PATTERN
from app.domain.queue_score import MAX_AMOUNT
from app.domain.specs import RequestSpec

MAX_MESSAGE_BYTES = 256 * 1024
"""The most bytes of a message that is kept. A larger payload belongs into a store of its own, with its address in the
message."""

LAST_YEAR = 9998
"""The last year in which a task may be delayed. The calendars of all time zones reach it."""

TaskName = Annotated[str, Field(pattern=TASK_PATTERN)]
"""The id of a task."""


class ReplacedAllocationSpec(StrictModel):
    """The allocation that a running task gives up to be parked again."""

    request: Annotated[str, Field(min_length=1, max_length=64)]
    """The id of the request of that allocation."""
    fence: Annotated[int, Field(ge=0, le=MAX_AMOUNT)]
    """The fence of that allocation."""


class TaskSpec(StrictModel):
    """A task to keep until its request is granted, and to dispatch then."""

    task: TaskName
    """The id of the task, unique in the workspace."""
    name: Annotated[str, Field(min_length=1, max_length=255)]
    """The name of the task's function, for people."""
    request: RequestSpec
    """The request of the task. It needs no poll: without `queue_ttl_s` it stays queued for ever."""
    message: Mapping[str, Any]
    """The message to send to the broker once the request is granted. Only its sender reads it."""
    not_before: AwareDatetime | None = None
    """The time at which the task joins the queue; null is at once."""
    redeliveries: Annotated[int, Field(ge=-1, le=1000)] = 3
    """The number of times that the task is sent again after its worker was lost; -1 is no bound."""
    instead_of: ReplacedAllocationSpec | None = None
    """The allocation that the running task gives up by this call; null is none."""

    @field_validator("message")
    @classmethod
    def _check_size(cls, message: Mapping[str, Any]) -> Mapping[str, Any]:
        if len(json.dumps(message, separators=(",", ":")).encode()) > MAX_MESSAGE_BYTES:
            raise ValueError(f"must be at most {MAX_MESSAGE_BYTES} bytes")
        return message

    @field_validator("not_before")
    @classmethod
    def _check_year(cls, time: datetime | None) -> datetime | None:
        try:
            time = time and time.astimezone(UTC)
        except OverflowError:
            time = None if time is None else time.replace(year=LAST_YEAR + 1)
        if time and time.year > LAST_YEAR:
            raise ValueError(f"must be in a year from 1 to {LAST_YEAR}")
        return time

    def request_spec(self) -> RequestSpec:
        """Return the spec of the request; a task has no queue TTL by default."""
        if "queue_ttl_s" in self.request.model_fields_set:
            return self.request
        return self.request.model_copy(update={"queue_ttl_s": None})

    def digest(self) -> str:
        """Return a digest that is equal for equal specs."""
        values = self.model_dump(mode="json", exclude_defaults=True)
        return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


class TaskStatus(StrEnum):
    """The state of a task."""

    DELAYED = "delayed"
    PARKED = "parked"
    GRANTED = "granted"
    SENT = "sent"
    STARTED = "started"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Task:
    """A task and its present request. `sent` counts dispatches under its present fence, `lost` the losses of its worker."""

    id: str
    name: str
    component: str
    component_type: str
    status: TaskStatus
    request: Request | None = None
    not_before_ms: int | None = None
    sent: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """The reason why a task will never run: the end of its last request, a named reason if there is one, and a sentence."""

    status: str
    code: str | None
    message: str


@dataclass(frozen=True, slots=True)
class TaskDispatch:
    """A message to send: a granted task under its fence, or (`ended`) the news that a task will never run."""

    task: str
    request: str | None
    fence: int | None
    message: Mapping[str, Any]
    pool: str | None
    resources: Amounts
    lease_s: int | None
    resume: bool
    reference: str | None
    attempts: int
    started: bool
    end: TaskEnd | None


@dataclass(frozen=True, slots=True)
class OutboxBatch:
    """One batch of the outbox: the tasks to send, whether more are due, and when the next is due."""

    dispatches: tuple[TaskDispatch, ...]
    more: bool
    next_due_ms: int | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """The counts of an outbox: tasks to send, delayed tasks, dispatched tasks that have not started; the time since which the
    oldest is due, and the present time."""

    waiting: int
    delayed: int
    unstarted: int
    oldest_ms: int | None
    now_ms: int
