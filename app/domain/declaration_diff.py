"""The difference between the present pools and the declared pools, for people.

A plan reads in this order:

1. the pools of the file, in its order: the pool itself, then its groups, then its policies
2. of groups and of policies: those of the file in its order, then the deleted ones by name
3. the deleted pools, by name; their groups and policies are deleted with them, without lines of their own
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from app.domain import decimals
from app.domain.amounts import encode
from app.domain.declaration import Declaration, GroupDeclaration, PolicyDeclaration, PoolDeclaration
from app.domain.over_limit import OverLimitUse
from app.domain.pool_settings import DEFAULT_MODE, DEFAULT_PRIORITY, DEFAULT_PROFILE, DEFAULT_WEIGHT, SETTINGS

Action: TypeAlias = Literal["create", "update", "delete"]
AccountKind: TypeAlias = Literal["pool", "group", "policy"]
DeclaredAccount: TypeAlias = GroupDeclaration | PolicyDeclaration

FIELD_ORDER = (
    "description", "capacity", "priority", "parent", "reserved", "limit", "weight", "mode", "group", "profile", "setting",
)  # fmt: skip
"""The first words of the lines, in order."""

DEFAULT_TEXTS = {
    "limit": "as the pool",
    "priority": str(DEFAULT_PRIORITY),
    "weight": str(DEFAULT_WEIGHT),
    "profile": DEFAULT_PROFILE,
    "mode": DEFAULT_MODE,
}
"""Field → the text of its default. Other fields have the default `none`."""


@dataclass(frozen=True, slots=True)
class DeclarationChange:
    """The change of one pool, group or policy, in lines such as `reserved gpu: 4 -> 2`."""

    action: Action
    kind: AccountKind
    pool: str
    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeclarationStep:
    """A pool that changes: before (None if it is new) and after (None if it is deleted)."""

    before: PoolDeclaration | None
    after: PoolDeclaration | None

    @property
    def name(self) -> str:
        """Return the name of the pool."""
        return (self.after or self.before).name  # type: ignore[union-attr]  # one of them is there

    @property
    def change_count(self) -> int:
        """Return the number of pools, groups and policies that the step creates, changes or deletes."""
        if self.after is None and self.before is not None:
            return 1 + len(self.before.groups) + len(self.before.policies)
        return len(list(_step_changes(self)))


@dataclass(frozen=True, slots=True)
class DeclarationPlan:
    """The changes of a declaration for people, and the steps for the ledger."""

    changes: tuple[DeclarationChange, ...]
    steps: tuple[DeclarationStep, ...]
    over_limit: tuple[OverLimitUse, ...] = ()
    """The use that the changes put beyond a limit."""

    @property
    def summary(self) -> str:
        """Return the counts of the changes as one sentence."""
        if not self.changes:
            return "nothing to change"
        create, change, delete = (
            sum(item.action == action for item in self.changes) for action in ("create", "update", "delete")
        )
        return f"{create} to create, {change} to change, {delete} to delete"


def plan_declaration(
    present: Mapping[str, PoolDeclaration], declaration: Declaration, *, prune: bool = False
) -> DeclarationPlan:
    """Return the plan that turns the present pools (by name) into the declared ones. With `prune`, other pools are deleted."""
    steps = [DeclarationStep(present.get(pool.name), pool) for pool in declaration.pools]
    if prune:
        names = {pool.name for pool in declaration.pools}
        steps += [DeclarationStep(present[name], None) for name in sorted(present) if name not in names]
    step_changes = [(step, tuple(_step_changes(step))) for step in steps]
    return DeclarationPlan(
        changes=tuple(change for _, changes in step_changes for change in changes),
        steps=tuple(step for step, changes in step_changes if changes),
    )


def diff_accounts(
    before: Sequence[DeclaredAccount], after: Sequence[DeclaredAccount]
) -> tuple[list[DeclaredAccount], list[DeclaredAccount]]:
    """Return the groups or policies of a pool to write, and those to delete."""
    old, new_names = {account.name: account for account in before}, {account.name for account in after}
    return (
        [account for account in after if account != old.get(account.name)],
        [old[name] for name in sorted(old) if name not in new_names],
    )


def _step_changes(step: DeclarationStep) -> Iterator[DeclarationChange]:
    before, after = step.before, step.after
    if after is None:
        yield DeclarationChange("delete", "pool", step.name, step.name, _pool_contents(before))
        return
    lines = _changed_lines("pool", _pool_facts(before) if before else None, _pool_facts(after))
    if before is None or lines:
        yield DeclarationChange("update" if before else "create", "pool", step.name, step.name, lines)
    yield from _account_changes("group", step.name, before.groups if before else (), after.groups)
    yield from _account_changes("policy", step.name, before.policies if before else (), after.policies)


def _account_changes(
    kind: AccountKind, pool: str, before: Sequence[DeclaredAccount], after: Sequence[DeclaredAccount]
) -> Iterator[DeclarationChange]:
    accounts_before = {account.name: account for account in before}
    updated, deleted = diff_accounts(before, after)
    for account in updated:
        account_before = accounts_before.get(account.name)
        lines = _changed_lines(kind, _account_facts(account_before) if account_before else None, _account_facts(account))
        yield DeclarationChange("update" if account_before else "create", kind, pool, account.name, lines)
    for account in deleted:
        yield DeclarationChange("delete", kind, pool, account.name, _fact_lines(_account_facts(account)))


def _pool_contents(pool: PoolDeclaration | None) -> tuple[str, ...]:
    """Return the lines of a deleted pool: its values, its groups and its policies."""
    if pool is None:
        return ()
    along = [f"group {group.name}" for group in pool.groups] + [f"policy {policy.name}" for policy in pool.policies]
    return (*_fact_lines(_pool_facts(pool)), *(f"with {name}" for name in along))


def _pool_facts(pool: PoolDeclaration) -> dict[str, str]:
    values = pool.model_dump(exclude={"name", "groups", "policies"}, exclude_defaults=True)
    if "description" in values:
        values["description"] = json.dumps(values["description"], ensure_ascii=False)
    return _labelled(values)


def _account_facts(account: DeclaredAccount) -> dict[str, str]:
    return _labelled(account.model_dump(exclude={"name", "component", "component_type"}, exclude_defaults=True))


def _labelled(values: Mapping[str, Any]) -> dict[str, str]:
    """Return label → text of each value that is not a default. Each key of a mapping has a label of its own."""
    facts = {}
    for name, value in values.items():
        field = "setting" if name == "settings" else name
        items = {f"{field} {key}": value[key] for key in sorted(value)} if isinstance(value, Mapping) else {field: value}
        facts.update({label: _text(item) for label, item in items.items()})
    return facts


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return encode(value) or "none"
    if isinstance(value, float):
        return decimals.encode(value)
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def _changed_lines(kind: AccountKind, before: Mapping[str, str] | None, after: Mapping[str, str]) -> tuple[str, ...]:
    if before is None:
        return _fact_lines(after)
    labels = sorted({*after, *before}, key=lambda label: (FIELD_ORDER.index(label.partition(" ")[0]), label))
    pairs = (
        (label, before.get(label, _default_text(kind, label)), after.get(label, _default_text(kind, label, is_deleted=True)))
        for label in labels
        if before.get(label) != after.get(label)
    )
    return tuple(f"{label}: {old} -> {new}" for label, old, new in pairs)


def _fact_lines(facts: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{label}: {value}" for label, value in facts.items())


def _default_text(kind: AccountKind, label: str, *, is_deleted: bool = False) -> str:
    """Return the text of the default of a label."""
    field, _, name = label.partition(" ")
    if field == "setting" and kind != "pool":
        return "inherited"
    if field == "setting" and SETTINGS[name].by_discipline:
        return "as the discipline"
    if field == "setting":
        return _text(SETTINGS[name].default)
    if field == "capacity" and is_deleted:
        return "removed"
    return DEFAULT_TEXTS.get(field, "none")
