"""The split of a leaf's running allocations by the waiters that may preempt them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from app.domain.amounts import Amounts
from app.domain.snapshot import Allocation
from app.planner.fair_share.inputs import Share
from app.planner.fair_share.satisfaction import EQUAL_WITHIN, covers_demand, demand_met, exceeds
from app.planner.fair_share.starvation import StarvationSettings
from app.planner.fair_share.water_filling import AccountShares, Division


@dataclass(frozen=True, slots=True)
class PreemptibleSplit:
    """The ids of a leaf's running allocations in the order of `split_allocations`. Each allocation is in one of the three
    lists."""

    non_preemptible: tuple[str, ...]
    aggressively_preemptible: tuple[str, ...]
    preemptible: tuple[str, ...]
    usage_before: Mapping[str, Share]
    """Id → the leaf's usage share before that allocation, in the same order."""


def split_allocations(
    allocations: Sequence[Allocation], account: AccountShares, division: Division, settings: StarvationSettings
) -> PreemptibleSplit:
    """Return the split of a leaf's running allocations. They are given in order of grant.

    Usage is added up in this order: 1. allocations without a completed checkpoint 2. allocations with a checkpoint; each in
    order of grant. If aggressive preemption is not allowed, aggressively preemptible allocations count as non-preemptible.
    """
    walk = sorted(allocations, key=lambda allocation: allocation.checkpointed_ms is not None)
    usage_before = _usage_before(walk)
    shares_before = [division.share(amounts) for amounts in usage_before]
    is_protected = [_is_protected(amounts, settings.protected_usage) for amounts in usage_before]
    keys_met = demand_met(account.fair, account.demand, division.scale)

    def end(threshold: Fraction) -> int:
        bound = _bound(account.fair, threshold, division.scale)
        return next(
            (
                index
                for index, share in enumerate(shares_before)
                if not (is_protected[index] or exceeds(bound, share, keys_met))
            ),
            len(walk),
        )

    first_aggressive = end(settings.aggressive_threshold)
    is_covered = any(account.demand) and covers_demand(account.fair, account.demand, division.scale)
    first_preemptible = len(walk) if is_covered else max(first_aggressive, end(settings.threshold))
    if not settings.allow_aggressive:
        first_aggressive = first_preemptible
    ids = tuple(allocation.id for allocation in walk)
    return PreemptibleSplit(
        ids[:first_aggressive],
        ids[first_aggressive:first_preemptible],
        ids[first_preemptible:],
        dict(zip(ids, shares_before, strict=True)),
    )


def _usage_before(walk: Sequence[Allocation]) -> list[Amounts]:
    """Return the leaf's usage before each allocation."""
    usage_before: list[Amounts] = []
    so_far: dict[str, int] = {}
    for allocation in walk:
        usage_before.append(so_far)
        so_far = {**so_far, **{key: so_far.get(key, 0) + amount for key, amount in allocation.amounts.items()}}
    return usage_before


def _is_protected(usage: Amounts, protected_usage: Amounts) -> bool:
    return bool(protected_usage) and all(usage.get(key, 0) < most for key, most in protected_usage.items())


def _bound(fair: Share, threshold: Fraction, scale: int) -> Share:
    """Return this part (`threshold`) of the fair share, less the greatest rounding error."""
    return tuple(units * threshold.numerator // threshold.denominator - scale // EQUAL_WITHIN for units in fair)
