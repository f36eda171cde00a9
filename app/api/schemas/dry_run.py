"""Body and response models of dry runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from app.api.schemas.declarations import DeclarationPlanResponse
from app.api.schemas.explain import PoolExplanationResponse
from app.api.schemas.over_limit import OverLimitResponse
from app.api.schemas.requests import ReasonResponse
from app.api.schemas.response_model import ResponseModel
from app.domain.declaration import MAX_POOLS, GroupDeclaration, PolicyDeclaration, PoolDeclaration, require_unique
from app.domain.field_types import StrictModel
from app.domain.names import Name
from app.domain.specs import PoolUpdate, RequestSpec

KINDS = ("request", "pool", "policy", "group", "pools", "cancel", "drop")


LONGEST_LIST = 1000
"""Requests of one kind that are told."""


class DryRunPoolUpdate(PoolUpdate):
    """A pool as it would be changed: what is not given stays."""

    name: Name


class DryRunPolicySpec(PolicyDeclaration):
    """A policy as it would be put: what is not given is as if it were new."""

    pool: Name


class DryRunGroupSpec(GroupDeclaration):
    """A group as it would be put: what is not given is as if it were new."""

    pool: Name


class DryRunBody(StrictModel):
    """What is to be tried: one of these."""

    request: RequestSpec | None = None
    """A submit."""
    pool: DryRunPoolUpdate | None = None
    policy: DryRunPolicySpec | None = None
    group: DryRunGroupSpec | None = None
    pools: Annotated[list[PoolDeclaration], Field(max_length=MAX_POOLS)] | None = None
    """A whole declaration, as in `pools.yaml`."""
    prune: bool = False
    """With `pools`: whether pools that are not in it are deleted."""
    cancel: Name | None = None
    """A request that would leave the queue."""
    drop: Name | None = None
    """A request that would be ended."""

    @field_validator("pools")
    @classmethod
    def _require_unique_pools(cls, pools: list[PoolDeclaration] | None) -> list[PoolDeclaration] | None:
        require_unique("pool", (pool.name for pool in pools or ()))
        return pools

    @model_validator(mode="after")
    def _require_one_kind(self) -> DryRunBody:
        if sum(getattr(self, name) is not None for name in KINDS) != 1:
            raise ValueError(f"has to say exactly one of {', '.join(KINDS)}")
        if self.prune and self.pools is None:
            raise ValueError("prune goes with pools")
        return self


class DryRunResponse(ResponseModel):
    """What would come of it."""

    outcome: Literal["allocated", "preempts", "queued", "rejected", "changes", "nothing"]
    """Of a submit: granted at once; waits for those who would have to leave for it; waits; could never be granted. Of a change:
    whether it `changes` anything for those who wait or hold units."""
    pool: str | None = None
    """Of a submit: where it would be granted, or others would leave for it."""
    victims: Sequence[str] = ()
    """Who would be preempted; of components that the token is not for none are told."""
    reason: ReasonResponse | None = None
    """Of a submit that would be rejected."""
    verdicts: Sequence[PoolExplanationResponse] = ()
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
    over_limit: Sequence[OverLimitResponse] = ()
    """Of a change: the use that it puts beyond a capacity or a limit, and what becomes of it."""
    counts: Annotated[
        Mapping[str, int], Field(description=f"How many are in each of these lists, which tell {LONGEST_LIST} at most.")
    ]
    plan: DeclarationPlanResponse | None = None
    """Of a declaration: what would be changed."""
