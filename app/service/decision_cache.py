"""A cache of pool snapshots with the decisions of the planner about single waiters, for explanations."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from threading import Lock

from app.domain.errors import StoreUnavailable
from app.domain.explanations import PreemptionCandidate, QueueState, QueueStatus
from app.domain.snapshot import Allocation, PoolSnapshot, Waiter
from app.planner.decisions import CandidateVerdict, Decision
from app.planner.planning_pass import plan_pool
from app.service.single_flight import acquire
from app.service.wait_slots import TooManyWaiters
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore
from app.store.snapshot_reader import UnfinishedWork

TTL_S = 2.0
"""Seconds for which a snapshot is cached if no new event replaces it earlier."""
MAX_POOLS = 20
"""The most pools in the cache."""
MAX_CALLS = 50
"""The most bounded calls that resume unfinished work before a read."""
MAX_CANDIDATES = 100
"""The most candidates in an answer."""
BUSY = "other calls are reading it, and that takes long"
NO_SINGLE_EVENT = "?"
"""The value that replaces the newest event if an event was written during the read."""


@dataclass(frozen=True, slots=True)
class PreemptionOutcome:
    """The decision about victims for one waiter. The decision is None if the planner did not search victims."""

    decision: Decision | None
    candidates: tuple[PreemptionCandidate, ...] = ()
    """The candidates: permitted ones first, then the newest."""
    more: int = 0
    """The number of candidates that are left out."""


@dataclass(slots=True)
class PoolDecisions:
    """A snapshot of a pool, and the decisions about its waiters that were asked for."""

    snapshot: PoolSnapshot | None
    """The snapshot; None: there is no such pool."""
    event: str
    """The newest event of the workspace at the time of the snapshot."""
    until_s: float
    """The monotonic time until which the entry is valid."""
    _decisions: dict[str, Decision] = field(default_factory=dict)
    _outcomes: dict[str, PreemptionOutcome] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def matches(self, status: QueueStatus) -> bool:
        """True if the snapshot and the status are of the same moment."""
        return self.event == status.last_event and (
            self.snapshot is None or self.snapshot.rules_version == status.rules_version
        )

    def decide(self, status: QueueStatus) -> PreemptionOutcome:
        """Return the decision about a waiter. The planner decides the waiters up to this one, and no further."""
        if self.snapshot is None or status.state is QueueState.ELSEWHERE:
            return PreemptionOutcome(None)
        with acquire(self._lock) as acquired:
            request = status.waiter.id
            if not acquired:
                raise TooManyWaiters(f"pool {status.pool}: {BUSY}")
            if request not in self._outcomes:
                self._outcomes[request] = self._outcome(self.snapshot, status)
            return self._outcomes[request]

    def _outcome(self, snapshot: PoolSnapshot, status: QueueStatus) -> PreemptionOutcome:
        request = status.waiter.id
        if request not in self._decisions:
            owners = {hold.owner.id for hold in snapshot.holds}
            completed = snapshot if request in owners else _with_waiter(snapshot, status.waiter)
            self._decisions.update(plan_pool(completed, until=request).decisions)
        decision = self._decisions.get(request)
        if decision is None or decision.list_verdicts is None:
            return PreemptionOutcome(decision)
        candidates, more = _list_candidates(decision, {allocation.id: allocation for allocation in snapshot.allocations})
        return PreemptionOutcome(decision, candidates, more)


def _with_waiter(snapshot: PoolSnapshot, waiter_to_add: Waiter) -> PoolSnapshot:
    """Return the snapshot with a waiter added, if the snapshot has left it out."""
    if any(waiter.id == waiter_to_add.id for waiter in snapshot.waiters):
        return snapshot
    waiters = sorted((*snapshot.waiters, waiter_to_add), key=lambda waiter: (waiter.queue_score, waiter.submission_number))
    return replace(snapshot, waiters=tuple(waiters))


def _list_candidates(decision: Decision, allocations: dict[str, Allocation]) -> tuple[tuple[PreemptionCandidate, ...], int]:
    verdicts = list(decision.verdicts())
    ranked = nsmallest(
        MAX_CANDIDATES, verdicts, key=lambda verdict: (not verdict.allowed, -allocations[verdict.allocation].fence)
    )
    candidates = tuple(_build_candidate(verdict, allocations[verdict.allocation]) for verdict in ranked)
    return candidates, len(verdicts) - len(candidates)


def _build_candidate(verdict: CandidateVerdict, allocation: Allocation) -> PreemptionCandidate:
    return PreemptionCandidate(allocation.id, allocation.component, verdict.rule, None if verdict.allowed else verdict.sentence)


@dataclass(slots=True)
class _DecisionEntry:
    """The cached decisions of a pool, and the lock for the read."""

    lock: Lock = field(default_factory=Lock)
    decisions: PoolDecisions | None = None


class DecisionCache:
    """The cache: concurrent calls share one read of a pool."""

    def __init__(
        self,
        plan_store: PlanStore,
        ledger: Ledger,
        monotonic: Callable[[], float] = time.monotonic,
        ttl_s: float = TTL_S,
    ) -> None:
        self._plan_store, self._ledger = plan_store, ledger
        self._monotonic, self._ttl_s = monotonic, ttl_s
        self._entries: OrderedDict[tuple[str, str], _DecisionEntry] = OrderedDict()
        self._lock = Lock()

    @property
    def size(self) -> int:
        """Return the number of pools in the cache."""
        return len(self._entries)

    def get(self, workspace: str, status: QueueStatus, *, allow_stale: bool = False) -> PoolDecisions:
        """Return the decisions of the pool of a status, of the same moment if possible. `allow_stale` accepts older ones."""
        entry = self._entry(workspace, status.pool)
        with acquire(entry.lock) as acquired:
            if not acquired:
                raise TooManyWaiters(f"pool {status.pool}: {BUSY}")
            cached = entry.decisions
            if cached and self._monotonic() < cached.until_s and (allow_stale or cached.matches(status)):
                return cached
            entry.decisions = self._read(workspace, status.pool)
            return entry.decisions

    def _entry(self, workspace: str, pool: str) -> _DecisionEntry:
        with self._lock:
            entry = self._entries.setdefault((workspace, pool), _DecisionEntry())
            self._entries.move_to_end((workspace, pool))
            for key, other in [*self._entries.items()]:
                aged = other.decisions is not None and other.decisions.until_s <= self._monotonic() and not other.lock.locked()
                if other is not entry and (aged or len(self._entries) > MAX_POOLS):
                    del self._entries[key]
            return entry

    def _read(self, workspace: str, pool: str) -> PoolDecisions:
        event_before = self._ledger.get_last_event_id(workspace)
        for _ in range(MAX_CALLS):
            try:
                snapshot = self._plan_store.read_snapshot(workspace, pool, even_if_idle=True)
            except UnfinishedWork:
                event_before = NO_SINGLE_EVENT
                self._ledger.resume_all_unfinished(workspace, 1)
            else:
                event_after = self._ledger.get_last_event_id(workspace)
                return PoolDecisions(
                    snapshot, event_after if event_after == event_before else NO_SINGLE_EVENT, self._monotonic() + self._ttl_s
                )
        raise StoreUnavailable("busy", f"pool {pool} was changed, and its queue is still being put in order")
