"""When those who wait may start, of a whole pool at once; what was worked out is told again for a few seconds."""

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
from app.planner.estimates.start_times import NoEstimate, StartEstimate, estimate_starts
from app.service.estimate_inputs import build_pool_state, build_run_times, describe_basis
from app.service.single_flight import acquire
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore, UnfinishedWork
from app.store.queries import QueryStore
from app.store.queue_status import QueueStatusStore

MAX_WAITERS = 1000
"""Waiters of a pool, the first of its queue, whose start is worked out at most; of those behind nothing is said."""
TTL_S = 3.0
"""How long an outlook is told again."""
NEWCOMER_TTL_S = 0.3
"""How soon a pool is looked at again for somebody who came after it was worked out."""
IDLE_FACTOR = 4
"""For how many times as long as it took a pool is left alone, so that it costs no more than a fifth of a core."""
MAX_POOLS, MAX_AGE_S = 200, 60.0
"""Pools of which one is kept, and for how long if nobody asks."""

CHANGING = "the pool was changed just now, and its queue is still being put in order"
BUSY = "others have it worked out just now; ask again in a moment"
JUST_QUEUED = "it came only just now; ask again in a moment"


@dataclass(frozen=True, slots=True)
class EstimateResult:
    """When a request may start, or why that is not said."""

    estimate: Estimate | None
    why_not: str | None


@dataclass(frozen=True, slots=True)
class _View:
    """What was worked out of a pool, and when."""

    at_s: float = 0.0
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    unforeseen: Mapping[str, NoEstimate] = field(default_factory=dict)
    missing: str = ""
    """Why nothing is known of anybody."""
    took_s: float = 0.0


@dataclass(slots=True)
class _Slot:
    """Of one pool. Who works it out has the lock; the others who ask meanwhile wait for that, as `users` of it."""

    lock: Lock = field(default_factory=Lock)
    users: int = 0
    view: _View | None = None


class Estimator:
    """Tells when."""

    def __init__(
        self,
        planning: PlanStore,
        ledger: Ledger,
        lists: QueryStore,
        standings: QueueStatusStore,
        monotonic: Callable[[], float] = time.monotonic,
        kept_s: float = TTL_S,
    ) -> None:
        self._planning, self._ledger, self._lists, self._standings = planning, ledger, lists, standings
        self._monotonic, self._kept_s = monotonic, kept_s
        self._kept: OrderedDict[tuple[str, str], _Slot] = OrderedDict()
        self._lock = Lock()

    @property
    def size(self) -> int:
        """Pools of which an outlook is kept."""
        return len(self._kept)

    def list_estimates(self, workspace: str, pool: str) -> Mapping[str, Estimate]:
        """Request → when it may start; of those who wait in a pool and of whom anything can be said."""
        return self._view(workspace, pool, "").estimates

    def get(self, workspace: str, pool: str, request: str, position: int) -> EstimateResult:
        """When one of those who wait in a pool may start, by its place in the queue; or why that is not said."""
        view = self._view(workspace, pool, request if position <= MAX_WAITERS else "")
        if found := view.estimates.get(request):
            return EstimateResult(found, None)
        if view.missing:
            return EstimateResult(None, view.missing)
        late = NoEstimate.TOO_FAR if position > MAX_WAITERS else JUST_QUEUED
        return EstimateResult(None, str(view.unforeseen.get(request, late)))

    def _view(self, workspace: str, pool: str, asked: str) -> _View:
        """As it was worked out last, or anew: if that is long ago, or does not know somebody who is asked about."""
        key = workspace, pool
        with self._lock:
            slot = self._kept.setdefault(key, _Slot())
            self._kept.move_to_end(key)
            slot.users += 1
        try:
            with acquire(slot.lock) as mine:
                if not mine:
                    return slot.view or _View(missing=BUSY)
                if not (slot.view and self._serves(slot.view, asked)):
                    began_s = self._monotonic()
                    view = self._worked_out(workspace, pool)
                    slot.view = replace(view, took_s=view.at_s - began_s)
                return slot.view
        finally:
            self._leave(slot)

    def _leave(self, slot: _Slot) -> None:
        with self._lock:
            slot.users -= 1
            for key, other in [*self._kept.items()]:
                aged = other.view is not None and self._monotonic() - other.view.at_s >= MAX_AGE_S
                if not other.users and (aged or len(self._kept) > MAX_POOLS):
                    del self._kept[key]

    def _serves(self, view: _View, asked: str) -> bool:
        age_s = self._monotonic() - view.at_s
        knows = not asked or asked in view.estimates or asked in view.unforeseen
        fresh_s = self._kept_s if knows else min(NEWCOMER_TTL_S, self._kept_s)
        return age_s < max(fresh_s, IDLE_FACTOR * view.took_s if self._kept_s else 0.0)

    def _worked_out(self, workspace: str, pool: str) -> _View:
        try:
            seen = self._planning.snapshot(workspace, pool, anyway=True)
        except UnfinishedWork:
            return _View(self._monotonic(), missing=CHANGING)
        if seen is None:
            return _View(self._monotonic())
        waiting = self._waiting(workspace, seen)
        leaving = {one.id: one for one in self._lists.get_requests(workspace, _leaving(seen))}
        components = [name.removeprefix("policy:") for name in seen.accounts if name.startswith("policy:")]
        past, everybody = build_run_times(self._standings.read_run_times(workspace, pool, components), seen)
        found = estimate_starts(build_pool_state(seen, waiting, leaving, past, everybody))
        basis = describe_basis(seen.allocations, waiting, everybody)
        estimates, unforeseen = {}, {}
        for one, outlook in zip(waiting, found, strict=True):
            if isinstance(outlook, StartEstimate):
                estimates[one.id] = _estimate(outlook, seen.now_ms, basis)
            else:
                unforeseen[one.id] = outlook
        return _View(self._monotonic(), estimates, unforeseen)

    def _waiting(self, workspace: str, seen: PoolSnapshot) -> list[Request]:
        """The first of the queue, and behind them whoever has a hold."""
        ids: list[str] = []
        after: int | None = None
        while len(ids) < MAX_WAITERS:
            some, after = self._ledger.list_queue(workspace, seen.pool, after, MAX_WAITERS - len(ids))
            ids += some
            if after is None:
                break
        owners = [hold.owner.id for hold in seen.holds] + ([seen.patience_hold_owner] if seen.patience_hold_owner else [])
        return self._lists.get_requests(workspace, list(dict.fromkeys([*ids, *owners])))


def _leaving(seen: PoolSnapshot) -> list[str]:
    return [one.id for one in seen.allocations if one.leaving_for]


def _estimate(outlook: StartEstimate, now_ms: int, basis: str) -> Estimate:
    """Who cannot start now is not told that it can, be it that something ends at any moment."""

    def at(seconds: float) -> int:
        return now_ms + ceil(seconds * 1000)

    latest = None if outlook.latest_s is None else at(outlook.latest_s)
    return Estimate(at(outlook.earliest_s), at(outlook.likely_s), latest, basis)
