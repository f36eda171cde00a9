"""What is answered, as it is written in JSON: models for people and for OpenAPI, made from the domain's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from app.domain import models
from app.domain.reasons import PoolRefusal, Reason
from app.domain.states import LIVE, State
from app.domain.tasks import Task, TaskStatus

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}, examples=["2026-01-31T12:00:00.000Z"])]
"""RFC 3339 in UTC, with milliseconds."""
Amounts = Mapping[str, int]
Row = TypeVar("Row")
LAST_MS = 253_402_300_799_999
"""The last moment of the year 9999."""


def time_of(at_ms: int) -> str:
    """Milliseconds since 1970 as people and programs write them. What lies beyond the year 9999, for which there is no way to
    write it, is told as its last moment: sums of promises may come to that."""
    seconds, ms = divmod(min(at_ms, LAST_MS), 1000)
    return f"{_second(seconds)}.{ms:03}Z"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else time_of(at_ms)


class Answer(BaseModel):
    """Something answered. It is made from what is known to be right, so it is not validated again."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)


class Page(Answer, Generic[Row]):
    """A part of a list."""

    items: list[Row]
    next_cursor: str | None = None
    """To be sent as `cursor` for what follows; null: that was all. A page may be short, even empty, and not the last."""


class PoolVerdict(Answer):
    """Why one pool could never grant a request."""

    pool: str
    code: str
    message: str
    key: str
    asked: int
    bound: int
    account: str

    @classmethod
    def of(cls, refusal: PoolRefusal) -> PoolVerdict:
        """The answer for a refusal."""
        return cls(
            pool=refusal.pool,
            code=refusal.code,
            message=refusal.message,
            key=refusal.key,
            asked=refusal.asked,
            bound=refusal.bound,
            account=refusal.account,
        )


class WhyAnswer(Answer):
    """Why a request is where it is."""

    code: str
    message: str
    pools: list[PoolVerdict] = []
    """Of a rejected request: what each pool said."""

    @classmethod
    def of(cls, reason: Reason) -> WhyAnswer:
        """The answer for a reason."""
        return cls(code=reason.code, message=reason.message, pools=[PoolVerdict.of(one) for one in reason.pools])


Directive = Annotated[str, Field(json_schema_extra={"enum": ["continue", "checkpoint", "terminate"]})]
"""`checkpoint`: save the work and leave; `terminate`: leave now."""


class RequestAnswer(Answer):
    """A request: the ask as it was written, and where it stands."""

    id: str
    component: str
    component_type: str
    status: State
    reason: WhyAnswer | None
    """Why it was rejected, has to leave, was preempted or ended."""
    resources: Amounts
    preemptible: bool
    preemption_class: int
    checkpoint: str
    """`none`, `manual` or `auto`."""
    checkpoint_minutes: int | None
    walltime_s: int | None
    retries: int
    lease_s: int | None
    queue_ttl_s: int | None
    preemptions: int
    """How often it was stopped and went back to the queue."""
    resume: bool
    """Whether it has run before, and shall go on from `checkpoint_reference` if there is one."""
    checkpoint_reference: str | None
    """What its holder called the last checkpoint it completed."""
    submitted_at: Time
    granted_at: Time | None
    ended_at: Time | None
    outcome: str | None
    """What its holder said of the work when it gave the units back."""
    pool: str | None
    """Where it is allocated, or was."""
    fence: int | None
    """What its holder proves with that it is the holder."""
    lease_expires_at: Time | None
    directive: Directive | None
    """What its holder is asked to do; null if it holds nothing."""
    deadline: Time | None
    """Until when, if it is asked to leave."""
    position: Mapping[str, int]
    """Pool → place in its queue, from 1. Told of a single request and in the list of a pool, elsewhere empty."""
    preempted_by: str | None
    """The request it has to leave for, or had to leave for before it came back to the queue."""
    labels: Mapping[str, str]
    task: str | None
    """The task that is sent off when this is granted."""
    started_at: Time | None
    """When a worker began the task."""

    @classmethod
    def of(cls, request: models.Request, position: Mapping[str, int] | None = None) -> RequestAnswer:
        """The answer for a request."""
        return cls.model_construct(
            id=request.id,
            component=request.component,
            component_type=request.component_type,
            status=request.status,
            reason=WhyAnswer.of(request.reason) if request.reason else None,
            resources=request.resources,
            preemptible=request.preemptible,
            preemption_class=request.preemption_class,
            checkpoint=request.checkpoint,
            checkpoint_minutes=request.checkpoint_minutes,
            walltime_s=request.walltime_s,
            retries=request.retries,
            lease_s=request.lease_s,
            queue_ttl_s=request.queue_ttl_s,
            preemptions=request.preemptions,
            resume=request.resume,
            checkpoint_reference=request.checkpoint_reference,
            submitted_at=time_of(request.submitted_ms),
            granted_at=_time(request.granted_ms),
            ended_at=_time(request.ended_ms),
            outcome=request.outcome,
            pool=request.pool,
            fence=request.fence,
            lease_expires_at=_time(request.lease_expires_ms),
            directive=request.directive,
            deadline=_time(request.deadline_ms),
            position=request.position if position is None else position,
            preempted_by=request.preempted_by,
            labels=request.labels,
            task=request.task,
            started_at=_time(request.started_ms),
        )


