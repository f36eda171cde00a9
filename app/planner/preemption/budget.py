"""The limits of a pool on its preemptions: the pause between decisions, the number of victims, and the number of holds."""

from __future__ import annotations

from app.domain.ledger_limits import MAX_VICTIM_HOLDS
from app.domain.snapshot import PoolSnapshot
from app.planner.decisions import DecisionReason


class PreemptionBudget:
    """The preemptions that a pool may still make in this pass."""

    def __init__(self, snapshot: PoolSnapshot) -> None:
        settings = snapshot.settings
        self.max_victims_ever = _least(settings.max_victims, settings.max_preemptions_per_minute)
        """The most victims of a decision if no allocation was preempted in the last minute; None if there is no bound."""
        self._max_victims = settings.max_victims
        self.left_this_minute: int | None = None
        """The preemptions left in this minute; None if there is no bound."""
        if settings.max_preemptions_per_minute is not None:
            self.left_this_minute = max(0, settings.max_preemptions_per_minute - snapshot.preemptions_last_minute)
        self._has_backoff = settings.backoff_s > 0
        last_decision_ms = snapshot.last_decision_ms
        since_ms = snapshot.now_ms - last_decision_ms if last_decision_ms is not None else -1
        self.is_backing_off = (
            self._has_backoff and 0 <= since_ms < settings.backoff_s * 1000
        )  # a clock that was set back is no reason to pause

    def refusal(self, other_holds: int) -> DecisionReason | None:
        """Return why the pool lets a waiter preempt no allocation now; None if it may. `other_holds`: the holds of other
        waiters."""
        if other_holds >= MAX_VICTIM_HOLDS:
            return DecisionReason.MANY_HOLDS
        if self.is_backing_off:
            return DecisionReason.BACKOFF
        return DecisionReason.MINUTE_USED_UP if self.left_this_minute == 0 else None

    def count_evictions(self, victims: int) -> None:
        """Count evictions because of a limit. No backoff follows them."""
        if self.left_this_minute is not None:
            self.left_this_minute -= victims

    def count_decision(self, victims: int) -> None:
        """Count a decision to preempt. The backoff begins."""
        self.is_backing_off = self._has_backoff
        self.count_evictions(victims)

    @property
    def max_victims_now(self) -> int | None:
        """Return the most victims of the next decision; None if there is no bound."""
        return _least(self._max_victims, self.left_this_minute)


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)
