"""Pools: named capacities that components share."""

from __future__ import annotations

from app.api.auth import forbidden_permission
from app.api.idempotency import read_idempotency_key
from app.api.over_limit_responses import pool_over_limit
from app.api.pagination import malformed_cursor, page_of
from app.api.routing import Call
from app.api.schemas.inputs import PageQuery, PoolRequestsQuery
from app.api.schemas.pools import ChangedPoolResponse, PoolListResponse, PoolResponse
from app.api.schemas.requests import RequestListResponse, RequestResponse
from app.domain.specs import PoolSpec, PoolUpdate
from app.domain.tokens import Permission


def create_pool(call: Call, body: PoolSpec) -> PoolResponse:
    """Create a pool. With an `Idempotency-Key` the call may be repeated."""
    return PoolResponse.of(call.services.pools.create(call.workspace, body, read_idempotency_key(call)))


def list_pools(call: Call, query: PageQuery) -> PoolListResponse:
    """List all pools, by name."""
    names, next_cursor = page_of(call.services.pools.list_names(call.workspace), query)
    return PoolListResponse(
        items=[PoolResponse.of(pool) for pool in call.services.pools.list_existing(call.workspace, names)],
        next_cursor=next_cursor,
    )


def get_pool(call: Call, pool: str) -> PoolResponse:
    """Return one pool."""
    return PoolResponse.of(call.services.pools.get(call.workspace, pool))


def update_pool(call: Call, pool: str, body: PoolUpdate) -> ChangedPoolResponse:
    """Change a pool. Fields that are not given stay; a capacity of 0 removes its key.

    To change the capacity needs the permission `adjust`; other changes need `shape`.
    """
    if body.model_fields_set - {"capacity"} and not call.token.has_permission(Permission.SHAPE):
        raise forbidden_permission(call.token, Permission.SHAPE)
    changed = call.services.pools.update(call.workspace, pool, body)
    return ChangedPoolResponse.of(changed).model_copy(update={"over_limit": pool_over_limit(call, changed)})


def delete_pool(call: Call, pool: str) -> None:
    """Delete a pool with its groups and policies. No request may wait for the pool or hold units of it."""
    call.services.pools.delete(call.workspace, pool)


def list_pool_requests(call: Call, pool: str, query: PoolRequestsQuery) -> RequestListResponse:
    """List the requests of a pool: those that hold units, in order of grant, and those that wait, in queue order."""
    with malformed_cursor():
        rows, next_cursor = call.services.queries.list_pool_requests(
            call.workspace, pool, query.view, query.cursor, query.limit
        )
    visible = [row for row in rows if call.token.can_see(row.request.component_type, row.request.component)]
    items = [RequestResponse.of(row.request, {pool: row.position} if row.position else {}, call.token) for row in visible]
    return RequestListResponse(items=items, next_cursor=next_cursor)