class BeatAnswer(Answer):
    """What a heartbeat, or word of a checkpoint, is answered."""

    id: str
    status: State
    lease_expires_at: Time | None
    directive: Directive | None
    """What the holder is asked to do; null if it holds nothing any more, as it has left."""
    deadline: Time | None
    """Until when, if it is asked to leave."""

    @classmethod
    def of(cls, request: str, beat: models.Beat) -> BeatAnswer:
        """The answer for a heartbeat."""
        return cls.model_construct(
            id=request,
            status=beat.status,
            lease_expires_at=_time(beat.lease_expires_ms),
            directive=beat.directive if beat.status in LIVE else None,
            deadline=_time(beat.deadline_ms),
        )


class TaskAnswer(Answer):
    """A task, and the request it has now."""

    task: str
    name: str
    status: TaskStatus
    """`delayed`: it waits for its time, and has no request yet. `parked`: its request waits. `granted`: it is to be sent.
    `sent`: no worker has begun it yet. `started`. `ended`: it will never run, of which its worker is told, or all is over."""
    request: RequestAnswer | None
    not_before: Time | None
    sent: int
    """How often it was sent under the fence it has."""
    lost: int
    """How often its worker was lost."""

    @classmethod
    def of(cls, task: Task) -> TaskAnswer:
        """The answer for a task."""
        return cls.model_construct(
            task=task.id,
            name=task.name,
            status=task.status,
            request=RequestAnswer.of(task.request) if task.request else None,
            not_before=_time(task.not_before_ms),
            sent=task.sent,
            lost=task.lost,
        )


class WorkspaceAnswer(Answer):
    """A workspace and its settings."""

    name: str
    settings: Mapping[str, str]


class WhoAnswer(Answer):
    """Who the token says you are, and what you may."""

    name: str
    roles: list[str]
    sensitive: bool
    workspaces: list[str]
    components: list[str]
    workspace: str
    """The one this was asked in."""
    permissions: list[str]
    token_needed: bool


class HealthAnswer(Answer):
    """A word."""

    status: Literal["ok"]


class FieldFault(Answer):
    """What is wrong with one field."""

    field: str
    reason: str


class Problem(Answer):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    type: str
    """`about:blank`: the code says it all."""
    title: str
    status: int
    detail: str
    """What is wrong, in a sentence for people."""
    code: str
    """What is wrong, in a word for programs; it stays."""
    request_id: str | None = None
    errors: list[FieldFault] | None = None
    """Of malformed input: every fault."""
    directive: Literal["kill"] | None = None
    """Of a stale fence: whoever sent it holds nothing, and has to stop at once what uses the units."""
    request_status: State | None = None
    """Of a stale fence: how the request stands."""
