"""What of a leaf's running work may be taken for those who starve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from app.domain.amounts import Amounts
from app.domain.snapshot import Allocation
from app.planner.fair_share.inputs import Share
from app.planner.fair_share.satisfaction import EQUAL, beats, blocked, covers
from app.planner.fair_share.starvation import Patience
from app.planner.fair_share.water_filling import Division, Node


@dataclass(frozen=True, slots=True)
class Split:
    """Ids of a leaf's running allocations in the order of the walk: one after the other, the three are all of them."""

    non_preemptible: tuple[str, ...]
    aggressively_preemptible: tuple[str, ...]
    preemptible: tuple[str, ...]
    before: Mapping[str, Share]
    """The leaf's usage share before each, in that same order."""


def split(running: Sequence[Allocation], node: Node, division: Division, patience: Patience) -> Split:
    """How a leaf's running allocations, given in order of grant, are split.

    The walk: 1. those that completed no checkpoint 2. those that did; each in order of grant. Where aggressive preemption is
    not allowed, what only that could take is not preemptible.
    """
    walk = sorted(running, key=lambda holder: holder.checkpointed_ms is not None)
    units = _before(walk)
    before = [division.share(amounts) for amounts in units]
    kept = [_is_kept(amounts, patience.protects) for amounts in units]
    shut = blocked(node.fair, node.demand, division.scale)

    def end(threshold: Fraction) -> int:
        bound = _bound(node.fair, threshold, division.scale)
        return next((place for place, share in enumerate(before) if not (kept[place] or beats(bound, share, shut))), len(walk))

    first = end(patience.aggressive_threshold)
    covered = any(node.demand) and covers(node.fair, node.demand, division.scale)
    second = len(walk) if covered else max(first, end(patience.threshold))
    if not patience.allow_aggressive:
        first = second
    ids = tuple(holder.id for holder in walk)
    return Split(ids[:first], ids[first:second], ids[second:], dict(zip(ids, before, strict=True)))


def _before(walk: Sequence[Allocation]) -> list[Amounts]:
    """What the leaf holds before each."""
    held: list[Amounts] = []
    so_far: dict[str, int] = {}
    for holder in walk:
        held.append(so_far)
        so_far = {**so_far, **{key: so_far.get(key, 0) + amount for key, amount in holder.amounts.items()}}
    return held


def _is_kept(held: Amounts, protects: Amounts) -> bool:
    return bool(protects) and all(held.get(key, 0) < most for key, most in protects.items())


def _bound(fair: Share, threshold: Fraction, scale: int) -> Share:
    """A part of the fair share, less what rounding may have added."""
    return tuple(due * threshold.numerator // threshold.denominator - scale // EQUAL for due in fair)
