"""The geometry of usage bars: units of a pool by kind, and usage of an account beside its reserved and limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.domain.models import Pool, PoolAccount


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A segment of a bar. Start and length are in percent."""

    kind: str
    start: float
    length: float
    units: int


@dataclass(frozen=True, slots=True)
class BarMark:
    """A line across a bar. The position is in percent."""

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
    """The description of the bar for screen readers."""
    used: int
    total: int
    excess: int
    """The units beyond the capacity or the limit."""


def pool_bars(pool: Pool) -> list[UsageBar]:
    """Return a bar for each key of a pool: in share, borrowed, over capacity, held and free."""
    return [_pool_bar(pool, key) for key in sorted(pool.capacity)]


def account_bars(pool: Pool, account: PoolAccount) -> list[UsageBar]:
    """Return a bar for each key that an account uses, reserves or limits, in the scale of the pool."""
    keys = account.reserved.keys() | account.limit.keys() | {key for key, used in account.used.items() if used}
    return [_account_bar(pool, account, key) for key in sorted(keys & pool.capacity.keys())]


def _pool_bar(pool: Pool, key: str) -> UsageBar:
    capacity, used = pool.capacity[key], pool.used.get(key, 0)
    borrowed, excess = min(used, pool.borrowed.get(key, 0)), max(0, used - capacity)
    free = max(0, capacity - used)
    on_hold = min(free, pool.on_hold.get(key, 0))
    units = (*_parts_of_use(used - borrowed, borrowed, excess), ("held", on_hold), ("free", free - on_hold))
    full = max(capacity, used)
    marks = (BarMark("capacity", _percent(capacity, full), f"capacity {capacity:,}"),) if excess else ()
    summary = ", ".join(_part_text(kind, amount, "capacity") for kind, amount in units if amount or kind == "free")
    text = f"{key}: {used:,} of {capacity:,} used: {summary}"
    return UsageBar(key, tuple(_segments(units, full)), marks, text, used, capacity, excess)


PART_LABELS = {"share": "in share", "borrowed": "borrowed", "over": "over", "held": "held", "free": "free"}


def _parts_of_use(in_share: int, borrowed: int, excess: int) -> tuple[tuple[str, int], ...]:
    """Return the parts of the use. Units over the capacity or the limit are taken from the borrowed ones first."""
    borrowed_excess = min(borrowed, excess)
    return (
        ("share", in_share - (excess - borrowed_excess)),
        ("borrowed", borrowed - borrowed_excess),
        ("over", excess),
    )


def _part_text(kind: str, amount: int, bound: str) -> str:
    return f"{amount:,} {PART_LABELS[kind]}" + (f" {bound}" if kind == "over" else "")


def _account_bar(pool: Pool, account: PoolAccount, key: str) -> UsageBar:
    used, reserved, limit = account.used.get(key, 0), account.reserved.get(key, 0), account.limit.get(key)
    full = max(pool.capacity[key], used)
    excess = 0 if limit is None else max(0, used - limit)
    units = _parts_of_use(min(used, reserved), max(0, used - reserved), excess)
    marks = [BarMark("reserved", _percent(reserved, full), f"reserved {reserved:,}")] if reserved else []
    if limit is not None:
        marks.append(BarMark("limit", _percent(limit, full), f"limit {limit:,}"))
    texts = [f"{key}: {used:,} used"]
    texts += [_part_text(kind, amount, "limit") for kind, amount in units if amount]
    texts += [mark.text for mark in marks]
    return UsageBar(key, tuple(_segments(units, full)), tuple(marks), ", ".join(texts), used, full, excess)


def _segments(units: Iterable[tuple[str, int]], full: int) -> Iterable[BarSegment]:
    start = 0
    for kind, amount in units:
        if amount:
            yield BarSegment(kind, _percent(start, full), _percent(amount, full), amount)
        start += amount


def _percent(amount: int, full: int) -> float:
    return round(100 * min(amount, full) / full, 3) if full else 0.0
