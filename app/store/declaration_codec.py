"""The argument and replies of the script `declare`: each changed pool before and after, and the accounts to delete."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from app.domain import amounts
from app.domain.declaration import GroupDeclaration, PolicyDeclaration, PoolDeclaration
from app.domain.declaration_diff import DeclarationStep, diff_accounts
from app.domain.errors import RefusedDeclaration, rule_refusal
from app.domain.names import is_template
from app.domain.pool_setting_models import PoolSettings
from app.domain.pool_settings import unset_value
from app.store import codec
from app.store.scripts import ScriptReply

DeclaredAccount = GroupDeclaration | PolicyDeclaration


def encode_steps(steps: Iterable[DeclarationStep]) -> str:
    """Return the steps as one text. Unchanged accounts are only listed under `before`, for the comparison in the script."""
    return json.dumps([_encode_step(step) for step in steps])


def _encode_step(step: DeclarationStep) -> dict[str, Any]:
    before, after = step.before, step.after
    row: dict[str, Any] = {"name": step.name, "gone": {"groups": [], "policies": []}}
    if before:
        row["before"] = _encode_pool(before, before.groups, before.policies)
    if after:
        groups, lost_groups = diff_accounts(before.groups if before else (), after.groups)
        policies, lost_policies = diff_accounts(before.policies if before else (), after.policies)
        if before and before.settings.template_max != after.settings.template_max:
            policies += [policy for policy in after.policies if _reserves_for_many(policy) and policy not in policies]
        row["after"] = _encode_pool(after, groups, policies)
        row["gone"] = {
            "groups": [account.name for account in lost_groups],
            "policies": [account.name for account in lost_policies],
        }
    return row


def _reserves_for_many(policy: PolicyDeclaration) -> bool:
    """True if a policy is a template with reserved units. Their sum depends on `template_max`."""
    return is_template(policy.component) and bool(policy.reserved)


def _encode_pool(
    pool: PoolDeclaration, groups: Sequence[DeclaredAccount], policies: Sequence[DeclaredAccount]
) -> dict[str, Any]:
    return {
        "description": pool.description,
        "capacity": amounts.encode(pool.capacity),
        "settings": _encode_settings(pool.settings),
        "groups": [_encode_account(group) for group in groups],
        "policies": [_encode_account(policy) for policy in policies],
    }


def _encode_settings(settings: PoolSettings) -> list[tuple[str, str, str]]:
    """Return (name, value, value if unset) of each setting."""
    values = settings.model_dump().items()
    return [(name, codec.encode_setting(value), codec.encode_setting(unset_value(name))) for name, value in values]


def _encode_account(account: DeclaredAccount) -> dict[str, Any]:
    row = {
        "name": account.name,
        "weight": str(account.weight),
        "reserved": amounts.encode(account.reserved),
        "limit": amounts.encode(account.limit),
        "settings": codec.encode_account_settings(account),
    }
    if isinstance(account, PolicyDeclaration):
        return row | {"above": account.group or "", "priority": str(account.priority), "profile": account.profile}
    return row | {"above": account.parent or "", "priority": "", "profile": ""}


def was_applied(reply: ScriptReply) -> bool:
    """Return True if the script applied the declaration, False if a pool had changed meanwhile. Raise a refusal with its
    pool."""
    fields = reply.fields
    if reply.tag == "in_use":
        inside = "" if fields["account"] == "pool" else f": {fields['account'].replace(':', ' ', 1)}"
        used = f"{fields['queued']} queued, {fields['active']} active"
        message = f"pool {fields['pool']}{inside} is in use: {used}"
        raise RefusedDeclaration("in_use", message, fields["pool"], fields["account"])
    if reply.tag == "refused":
        refusal = rule_refusal(**{name: value for name, value in fields.items() if name != "pool"})
        raise RefusedDeclaration(
            refusal.code, f"pool {fields['pool']}: {refusal}", fields["pool"], fields["account"], fields["key"]
        )
    return reply.tag == "declared"
