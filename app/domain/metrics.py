"""The numbers behind the metrics of a workspace and its pools, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from app.domain.amounts import Amounts

CHECKPOINT_BOUNDS_S = (1, 5, 15, 30, 60, 120, 300, 600, 1800)
"""The buckets of checkpoint times. The ledger counts cumulatively."""
WAIT_BOUNDS_S = (0.01, 0.1, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400)
PASS_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
"""The buckets of waits and reconcile passes. The ledger counts each in its first bucket, from 1; the last is beyond all."""


@dataclass(frozen=True, slots=True)
class PolicyMetrics:
    """One policy of a pool."""

    component: str
    queued: int
    oldest_wait_s: float
    """The age of the oldest queued request; 0 if the queue is empty."""
    used: Amounts
    reserved: Amounts
    limit: Amounts
    """Keys that are not named are limited by the pool alone."""
    satisfaction: float | None
    """With fair share; None if it is infinite."""
    starving: int | None
    """With fair share: 0 no, 1 yes, 2 aggressively."""


@dataclass(frozen=True, slots=True)
class PoolMetrics:
    """One pool, and all its policies."""

    name: str
    capacity: Amounts
    used: Amounts
    reserved: Amounts
    on_hold: Amounts
    queued: int
    active: int
    leaving: int
    policies: tuple[PolicyMetrics, ...]


@dataclass(frozen=True)
class WorkspaceMetrics:
    """Requests of a workspace, now and ever."""

    submitted: int
    queued: int
    live: int
    leaving: int
    counts: Mapping[str, int]
    """The counters of the scripts: `name`, `name|pool` or `name|pool|more`."""

    @cached_property
    def by_name(self) -> Mapping[str, Mapping[tuple[str, ...], int]]:
        """Counter name → labels → count, sorted."""
        counters: dict[str, dict[tuple[str, ...], int]] = {}
        for name_and_labels in sorted(self.counts):
            name, *labels = name_and_labels.split("|")
            counters.setdefault(name, {})[tuple(labels)] = self.counts[name_and_labels]
        return counters
