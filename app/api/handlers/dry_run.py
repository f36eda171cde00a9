"""Dry runs: what a submit or a change would come to, and nothing of it done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from app.api.errors import Refusal
from app.api.handlers.declarations import PlanAnswer
from app.api.handlers.explain import WaitAnswer
from app.api.handlers.requests import check_class, not_yours
from app.api.routing import Call
from app.api.schemas.requests import Answer, WhyAnswer
from app.domain.declaration import Declaration, DeclaredGroup, DeclaredPolicy, DeclaredPool, each_once
from app.domain.dry_run import Asked, Changed
from app.domain.names import Name
from app.domain.specs import Ask, PoolChange, RequestAsk
from app.domain.tokens import Token

KINDS = ("request", "pool", "policy", "group", "pools", "cancel", "drop")
MOST = 1000
"""Requests of one kind that are told."""


class PoolTrial(PoolChange):
    """A pool as it would be changed: what is not given stays."""

    name: Name


class PolicyTrial(DeclaredPolicy):
    """A policy as it would be put: what is not given is as if it were new."""

    pool: Name


class GroupTrial(DeclaredGroup):
    """A group as it would be put: what is not given is as if it were new."""

    pool: Name


class TrialAsk(Ask):
    """What is to be tried: one of these."""

    request: RequestAsk | None = None
    """A submit."""
    pool: PoolTrial | None = None
    policy: PolicyTrial | None = None
    group: GroupTrial | None = None
    pools: list[DeclaredPool] | None = None
    """A whole declaration, as in `pools.yaml`."""
    prune: bool = False
    """With `pools`: whether pools that are not in it are deleted."""
    cancel: Name | None = None
    """A request that would leave the queue."""
    drop: Name | None = None
    """A request that would be ended."""

    @field_validator("pools")
    @classmethod
    def _pools_once(cls, pools: list[DeclaredPool] | None) -> list[DeclaredPool] | None:
        each_once("pool", (pool.name for pool in pools or ()))
        return pools

    @model_validator(mode="after")
    def _one(self) -> TrialAsk:
        if sum(getattr(self, name) is not None for name in KINDS) != 1:
            raise ValueError(f"has to say exactly one of {', '.join(KINDS)}")
        if self.prune and self.pools is None:
            raise ValueError("prune goes with pools")
        return self


class TrialAnswer(Answer):
    """What would come of it."""

    outcome: Literal["allocated", "preempts", "queued", "rejected", "changes", "nothing"]
    """Of a submit: granted at once; waits for those who would have to leave for it; waits; could never be granted. Of a change:
    whether it `changes` anything for those who wait or hold units."""
    pool: str | None = None
    """Of a submit: where it would be granted, or others would leave for it."""
    victims: Sequence[str] = ()
    """Who would be preempted; of components that the token is not for none are told."""
    reason: WhyAnswer | None = None
    """Of a submit that would be rejected."""
    verdicts: Sequence[WaitAnswer] = ()
    """Of a submit that would wait: why, in each pool."""
    granted: Sequence[str] = ()
    """Of a change: who waits and would be granted."""
    preemptible: Sequence[str] = ()
    """Who lies within its share, and would not any more."""
    reprieved: Sequence[str] = ()
    """Who is leaving, and would be called back."""
    rejected: Sequence[str] = ()
    """Who waits and could never be granted any more."""
    ended: Sequence[str] = ()
    """Who would leave the queue or give its units back."""
    counts: Annotated[Mapping[str, int], Field(description=f"How many are in each of these lists, which tell {MOST} at most.")]
    plan: PlanAnswer | None = None
    """Of a declaration: what would be changed."""


def try_out(call: Call, body: TrialAsk) -> TrialAnswer:
    """What a submit, a change of a pool, policy, group or of all pools, or the end of a request would come to.

    It is done to a copy, by the code that would do it, and nothing is written.
    """
    if body.request is not None:
        kind, component = body.request.component_type, body.request.component
        if not call.token.may_see(kind, component):
            raise not_yours(kind, component)
        check_class(call, body.request)
        return _asked(call.services.trying.ask(call.workspace, body.request), call.token)
    if call.token.is_limited:
        raise Refusal(403, "not_permitted", "this token is for single components, and may try out their requests only")
    return _changed(_change(call, body))


def _change(call: Call, body: TrialAsk) -> Changed:
    trying, workspace = call.services.trying, call.workspace
    if body.pool is not None:
        change = PoolChange.model_validate(body.pool.model_dump(exclude={"name"}, exclude_unset=True))
        return trying.pool(workspace, body.pool.name, change)
    if body.policy is not None:
        return trying.policy(workspace, body.policy.pool, body.policy)
    if body.group is not None:
        return trying.group(workspace, body.group.pool, body.group)
    if body.pools is not None:
        return trying.declaration(workspace, Declaration(pools=body.pools), prune=body.prune)
    if body.cancel is not None:
        return trying.cancel(workspace, body.cancel)
    assert body.drop is not None
    return trying.drop(workspace, body.drop)


def _asked(told: Asked, token: Token) -> TrialAnswer:
    victims = [request for request, component in told.victims if token.may_see(*component.split("/", 1))]
    return TrialAnswer(
        outcome=told.outcome,
        pool=told.pool,
        victims=victims,
        reason=WhyAnswer.of(told.request.reason) if told.request.reason else None,
        verdicts=[WaitAnswer.of(view, token) for view in told.views],
        counts={"victims": len(told.victims)},
    )


def _changed(told: Changed) -> TrialAnswer:
    lists = {
        "victims": told.preempted,
        "granted": told.granted,
        "preemptible": told.preemptible,
        "reprieved": told.reprieved,
        "rejected": told.rejected,
        "ended": told.ended,
    }
    return TrialAnswer.model_validate(
        {
            "outcome": "changes" if any(lists.values()) else "nothing",
            **{name: some[:MOST] for name, some in lists.items()},
            "counts": {name: len(some) for name, some in lists.items()},
            "plan": told.plan and PlanAnswer.of(told.plan),
        }
    )
