"""Pools as they were seen, with what was decided about those who were asked about; kept for a moment, as many ask at once."""

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
"""How long a pool that was seen is told of again while nothing happens."""
MAX_POOLS = 20
"""Pools that are kept."""
MAX_CALLS = 50
"""Bounded calls that finish what is unfinished in one look."""
MAX_CANDIDATES = 100
"""Candidates that are told at most."""
BUSY = "others look at it just now, and that takes long"
NO_SINGLE_EVENT = "?"
"""In place of the newest event, where something happened while the pool was looked at."""


@dataclass(frozen=True, slots=True)
class PreemptionOutcome:
    """What came of it when somebody asked for others to be stopped; None if it did not ask."""

    decision: Decision | None
    candidates: tuple[PreemptionCandidate, ...] = ()
    """Those that could be taken before the others; the newest first."""
    more: int = 0


@dataclass(slots=True)
class PoolDecisions:
    """A pool as it was seen."""

    snapshot: PoolSnapshot | None
    """None: it was gone."""
    event: str
    """What had happened last in the workspace."""
    until_s: float
    _decisions: dict[str, Decision] = field(default_factory=dict)
    _outcomes: dict[str, PreemptionOutcome] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def matches(self, status: QueueStatus) -> bool:
        """Whether it was seen when somebody stood so there."""
        return self.event == status.last_event and (
            self.snapshot is None or self.snapshot.rules_version == status.rules_version
        )

    def decide(self, status: QueueStatus) -> PreemptionOutcome:
        """What came of the ask of one who stands there; the pass over the pool is made no further than to that one."""
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
    """A pool of which not all waiters are shown, with one of them."""
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
    """Where a pool is looked at by one after the other."""

    lock: Lock = field(default_factory=Lock)
    decisions: PoolDecisions | None = None


class DecisionCache:
    """Looks at pools, one look for all who ask at the same moment."""

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
        """Pools of which something is kept."""
        return len(self._entries)

    def get(self, workspace: str, status: QueueStatus, *, allow_stale: bool = False) -> PoolDecisions:
        """The pool where somebody stands: as it was then if it can be had; `anyhow` as it was a moment ago."""
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
