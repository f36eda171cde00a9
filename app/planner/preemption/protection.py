"""What keeps an allocation from being stopped, whoever asks."""

from __future__ import annotations

from app.domain.queue_score import CLASSES
from app.domain.snapshot import Allocation, Terms
from app.planner.decisions import WhyNot

HIGHEST = CLASSES - 1
"""The class that is never a victim."""

HARD_TO_STOP = 7
"""From this class on, what cannot checkpoint is left alone (in discipline `classes`)."""


class Protection:
    """The protected, by the terms of one pool at one moment."""

    def __init__(self, terms: Terms, now_ms: int) -> None:
        self._now_ms = now_ms
        self._classes = terms.discipline == "classes"
        self._near_ms = terms.near_completion_s * 1000
        self._least_ms = terms.min_runtime_s * 1000
        self._timed = self._near_ms > 0 or self._least_ms > 0

    def of(self, holder: Allocation, profile: str) -> WhyNot | None:
        """Why it may not be stopped, None if nothing protects it."""
        if not holder.preemptible:
            return WhyNot.FIXED
        if holder.preemption_class >= HIGHEST:
            return WhyNot.CLASS_TEN
        if self._classes:
            if profile == "sensitive":
                return WhyNot.SENSITIVE
            if holder.preemption_class >= HARD_TO_STOP and holder.checkpoint == "none":
                return WhyNot.NO_CHECKPOINT
        return self._by_time(holder) if self._timed else None

    def _by_time(self, holder: Allocation) -> WhyNot | None:
        ran_ms = self._now_ms - holder.granted_ms
        if holder.walltime_s is not None and 0 <= holder.walltime_s * 1000 - ran_ms < self._near_ms:
            return WhyNot.NEAR_COMPLETION
        return WhyNot.JUST_STARTED if ran_ms < self._least_ms else None
