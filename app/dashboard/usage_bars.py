"""The geometry of usage bars: units of a pool by kind, and usage of an account beside its reserved and limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.domain.models import Pool, PoolAccount

MAX_MARKS = 12
"""Marks of one bar, at most."""


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A segment of a bar; start and length are percentages."""

    kind: str
    start: float
    length: float
    units: int


@dataclass(frozen=True, slots=True)
class BarMark:
    """A line across a bar; the position is a percentage."""

    kind: str
    position: float
    text: str


@dataclass(frozen=True, slots=True)
class UsageBar:
    """The bar of one key of a pool, a group or a policy."""

    key: str
    segments: tuple[BarSegment, ...]
    marks: tuple[BarMark, ...]
    text: str
    """The bar in words."""
    used: int
    total: int


def pool_bars(pool: Pool) -> list[UsageBar]:
    """Return a bar for each key of a pool: in share, borrowed, held and free, with the limits of its accounts."""
    return [_pool_bar(pool, key) for key in sorted(pool.capacity)]


def account_bars(pool: Pool, account: PoolAccount) -> list[UsageBar]:
    """Return a bar for each key that an account uses, reserves or limits, in the scale of the pool."""
    keys = account.reserved.keys() | account.limit.keys() | {key for key, used in account.used.items() if used}
    return [_account_bar(pool, account, key) for key in sorted(keys & pool.capacity.keys())]


def _pool_bar(pool: Pool, key: str) -> UsageBar:
    capacity, used = pool.capacity[key], pool.used.get(key, 0)
    borrowed = min(used, pool.borrowed.get(key, 0))
    free = max(0, capacity - used)
    on_hold = min(free, pool.on_hold.get(key, 0))
    units = (("share", used - borrowed), ("borrowed", borrowed), ("held", on_hold), ("free", free - on_hold))
    full = max(capacity, used)
    beyond = [BarMark("capacity", _percent(capacity, full), f"capacity {capacity:,}")] if used > capacity else []
    summary = ", ".join(f"{amount:,} {_KIND_LABELS[kind]}" for kind, amount in units if amount or kind == "free")
    text = f"{key}: {used:,} of {capacity:,} used: {summary}"
    return UsageBar(key, tuple(_segments(units, full)), (*beyond, *_limits(pool, key, full)), text, used, capacity)


_KIND_LABELS = {"share": "in share", "borrowed": "borrowed", "held": "held", "free": "free"}


def _limits(pool: Pool, key: str, full: int) -> list[BarMark]:
    """Return the marks of the lowest limits of groups and policies."""
    below: dict[int, list[str]] = {}
    for account in (*pool.groups.values(), *pool.policies.values()):
        limit = account.limit.get(key)
        if limit is not None and limit < pool.capacity[key]:
            below.setdefault(limit, []).append(account.name.removeprefix("orchestrator/"))
    lowest = sorted(below.items())[:MAX_MARKS]
    return [BarMark("limit", _percent(limit, full), f"limit {limit:,}: {_shortened(names)}") for limit, names in lowest]


def _shortened(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _account_bar(pool: Pool, account: PoolAccount, key: str) -> UsageBar:
    used, reserved, limit = account.used.get(key, 0), account.reserved.get(key, 0), account.limit.get(key)
    full = max(pool.capacity[key], used)
    units = (("share", min(used, reserved)), ("borrowed", max(0, used - reserved)))
    marks = [BarMark("reserved", _percent(reserved, full), f"reserved {reserved:,}")] if reserved else []
    if limit is not None:
        marks.append(BarMark("limit", _percent(limit, full), f"limit {limit:,}"))
    texts = [f"{key}: {used:,} used"]
    texts += [f"{amount:,} {_KIND_LABELS[kind]}" for kind, amount in units if amount]
    texts += [mark.text for mark in marks]
    return UsageBar(key, tuple(_segments(units, full)), tuple(marks), ", ".join(texts), used, full)


def _segments(units: Iterable[tuple[str, int]], full: int) -> Iterable[BarSegment]:
    start = 0
    for kind, amount in units:
        if amount:
            yield BarSegment(kind, _percent(start, full), _percent(amount, full), amount)
        start += amount


def _percent(amount: int, full: int) -> float:
    return round(100 * min(amount, full) / full, 3) if full else 0.0
