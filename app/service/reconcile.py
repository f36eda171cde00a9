"""Reconciling a workspace: whose time to leave is up goes, whoever can only be served by taking back is, and patience is kept.

1. Deadlines of leaving that have passed: bounded calls, until none is left.
2. Every pool is decided: a snapshot, a plan (`app.planner`), what it found about the accounts kept (fair shares, who starves,
   who is over a limit), and its steps taken one by one. A step whose ground has changed
   meanwhile is not taken, and the pool is looked at anew; what was taken before stays right by itself.
3. Who was passed for too long gets the hold of patience.

A waiter asks in the pools it prefers before it asks in others, so a pool leaves out those whose better pools have not been
decided yet, and comes to them in a later round. A pool that fails is logged, and does not stop the others. Nothing is kept
between two runs, and any number may be under way: what one of them decided makes the other's steps stale.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from app.domain.plan_steps import PlanStep, Publication
from app.domain.snapshot import PoolSnapshot
from app.planner.planning_pass import plan_pool
from app.store.connection import StoreUnavailable
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore, UnfinishedWork

log = logging.getLogger(__name__)

MAX_CALLS = 50
"""Bounded calls of one kind that a run makes; what is left comes with the next."""
LOG_INTERVAL_S = 30.0
"""How long nothing more is said of a pool that fails, as it is tried again at every nudge."""
MAX_SNAPSHOTS = 200
"""Snapshots of one pool in a run."""
MAX_STALE_PLANS = 5
"""Plans in a row of which nothing held any more, before a pool is left for the next run."""


@dataclass(slots=True)
class UndecidedPools:
    """Which pools of a workspace are yet to be decided, and who may not have asked yet in those that are."""

    pools: set[str]
    skipped: dict[str, frozenset[str]] = field(default_factory=dict)

    def deferred_waiters(self, snapshot: PoolSnapshot) -> frozenset[str]:
        """Waiters of a pool that prefer another one where they may still be served."""
        return frozenset(
            waiter.id
            for waiter in snapshot.waiters
            if any(
                pool in self.pools or waiter.id in self.skipped.get(pool, ())
                for pool in snapshot.preferred_pools.get(waiter.component, ())
            )
        )


class Reconciler:
    """Decides what scripts cannot, and has it done."""

    def __init__(self, planning: PlanStore, ledger: Ledger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._planning, self._ledger, self._monotonic = planning, ledger, monotonic
        self._said: dict[tuple[str, str], float] = {}

    def run(self, workspace: str) -> bool:
        """One bounded look at everything; True if something is left to be done at once."""
        left = self._apart(workspace, "-", lambda at, _: self._depart(at)) is True
        pools = self._ledger.list_pools(workspace)
        left |= self._decide(workspace, pools)
        for pool in pools:
            self._apart(workspace, pool, self._ledger.give_patience_hold)
        return left

    def _depart(self, workspace: str) -> bool:
        for _ in range(MAX_CALLS):
            done, more = self._planning.enforce_deadlines(workspace)
            if more and not done:
                self._finish(workspace)
            elif not more:
                return False
        return True

    def _decide(self, workspace: str, pools: list[str]) -> bool:
        still = UndecidedPools(set(pools))
        left, ready = False, list(pools)
        for _ in pools:
            for pool in ready:
                if self._apart(workspace, pool, lambda at, name: self._pool(at, name, still)):
                    left = True
                else:
                    still.pools.discard(pool)
            ready = [pool for pool in ready if still.skipped.get(pool)]
            if not ready:
                break
        return left

    def _apart(self, workspace: str, pool: str, work: Callable[[str, str], object]) -> object:
        """Whatever is wrong with one pool is not wrong with the others."""
        try:
            return work(workspace, pool)
        except StoreUnavailable:
            raise
        except Exception:
            where, now = (workspace, pool), self._monotonic()
            if now >= self._said.get(where, now):
                self._said[where] = now + LOG_INTERVAL_S
                log.exception("pool %s of workspace %s could not be reconciled", pool, workspace)
            return False

    def _pool(self, workspace: str, pool: str, still: UndecidedPools) -> bool:
        """Decide one pool until its plan is empty; True if it is not."""
        stale, again = 0, False
        for _ in range(MAX_SNAPSHOTS):
            try:
                seen = self._planning.snapshot(workspace, pool)
            except UnfinishedWork:
                if not self._finish(workspace):
                    return True
                continue
            skip = still.deferred_waiters(seen) if seen else frozenset[str]()
            still.skipped[pool] = skip
            if not seen:
                return False
            planned = plan_pool(seen, skip)
            if planned.publication and not self._publish(workspace, seen, planned.publication):
                stale += 1
            elif planned.publication and _is_line_of_shares(seen) and not again:
                again = True  # who stands behind whom may be another by what was kept just now
                continue
            elif not planned.steps:
                return False
            else:
                stale, again = (0 if self._take(workspace, seen, planned.steps) else stale + 1), False
            if stale == MAX_STALE_PLANS:
                return True
        return True

    def _publish(self, workspace: str, seen: PoolSnapshot, found: Publication) -> bool:
        """Keep what was found about the accounts; False if the pool's rules are others by now."""
        written = self._planning.publish(workspace, seen, found)
        if written.is_unfinished:
            self._finish(workspace)
        return written.applied

    def _take(self, workspace: str, seen: PoolSnapshot, steps: Sequence[PlanStep]) -> bool:
        """Take steps while they hold and the pool is as it was foreseen; False if not even the first did."""
        for number, step in enumerate(steps):
            taken = self._planning.apply_step(workspace, seen, step)
            if taken.is_unfinished:
                self._finish(workspace)
            if not taken.applied:
                log.debug("pool %s of workspace %s: %s is stale: %s", seen.pool, workspace, step, taken.reason)
                return number > 0
            if taken.has_progressed:
                return True
        return True

    def _finish(self, workspace: str) -> bool:
        return any(not self._ledger.resume_unfinished(workspace) for _ in range(MAX_CALLS))


def _is_line_of_shares(seen: PoolSnapshot) -> bool:
    """Whether nobody may pass the first, who is so by what is published."""
    return seen.settings.discipline == "fair_share" and seen.settings.queueing == "strict"
