"""The use beyond limits, for the answer to a change."""

from __future__ import annotations

from collections.abc import Collection

from app.api.routing import Call
from app.api.schemas.over_limit import OverLimitResponse
from app.domain.models import Pool
from app.domain.over_limit import LimitKind


def pool_over_limit(call: Call, pool: Pool) -> list[OverLimitResponse]:
    """Return the responses for all use of a pool beyond its capacity and limits."""
    return [OverLimitResponse.of(use, call.token) for use in call.services.over_limit.read_if_over(call.workspace, pool)]


def account_over_limit(call: Call, pool: Pool, kind: LimitKind, names: Collection[str]) -> list[OverLimitResponse]:
    """Return the responses for the use of some groups or policies of a pool beyond their limits."""
    return [use for use in pool_over_limit(call, pool) if use.kind == kind and use.name in names]
