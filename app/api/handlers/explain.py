"""Why a request waits, as it is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from app.api.handlers.requests import own
from app.api.routing import Call
from app.api.schemas.requests import Amounts, Answer, Time, time_of
from app.domain.explanations import Candidate, Explanation, Holder, KeyView, PoolView, Preemption, Verdict
from app.domain.explanations import Estimate as Foreseen
from app.domain.models import Request
from app.domain.states import State
from app.domain.tokens import Token
from app.service.estimates import Told
from app.service.explain_text import unnamed, unnamed_view


class KeyAnswer(Answer):
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
    def of(cls, view: KeyView) -> KeyAnswer:
        """The answer for a key."""
        return cls(
            needed=view.needed,
            free=view.free,
            held_for_others=view.held_for_others,
            limit=view.limit,
            reserved=view.reserved,
        )


class BlockingAnswer(Answer):
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
    def of(cls, view: PoolView) -> BlockingAnswer | None:
        """The answer for a pool, if an account's numbers keep it there."""
        lack = view.standing.blocking
        if lack is None:
            return None
        at = view.standing.numbers_of(lack)
        return cls(
            account=lack.account,
            key=lack.key,
            limit=at.limit,
            reserved=at.reserved,
            used=at.used,
            needed=lack.needed,
            lacking=lack.lacking,
        )


class HolderAnswer(Answer):
    """Who holds units of what it asks, where that matters to it."""

    component: str
    component_type: str
    used: Amounts
    in_share: Amounts
    borrowed: Amounts
    next_end: Time | None
    """When the next of its allocations ends that has promised a walltime."""

    @classmethod
    def of(cls, holder: Holder) -> HolderAnswer:
        """The answer for a policy."""
        kind, _, name = holder.component.partition("/")
        end = None if holder.next_end_ms is None else time_of(holder.next_end_ms)
        return cls(
            component=name,
            component_type=kind,
            used=holder.used,
            in_share=holder.in_share,
            borrowed=holder.borrowed,
            next_end=end,
        )


class CandidateAnswer(Answer):
    """An allocation that might be taken for it."""

    request: str
    component: str
    component_type: str
    rule: str | None
    """The rule by which it may be."""
    why_not: str | None
    """Why it may not be, by each rule that was asked."""

    @classmethod
    def of(cls, candidate: Candidate) -> CandidateAnswer:
        """The answer for an allocation."""
        kind, _, name = candidate.component.partition("/")
        return cls(
            request=candidate.request, component=name, component_type=kind, rule=candidate.rule, why_not=candidate.why_not
        )


class PreemptionAnswer(Answer):
    """Whether others could be stopped for it."""

    considered: bool
    code: str
    reason: str
    candidates: Sequence[CandidateAnswer]
    """Those that may be taken first, the newest before the others; none of components that the token is not for."""
    more: int
    """Candidates that are not told."""
    leaving: Sequence[str]
    """Who is leaving for it."""

    @classmethod
    def of(cls, preemption: Preemption, token: Token) -> PreemptionAnswer:
        """The answer for the bearer of a token."""
        seen = [one for one in preemption.candidates if token.may_see(*one.component.split("/", 1))]
        return cls(
            considered=preemption.considered,
            code=preemption.code,
            reason=preemption.reason,
            candidates=[CandidateAnswer.of(one) for one in seen],
            more=preemption.more + len(preemption.candidates) - len(seen),
            leaving=() if token.is_limited else preemption.leaving,
        )


class EstimateAnswer(Answer):
    """When it may start."""

    earliest: Time
    likely: Time
    latest: Time | None
    """Null: nothing bounds it."""
    basis: str
    """What it is worked out from."""

    @classmethod
    def of(cls, estimate: Foreseen) -> EstimateAnswer:
        """The answer for an estimate."""
        latest = None if estimate.latest_ms is None else time_of(estimate.latest_ms)
        return cls(
            earliest=time_of(estimate.earliest_ms), likely=time_of(estimate.likely_ms), latest=latest, basis=estimate.basis
        )


