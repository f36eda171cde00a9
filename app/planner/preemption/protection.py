"""The protections of an allocation from every waiter."""

from __future__ import annotations

from app.domain.queue_score import CLASS_COUNT
from app.domain.snapshot import Allocation, PlannerSettings
from app.planner.decisions import RefusalReason

SENSITIVE_CLASS = CLASS_COUNT - 1
"""The class whose allocations are never preempted."""

PROTECTED_WITHOUT_CHECKPOINT = 7
"""Discipline `classes`: the lowest class in which an allocation without checkpoints is protected."""


class Protection:
    """The protections in one pool at one moment."""

    def __init__(self, settings: PlannerSettings, now_ms: int) -> None:
        self._now_ms = now_ms
        self._ranks_by_class = settings.discipline == "classes"
        self._near_ms = settings.near_completion_s * 1000
        self._least_ms = settings.min_runtime_s * 1000
        self._timed = self._near_ms > 0 or self._least_ms > 0

    def reason(self, allocation: Allocation, profile: str) -> RefusalReason | None:
        """Return why no waiter may preempt the allocation; None if it has no protection."""
        if not allocation.preemptible:
            return RefusalReason.FIXED
        if allocation.preemption_class >= SENSITIVE_CLASS:
            return RefusalReason.CLASS_TEN
        if self._ranks_by_class:
            if profile == "sensitive":
                return RefusalReason.SENSITIVE
            if allocation.preemption_class >= PROTECTED_WITHOUT_CHECKPOINT and allocation.checkpoint == "none":
                return RefusalReason.NO_CHECKPOINT
        return self._by_time(allocation) if self._timed else None

    def _by_time(self, allocation: Allocation) -> RefusalReason | None:
        ran_ms = self._now_ms - allocation.granted_ms
        if allocation.walltime_s is not None and 0 <= allocation.walltime_s * 1000 - ran_ms < self._near_ms:
            return RefusalReason.NEAR_COMPLETION
        return RefusalReason.JUST_STARTED if ran_ms < self._least_ms else None
