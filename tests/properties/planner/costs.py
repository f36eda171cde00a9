"""The cost of preempting an allocation, written independently of the planner: in exact fractions of GPU-minutes."""

from __future__ import annotations

from fractions import Fraction

from app.domain.snapshot import Allocation

MINUTE_MS = 60_000


def cost(victim: Allocation, units: int, profile: str, now_ms: int) -> Fraction:
    """Return the cost: the checkpoint, the work since the last one, and the value of the remaining walltime, each times
    units."""
    saving = {"none": 0, "manual": 10, "auto": victim.checkpoint_minutes or 5}[victim.checkpoint]
    since = victim.granted_ms
    if victim.checkpoint != "none" and victim.checkpointed_ms is not None:
        since = victim.checkpointed_ms
    total = Fraction(saving * units * (3 if profile == "training" else 1))
    total += Fraction((now_ms - since) * units, MINUTE_MS)
    if victim.walltime_s is not None:
        total += units * _of_walltime(Fraction(now_ms - victim.granted_ms, victim.walltime_s * 1000))
    return total / 2 if profile == "interactive" else total


def _of_walltime(used: Fraction) -> Fraction:
    """Return the factor for the used part of the walltime."""
    if used < Fraction(1, 10):
        return Fraction(1)
    if used <= Fraction(9, 10):
        return used * 100
    return Fraction(1000 if used < 1 else 0)
