"""Response models of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from app.api.schemas.problems import Problem
from app.api.schemas.response_model import Amounts, ListResponse, ResponseModel, Time, optional_time_of, time_of
from app.domain import models
from app.domain.explanations import QueueStatus, WaitReason, WaitSummary
from app.domain.reasons import PoolRefusal, Reason
from app.domain.request_filter import RequestCounts
from app.domain.states import HOLDING_STATES, RequestState
from app.domain.tokens import Token
from app.service.explain_text import describe_briefly, describe_summary


class PoolRefusalResponse(ResponseModel):
    """Why one pool could never grant a request."""

    pool: str
    code: str
    message: str
    key: str
    asked: int
    bound: int
    account: str

    @classmethod
    def of(cls, refusal: PoolRefusal) -> PoolRefusalResponse:
        """Return the response for a refusal."""
        return cls(
            pool=refusal.pool,
            code=refusal.code,
            message=refusal.message,
            key=refusal.key,
            asked=refusal.requested,
            bound=refusal.bound,
            account=refusal.account,
        )


class ReasonResponse(ResponseModel):
    """Why a request is where it is."""

    code: str
    message: str
    pools: Annotated[list[PoolRefusalResponse], Field(default=[])]
    """Of a rejected request: what each pool said."""

    @classmethod
    def of(cls, reason: Reason, token: Token | None = None) -> ReasonResponse:
        """Return the response for a reason; with the origin of the other request if the token may see the component of that."""
        sees_origin = token is not None and token.can_see_origin(reason.by_origin)
        message = reason.message_with_origin if sees_origin else reason.message
        return cls(code=reason.code, message=message, pools=[PoolRefusalResponse.of(refusal) for refusal in reason.pools])


Directive = Annotated[str, Field(json_schema_extra={"enum": ["continue", "checkpoint", "terminate"]})]
"""`checkpoint`: save the work and leave; `terminate`: leave now."""


class RequestResponse(ResponseModel):
    """A request: the ask as it was written, and where it stands."""

    id: str
    component: str
    component_type: str
    name: str | None
    """Its name for people."""
    pools: Sequence[str] | None
    """The pools that may grant it; null is every pool with a policy for its component."""
    status: RequestState
    reason: ReasonResponse | None
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
    exit_code: int | None
    """The exit code of the work; minus the number of the signal that ended it; null if the release did not have it."""
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
    polled_at: Time | None
    """The time of the last poll before this call; null unless the request is queued and has a queue TTL. After an outage of the
    service: the end of the outage."""

    @classmethod
    def of(
        cls, request: models.Request, position: Mapping[str, int] | None = None, token: Token | None = None
    ) -> RequestResponse:
        """Return the response for a request, with what the token may see of the request that it was preempted for."""
        return cls.model_construct(
            id=request.id,
            component=request.component,
            component_type=request.component_type,
            name=request.name,
            pools=request.pools,
            status=request.status,
            reason=ReasonResponse.of(request.reason, token) if request.reason else None,
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
            granted_at=optional_time_of(request.granted_ms),
            ended_at=optional_time_of(request.ended_ms),
            outcome=request.outcome,
            exit_code=request.exit_code,
            pool=request.pool,
            fence=request.fence,
            lease_expires_at=optional_time_of(request.lease_expires_ms),
            directive=request.directive,
            deadline=optional_time_of(request.deadline_ms),
            position=request.position if position is None else position,
            preempted_by=request.preempted_by,
            labels=request.labels,
            task=request.task,
            started_at=optional_time_of(request.started_ms),
            polled_at=optional_time_of(request.polled_ms),
        )


class RequestCountsResponse(ResponseModel):
    """The number of requests in each state."""

    queued: int
    allocated: int
    preempting: int
    ended: int
    """The requests in a final state that are still kept."""
    exact: bool
    """False if only the newest requests were counted; each number is then a lower bound. Without a filter, and of a token that
    sees every component, the numbers are exact."""

    @classmethod
    def of(cls, counts: RequestCounts) -> RequestCountsResponse:
        """Return the response for these counts."""
        return cls(
            queued=counts.queued,
            allocated=counts.allocated,
            preempting=counts.preempting,
            ended=counts.ended,
            exact=counts.is_exact,
        )


class PoolWaitResponse(ResponseModel):
    """Why a request waits in one pool."""

    pool: str
    position: int
    """Its place in the queue of the pool, from 1."""
    waiting: int
    """The number of requests in the queue of the pool."""
    verdict: WaitReason
    """The constraint that blocks it there."""
    sentence: str

    @classmethod
    def of(cls, status: QueueStatus, *, with_ids: bool) -> PoolWaitResponse:
        """Return the response for a pool, with the ids of other requests or without."""
        return cls(
            pool=status.pool,
            position=status.position,
            waiting=status.waiter_count,
            verdict=status.wait_reason,
            sentence=describe_briefly(status, with_ids=with_ids),
        )


class WaitResponse(ResponseModel):
    """Why a request waits. `GET /requests/{request}/explain` says more."""

    sentence: str
    """One sentence for people."""
    pools: list[PoolWaitResponse]
    """The pools that have it in their queue, the preferred first."""

    @classmethod
    def of(cls, summary: WaitSummary, *, with_ids: bool) -> WaitResponse:
        """Return the response for a queued request, with the ids of other requests or without."""
        return cls(
            sentence=describe_summary(summary.request, summary.statuses, with_ids=with_ids),
            pools=[PoolWaitResponse.of(status, with_ids=with_ids) for status in summary.statuses],
        )


class SubmitResponse(RequestResponse):
    """A request, and why it waits if it is queued."""

    waits: WaitResponse | None
    """Why it is queued, by pool; null unless it is."""

    @classmethod
    def of_submit(cls, request: models.Request, waits: WaitResponse | None, token: Token) -> SubmitResponse:
        """Return the response for a submitted request."""
        return cls.model_construct(**vars(RequestResponse.of(request, token=token)), waits=waits)


class RequestListResponse(ListResponse[RequestResponse]):
    pass


class RequestSearchResponse(ListResponse[RequestResponse]):
    """A page of the requests that match. It may be short or empty even if `next_cursor` leads to more."""

    counts: RequestCountsResponse | None = None
    """Null unless the query has `counts=true`."""


class HeartbeatResponse(ResponseModel):
    """What a heartbeat, or word of a checkpoint, is answered."""

    id: str
    status: RequestState
    lease_expires_at: Time | None
    directive: Directive | None
    """What the holder is asked to do; null if it holds nothing any more, as it has left."""
    deadline: Time | None
    """Until when, if it is asked to leave."""

    @classmethod
    def of(cls, request: str, beat: models.HeartbeatResult) -> HeartbeatResponse:
        """Return the response for a heartbeat."""
        return cls.model_construct(
            id=request,
            status=beat.status,
            lease_expires_at=optional_time_of(beat.lease_expires_ms),
            directive=beat.directive if beat.status in HOLDING_STATES else None,
            deadline=optional_time_of(beat.deadline_ms),
        )


class BatchResponse(ResponseModel):
    """What became of each, in order."""

    items: list[Annotated[RequestResponse | Problem, "one of them"]]
