"""Policies and groups: who may use how much of a pool."""

from __future__ import annotations

from app.api.auth import forbidden
from app.api.pagination import page_of
from app.api.routing import Call
from app.api.schemas import pools
from app.api.schemas.inputs import ComponentPaged, ComponentQuery, Paged
from app.api.schemas.pools import GroupAnswer, PolicyAnswer
from app.api.schemas.requests import Page
from app.domain.names import component_id
from app.domain.specs import GroupAsk, PolicyAsk
from app.domain.tokens import Permission


def every(call: Call, pool: str, query: Paged) -> Page[PolicyAnswer]:
    """A pool's policies, the highest priority first."""
    items, follows = page_of(pools.policies(call.services.pools.view(call.workspace, pool)), query)
    return Page(items=list(items), next_cursor=follows)


def put(call: Call, pool: str, component: str, query: ComponentQuery, body: PolicyAsk) -> tuple[int, PolicyAnswer]:
    """Connect a component to a pool, or replace how it is connected: what is not given is as if it were new.

    A policy that is there is for who may `adjust`; to make one is for who may `shape`.
    """
    if not call.token.may(Permission.SHAPE):
        known = call.services.pools.view(call.workspace, pool).policies
        if component_id(query.component_type, component) not in known:
            raise forbidden(Permission.SHAPE)
    created = call.services.pools.set_policy(call.workspace, pool, component, body, query.component_type)
    return 201 if created else 200, show(call, pool, component, query)


def show(call: Call, pool: str, component: str, query: ComponentQuery) -> PolicyAnswer:
    """A component's policy in a pool."""
    return PolicyAnswer.of(*call.services.pools.policy(call.workspace, pool, component, query.component_type))


def delete(call: Call, pool: str, component: str, query: ComponentQuery) -> None:
    """Part a component from a pool, while nothing of it waits or runs there."""
    call.services.pools.delete_policy(call.workspace, pool, component, query.component_type)


def of_component(call: Call, component: str, query: ComponentPaged) -> Page[PolicyAnswer]:
    """A component's policies in all pools, the most preferred first."""
    found = call.services.lists.policies_of(call.workspace, component, query.component_type)
    items, follows = page_of([PolicyAnswer.of(pool, policy) for pool, policy in found], query)
    return Page(items=list(items), next_cursor=follows)


def groups(call: Call, pool: str, query: Paged) -> Page[GroupAnswer]:
    """A pool's groups, by name."""
    view = call.services.pools.view(call.workspace, pool)
    items, follows = page_of([GroupAnswer.of(view, view.groups[name]) for name in sorted(view.groups)], query)
    return Page(items=list(items), next_cursor=follows)


def put_group(call: Call, pool: str, group: str, body: GroupAsk) -> tuple[int, GroupAnswer]:
    """Make a group, or replace its numbers and parent: what is not given is as if it were new."""
    created = call.services.pools.set_group(call.workspace, pool, group, body)
    return 201 if created else 200, show_group(call, pool, group)


def show_group(call: Call, pool: str, group: str) -> GroupAnswer:
    """A group of a pool."""
    return GroupAnswer.of(*call.services.pools.group(call.workspace, pool, group))


def delete_group(call: Call, pool: str, group: str) -> None:
    """Delete a group without children."""
    call.services.pools.delete_group(call.workspace, pool, group)
