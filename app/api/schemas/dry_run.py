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
"""The most requests in one list of an answer."""


class DryRunPoolUpdate(PoolUpdate):
    """A change of a pool to try. Fields that are not given stay."""

    name: Name
    """The name of the pool."""


class DryRunPolicySpec(PolicyDeclaration):
    """A policy to try. Fields that are not given have their defaults."""

    pool: Name
    """The name of the pool."""


class DryRunGroupSpec(GroupDeclaration):
    """A group to try. Fields that are not given have their defaults."""

    pool: Name
    """The name of the pool."""


class DryRunBody(StrictModel):
    """The submit or the change to try: exactly one of these fields."""

    request: RequestSpec | None = None
    """A request to submit."""
    pool: DryRunPoolUpdate | None = None
    """A change of a pool."""
    policy: DryRunPolicySpec | None = None
    """A policy to put."""
    group: DryRunGroupSpec | None = None
    """A group to put."""
    pools: Annotated[list[PoolDeclaration], Field(max_length=MAX_POOLS)] | None = None
    """The pools of a declaration, as in `pools.yaml`."""
    prune: bool = False
    """True to delete the pools that the declaration does not list; with `pools` only."""
    cancel: Name | None = None
    """The id of a request to cancel."""
    drop: Name | None = None
    """The id of a request to drop."""

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
    """The outcome of a dry run. The lists have ids of requests."""

    outcome: Literal["allocated", "preempts", "queued", "rejected", "changes", "nothing"]
    """The outcome. Of a submit: `allocated`: granted at once; `preempts`: it waits until its victims have left; `queued`: it
    waits; `rejected`: it can never be granted. Of a change: `changes` if a waiter or an allocation is affected, else
    `nothing`."""
    pool: str | None = None
    """The pool that would grant a submit, or in which its victims would leave; null: none."""
    victims: Sequence[str] = ()
    """The requests that would be preempted, as far as the token can see their components."""
    reason: ReasonResponse | None = None
    """The reason of the rejection of a submit; null: it would not be rejected."""
    verdicts: Sequence[PoolExplanationResponse] = ()
    """The reason in each pool why a submit would wait; empty: it would not wait."""
    granted: Sequence[str] = ()
    """The waiters that a change would grant."""
    preemptible: Sequence[str] = ()
    """The allocations that a change would move out of their share, so that they become preemptible."""
    reprieved: Sequence[str] = ()
    """The victims that a change would reprieve."""
    rejected: Sequence[str] = ()
    """The waiters that could never be granted any more."""
    ended: Sequence[str] = ()
    """The requests that would leave the queue or release their units."""
    over_limit: Sequence[OverLimitResponse] = ()
    """The use that a change puts beyond a capacity or a limit, and the effect of `over_limit` on it."""
    counts: Annotated[
        Mapping[str, int],
        Field(description=f"List of this answer → number of its requests; a list has the first {LONGEST_LIST} of them."),
    ]
    plan: DeclarationPlanResponse | None = None
    """The changes that a declaration would make; null: the body has no declaration."""
