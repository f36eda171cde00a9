"""Whether what a declaration promises can be kept: the rules of pools, groups and policies, for a whole wanted state.

The scripts judge one change beside what there is; here everything is known at once, so the order of changes is no question.
Each pool is judged for itself, by

1. parents: each group and policy is below a group of the file or the pool, nobody above itself, not too deep
2. the pool and each account for itself: its keys are the pool's, reserved <= limit <= capacity
3. each parent: what its children reserve in all
"""

from __future__ import annotations

from collections import Counter

from app.domain.amounts import Amounts
from app.domain.declaration import Declaration, DeclaredGroup, DeclaredPolicy, DeclaredPool
from app.domain.errors import NotFound, Refusal, RuleViolation, rule_refusal
from app.domain.specs import AccountSettings, PoolSettings

MAX_GROUP_DEPTH = 8
"""How many groups may stand one above the other."""


def validate_quotas(wanted: Declaration) -> None:
    """Raise what the ledger would say, with the pool it is about, unless all of it can be."""
    for pool in wanted.pools:
        if refusal := _pool_refusal(pool):
            raise RuleViolation(refusal.code, f"pool {pool.name}: {refusal}")


def _pool_refusal(pool: DeclaredPool) -> Refusal | None:
    groups = {group.name: group for group in pool.groups}
    for _, above in _accounts(pool):
        if above is not None and above not in groups:
            return NotFound("group", above)
    for group in pool.groups:
        if no := _parent_refusal(group, groups):
            return no
    if no := threshold_refusal("pool", pool.settings, pool.capacity):
        return no
    for account, _ in _accounts(pool):
        if no := _account_refusal(account, pool.capacity):
            return no
    return _sum_refusal(pool, groups)


def _accounts(pool: DeclaredPool) -> list[tuple[DeclaredGroup | DeclaredPolicy, str | None]]:
    """Every group and policy, and the name of the group above it."""
    return [*((group, group.parent) for group in pool.groups), *((policy, policy.group) for policy in pool.policies)]


def _label(account: DeclaredGroup | DeclaredPolicy) -> str:
    return f"{'group' if isinstance(account, DeclaredGroup) else 'policy'}:{account.name}"


def _parent_refusal(group: DeclaredGroup, groups: dict[str, DeclaredGroup]) -> Refusal | None:
    way, above = {group.name: None}, group.parent
    while above is not None:
        if above in way:
            return rule_refusal("circle", f"group:{above}", "-", "0", "0")
        way[above], above = None, groups[above].parent
    if len(way) > MAX_GROUP_DEPTH:
        return rule_refusal("too_deep", _label(group), "-", str(len(way)), str(MAX_GROUP_DEPTH))
    return None


def threshold_refusal(label: str, settings: PoolSettings | AccountSettings, capacity: Amounts) -> Refusal | None:
    """What a threshold of protected use is refused for: it names a key that the pool does not have."""
    for key, units in sorted((settings.non_preemptible_usage_threshold or {}).items()):
        if key not in capacity:
            return rule_refusal("unknown_threshold_key", label, key, str(units), "0")
    return None


def _account_refusal(account: DeclaredGroup | DeclaredPolicy, capacity: Amounts) -> Refusal | None:
    for key, reserved in sorted(account.reserved.items()):
        if key not in capacity:
            return rule_refusal("unknown_key", "pool", key, str(reserved), "0")
        limit = account.limit.get(key, capacity[key])
        if reserved > limit:
            return rule_refusal("reserved_beyond_limit", _label(account), key, str(reserved), str(limit))
    for key, limit in sorted(account.limit.items()):
        if key not in capacity:
            return rule_refusal("unknown_key", "pool", key, str(limit), "0")
        if limit > capacity[key]:
            return rule_refusal("limit_beyond_capacity", _label(account), key, str(limit), str(capacity[key]))
    return threshold_refusal(_label(account), account.settings, capacity)


def _sum_refusal(pool: DeclaredPool, groups: dict[str, DeclaredGroup]) -> Refusal | None:
    sums: dict[str | None, Counter[str]] = {}
    for account, above in _accounts(pool):
        sums.setdefault(above, Counter()).update(account.reserved)
    for above, promised in sums.items():
        given = pool.capacity if above is None else groups[above].reserved
        for key, total in sorted(promised.items()):
            if total > given.get(key, 0):
                label = "pool" if above is None else f"group:{above}"
                return rule_refusal("overpromised", label, key, str(total), str(given.get(key, 0)))
    return None
