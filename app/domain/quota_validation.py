"""The validation of the quotas of a declaration: the rules of reserved units and limits, for a whole workspace.

The scripts check one change beside the present state. Here the whole state is known, so the order of changes does not matter.
Each pool is checked separately:

1. parents: each group and policy is below a group of the file or the pool; no circle; not too deep
2. the pool and each account: its keys are the pool's, reserved <= limit <= capacity
3. each parent: the sum of the reserved units of its children
"""

from __future__ import annotations

from collections import Counter

from app.domain.amounts import Amounts
from app.domain.declaration import Declaration, GroupDeclaration, PolicyDeclaration, PoolDeclaration
from app.domain.errors import NotFound, Refusal, RuleViolation, rule_refusal
from app.domain.names import is_template
from app.domain.pool_setting_models import GroupSettings, PoolSettings

MAX_GROUP_DEPTH = 8
"""The greatest depth of nested groups."""


def validate_quotas(declaration: Declaration) -> None:
    """Raise the refusal that the ledger would give, with its pool, unless every pool is valid."""
    for number, pool in enumerate(declaration.pools):
        if refusal := _pool_refusal(pool):
            raise RuleViolation(refusal.code, f"pool {pool.name}: {refusal}").at(f"pools.{number}.{refusal.field}")


def _pool_refusal(pool: PoolDeclaration) -> Refusal | None:
    groups = {group.name: group for group in pool.groups}
    for field, account, parent in _accounts(pool):
        if parent is not None and parent not in groups:
            return NotFound("group", parent).at(f"{field}.{'parent' if isinstance(account, GroupDeclaration) else 'group'}")
    for number, group in enumerate(pool.groups):
        if refusal := _parent_refusal(group, groups):
            return refusal.at(f"groups.{number}.parent")
    if refusal := _threshold_refusal("pool", pool.settings, pool.capacity):
        return refusal
    for field, account, _ in _accounts(pool):
        if refusal := _account_refusal(account, pool.capacity):
            return refusal.at(f"{field}.{refusal.field}")
    return _sum_refusal(pool, groups)


def _accounts(pool: PoolDeclaration) -> list[tuple[str, GroupDeclaration | PolicyDeclaration, str | None]]:
    """Return every group and policy with its field and the name of its parent group."""
    groups = ((f"groups.{number}", group, group.parent) for number, group in enumerate(pool.groups))
    return [*groups, *((f"policies.{number}", policy, policy.group) for number, policy in enumerate(pool.policies))]


def template_max(pool: PoolDeclaration, account: GroupDeclaration | PolicyDeclaration) -> int:
    """Return the most instances of a template; 1 for any other account. A template reserves its units for each instance."""
    if isinstance(account, GroupDeclaration) or not is_template(account.component):
        return 1
    return int(account.settings.template_max or pool.settings.template_max)


def _label(account: GroupDeclaration | PolicyDeclaration) -> str:
    return f"{'group' if isinstance(account, GroupDeclaration) else 'policy'}:{account.name}"


def _parent_refusal(group: GroupDeclaration, groups: dict[str, GroupDeclaration]) -> Refusal | None:
    path, parent = {group.name: None}, group.parent
    while parent is not None:
        if parent in path:
            return rule_refusal("circle", f"group:{parent}", "-", "0", "0")
        path[parent], parent = None, groups[parent].parent
    if len(path) > MAX_GROUP_DEPTH:
        return rule_refusal("too_deep", _label(group), "-", str(len(path)), str(MAX_GROUP_DEPTH))
    return None


def threshold_refusal(label: str, settings: PoolSettings | GroupSettings, capacity: Amounts) -> Refusal | None:
    """Return the refusal of a `non_preemptible_usage_threshold` with a key that the pool does not have."""
    for key, units in sorted((settings.non_preemptible_usage_threshold or {}).items()):
        if key not in capacity:
            return rule_refusal("unknown_threshold_key", label, key, str(units), "0")
    return None


def _threshold_refusal(label: str, settings: PoolSettings | GroupSettings, capacity: Amounts) -> Refusal | None:
    refusal = threshold_refusal(label, settings, capacity)
    return refusal.at("settings.non_preemptible_usage_threshold") if refusal else None


def _account_refusal(account: GroupDeclaration | PolicyDeclaration, capacity: Amounts) -> Refusal | None:
    for key, reserved in sorted(account.reserved.items()):
        if key not in capacity:
            return rule_refusal("unknown_key", "pool", key, str(reserved), "0").at(f"reserved.{key}")
        limit = account.limit.get(key, capacity[key])
        if reserved > limit:
            return rule_refusal("reserved_beyond_limit", _label(account), key, str(reserved), str(limit)).at(f"reserved.{key}")
    for key, limit in sorted(account.limit.items()):
        if key not in capacity:
            return rule_refusal("unknown_key", "pool", key, str(limit), "0").at(f"limit.{key}")
        if limit > capacity[key]:
            refusal = rule_refusal("limit_beyond_capacity", _label(account), key, str(limit), str(capacity[key]))
            return refusal.at(f"limit.{key}")
    return _threshold_refusal(_label(account), account.settings, capacity)


def _sum_refusal(pool: PoolDeclaration, groups: dict[str, GroupDeclaration]) -> Refusal | None:
    sums: dict[str | None, Counter[str]] = {}
    for _, account, parent in _accounts(pool):
        times = template_max(pool, account)
        sums.setdefault(parent, Counter()).update({key: units * times for key, units in account.reserved.items()})
    for parent, reserved_sum in sums.items():
        available = pool.capacity if parent is None else groups[parent].reserved
        for key, total in sorted(reserved_sum.items()):
            if total > available.get(key, 0):
                label = "pool" if parent is None else f"group:{parent}"
                field = f"capacity.{key}" if parent is None else f"groups.{[*groups].index(parent)}.reserved.{key}"
                return rule_refusal("overpromised", label, key, str(total), str(available.get(key, 0))).at(field)
    return None
