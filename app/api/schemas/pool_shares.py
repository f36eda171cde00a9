"""Response models of the shares of a pool: demand, usage and fair share of each account."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from app.api.schemas.response_model import Amounts, ResponseModel, Time, time_of
from app.domain.pool_shares import ShareAccount
from app.domain.tokens import Token

Fractions = Mapping[str, float]
"""Key of the pool → part of the pool's capacity, 1 being all of it."""


class PreemptibleSplitResponse(ResponseModel):
    """The running allocations of a policy by who may take them, as ids; of a group or pool none are told, nor are those
    of components the token is not for."""

    non_preemptible: Sequence[str]
    """Nobody may."""
    aggressively_preemptible: Sequence[str]
    """Only a policy that starves aggressively may."""
    preemptible: Sequence[str]
    """Any starving policy may."""

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
    """The pool itself, a group of it or a policy."""

    name: str
    """Of a policy its component's."""
    kind: Literal["pool", "group", "policy"]
    component_type: str | None
    """Of a policy."""
    parent: str | None
    """The group it is part of; null directly below the pool, and of the pool itself."""
    weight: int
    mode: Literal["fair_share", "fifo"] | None
    """How a pool or group divides among its children; null of a policy."""
    demand: Amounts
    """Units it uses and waits for."""
    usage: Amounts
    """Units it uses."""
    usage_share: Fractions
    """What it uses, as a part of the pool's capacity, as are all the shares."""
    demand_share: Fractions
    fair_share: Fractions
    """What is due to it just now."""
    guarantee_share: Fractions
    """What is due to it before anything is divided by weight, if it wants it."""
    limit_share: Fractions
    satisfaction: float | None
    """How much a policy has of what is due to it: the lower, the sooner it is served. Of a group or pool the least below it.
    Null: infinite, as nothing is due."""
    status: Literal["non_starving", "starving", "aggressively_starving"]
    below_since: Time | None
    """Since when it has been below its fair share; null: it is not."""
    allocations: PreemptibleSplitResponse

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
    """A pool's tree: the pool, and below each account its groups by name, then its policies by name."""

    accounts: list[AccountSharesResponse]
