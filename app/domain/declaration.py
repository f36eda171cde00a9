"""The declaration of a workspace: its pools, each complete with its groups and policies.

A field that is not given has its default. A group or policy that is not listed is to be deleted. Only malformed values are
refused here; `quota_validation` judges whether the numbers agree with each other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Annotated, Any, cast

from pydantic import Field, field_validator, model_validator

from app.domain.field_types import StrictModel
from app.domain.models import Group, Policy, Pool
from app.domain.names import DECLARED_POLICY_PATTERN, Name, PolicyName, component_id
from app.domain.pool_setting_models import AccountSettings, GroupSettings, PoolSettings
from app.domain.pool_settings import SETTINGS
from app.domain.specs import GroupSpec, PolicySpec, PoolSpec, Profile, SharingMode

MAX_POOLS = 2000
"""The most pools of one declaration: validating one takes 20 µs."""


class _NamedSpec(StrictModel):
    name: Name
    """The name of the object."""


class _ComponentSpec(StrictModel):
    component: Annotated[PolicyName, Field(json_schema_extra={"pattern": DECLARED_POLICY_PATTERN})]
    """The component as `NAME` or `TYPE/NAME`. With a `*` at the end it is a policy template: each component whose name has that
    beginning and that has no policy gets an instance when it asks. `*` alone means every component of the type."""
    component_type: Name = "orchestrator"
    """The type of the component, unless `component` contains it."""

    @model_validator(mode="before")
    @classmethod
    def _split_component(cls, values: Any) -> Any:
        """Return the values with `TYPE/NAME` as type and name. A type that is given twice has to be the same."""
        component = values.get("component") if isinstance(values, dict) else None
        if not isinstance(component, str) or "/" not in component:
            return values
        component_type, _, name = component.partition("/")
        if values.get("component_type", component_type) != component_type:
            raise ValueError(f"has the component_type {values['component_type']!r}, which is not that of {component}"[:200])
        return {**values, "component": name, "component_type": component_type}


class GroupDeclaration(GroupSpec, _NamedSpec):
    """A group of a pool, by name."""


class PolicyDeclaration(PolicySpec, _ComponentSpec):
    """A component's policy in a pool."""

    @property
    def name(self) -> str:
        """Return the component as `type/name`."""
        return component_id(self.component_type, self.component)


class PoolDeclaration(PoolSpec):
    """A pool with all its groups and policies."""

    groups: list[GroupDeclaration] = Field(default=[])
    """All groups of the pool, in any order; groups that are not listed are deleted."""
    policies: list[PolicyDeclaration] = Field(default=[])
    """All policies of the pool; policies that are not listed are deleted."""

    @field_validator("groups")
    @classmethod
    def _groups_once(cls, groups: list[GroupDeclaration]) -> list[GroupDeclaration]:
        require_unique("group", (group.name for group in groups))
        return groups

    @field_validator("policies")
    @classmethod
    def _policies_once(cls, policies: list[PolicyDeclaration]) -> list[PolicyDeclaration]:
        require_unique("policy", (policy.name for policy in policies))
        return policies


class Declaration(StrictModel):
    """The declared pools of a workspace."""

    pools: list[PoolDeclaration] = Field(default=[], max_length=MAX_POOLS)
    """The declared pools, each complete. A pool that is not listed is kept, unless the call asks to delete it."""

    @field_validator("pools")
    @classmethod
    def _pools_once(cls, pools: list[PoolDeclaration]) -> list[PoolDeclaration]:
        require_unique("pool", (pool.name for pool in pools))
        return pools


def field_of_account(declaration: Declaration, pool: str, account: str, key: str) -> str:
    """Return the field of a declaration with the units of a key of an account: a group, a policy or the pool itself (`pool`).

    If the declaration does not have the account, it is the field of the pool; without the pool, an empty text.
    """
    for number, declared in enumerate(declaration.pools):
        if declared.name == pool:
            names = [f"group:{group.name}" for group in declared.groups], [f"policy:{each.name}" for each in declared.policies]
            for field, accounts in zip(("groups", "policies"), names, strict=True):
                if account in accounts:
                    return f"pools.{number}.{field}.{accounts.index(account)}"
            return f"pools.{number}.capacity.{key}" if account == "pool" and key else f"pools.{number}"
    return ""


def require_unique(kind: str, names: Iterable[Hashable]) -> None:
    """Raise ValueError if a name occurs twice."""
    unique = set()
    for name in names:
        if name in unique:
            raise ValueError(f"must list every {kind} once; {name} is there twice")
        unique.add(name)


def export_pool(pool: Pool) -> PoolDeclaration:
    """Return the declaration of an existing pool. It contains templates, but not their instances."""
    return PoolDeclaration(
        name=pool.name,
        description=pool.description,
        capacity=dict(sorted(pool.capacity.items())),
        settings=_export_settings(pool),
        groups=[_export_group(pool.groups[name]) for name in sorted(pool.groups)],
        policies=[_export_policy(pool.policies[name]) for name in sorted(pool.policies) if not pool.policies[name].template],
    )


def _export_settings(pool: Pool) -> PoolSettings:
    """Return the settings of a pool. A setting without a value, or with a null that is not allowed, has its default."""
    values = {
        name: value
        for name, value in pool.settings.items()
        if name in SETTINGS and (value is not None or SETTINGS[name].nullable)
    }
    return PoolSettings.model_validate(values)


def _export_group(group: Group) -> GroupDeclaration:
    return GroupDeclaration(
        name=group.name,
        parent=group.parent,
        reserved=dict(sorted(group.reserved.items())),
        limit=dict(sorted(group.limit.items())),
        weight=group.weight,
        mode=cast(SharingMode, group.mode),
        settings=GroupSettings.model_validate(group.settings),
    )


def _export_policy(policy: Policy) -> PolicyDeclaration:
    kind, _, name = policy.name.partition("/")
    return PolicyDeclaration(
        component=name,
        component_type=kind,
        priority=policy.priority,
        reserved=dict(sorted(policy.reserved.items())),
        limit=dict(sorted(policy.limit.items())),
        weight=policy.weight,
        group=policy.parent,
        profile=cast(Profile, policy.profile),
        settings=AccountSettings.model_validate(policy.settings),
    )
