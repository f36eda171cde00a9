"""Response models of pools, groups and policies: their units reserved, limited and used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from app.api.schemas.over_limit import OverLimitResponse
from app.api.schemas.response_model import Amounts, ListResponse, ResponseModel
from app.domain import models

SettingValues = Mapping[str, str | int | float | bool | Amounts | None]


class PoolResponse(ResponseModel):
    """The present state of a pool. The amount of a key that is not named is 0."""

    name: str
    """The name of the pool."""
    description: str
    """The description of the pool, for people."""
    capacity: Amounts
    """Resource key → units of the pool."""
    used: Amounts
    """Resource key → units that allocations hold."""
    held: Amounts
    """Resource key → units that victim holds and patience holds keep free for waiters."""
    free: Amounts
    """Resource key → units that no allocation holds. Units that holds keep for waiters are included."""
    borrowed: Amounts
    """Resource key → units that policies use beyond their reserved shares."""
    queue_length: int
    """The number of requests in the queue."""
    active_count: int
    """The number of requests that hold units."""
    settings: SettingValues
    """Every setting with its value; null has the meaning that `PoolSettings` describes."""

    @classmethod
    def of(cls, pool: models.Pool) -> Self:
        """Return the response for a pool."""
        return cls(
            name=pool.name,
            description=pool.description,
            capacity=pool.capacity,
            used=_units_by_key(pool.used, pool.capacity),
            held=_units_by_key(pool.on_hold, pool.capacity),
            free=pool.free,
            borrowed=pool.borrowed,
            queue_length=pool.queue_length,
            active_count=pool.active_count,
            settings=pool.settings,
        )


class ChangedPoolResponse(PoolResponse):
    """The state of a pool after a change."""

    over_limit: Sequence[OverLimitResponse] = ()
    """The use of the pool beyond its capacity or a limit, and the effect of `over_limit` on it."""


class PoolListResponse(ListResponse[PoolResponse]):
    """A page of a list of pools."""


def _units_by_key(amounts: Amounts, capacity: Amounts) -> dict[str, int]:
    """Return the amount of each key of the capacity. Amounts of other, unmetered keys are left out."""
    return {key: amounts.get(key, 0) for key in capacity}


class AccountResponse(ResponseModel):
    """The fields that groups and policies have in common."""

    pool: str
    """The name of the pool."""
    reserved: Amounts
    """Resource key → reserved units."""
    limit: Amounts
    """Resource key → the most units in use; a key without a limit is bounded by the pool."""
    weight: int
    """The weight among its siblings in fair share."""
    used: Amounts
    """Resource key → units in use."""
    used_fixed: Amounts
    """Resource key → used units that are not preemptible."""
    borrowed: Amounts
    """Resource key → used units beyond its reserved share."""
    settings: SettingValues
    """The settings of the account itself; it inherits all others."""


class GroupResponse(AccountResponse):
    """The present state of a group."""

    name: str
    """The name of the group."""
    parent: str | None
    """The group that it belongs to; null: directly below the pool."""
    mode: str
    """The way it divides its units among its children in discipline `fair_share`: `fair_share` or `fifo`."""

    @classmethod
    def of(cls, pool: models.Pool, group: models.Group) -> Self:
        """Return the response for a group."""
        return cls(name=group.name, parent=group.parent, mode=group.mode, **_account_fields(pool, group, group))


class ChangedGroupResponse(GroupResponse):
    """The state of a group after a change."""

    over_limit: Sequence[OverLimitResponse] = ()
    """The use of the group beyond its limit, and the effect of `over_limit` on it."""


class GroupListResponse(ListResponse[GroupResponse]):
    """A page of a list of groups."""


class PolicyResponse(AccountResponse):
    """The present state of a policy."""

    reserved: Amounts
    """Resource key → reserved units; a policy template reserves them for each instance."""
    limit: Amounts
    """Resource key → the most units in use; a key without a limit is bounded by the pool. A policy template limits each
    instance."""
    used: Amounts
    """Resource key → units in use; for a policy template, those of all its instances."""
    component: str
    """The name of the component; a policy template has a pattern that ends with `*`."""
    component_type: str
    """The type of the component."""
    priority: int
    """The priority of the policy: the higher, the sooner its requests are granted."""
    group: str | None
    """The group that it belongs to; null: directly below the pool."""
    profile: str
    """The profile of its work: `batch`, `training`, `service`, `sensitive` or `interactive`."""
    queued: int
    """The number of requests of its component that wait for this pool; for a template, those of all its instances."""
    template: str | None
    """The template that made this instance; null if the policy was declared."""
    policies: int | None
    """The number of instances, if it is a template; else null."""

    @classmethod
    def of(cls, pool: models.Pool, policy: models.Policy, template_use: models.TemplateUse | None = None) -> Self:
        """Return the response for a policy. `template_use` is the use of a template, if it is known."""
        kind, _, name = policy.name.partition("/")
        use: models.Policy | models.TemplateUse = policy
        if policy.policies is not None:
            use = template_use or pool.template_use(policy)
        return cls(
            component=name,
            component_type=kind,
            priority=policy.priority,
            group=policy.parent,
            profile=policy.profile,
            queued=use.queued,
            template=policy.template and policy.template.partition("/")[2],
            policies=policy.policies,
            **_account_fields(pool, policy, use),
        )


class ChangedPolicyResponse(PolicyResponse):
    """The state of a policy after a change."""

    over_limit: Sequence[OverLimitResponse] = ()
    """The use beyond the limit of the policy, or of the instances of a template, and the effect of `over_limit` on it."""


class PolicyListResponse(ListResponse[PolicyResponse]):
    """A page of a list of policies."""


def _account_fields(
    pool: models.Pool, account: models.PoolAccount, use: models.PoolAccount | models.TemplateUse
) -> dict[str, Any]:
    return {
        "pool": pool.name,
        "reserved": account.reserved,
        "limit": account.limit,
        "weight": account.weight,
        "used": _units_by_key(use.used, pool.capacity),
        "used_fixed": _units_by_key(use.used_fixed, pool.capacity),
        "borrowed": {key: amount for key, amount in use.borrowed.items() if key in pool.capacity},
        "settings": account.settings,
    }


def policy_responses(pool: models.Pool) -> list[PolicyResponse]:
    """Return the responses for the policies of a pool, the highest priority first."""
    policies = sorted(pool.policies.values(), key=lambda policy: (-policy.priority, policy.name))
    template_uses = pool.template_uses()
    return [PolicyResponse.of(pool, policy, template_uses.get(policy.name)) for policy in policies]
