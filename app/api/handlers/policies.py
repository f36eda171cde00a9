"""Policies: how much of a pool a component may use."""

from __future__ import annotations

from app.api.auth import forbidden_permission
from app.api.over_limit_responses import account_over_limit
from app.api.pagination import page_of
from app.api.routing import Call
from app.api.schemas import pools
from app.api.schemas.inputs import ComponentPageQuery, ComponentQuery, PageQuery
from app.api.schemas.pools import ChangedPolicyResponse, PolicyListResponse, PolicyResponse
from app.domain.names import component_id
from app.domain.specs import PolicySpec
from app.domain.tokens import Permission


def list_policies(call: Call, pool: str, query: PageQuery) -> PolicyListResponse:
    """A pool's policies, the highest priority first."""
    items, next_cursor = page_of(pools.policy_responses(call.services.pools.get(call.workspace, pool)), query)
    return PolicyListResponse(items=list(items), next_cursor=next_cursor)


def put_policy(
    call: Call, pool: str, component: str, query: ComponentQuery, body: PolicySpec
) -> tuple[int, ChangedPolicyResponse]:
    """Connect a component to a pool, or replace how it is connected: what is not given is as if it were new.

    A policy that is there is for who may `adjust`; to make one is for who may `shape`.
    """
    if not call.token.has_permission(Permission.SHAPE):
        policies = call.services.pools.get(call.workspace, pool).policies
        present = policies.get(component_id(query.component_type, component))
        if present is None or present.template:
            raise forbidden_permission(call.token, Permission.SHAPE)
    created = call.services.pools.set_policy(call.workspace, pool, component, body, query.component_type)
    view, policy = call.services.pools.get_policy(call.workspace, pool, component, query.component_type)
    names = {policy.name, *(each.name for each in view.policies.values() if each.template == policy.name)}
    over_limit = account_over_limit(call, view, "policy", names)
    return 201 if created else 200, ChangedPolicyResponse.of(view, policy).model_copy(update={"over_limit": over_limit})


def get_policy(call: Call, pool: str, component: str, query: ComponentQuery) -> PolicyResponse:
    """A component's policy in a pool."""
    return PolicyResponse.of(*call.services.pools.get_policy(call.workspace, pool, component, query.component_type))


def delete_policy(call: Call, pool: str, component: str, query: ComponentQuery) -> None:
    """Part a component from a pool, while nothing of it waits or runs there."""
    call.services.pools.delete_policy(call.workspace, pool, component, query.component_type)


def list_component_policies(call: Call, component: str, query: ComponentPageQuery) -> PolicyListResponse:
    """A component's policies in all pools, the most preferred first."""
    rows = call.services.queries.list_component_policies(call.workspace, component, query.component_type)
    items, next_cursor = page_of([PolicyResponse.of(pool, policy) for pool, policy in rows], query)
    return PolicyListResponse(items=list(items), next_cursor=next_cursor)
