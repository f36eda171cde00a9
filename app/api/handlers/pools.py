"""Pools: what there is to share."""

from __future__ import annotations

from app.api.auth import forbidden
from app.api.handlers.requests import idempotency_key
from app.api.pagination import page_of, told_by_us
from app.api.routing import Call
from app.api.schemas.inputs import Paged, ViewQuery
from app.api.schemas.pools import PoolAnswer
from app.api.schemas.requests import Page, RequestAnswer
from app.domain.specs import PoolAsk, PoolChange
from app.domain.tokens import Permission


def create(call: Call, body: PoolAsk) -> PoolAnswer:
    """Make a pool. With an `Idempotency-Key` it may be repeated."""
    return PoolAnswer.of(call.services.pools.create(call.workspace, body, idempotency_key(call)))


def every(call: Call, query: Paged) -> Page[PoolAnswer]:
    """All pools, by name."""
    names, follows = page_of(call.services.pools.names(call.workspace), query)
    return Page(items=[PoolAnswer.of(pool) for pool in call.services.pools.those(call.workspace, names)], next_cursor=follows)


def show(call: Call, pool: str) -> PoolAnswer:
    """One pool."""
    return PoolAnswer.of(call.services.pools.view(call.workspace, pool))


def change(call: Call, pool: str, body: PoolChange) -> PoolAnswer:
    """Merge a change into a pool: what is not given stays, a capacity of 0 removes its key.

    The capacity is for who may `adjust`; all else of a pool is for who may `shape`.
    """
    if body.model_fields_set - {"capacity"} and not call.token.may(Permission.SHAPE):
        raise forbidden(Permission.SHAPE)
    return PoolAnswer.of(call.services.pools.update(call.workspace, pool, body))


def delete(call: Call, pool: str) -> None:
    """Delete a pool with its groups and policies, while nobody waits for it or holds anything of it."""
    call.services.pools.delete(call.workspace, pool)


def requests(call: Call, pool: str, query: ViewQuery) -> Page[RequestAnswer]:
    """Those who hold units of a pool, in order of grant, and those who wait, in queue order with their places."""
    with told_by_us():
        rows, follows = call.services.lists.of_pool(call.workspace, pool, query.view, query.cursor, query.limit)
    seen = [row for row in rows if call.token.may_see(row.request.component_type, row.request.component)]
    items = [RequestAnswer.of(row.request, {pool: row.place} if row.place else {}) for row in seen]
    return Page(items=items, next_cursor=follows)