class WaitAnswer(Answer):
    """Why it waits in one pool."""

    pool: str
    position: int
    ahead: int
    """How many stand before it."""
    waiting: int
    """How many wait in this pool in all."""
    verdict: Annotated[Verdict, Field(description="What keeps it: the first that applies, in the order of this list.")]
    keys: dict[str, KeyAnswer]
    blocking_account: BlockingAnswer | None
    holders: Sequence[HolderAnswer]
    """Those with most of what it lacks before the others."""
    more_holders: int
    """Holders that are not told."""
    preemption: PreemptionAnswer
    would_start_if: str
    estimated_start: EstimateAnswer | None
    """Null: nothing can be said of it; `no_estimate` says why."""
    no_estimate: str | None

    @classmethod
    def of(cls, view: PoolView, token: Token) -> WaitAnswer:
        """The answer for a pool, to the bearer of a token."""
        view = unnamed_view(view) if token.is_limited else view
        at = view.standing
        return cls(
            pool=at.pool,
            position=at.position,
            ahead=at.position - 1,
            waiting=at.waiting,
            verdict=at.verdict,
            keys={key: KeyAnswer.of(one) for key, one in view.keys.items()},
            blocking_account=BlockingAnswer.of(view),
            holders=[HolderAnswer.of(one) for one in view.holders],
            more_holders=view.more_holders,
            preemption=PreemptionAnswer.of(view.preemption, token),
            would_start_if=view.would_start_if,
            estimated_start=None if view.estimate is None else EstimateAnswer.of(view.estimate),
            no_estimate=view.no_estimate,
        )


class ExplanationAnswer(Answer):
    """Why a request is where it is."""

    request: str
    status: State
    sentence: str
    pools: Sequence[WaitAnswer]
    """Of one that waits: each pool in whose queue it stands, the one it prefers first."""

    @classmethod
    def of(cls, told: Explanation, token: Token) -> ExplanationAnswer:
        """The answer for the bearer of a token."""
        told = unnamed(told) if token.is_limited else told
        pools = [WaitAnswer.of(pool, token) for pool in told.pools]
        return cls(request=told.request.id, status=told.request.status, sentence=told.sentence, pools=pools)


class ForecastPoolAnswer(Answer):
    """When it may start in one pool."""

    pool: str
    estimated_start: EstimateAnswer | None
    """Null: nothing can be said of it; `no_estimate` says why."""
    no_estimate: str | None


class ForecastAnswer(Answer):
    """When a request may start."""

    request: str
    status: State
    pools: Sequence[ForecastPoolAnswer]
    """Of one that waits: each pool in whose queue it stands."""

    @classmethod
    def of(cls, found: Request, estimates: Mapping[str, Told]) -> ForecastAnswer:
        """The answer for a request."""
        pools = [
            ForecastPoolAnswer(
                pool=pool, estimated_start=one.estimate and EstimateAnswer.of(one.estimate), no_estimate=one.why_not
            )
            for pool, one in estimates.items()
        ]
        return cls(request=found.id, status=found.status, pools=pools)


def explain(call: Call, request: str) -> ExplanationAnswer:
    """Why a request waits: what keeps it, who holds the units, who could be stopped for it, and when it may start.

    What is said is what the rules that decide say.
    """
    own(call, call.services.requests.look(call.workspace, request))
    return ExplanationAnswer.of(call.services.explaining.explain(call.workspace, request), call.token)


def estimate(call: Call, request: str) -> ForecastAnswer:
    """When a request that waits may start, in each pool in whose queue it stands; worked out every few seconds.

    It costs little, and says nothing of why.
    """
    found = own(call, call.services.requests.look(call.workspace, request))
    return ForecastAnswer.of(found, call.services.explaining.estimates(call.workspace, found))
