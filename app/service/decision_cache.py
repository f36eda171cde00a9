"""Pools as they were seen, with what was decided about those who were asked about; kept for a moment, as many ask at once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from threading import Lock

from app.domain.explanations import PreemptionCandidate, QueueState, QueueStatus
from app.domain.snapshot import Allocation, PoolSnapshot, Waiter
from app.planner.decisions import CandidateVerdict, Decision
from app.planner.planning_pass import plan_pool
from app.service.long_poll import TooManyWaiters
from app.service.single_flight import acquire
from app.store.connection import StoreUnavailable
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore, UnfinishedWork

TTL_S = 2.0
"""How long a pool that was seen is told of again while nothing happens."""
MAX_POOLS = 20
"""Pools that are kept."""
MAX_CALLS = 50
"""Bounded calls that finish what is unfinished in one look."""
MAX_CANDIDATES = 100
"""Candidates that are told at most."""
BUSY = "others look at it just now, and that takes long"
BETWEEN = "?"
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
    _asked: dict[str, PreemptionOutcome] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def matches(self, standing: QueueStatus) -> bool:
        """Whether it was seen when somebody stood so there."""
        return self.event == standing.last_event and (self.snapshot is None or self.snapshot.rules_version == standing.rules_version)

    def decide(self, standing: QueueStatus) -> PreemptionOutcome:
        """What came of the ask of one who stands there; the pass over the pool is made no further than to that one."""
        if self.snapshot is None or standing.state is QueueState.ELSEWHERE:
            return PreemptionOutcome(None)
        with acquire(self._lock) as mine:
            request = standing.waiter.id
            if not mine:
                raise TooManyWaiters(f"pool {standing.pool}: {BUSY}")
            if request not in self._asked:
                self._asked[request] = self._decided(self.snapshot, standing)
            return self._asked[request]

    def _decided(self, seen: PoolSnapshot, standing: QueueStatus) -> PreemptionOutcome:
        request = standing.waiter.id
        if request not in self._decisions:
            owners = {hold.owner.id for hold in seen.holds}
            shown = seen if request in owners else _with(seen, standing.waiter)
            self._decisions.update(plan_pool(shown, until=request).decisions)
        decision = self._decisions.get(request)
        if decision is None or decision.list_verdicts is None:
            return PreemptionOutcome(decision)
        candidates, more = _candidates(decision, {one.id: one for one in seen.allocations})
        return PreemptionOutcome(decision, candidates, more)


def _with(seen: PoolSnapshot, asker: Waiter) -> PoolSnapshot:
    """A pool of which not all waiters are shown, with one of them."""
    if any(waiter.id == asker.id for waiter in seen.waiters):
        return seen
    waiters = sorted((*seen.waiters, asker), key=lambda waiter: (waiter.queue_position, waiter.submission_number))
    return replace(seen, waiters=tuple(waiters))


def _candidates(decision: Decision, running: dict[str, Allocation]) -> tuple[tuple[PreemptionCandidate, ...], int]:
    verdicts = list(decision.verdicts())
    first = nsmallest(MAX_CANDIDATES, verdicts, key=lambda verdict: (not verdict.allowed, -running[verdict.allocation].fence))
    told = tuple(_candidate(verdict, running[verdict.allocation]) for verdict in first)
    return told, len(verdicts) - len(told)


def _candidate(verdict: CandidateVerdict, one: Allocation) -> PreemptionCandidate:
    return PreemptionCandidate(one.id, one.component, verdict.rule, None if verdict.allowed else verdict.sentence)


@dataclass(slots=True)
class _Place:
    """Where a pool is looked at by one after the other."""

    lock: Lock = field(default_factory=Lock)
    sight: PoolDecisions | None = None


class DecisionCache:
    """Looks at pools, one look for all who ask at the same moment."""

    def __init__(
        self,
        planning: PlanStore,
        ledger: Ledger,
        monotonic: Callable[[], float] = time.monotonic,
        kept_s: float = TTL_S,
    ) -> None:
        self._planning, self._ledger = planning, ledger
        self._monotonic, self._kept_s = monotonic, kept_s
        self._places: OrderedDict[tuple[str, str], _Place] = OrderedDict()
        self._lock = Lock()

    @property
    def size(self) -> int:
        """Pools of which something is kept."""
        return len(self._places)

    def get(self, workspace: str, standing: QueueStatus, *, anyhow: bool = False) -> PoolDecisions:
        """The pool where somebody stands: as it was then if it can be had; `anyhow` as it was a moment ago."""
        place = self._place(workspace, standing.pool)
        with acquire(place.lock) as mine:
            if not mine:
                raise TooManyWaiters(f"pool {standing.pool}: {BUSY}")
            kept = place.sight
            if kept and self._monotonic() < kept.until_s and (anyhow or kept.matches(standing)):
                return kept
            place.sight = self._seen(workspace, standing.pool)
            return place.sight

    def _place(self, workspace: str, pool: str) -> _Place:
        with self._lock:
            place = self._places.setdefault((workspace, pool), _Place())
            self._places.move_to_end((workspace, pool))
            for key, other in [*self._places.items()]:
                aged = other.sight is not None and other.sight.until_s <= self._monotonic() and not other.lock.locked()
                if other is not place and (aged or len(self._places) > MAX_POOLS):
                    del self._places[key]
            return place

    def _seen(self, workspace: str, pool: str) -> PoolDecisions:
        before = self._ledger.get_last_event_id(workspace)
        for _ in range(MAX_CALLS):
            try:
                seen = self._planning.snapshot(workspace, pool, anyway=True)
            except UnfinishedWork:
                before = BETWEEN
                self._ledger.resume_unfinished(workspace)
            else:
                event = self._ledger.get_last_event_id(workspace)
                return PoolDecisions(seen, event if event == before else BETWEEN, self._monotonic() + self._kept_s)
        raise StoreUnavailable("busy", f"pool {pool} was changed, and its queue is still being put in order")
