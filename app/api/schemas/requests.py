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
    """The reason why one pool could never grant a request."""

    pool: str
    """The name of the pool."""
    code: str
    """The code of the reason, for programs."""
    message: str
    """The reason as a sentence for people."""
    key: str
    """The resource key that the reason is about; empty if there is none."""
    asked: int
    """The units of the key that the request asks."""
    bound: int
    """The most units of the key that the account could grant."""
    account: str
    """The account with this bound: `pool`, `group:NAME` or `policy:TYPE/NAME`; empty if there is none."""

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
    """The reason for the state of a request."""

    code: str
    """The code of the reason, for programs."""
    message: str
    """The reason as a sentence for people."""
    pools: Annotated[list[PoolRefusalResponse], Field(default=[])]
    """The reason of each pool, if the request was rejected; else empty."""

    @classmethod
    def of(cls, reason: Reason, token: Token | None = None) -> ReasonResponse:
        """Return the response for a reason. It has the origin of the other request if the token can see its component."""
        sees_origin = token is not None and token.can_see_origin(reason.by_origin)
        message = reason.message_with_origin if sees_origin else reason.message
        return cls(code=reason.code, message=message, pools=[PoolRefusalResponse.of(refusal) for refusal in reason.pools])


Directive = Annotated[str, Field(json_schema_extra={"enum": ["continue", "checkpoint", "terminate"]})]
"""`checkpoint`: save the work and leave; `terminate`: leave now."""


class RequestResponse(ResponseModel):
    """A request: its spec as submitted, and its present state."""

    id: str
    """The id of the request."""
    component: str
    """The name of the component that submitted it."""
    component_type: str
    """The type of that component."""
    name: str | None
    """The name of the request, for people."""
    pools: Sequence[str] | None
    """The pools that may grant it; null: every pool with a policy for its component."""
    status: RequestState
    """The present state of the request."""
    reason: ReasonResponse | None
    """The reason of a rejection, a preemption or an end; null if there is none."""
    resources: Amounts
    """Resource key → units that it asks."""
    preemptible: bool
    """False if the request is fixed work, which is never preempted."""
    preemption_class: int
    """The preemption class, from 0 to 10."""
    checkpoint: str
    """The way the work is saved: `none`, `manual` or `auto`."""
    checkpoint_minutes: int | None
    """Minutes that an `auto` checkpoint takes; null: not given."""
    walltime_s: int | None
    """Seconds within which the work promises to be done, from the grant; null: no promise."""
    retries: int
    """The most times that it may return to the queue after a preemption; -1: no bound."""
    lease_s: int | None
    """Seconds from a heartbeat to the end of the lease; null: the lease never ends."""
    queue_ttl_s: int | None
    """Seconds that it stays queued without a poll; null: no bound."""
    preemptions: int
    """The number of times that it was preempted and returned to the queue."""
    resume: bool
    """True if the request has run before and its work should continue, from `checkpoint_reference` if there is one."""
    checkpoint_reference: str | None
    """The reference of its last completed checkpoint; null: none."""
    submitted_at: Time
    """The time of the submit."""
    granted_at: Time | None
    """The time of the latest grant; null: not granted yet."""
    ended_at: Time | None
    """The time at which it ended; null: not ended yet."""
    outcome: str | None
    """The outcome that its release reported; null: none."""
    exit_code: int | None
    """The exit code of the work. A negative one is the number of the signal that ended it; null: the release had none."""
    pool: str | None
    """The pool in which it is or was allocated; null: none."""
    fence: int | None
    """The fence of its allocation, which every call of the holder has to send; null: never granted."""
    lease_expires_at: Time | None
    """The end of the lease without a further heartbeat; null: no lease."""
    directive: Directive | None
    """The directive of the allocation: `continue`; `checkpoint`: save the work and leave; `terminate`: leave now. Null if it
    holds no units."""
    deadline: Time | None
    """The time until which the directive has to be done; null: none."""
    position: Mapping[str, int]
    """Pool → position in its queue, from 1. It is empty in a list, unless the description of the list says otherwise."""
    preempted_by: str | None
    """The request for which it is preempted, or was preempted before it returned to the queue; null: none."""
    labels: Mapping[str, str]
    """The labels that the submit gave."""
    task: str | None
    """The task that is sent to its broker when the request is granted; null: none."""
    started_at: Time | None
    """The time at which a runner started the work; null: not started."""
    polled_at: Time | None
    """The time of the last poll before this call, or the end of an outage of the service. Null unless the request is queued and
    has a queue TTL."""

    @classmethod
    def of(
        cls, request: models.Request, position: Mapping[str, int] | None = None, token: Token | None = None
    ) -> RequestResponse:
        """Return the response for a request. `token` decides what it says about the request that preempted it."""
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
    """The number of queued requests."""
    allocated: int
    """The number of allocated requests."""
    preempting: int
    """The number of preempting requests."""
    ended: int
    """The number of ended requests that are still kept."""
    exact: bool
    """False if only the newest requests were counted; each number is then a lower bound. The numbers are exact without a
    filter, if the token can see every component."""

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
    """The reason why a request waits in one pool."""

    pool: str
    """The name of the pool."""
    position: int
    """The position of the request in the queue of the pool, from 1."""
    waiting: int
    """The number of requests in the queue of the pool."""
    verdict: WaitReason
    """The constraint that blocks the request there."""
    sentence: str
    """The reason as a short sentence, with the numbers."""

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
    """The reasons why a request waits. `GET /requests/{request}/explain` says more."""

    sentence: str
    """The reason as one sentence for people."""
    pools: list[PoolWaitResponse]
    """The pools that have the request in their queue, the preferred pool first."""

    @classmethod
    def of(cls, summary: WaitSummary, *, with_ids: bool) -> WaitResponse:
        """Return the response for a queued request, with the ids of other requests or without."""
        return cls(
            sentence=describe_summary(summary.request, summary.statuses, with_ids=with_ids),
            pools=[PoolWaitResponse.of(status, with_ids=with_ids) for status in summary.statuses],
        )


class SubmitResponse(RequestResponse):
    """A submitted request, and the reason if it waits."""

    waits: WaitResponse | None
    """The reason in each pool why the request is queued; null if it is not queued."""

    @classmethod
    def of_submit(cls, request: models.Request, waits: WaitResponse | None, token: Token) -> SubmitResponse:
        """Return the response for a submitted request."""
        return cls.model_construct(**vars(RequestResponse.of(request, token=token)), waits=waits)


class RequestListResponse(ListResponse[RequestResponse]):
    """A page of a list of requests."""


class RequestSearchResponse(ListResponse[RequestResponse]):
    """A page of the requests that pass the filters."""

    counts: RequestCountsResponse | None = None
    """The number of matching requests in each state; null unless the query has `counts=true`."""


class HeartbeatResponse(ResponseModel):
    """The answer to a heartbeat, a checkpoint report or a start."""

    id: str
    """The id of the request."""
    status: RequestState
    """The present state of the request."""
    lease_expires_at: Time | None
    """The end of the lease without a further heartbeat; null: no lease."""
    directive: Directive | None
    """The directive of the allocation: `continue`; `checkpoint`: save the work and leave; `terminate`: leave now. Null if the
    request holds no units any more, as it has left."""
    deadline: Time | None
    """The time until which the directive has to be done; null: none."""

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
    """The answer to a batch of submits."""

    items: list[Annotated[RequestResponse | Problem, "one of them"]]
    """The request or the error of each submit, in the order of the body."""
