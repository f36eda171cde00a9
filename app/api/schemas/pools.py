"""Response models of pools, groups and policies: what is reserved, limited and used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from app.api.schemas.over_limit import OverLimitResponse
from app.api.schemas.response_model import Amounts, ListResponse, ResponseModel
from app.domain import models

SettingValues = Mapping[str, str | int | float | bool | Amounts | None]


class PoolResponse(ResponseModel):
    """A pool as it stands. Amounts of keys that are not named are 0."""

    name: str
    description: str
    capacity: Amounts
    used: Amounts
    held: Amounts
    """Kept free for somebody who waits: others leave for it, or its patience is at an end."""
    free: Amounts
    """What nobody uses, held or not."""
    borrowed: Amounts
    """What policies use beyond their reserved."""
    queue_length: int
    active_count: int
    settings: SettingValues
    """Every one with its value; null means what the field of that name says of a pool."""

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
    """A pool as it stands after a change."""

    over_limit: Sequence[OverLimitResponse] = ()
    """The use of the pool beyond its capacity or a limit, and what `over_limit` does with it."""


class PoolListResponse(ListResponse[PoolResponse]):
    pass


def _units_by_key(amounts: Amounts, capacity: Amounts) -> dict[str, int]:
    """Of every key the pool lists; what is counted beside them (unmetered keys) is nobody's worry."""
    return {key: amounts.get(key, 0) for key in capacity}


class AccountResponse(ResponseModel):
    """What a group or a policy is promised, may use and uses."""

    pool: str
    reserved: Amounts
    limit: Amounts
    """Keys not named are limited by the pool alone."""
    weight: int
    used: Amounts
    """The units in use. Of a policy template: those of all its policies; its `limit` and `reserved` are for each of them."""
    used_fixed: Amounts
    """The part of it that is not preemptible."""
    borrowed: Amounts
    settings: SettingValues
    """Those it says for itself; all others are inherited."""


class GroupResponse(AccountResponse):
    """A group."""

    name: str
    parent: str | None
    mode: str
    """How its children share in discipline `fair_share`: `fair_share` or `fifo`."""

    @classmethod
    def of(cls, pool: models.Pool, group: models.Group) -> Self:
        """Return the response for a group."""
        return cls(name=group.name, parent=group.parent, mode=group.mode, **_account_fields(pool, group, group))


class ChangedGroupResponse(GroupResponse):
    """A group as it stands after a change."""

    over_limit: Sequence[OverLimitResponse] = ()
    """The use of the group beyond its limit, and what `over_limit` does with it."""


class GroupListResponse(ListResponse[GroupResponse]):
    pass


class PolicyResponse(AccountResponse):
    """A policy."""

    component: str
    component_type: str
    priority: int
    group: str | None
    profile: str
    """`batch`, `training`, `service`, `sensitive` or `interactive`."""
    queued: int
    """How many of its component wait for this pool. Of a template: of all its policies."""
    template: str | None
    """The template of which it is an instance; null if it is declared."""
    policies: int | None
    """The number of instances of a template; null of any other policy."""

    @classmethod
    def of(cls, pool: models.Pool, policy: models.Policy, template_use: models.TemplateUse | None = None) -> Self:
        """Return the response for a policy. `template_use`: that of a template, if it is known."""
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
    """A policy as it stands after a change."""

    over_limit: Sequence[OverLimitResponse] = ()
    """The use beyond the limit of the policy or, of a template, of its instances, and what `over_limit` does with it."""


class PolicyListResponse(ListResponse[PolicyResponse]):
    pass


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
