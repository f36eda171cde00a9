"""What it costs to stop somebody, in GPU-minutes: units of the pool's cost key, at least one, times minutes.

A cost is a ratio of whole numbers. It is put in order as the nearest float, so equal costs are equal; sums are of the ratios.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from app.domain.snapshot import Allocation, Terms, Waiter

AUTO_MINUTES = 5
"""How long an automatic checkpoint takes that does not say."""
MANUAL_MINUTES = 10

TRAINING_CHECKPOINT = 3
"""How often the checkpoint of a `training` policy counts; of an `interactive` one everything counts by half."""

MINUTE_MS = 60_000


class Costs:
    """The costs at one moment, each worked out once, and only for those somebody asks about."""

    def __init__(self, terms: Terms, now_ms: int, profiles: Mapping[str, str]) -> None:
        self._key = terms.cost_key
        self._now_ms = now_ms
        self._profiles = profiles if terms.discipline == "classes" else {}
        self._known: dict[str, float] = {}

    def of(self, holder: Allocation) -> float:
        """What stopping it costs, to put it in order."""
        cost = self._known.get(holder.id)
        if cost is None:
            over, under = self._ratio(holder)
            cost = self._known[holder.id] = over / under
        return cost

    def exact(self, holder: Allocation) -> Fraction:
        """What stopping it costs, to add it up."""
        return Fraction(*self._ratio(holder))

    def _ratio(self, holder: Allocation) -> tuple[int, int]:
        ran_ms = lost_ms = self._since(holder.granted_ms)
        profile = self._profiles.get(holder.component)
        if holder.checkpoint != "none":
            if holder.checkpointed_ms is not None:
                lost_ms = self._since(holder.checkpointed_ms)
            minutes = _checkpoint_minutes(holder) * (TRAINING_CHECKPOINT if profile == "training" else 1)
            lost_ms += minutes * MINUTE_MS
        over, under = _promise(ran_ms, holder.walltime_s) if holder.walltime_s else (0, 1)
        over = (over + lost_ms * under) * (holder.amounts.get(self._key) or 1)
        return over, under * MINUTE_MS * (2 if profile == "interactive" else 1)

    def _since(self, then_ms: int) -> int:
        return self._now_ms - then_ms if then_ms < self._now_ms else 0


def _checkpoint_minutes(holder: Allocation) -> int:
    if holder.checkpoint == "manual":
        return MANUAL_MINUTES
    return AUTO_MINUTES if holder.checkpoint_minutes is None else holder.checkpoint_minutes


def _promise(ran_ms: int, walltime_s: int) -> tuple[int, int]:
    """What the rest of the walltime is worth a unit, in milliseconds: little at its start, much at its end, nothing past it."""
    if ran_ms >= walltime_s * 1000:
        return 0, 1
    if ran_ms < walltime_s * 100:
        return MINUTE_MS, 1
    return (1000 * MINUTE_MS, 1) if ran_ms > walltime_s * 900 else (100 * MINUTE_MS * ran_ms, walltime_s * 1000)


def worth(terms: Terms, waiter: Waiter) -> int | None:
    """What stopping others for a waiter has to stay below; None is no bound."""
    if terms.discipline != "classes" or terms.value_per_class is None:
        return None
    return terms.value_per_class * waiter.preemption_class * max(1, waiter.amounts.get(terms.cost_key, 0))
