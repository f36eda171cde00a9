"""Estimates of the start of waiters, for a whole pool at once, cached for a few seconds."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from threading import Lock

from app.domain.explanations import Estimate
from app.domain.models import Request
from app.domain.snapshot import PoolSnapshot
from app.planner.estimates.simulation import ENOUGH_RUN_TIMES
from app.planner.estimates.start_times import NoEstimate, StartEstimate, estimate_starts
from app.service.estimate_inputs import build_pool_state, build_run_times, describe_basis
from app.service.single_flight import acquire
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore
from app.store.queries import QueryStore
from app.store.queue_status import QueueStatusStore
from app.store.snapshot_reader import UnfinishedWork

MAX_WAITERS = 1000
"""The most waiters of a pool with an estimate: the first of its queue. Waiters behind them have none."""
TTL_S = 3.0
"""Seconds for which estimates are cached."""
NEWCOMER_TTL_S = 0.3
"""Seconds after which estimates are computed again for a waiter that they do not have."""
IDLE_FACTOR = 4
"""The least ratio of the pause after a computation to its duration, so that a pool takes at most a fifth of a core."""
MAX_POOLS, MAX_AGE_S = 200, 60.0
"""The most pools in the cache, and the seconds after which an unused pool leaves it."""

CHANGING = "the pool was changed just now, and its queue is still being put in order"
BUSY = "another call is computing it; ask again in a moment"
JUST_QUEUED = "the request was queued just now; ask again in a moment"


@dataclass(frozen=True, slots=True)
class EstimateResult:
    """The estimated start of a request, or the reason why there is none."""

    estimate: Estimate | None
    why_not: str | None


@dataclass(frozen=True, slots=True)
class _PoolEstimates:
    """The estimates of a pool, and the time of their computation."""

    at_s: float = 0.0
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    unforeseen: Mapping[str, NoEstimate] = field(default_factory=dict)
    missing: str = ""
    """The reason why no waiter has an estimate; empty if there are estimates."""
    took_s: float = 0.0
    """Seconds that the computation took."""


@dataclass(slots=True)
class _EstimateEntry:
    """The cached estimates of one pool. A thread computes them under the lock, and other threads wait for it."""

    lock: Lock = field(default_factory=Lock)
    users: int = 0
    """The number of threads that use the entry or wait for it."""
    pool_estimates: _PoolEstimates | None = None


class Estimator:
    """The estimates of every pool, with their cache."""

    def __init__(
        self,
        plan_store: PlanStore,
        ledger: Ledger,
        query_store: QueryStore,
        queue_status: QueueStatusStore,
        monotonic: Callable[[], float] = time.monotonic,
        ttl_s: float = TTL_S,
    ) -> None:
        self._plan_store, self._ledger, self._query_store, self._queue_status = plan_store, ledger, query_store, queue_status
        self._monotonic, self._ttl_s = monotonic, ttl_s
        self._entries: OrderedDict[tuple[str, str], _EstimateEntry] = OrderedDict()
        self._lock = Lock()

    @property
    def size(self) -> int:
        """Return the number of pools in the cache."""
        return len(self._entries)

    def list_estimates(self, workspace: str, pool: str) -> Mapping[str, Estimate]:
        """Return request → estimated start, for the waiters of a pool that have an estimate."""
        return self._get_pool_estimates(workspace, pool, "").estimates

    def get(self, workspace: str, pool: str, request: str, position: int) -> EstimateResult:
        """Return the estimated start of a waiter at a queue position, or the reason why there is none."""
        pool_estimates = self._get_pool_estimates(workspace, pool, request if position <= MAX_WAITERS else "")
        if estimate := pool_estimates.estimates.get(request):
            return EstimateResult(estimate, None)
        if pool_estimates.missing:
            return EstimateResult(None, pool_estimates.missing)
        default = NoEstimate.TOO_FAR if position > MAX_WAITERS else JUST_QUEUED
        return EstimateResult(None, str(pool_estimates.unforeseen.get(request, default)))

    def _get_pool_estimates(self, workspace: str, pool: str, request: str) -> _PoolEstimates:
        """Return the cached estimates. Compute them again if they are too old, or do not have the request."""
        key = workspace, pool
        with self._lock:
            entry = self._entries.setdefault(key, _EstimateEntry())
            self._entries.move_to_end(key)
            entry.users += 1
        try:
            with acquire(entry.lock) as acquired:
                if not acquired:
                    return entry.pool_estimates or _PoolEstimates(missing=BUSY)
                if not (entry.pool_estimates and self._is_fresh(entry.pool_estimates, request)):
                    began_s = self._monotonic()
                    estimates = self._compute(workspace, pool)
                    entry.pool_estimates = replace(estimates, took_s=estimates.at_s - began_s)
                return entry.pool_estimates
        finally:
            self._release(entry)

    def _release(self, entry: _EstimateEntry) -> None:
        with self._lock:
            entry.users -= 1
            for key, other in [*self._entries.items()]:
                aged = other.pool_estimates is not None and self._monotonic() - other.pool_estimates.at_s >= MAX_AGE_S
                if not other.users and (aged or len(self._entries) > MAX_POOLS):
                    del self._entries[key]

    def _is_fresh(self, view: _PoolEstimates, request: str) -> bool:
        age_s = self._monotonic() - view.at_s
        knows = not request or request in view.estimates or request in view.unforeseen
        fresh_s = self._ttl_s if knows else min(NEWCOMER_TTL_S, self._ttl_s)
        return age_s < max(fresh_s, IDLE_FACTOR * view.took_s if self._ttl_s else 0.0)

    def _compute(self, workspace: str, pool: str) -> _PoolEstimates:
        try:
            snapshot = self._plan_store.read_snapshot(workspace, pool, even_if_idle=True)
        except UnfinishedWork:
            return _PoolEstimates(self._monotonic(), missing=CHANGING)
        if snapshot is None:
            return _PoolEstimates(self._monotonic())
        waiters = self._list_waiters(workspace, snapshot)
        victims = {waiter.id: waiter for waiter in self._query_store.get_requests(workspace, _victim_ids(snapshot))}
        components = [name.removeprefix("policy:") for name in snapshot.accounts if name.startswith("policy:")]
        run_times, all_run_times = build_run_times(self._queue_status.read_run_times(workspace, pool, components), snapshot)
        results = estimate_starts(build_pool_state(snapshot, waiters, victims, run_times, all_run_times))
        bases = [describe_basis(snapshot.allocations, waiters, all_run_times, is_rough=rough) for rough in (False, True)]
        estimates, no_estimates = {}, {}
        for waiter, result in zip(waiters, results, strict=True):
            if isinstance(result, StartEstimate):
                is_rough = result.is_guess and all_run_times.total < ENOUGH_RUN_TIMES
                estimate = _estimate(result, snapshot.now_ms, bases[is_rough])
                estimates[waiter.id] = replace(estimate, run_times=all_run_times.total, is_rough=is_rough)
            else:
                no_estimates[waiter.id] = result
        return _PoolEstimates(self._monotonic(), estimates, no_estimates)

    def _list_waiters(self, workspace: str, snapshot: PoolSnapshot) -> list[Request]:
        """Return the first waiters of the queue, and after them the owners of holds."""
        ids, _ = self._ledger.fill_queue_page(workspace, snapshot.pool, None, MAX_WAITERS, max_calls=MAX_WAITERS)
        owners = [hold.owner.id for hold in snapshot.holds] + (
            [snapshot.patience_hold_owner] if snapshot.patience_hold_owner else []
        )
        return self._query_store.get_requests(workspace, list(dict.fromkeys([*ids, *owners])))


def _victim_ids(snapshot: PoolSnapshot) -> list[str]:
    return [allocation.id for allocation in snapshot.allocations if allocation.leaving_for]


def _estimate(estimate: StartEstimate, now_ms: int, basis: str) -> Estimate:
    """Return an estimate in milliseconds. Times are rounded up to a time after now, because the waiter cannot start now."""

    def time_ms(seconds: float) -> int:
        return now_ms + ceil(seconds * 1000)

    latest = None if estimate.latest_s is None else time_ms(estimate.latest_s)
    return Estimate(time_ms(estimate.earliest_s), time_ms(estimate.likely_s), latest, basis)
