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
    """What it needs of a key, and what there is."""

    needed: int
    free: int
    """Units of the pool that nobody holds."""
    held_for_others: int
    """Of those, kept for others."""
    limit: int | None
    """Of its policy; null: none but the pool's capacity."""
    reserved: int
    """For its policy."""

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
    """The account that keeps it from being granted."""

    account: str
    """`pool`, `group:NAME` or `policy:TYPE/NAME`."""
    key: str
    limit: int | None
    """What may be used there at most."""
    reserved: int
    used: int
    needed: int
    lacking: int
    """How much more would have to be free there."""

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
    """Who holds units of what it asks, where that matters to it."""

    component: str
    component_type: str
    used: Amounts
    in_share: Amounts
    borrowed: Amounts
    next_end: Time | None
    """When the next of its allocations ends that has promised a walltime."""

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
    """An allocation that might be taken for it."""

    request: str
    component: str
    component_type: str
    rule: str | None
    """The rule by which it may be."""
    why_not: str | None
    """Why it may not be, by each rule that was asked."""

    @classmethod
    def of(cls, candidate: PreemptionCandidate) -> PreemptionCandidateResponse:
        """Return the response for an allocation."""
        kind, _, name = candidate.component.partition("/")
        return cls(
            request=candidate.request, component=name, component_type=kind, rule=candidate.rule, why_not=candidate.why_not
        )


class PreemptionResponse(ResponseModel):
    """Whether others could be stopped for it."""

    considered: bool
    code: str
    reason: str
    candidates: Sequence[PreemptionCandidateResponse]
    """Those that may be taken first, the newest before the others; none of components that the token is not for."""
    more: int
    """Candidates that are not told."""
    leaving: Sequence[str]
    """Who is leaving for it."""

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
    """When it may start."""

    earliest: Time
    likely: Time
    latest: Time | None
    """Null: nothing bounds it."""
    basis: str
    """What it is worked out from."""
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
    """Why it waits in one pool."""

    pool: str
    position: int
    ahead: int
    """How many stand before it."""
    waiting: int
    """How many wait in this pool in all."""
    verdict: Annotated[WaitReason, Field(description="What keeps it: the first that applies, in the order of this list.")]
    keys: dict[str, KeyUnitsResponse]
    blocking_account: BlockingAccountResponse | None
    holders: Sequence[PolicyHoldingResponse]
    """Those with most of what it lacks before the others."""
    more_holders: int
    """Holders that are not told."""
    preemption: PreemptionResponse
    would_start_if: str
    estimated_start: StartEstimateResponse | None
    """Null: nothing can be said of it; `no_estimate` says why."""
    no_estimate: str | None

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
    """Why a request is where it is."""

    request: str
    status: RequestState
    sentence: str
    pools: Sequence[PoolExplanationResponse]
    """Of one that waits: each pool in whose queue it stands, the one it prefers first."""

    @classmethod
    def of(cls, explanation: Explanation, token: Token) -> ExplanationResponse:
        """Return the response as far as the token may see it."""
        explanation = anonymize(explanation) if token.is_limited else explanation
        pools = [PoolExplanationResponse.of(pool, token) for pool in explanation.pools]
        return cls(
            request=explanation.request.id, status=explanation.request.status, sentence=explanation.sentence, pools=pools
        )


class PoolEstimateResponse(ResponseModel):
    """When it may start in one pool, and why it waits there."""

    pool: str
    verdict: WaitReason | None
    """With `reasons`: the constraint that blocks it; null if it has left the queue of the pool meanwhile."""
    sentence: str | None
    """With `reasons`: the reason as a short sentence, with the numbers."""
    estimated_start: StartEstimateResponse | None
    """Null: nothing can be said of it; `no_estimate` says why."""
    no_estimate: str | None


class EstimateResponse(ResponseModel):
    """When a request may start."""

    request: str
    status: RequestState
    pools: Sequence[PoolEstimateResponse]
    """Of one that waits: each pool in whose queue it stands."""

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
