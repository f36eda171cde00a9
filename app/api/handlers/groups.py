"""Groups: the accounts between a pool and its policies."""

from __future__ import annotations

from app.api.over_limit_responses import account_over_limit
from app.api.pagination import page_of
from app.api.routing import Call
from app.api.schemas.inputs import PageQuery
from app.api.schemas.pools import ChangedGroupResponse, GroupListResponse, GroupResponse
from app.domain.specs import GroupSpec


def list_groups(call: Call, pool: str, query: PageQuery) -> GroupListResponse:
    """List the groups of a pool, by name."""
    view = call.services.pools.get(call.workspace, pool)
    items, next_cursor = page_of([GroupResponse.of(view, view.groups[name]) for name in sorted(view.groups)], query)
    return GroupListResponse(items=list(items), next_cursor=next_cursor)


def put_group(call: Call, pool: str, group: str, body: GroupSpec) -> tuple[int, ChangedGroupResponse]:
    """Create or replace a group. Fields that are not given get their defaults."""
    created = call.services.pools.set_group(call.workspace, pool, group, body)
    view, changed = call.services.pools.get_group(call.workspace, pool, group)
    over_limit = account_over_limit(call, view, "group", [changed.name])
    return 201 if created else 200, ChangedGroupResponse.of(view, changed).model_copy(update={"over_limit": over_limit})


def get_group(call: Call, pool: str, group: str) -> GroupResponse:
    """Return a group of a pool."""
    return GroupResponse.of(*call.services.pools.get_group(call.workspace, pool, group))


def delete_group(call: Call, pool: str, group: str) -> None:
    """Delete a group that has no children."""
    call.services.pools.delete_group(call.workspace, pool, group)
