"""Response models of explanations and estimates of waiting requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from app.api.schemas.response_model import Amounts, ResponseModel, Time, time_of
from app.domain.explanations import (
    Estimate,
    Explanation,
    KeyView,
    PolicyHolding,
    PoolExplanation,
    PreemptionCandidate,
    PreemptionView,
    ShortReason,
    WaitReason,
)
from app.domain.models import Request
from app.domain.states import RequestState
from app.domain.tokens import Token
from app.service.estimates import EstimateResult
from app.service.explain_text import anonymize, anonymize_view


class KeyUnitsResponse(ResponseModel):
    """The units of a key that the request needs and that the pool has."""

    needed: int
    """The units that the request needs."""
    free: int
    """The units of the pool that no allocation holds."""
    held_for_others: int
    """The free units that are held for other waiters."""
    limit: int | None
    """The limit of the policy; null: only the capacity of the pool."""
    reserved: int
    """The units reserved for the policy."""

    @classmethod
    def of(cls, view: KeyView) -> KeyUnitsResponse:
        """Return the response for a key."""
        return cls(
            needed=view.needed,
            free=view.free,
            held_for_others=view.held_for_others,
            limit=view.limit,
            reserved=view.reserved,
        )


class BlockingAccountResponse(ResponseModel):
    """The account that blocks the request, and its numbers for one key."""

    account: str
    """The account: `pool`, `group:NAME` or `policy:TYPE/NAME`."""
    key: str
    """The resource key that is short."""
    limit: int | None
    """The most units that the account may use; null: no limit."""
    reserved: int
    """The units reserved for the account."""
    used: int
    """The units that the account uses."""
    needed: int
    """The units that the request needs."""
    lacking: int
    """The units that the account lacks for the request."""

    @classmethod
    def of(cls, view: PoolExplanation) -> BlockingAccountResponse | None:
        """Return the response for a pool; None if no account blocks the request there."""
        lack = view.status.blocking
        if lack is None:
            return None
        usage = view.status.usage_of(lack)
        return cls(
            account=lack.account,
            key=lack.key,
            limit=usage.limit,
            reserved=usage.reserved,
            used=usage.used,
            needed=lack.needed,
            lacking=lack.missing,
        )


class PolicyHoldingResponse(ResponseModel):
    """A policy whose allocations hold units that the request needs."""

    component: str
    """The name of the policy's component."""
    component_type: str
    """The type of the policy's component."""
    used: Amounts
    """Resource key → units that it uses."""
    in_share: Amounts
    """Resource key → used units within its reserved share."""
    borrowed: Amounts
    """Resource key → used units beyond its reserved share."""
    next_end: Time | None
    """The earliest end of its allocations with a walltime; null: none has one."""

    @classmethod
    def of(cls, holding: PolicyHolding) -> PolicyHoldingResponse:
        """Return the response for a policy."""
        kind, _, name = holding.component.partition("/")
        end = None if holding.next_end_ms is None else time_of(holding.next_end_ms)
        return cls(
            component=name,
            component_type=kind,
            used=holding.used,
            in_share=holding.in_share,
            borrowed=holding.borrowed,
            next_end=end,
        )


class PreemptionCandidateResponse(ResponseModel):
    """An allocation that was examined as a victim for the request."""

    request: str
    """The id of the allocation's request."""
    component: str
    """The name of its component."""
    component_type: str
    """The type of its component."""
    rule: str | None
    """The rule that permits to preempt it; null: no rule does."""
    why_not: str | None
    """The reason of each rule that does not permit it; null: a rule does."""

    @classmethod
    def of(cls, candidate: PreemptionCandidate) -> PreemptionCandidateResponse:
        """Return the response for an allocation."""
        kind, _, name = candidate.component.partition("/")
        return cls(
            request=candidate.request, component=name, component_type=kind, rule=candidate.rule, why_not=candidate.why_not
        )


class PreemptionResponse(ResponseModel):
    """The result of the search for victims."""

    considered: bool
    """True if the planner searched for victims for the request."""
    code: str
    """The code of the result, for programs."""
    reason: str
    """The result as a sentence for people."""
    candidates: Sequence[PreemptionCandidateResponse]
    """The candidates that the token can see: permitted ones first, then the newest."""
    more: int
    """The number of candidates that are left out."""
    leaving: Sequence[str]
    """The ids of the victims that are leaving for the request."""

    @classmethod
    def of(cls, preemption: PreemptionView, token: Token) -> PreemptionResponse:
        """Return the response as far as the token may see it."""
        visible = [candidate for candidate in preemption.candidates if token.can_see(*candidate.component.split("/", 1))]
        return cls(
            considered=preemption.considered,
            code=preemption.code,
            reason=preemption.reason,
            candidates=[PreemptionCandidateResponse.of(candidate) for candidate in visible],
            more=preemption.more + len(preemption.candidates) - len(visible),
            leaving=() if token.is_limited else preemption.leaving,
        )


