"""Policies: the priority, shares and limits of a component in a pool."""

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
    """List the policies of a pool, the highest priority first."""
    items, next_cursor = page_of(pools.policy_responses(call.services.pools.get(call.workspace, pool)), query)
    return PolicyListResponse(items=list(items), next_cursor=next_cursor)


def put_policy(
    call: Call, pool: str, component: str, query: ComponentQuery, body: PolicySpec
) -> tuple[int, ChangedPolicyResponse]:
    """Create or replace the policy of a component in a pool. Fields that are not given get their defaults.

    To replace a policy needs the permission `adjust`; to create one needs `shape`.
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
    """Return the policy of a component in a pool."""
    return PolicyResponse.of(*call.services.pools.get_policy(call.workspace, pool, component, query.component_type))


def delete_policy(call: Call, pool: str, component: str, query: ComponentQuery) -> None:
    """Delete the policy of a component in a pool. No request of the component may wait or hold units there."""
    call.services.pools.delete_policy(call.workspace, pool, component, query.component_type)


def list_component_policies(call: Call, component: str, query: ComponentPageQuery) -> PolicyListResponse:
    """List the policies of a component in all pools, the preferred pool first."""
    rows = call.services.queries.list_component_policies(call.workspace, component, query.component_type)
    items, next_cursor = page_of([PolicyResponse.of(pool, policy) for pool, policy in rows], query)
    return PolicyListResponse(items=list(items), next_cursor=next_cursor)
