"""The shares of a pool: demand, usage and fair share of each account, and its preemptible allocations."""

from __future__ import annotations

from app.api.routing import Call
from app.api.schemas.pool_shares import AccountSharesResponse, PoolSharesResponse


def get_pool_shares(call: Call, pool: str) -> PoolSharesResponse:
    """What each part of a pool has, wants and is due by fair share, from the pool down to its policies."""
    return PoolSharesResponse(
        accounts=[
            AccountSharesResponse.of(account, call.token) for account in call.services.pool_shares.get(call.workspace, pool)
        ]
    )