class StartEstimateResponse(ResponseModel):
    """The estimated time of the grant."""

    earliest: Time
    """The earliest time of the grant."""
    likely: Time
    """The most likely time of the grant."""
    latest: Time | None
    """The latest time of the grant; null: no bound."""
    basis: str
    """The facts that the estimate rests on, in words."""
    run_times: int
    """The number of run times measured in the pool."""
    is_rough: bool
    """True if the estimate rests on fewer than five run times."""

    @classmethod
    def of(cls, estimate: Estimate) -> StartEstimateResponse:
        """Return the response for an estimate."""
        latest = None if estimate.latest_ms is None else time_of(estimate.latest_ms)
        return cls(
            earliest=time_of(estimate.earliest_ms),
            likely=time_of(estimate.likely_ms),
            latest=latest,
            basis=estimate.basis,
            run_times=estimate.run_times,
            is_rough=estimate.is_rough,
        )


class PoolExplanationResponse(ResponseModel):
    """The reasons why the request waits in one pool."""

    pool: str
    """The name of the pool."""
    position: int
    """The position of the request in the queue, from 1."""
    ahead: int
    """The number of requests ahead in the queue."""
    waiting: int
    """The number of requests in the queue of the pool."""
    verdict: Annotated[
        WaitReason,
        Field(description="The constraint that blocks the request: the first that applies, in the order of this list."),
    ]
    keys: dict[str, KeyUnitsResponse]
    """Resource key → units that the request needs and that the pool has."""
    blocking_account: BlockingAccountResponse | None
    """The account that blocks the request; null: none does."""
    holders: Sequence[PolicyHoldingResponse]
    """The policies that hold units of the missing key, the largest part first."""
    more_holders: int
    """The number of holders that are left out."""
    preemption: PreemptionResponse
    """The victims that the planner found for the request, or the reason why there are none."""
    would_start_if: str
    """The change after which the request would be granted, as a sentence for people."""
    estimated_start: StartEstimateResponse | None
    """The estimated time of the grant; null: there is no estimate, and `no_estimate` has the reason."""
    no_estimate: str | None
    """The reason why there is no estimate; null if there is one."""

    @classmethod
    def of(cls, view: PoolExplanation, token: Token) -> PoolExplanationResponse:
        """Return the response for a pool, as far as the token may see it."""
        view = anonymize_view(view) if token.is_limited else view
        status = view.status
        return cls(
            pool=status.pool,
            position=status.position,
            ahead=status.position - 1,
            waiting=status.waiter_count,
            verdict=status.wait_reason,
            keys={key: KeyUnitsResponse.of(units) for key, units in view.keys.items()},
            blocking_account=BlockingAccountResponse.of(view),
            holders=[PolicyHoldingResponse.of(holding) for holding in view.holders],
            more_holders=view.more_holders,
            preemption=PreemptionResponse.of(view.preemption, token),
            would_start_if=view.would_start_if,
            estimated_start=None if view.estimate is None else StartEstimateResponse.of(view.estimate),
            no_estimate=view.no_estimate,
        )


class ExplanationResponse(ResponseModel):
    """The reasons for the present state of a request."""

    request: str
    """The id of the request."""
    status: RequestState
    """The present state of the request."""
    sentence: str
    """The explanation as a sentence for people."""
    pools: Sequence[PoolExplanationResponse]
    """The reasons in each pool in whose queue it is, the preferred pool first; empty if it does not wait."""

    @classmethod
    def of(cls, explanation: Explanation, token: Token) -> ExplanationResponse:
        """Return the response as far as the token may see it."""
        explanation = anonymize(explanation) if token.is_limited else explanation
        pools = [PoolExplanationResponse.of(pool, token) for pool in explanation.pools]
        return cls(
            request=explanation.request.id, status=explanation.request.status, sentence=explanation.sentence, pools=pools
        )


class PoolEstimateResponse(ResponseModel):
    """The estimate for one pool, and the reason why the request waits there."""

    pool: str
    """The name of the pool."""
    verdict: WaitReason | None
    """The constraint that blocks the request, with `reasons=true`; null if it has left the queue of the pool meanwhile."""
    sentence: str | None
    """The reason as a short sentence with the numbers, with `reasons=true`; else null."""
    estimated_start: StartEstimateResponse | None
    """The estimated time of the grant; null: there is no estimate, and `no_estimate` has the reason."""
    no_estimate: str | None
    """The reason why there is no estimate; null if there is one."""


class EstimateResponse(ResponseModel):
    """The estimated start of a request."""

    request: str
    """The id of the request."""
    status: RequestState
    """The present state of the request."""
    pools: Sequence[PoolEstimateResponse]
    """The estimate for each pool in whose queue it is; empty if it does not wait."""

    @classmethod
    def of(
        cls, request: Request, estimates: Mapping[str, EstimateResult], reasons: Mapping[str, ShortReason]
    ) -> EstimateResponse:
        """Return the response for a request."""
        pools = [
            PoolEstimateResponse(
                pool=pool,
                verdict=reasons[pool].verdict if pool in reasons else None,
                sentence=reasons[pool].sentence if pool in reasons else None,
                estimated_start=result.estimate and StartEstimateResponse.of(result.estimate),
                no_estimate=result.why_not,
            )
            for pool, result in estimates.items()
        ]
        return cls(request=request.id, status=request.status, pools=pools)
