"""What a pool allows itself: how often it preempts, and how many at a time."""

from __future__ import annotations

from app.domain.snapshot import Snapshot


class Budget:
    """What is left of it, as steps are planned."""

    def __init__(self, snapshot: Snapshot) -> None:
        terms = snapshot.terms
        self.ever = _least(terms.max_victims, terms.max_preemptions_per_minute)
        """How many a decision may have, if nobody else was preempted lately; None is no bound."""
        self._at_a_time = terms.max_victims
        self.this_minute: int | None = None
        """How many may be preempted yet; None is no bound."""
        if terms.max_preemptions_per_minute is not None:
            self.this_minute = max(0, terms.max_preemptions_per_minute - snapshot.stopped_last_minute)
        self._pauses = terms.backoff_s > 0
        decided = snapshot.decided_ms
        since_ms = snapshot.now_ms - decided if decided is not None else -1
        self.is_pausing = self._pauses and 0 <= since_ms < terms.backoff_s * 1000  # a clock that was set back pauses nobody

    def count(self, victims: int) -> None:
        """Count those who go for nobody along: nothing pauses for them."""
        if self.this_minute is not None:
            self.this_minute -= victims

    def spend(self, victims: int) -> None:
        """Count a decision along."""
        self.is_pausing = self._pauses
        self.count(victims)

    @property
    def most(self) -> int | None:
        """How many the next decision may have at most."""
        return _least(self._at_a_time, self.this_minute)


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)
