"""The cost of preempting an allocation, in GPU-minutes: units of the pool's cost key, at least one, times minutes.

A cost is a ratio of whole numbers, and sums are sums of ratios. Candidates are ordered by the nearest float, so equal costs
stay equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from app.domain.snapshot import Allocation, PlannerSettings, Waiter

AUTO_MINUTES = 5
"""The minutes of an automatic checkpoint if the request does not give `checkpoint_minutes`."""
MANUAL_MINUTES = 10

TRAINING_CHECKPOINT = 3
"""The factor of the checkpoint cost with profile `training`. With profile `interactive`, the whole cost is halved."""

MINUTE_MS = 60_000


class PreemptionCosts:
    """The costs of preemption at one moment. Each is computed once, on demand."""

    def __init__(self, settings: PlannerSettings, now_ms: int, profiles: Mapping[str, str]) -> None:
        self._key = settings.cost_key
        self._now_ms = now_ms
        self._profiles = profiles if settings.discipline == "classes" else {}
        self._approximate_costs: dict[str, float] = {}

    def approximate(self, allocation: Allocation) -> float:
        """Return the cost of preempting an allocation as a float, to put candidates in order."""
        cost = self._approximate_costs.get(allocation.id)
        if cost is None:
            numerator, denominator = self._ratio(allocation)
            cost = self._approximate_costs[allocation.id] = numerator / denominator
        return cost

    def exact(self, allocation: Allocation) -> Fraction:
        """Return the exact cost of preempting an allocation, to add costs up."""
        return Fraction(*self._ratio(allocation))

    def _ratio(self, allocation: Allocation) -> tuple[int, int]:
        ran_ms = lost_ms = self._ms_since(allocation.granted_ms)
        profile = self._profiles.get(allocation.component)
        if allocation.checkpoint != "none":
            if allocation.checkpointed_ms is not None:
                lost_ms = self._ms_since(allocation.checkpointed_ms)
            minutes = _checkpoint_minutes(allocation) * (TRAINING_CHECKPOINT if profile == "training" else 1)
            lost_ms += minutes * MINUTE_MS
        numerator, denominator = _walltime_value_ms(ran_ms, allocation.walltime_s) if allocation.walltime_s else (0, 1)
        numerator = (numerator + lost_ms * denominator) * (allocation.amounts.get(self._key) or 1)
        return numerator, denominator * MINUTE_MS * (2 if profile == "interactive" else 1)

    def _ms_since(self, then_ms: int) -> int:
        return self._now_ms - then_ms if then_ms < self._now_ms else 0


def _checkpoint_minutes(allocation: Allocation) -> int:
    if allocation.checkpoint == "manual":
        return MANUAL_MINUTES
    return AUTO_MINUTES if allocation.checkpoint_minutes is None else allocation.checkpoint_minutes


def _walltime_value_ms(ran_ms: int, walltime_s: int) -> tuple[int, int]:
    """Return the value of the remaining walltime per unit, in milliseconds: low at the start, high at the end, 0 past it."""
    if ran_ms >= walltime_s * 1000:
        return 0, 1
    if ran_ms < walltime_s * 100:
        return MINUTE_MS, 1
    return (1000 * MINUTE_MS, 1) if ran_ms > walltime_s * 900 else (100 * MINUTE_MS * ran_ms, walltime_s * 1000)


def waiter_value(settings: PlannerSettings, waiter: Waiter) -> int | None:
    """Return the value of a waiter in GPU-minutes: its victims have to cost less. None if there is no bound."""
    if settings.discipline != "classes" or settings.value_per_class is None:
        return None
    return settings.value_per_class * waiter.preemption_class * max(1, waiter.amounts.get(settings.cost_key, 0))
