"""Response models of the shares of a pool: demand, usage and fair share of each account."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from app.api.schemas.response_model import Amounts, ResponseModel, Time, time_of
from app.domain.pool_shares import ShareAccount
from app.domain.tokens import Token

Fractions = Mapping[str, float]
"""Key of the pool → part of the pool's capacity; 1 is all of it."""


class PreemptibleSplitResponse(ResponseModel):
    """The allocations of a policy, split by their protection. The lists are empty for a group, for the pool, and if the token
    cannot see the component."""

    non_preemptible: Sequence[str]
    """The ids of the requests that are never preempted."""
    aggressively_preemptible: Sequence[str]
    """The ids of the requests that only an aggressively starving policy may preempt."""
    preemptible: Sequence[str]
    """The ids of the requests that any starving policy may preempt."""

    @classmethod
    def of(cls, account: ShareAccount, token: Token) -> PreemptibleSplitResponse:
        """Return the response for an account, as far as the token may see it."""
        if account.component_type is None or not token.can_see(account.component_type, account.name):
            return cls(non_preemptible=(), aggressively_preemptible=(), preemptible=())
        return cls(
            non_preemptible=account.non_preemptible,
            aggressively_preemptible=account.aggressively_preemptible,
            preemptible=account.preemptible,
        )


class AccountSharesResponse(ResponseModel):
    """The shares of one account: the pool, a group or a policy."""

    name: str
    """The name of the pool or group; for a policy, the name of its component."""
    kind: Literal["pool", "group", "policy"]
    """The kind of the account."""
    component_type: str | None
    """The type of the component; null unless the account is a policy."""
    parent: str | None
    """The group that it belongs to; null for the pool, and directly below the pool."""
    weight: int
    """The weight of the account among its siblings."""
    mode: Literal["fair_share", "fifo"] | None
    """The way a pool or group divides its units among its children; null for a policy."""
    demand: Amounts
    """Resource key → units that its requests hold or wait for."""
    usage: Amounts
    """Resource key → units that its requests hold."""
    usage_share: Fractions
    """Resource key → its usage as a part of the pool's capacity, from 0 to 1."""
    demand_share: Fractions
    """Resource key → its demand as a part of the pool's capacity."""
    fair_share: Fractions
    """Resource key → its present fair share as a part of the pool's capacity."""
    guarantee_share: Fractions
    """Resource key → its reserved part of the pool's capacity, which it gets before weights count, up to its demand."""
    limit_share: Fractions
    """Resource key → its limit as a part of the pool's capacity."""
    satisfaction: float | None
    """The part of its fair share that a policy uses: the lower, the sooner it is granted. For a group or the pool, the lowest
    of the policies below it. Null: infinite, because the fair share is 0."""
    status: Literal["non_starving", "starving", "aggressively_starving"]
    """The starvation state of the account."""
    below_since: Time | None
    """The time at which the account fell below its fair share; null: it is not below."""
    allocations: PreemptibleSplitResponse
    """The allocations of a policy, split by their protection from preemption."""

    @classmethod
    def of(cls, account: ShareAccount, token: Token) -> AccountSharesResponse:
        """Return the response for an account, as far as the token may see it."""
        return cls.model_validate(
            {
                "name": account.name,
                "kind": account.kind,
                "component_type": account.component_type,
                "parent": account.parent,
                "weight": account.weight,
                "mode": account.mode,
                "demand": _units_by_key(account.demand, account.fair_share),
                "usage": _units_by_key(account.usage, account.fair_share),
                "usage_share": account.usage_share,
                "demand_share": account.demand_share,
                "fair_share": account.fair_share,
                "guarantee_share": account.guarantee_share,
                "limit_share": account.limit_share,
                "satisfaction": account.satisfaction,
                "status": account.status,
                "below_since": None if account.below_since_ms is None else time_of(account.below_since_ms),
                "allocations": PreemptibleSplitResponse.of(account, token),
            }
        )


def _units_by_key(amounts: Amounts, keys: Iterable[str]) -> dict[str, int]:
    """Return the amounts of exactly these keys, 0 for a key without an amount."""
    return {key: amounts.get(key, 0) for key in keys}


class PoolSharesResponse(ResponseModel):
    """The tree of fair shares of a pool."""

    accounts: list[AccountSharesResponse]
    """The accounts in the order of the tree: each is followed by its groups by name, then by its policies by name."""
