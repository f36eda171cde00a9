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

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}, examples=["2026-01-31T12:00:00.000Z"])]
"""RFC 3339 in UTC, with milliseconds."""
Amounts = Mapping[str, int]
Row = TypeVar("Row")


def time_of(at_ms: int) -> str:
    """Milliseconds since 1970 as people and programs write them."""
    seconds, ms = divmod(at_ms, 1000)
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


Directive = Literal["continue", "checkpoint", "terminate"]


class RequestAnswer(Answer):
    """A request: the ask as it was written, and where it stands."""

    id: str
    component: str
    component_type: str
    status: State
    reason: WhyAnswer | None
    """Why it was rejected or ended."""
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
    """Whether it has run before and shall go on from `checkpoint_reference`."""
    checkpoint_reference: str | None
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
    position: Mapping[str, int]
    """Pool → place in its queue, from 1. Told of a single request and in the list of a pool, elsewhere empty."""
    preempted_by: str | None
    labels: Mapping[str, str]

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
            preemptions=0,
            resume=False,
            checkpoint_reference=None,
            submitted_at=time_of(request.submitted_ms),
            granted_at=_time(request.granted_ms),
            ended_at=_time(request.ended_ms),
            outcome=request.outcome,
            pool=request.pool,
            fence=request.fence,
            lease_expires_at=_time(request.lease_expires_ms),
            directive="continue" if request.status in LIVE else None,
            position=request.position if position is None else position,
            preempted_by=None,
            labels=request.labels,
        )


class BeatAnswer(Answer):
    """What a heartbeat is answered."""

    id: str
    status: State
    lease_expires_at: Time | None
    directive: Directive
    """What the holder is asked to do."""
    deadline: Time | None
    """Until when, if it is asked to leave."""

    @classmethod
    def of(cls, request: str, beat: models.Beat) -> BeatAnswer:
        """The answer for a heartbeat."""
        return cls(
            id=request, status=beat.status, lease_expires_at=_time(beat.lease_expires_ms), directive="continue", deadline=None
        )


class ToldAnswer(Answer):
    """One line of a request's story."""

    id: str
    event: str
    at: Time
    pool: str | None
    reason: str | None
    by: str | None
    """The request on whose account it happened."""

    @classmethod
    def of(cls, told: models.Told) -> ToldAnswer:
        """The answer for a line."""
        return cls(id=told.id, event=told.event, at=time_of(told.at_ms), pool=told.pool, reason=told.reason, by=told.by)


class EventAnswer(Answer):
    """One transition of one request."""

    id: str
    """To go on after: `Last-Event-ID`, or `after`."""
    event: str
    request: str
    at: Time
    component: str
    component_type: str
    resources: Amounts
    from_: Annotated[State | None, Field(serialization_alias="from")]
    to: State
    pool: str | None
    fence: int | None
    reason: str | None
    by: str | None

    @classmethod
    def of(cls, event: models.Event) -> EventAnswer:
        """The answer for an event."""
        kind, _, name = event.component.partition("/")
        return cls(
            id=event.id,
            event=event.event,
            request=event.request,
            at=time_of(event.at_ms),
            component=name,
            component_type=kind,
            resources=event.resources,
            from_=event.came_from,
            to=event.to,
            pool=event.pool,
            fence=event.fence,
            reason=event.reason,
            by=event.by,
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
