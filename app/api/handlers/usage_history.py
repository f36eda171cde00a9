"""The usage history of a pool."""

from __future__ import annotations

from app.api.routing import Call
from app.api.schemas.usage_history import UsageHistoryResponse


def get_usage_history(call: Call, pool: str) -> UsageHistoryResponse:
    """Return the use of a pool over the last hours, in all and by policy."""
    return UsageHistoryResponse.of(call.services.usage_history.get(call.workspace, pool))
