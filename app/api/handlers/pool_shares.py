"""The shares of a pool: demand, usage and fair share of each account, and its preemptible allocations."""

from __future__ import annotations

from app.api.routing import Call
from app.api.schemas.pool_shares import AccountSharesResponse, PoolSharesResponse


def get_pool_shares(call: Call, pool: str) -> PoolSharesResponse:
    """Return the demand, the usage and the fair share of each account of a pool."""
    return PoolSharesResponse(
        accounts=[
            AccountSharesResponse.of(account, call.token) for account in call.services.pool_shares.get(call.workspace, pool)
        ]
    )
