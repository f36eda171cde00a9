"""The cleanup: leases and queue TTLs that have ended, patience holds, old requests, unfinished work.

Any number of cleanups may run at once: every step is atomic, bounded and idempotent. Grants never wait for it.

While the API does not answer, queue TTLs are paused, because no client can poll. After an outage of the API or of Redis, the
queue TTL of each waiter starts again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from app.domain.errors import StoreUnavailable
from app.domain.models import CleanupCounts
from app.service.availability import Availability
from app.store.ledger import Ledger
from app.store.workspaces import WorkspaceRegistry

log = logging.getLogger(__name__)

MAX_CALLS = 150
"""The most bounded calls for a workspace in one cleanup; the next cleanup does the rest."""


class Cleanup:
    """The cleanup of every workspace."""

    def __init__(
        self,
        ledger: Ledger,
        registry: WorkspaceRegistry,
        availability: Availability,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._registry, self._availability, self._monotonic = ledger, registry, availability, monotonic
        self._clock_readings: dict[str, tuple[int, float]] = {}
        """Workspace → the time of its last cleanup, by the clock of its Redis and by the monotonic clock."""

    def run(self, workspace: str) -> CleanupCounts:
        """End the allocations and waiters of a workspace whose time is over, and resume its unfinished work. Return the
        counts."""
        available_since_ms = self._availability.read_since_ms()
        counts = last = self._clean_up(workspace, available_since_ms)
        for _ in range(MAX_CALLS - 1):
            if not any((last.expired_leases, last.expired_waiters, last.pruned_requests, last.idle_policies, last.times_left)):
                break
            last = self._clean_up(workspace, available_since_ms)
            counts += last
        self._ledger.resume_all_unfinished(workspace, MAX_CALLS)
        return counts

    def _clean_up(self, workspace: str, available_since_ms: int | None) -> CleanupCounts:
        counts = self._ledger.clean_up(workspace, available_since_ms, self._expected_ms(workspace))
        self._clock_readings[workspace] = counts.now_ms, self._monotonic()
        return counts

    def _expected_ms(self, workspace: str) -> int | None:
        """Return the time that the clock of Redis should show now; None before the first cleanup."""
        if workspace not in self._clock_readings:
            return None
        then_ms, then_s = self._clock_readings[workspace]
        return then_ms + round(1000 * (self._monotonic() - then_s))

    def give_patience_holds(self, workspace: str) -> None:
        """Give the patience hold of each pool to the first waiter that capacity has blocked for too long."""
        for pool in self._ledger.list_pools(workspace):
            self._ledger.give_patience_hold(workspace, pool)

    def run_all(self) -> dict[str, CleanupCounts]:
        """Clean up every workspace. A failure is logged, and the next workspace follows."""
        done = {}
        for workspace in self._registry.list_names():
            try:
                done[workspace] = self.run(workspace)
                self.give_patience_holds(workspace)
            except StoreUnavailable:
                raise
            except Exception:
                log.exception("cleanup of workspace %s failed", workspace)
        return done
