"""Pools, groups and policies as they are answered: what is promised, what may be used, what is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.api.schemas.requests import Amounts, Answer
from app.domain import models

Settings = Mapping[str, str | int | float | bool | Amounts | None]


class PoolAnswer(Answer):
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
    settings: Settings
    """Every one with its value; null means what the field of that name says of a pool."""

    @classmethod
    def of(cls, pool: models.Pool) -> PoolAnswer:
        """The answer for a pool."""
        return cls(
            name=pool.name,
            description=pool.description,
            capacity=pool.capacity,
            used=_listed(pool.used, pool.capacity),
            held=_listed(pool.held, pool.capacity),
            free=pool.free,
            borrowed=pool.borrowed,
            queue_length=pool.queue_length,
            active_count=pool.active_count,
            settings=pool.settings,
        )


def _listed(amounts: Amounts, capacity: Amounts) -> dict[str, int]:
    """Of every key the pool lists; what is counted beside them (unmetered keys) is nobody's worry."""
    return {key: amounts.get(key, 0) for key in capacity}


class AccountAnswer(Answer):
    """What a group or a policy is promised, may use and uses."""

    pool: str
    reserved: Amounts
    limit: Amounts
    """Keys not named are limited by the pool alone."""
    weight: int
    used: Amounts
    used_fixed: Amounts
    """The part of it that is not preemptible."""
    borrowed: Amounts
    settings: Settings
    """Those it says for itself; all others are inherited."""


class GroupAnswer(AccountAnswer):
    """A group."""

    name: str
    parent: str | None
    mode: str
    """How its children share in discipline `fair_share`: `fair_share` or `fifo`."""

    @classmethod
    def of(cls, pool: models.Pool, group: models.Group) -> GroupAnswer:
        """The answer for a group."""
        return cls(name=group.name, parent=group.parent, mode=group.mode, **_account(pool, group))


class PolicyAnswer(AccountAnswer):
    """A policy."""

    component: str
    component_type: str
    priority: int
    group: str | None
    profile: str
    """`batch`, `training`, `service`, `sensitive` or `interactive`."""
    queued: int
    """How many of its component wait for this pool."""

    @classmethod
    def of(cls, pool: models.Pool, policy: models.Policy) -> PolicyAnswer:
        """The answer for a policy."""
        kind, _, name = policy.name.partition("/")
        return cls(
            component=name,
            component_type=kind,
            priority=policy.priority,
            group=policy.parent,
            profile=policy.profile,
            queued=policy.queued,
            **_account(pool, policy),
        )


def _account(pool: models.Pool, account: models.Account) -> dict[str, Any]:
    return {
        "pool": pool.name,
        "reserved": account.reserved,
        "limit": account.limit,
        "weight": account.weight,
        "used": _listed(account.used, pool.capacity),
        "used_fixed": _listed(account.used_fixed, pool.capacity),
        "borrowed": {key: amount for key, amount in account.borrowed.items() if key in pool.capacity},
        "settings": account.settings,
    }


def policies(pool: models.Pool) -> list[PolicyAnswer]:
    """A pool's policies, the highest priority first."""
    return [PolicyAnswer.of(pool, one) for one in sorted(pool.policies.values(), key=lambda one: (-one.priority, one.name))]
