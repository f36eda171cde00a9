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

from app.domain.errors import StoreUnavailable
from app.domain.plan_steps import PlanStep, Publication
from app.domain.snapshot import PoolSnapshot
from app.planner.planning_pass import plan_pool
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

    def __init__(self, plan_store: PlanStore, ledger: Ledger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._plan_store, self._ledger, self._monotonic = plan_store, ledger, monotonic
        self._logged_until: dict[tuple[str, str], float] = {}

    def run(self, workspace: str) -> bool:
        """One bounded look at everything; True if something is left to be done at once."""
        has_more = (
            self._isolate_failures(workspace, "-", lambda workspace_name, _: self._enforce_deadlines(workspace_name)) is True
        )
        pools = self._ledger.list_pools(workspace)
        has_more |= self._decide_pools(workspace, pools)
        for pool in pools:
            self._isolate_failures(workspace, pool, self._ledger.give_patience_hold)
        return has_more

    def _enforce_deadlines(self, workspace: str) -> bool:
        for _ in range(MAX_CALLS):
            done, more = self._plan_store.enforce_deadlines(workspace)
            if more and not done:
                self._resume_unfinished(workspace)
            elif not more:
                return False
        return True

    def _decide_pools(self, workspace: str, pools: list[str]) -> bool:
        undecided = UndecidedPools(set(pools))
        has_more, ready = False, list(pools)
        for _ in pools:
            for pool in ready:
                if self._isolate_failures(
                    workspace, pool, lambda workspace_name, name: self._decide_pool(workspace_name, name, undecided)
                ):
                    has_more = True
                else:
                    undecided.pools.discard(pool)
            ready = [pool for pool in ready if undecided.skipped.get(pool)]
            if not ready:
                break
        return has_more

    def _isolate_failures(self, workspace: str, pool: str, work: Callable[[str, str], object]) -> object:
        """Whatever is wrong with one pool is not wrong with the others."""
        try:
            return work(workspace, pool)
        except StoreUnavailable:
            raise
        except Exception:
            where, now = (workspace, pool), self._monotonic()
            if now >= self._logged_until.get(where, now):
                self._logged_until[where] = now + LOG_INTERVAL_S
                log.exception("pool %s of workspace %s could not be reconciled", pool, workspace)
            return False

    def _decide_pool(self, workspace: str, pool: str, undecided: UndecidedPools) -> bool:
        """Decide one pool until its plan is empty; True if it is not."""
        stale_plans, replanned = 0, False
        for _ in range(MAX_SNAPSHOTS):
            try:
                snapshot = self._plan_store.read_snapshot(workspace, pool)
            except UnfinishedWork:
                if not self._resume_unfinished(workspace):
                    return True
                continue
            deferred = undecided.deferred_waiters(snapshot) if snapshot else frozenset[str]()
            undecided.skipped[pool] = deferred
            if not snapshot:
                return False
            pool_plan = plan_pool(snapshot, deferred)
            if pool_plan.publication and not self._publish_shares(workspace, snapshot, pool_plan.publication):
                stale_plans += 1
            elif pool_plan.publication and _is_strict_fair_share(snapshot) and not replanned:
                replanned = True  # who stands behind whom may be another by what was kept just now
                continue
            elif not pool_plan.steps:
                return False
            else:
                stale_plans, replanned = (0 if self._apply(workspace, snapshot, pool_plan.steps) else stale_plans + 1), False
            if stale_plans == MAX_STALE_PLANS:
                return True
        return True

    def _publish_shares(self, workspace: str, snapshot: PoolSnapshot, publication: Publication) -> bool:
        """Keep what was found about the accounts; False if the pool's rules are others by now."""
        result = self._plan_store.write_fair_shares(workspace, snapshot, publication)
        if result.is_unfinished:
            self._resume_unfinished(workspace)
        return result.applied

    def _apply(self, workspace: str, snapshot: PoolSnapshot, steps: Sequence[PlanStep]) -> bool:
        """Take steps while they hold and the pool is as it was foreseen; False if not even the first did."""
        for number, step in enumerate(steps):
            result = self._plan_store.apply_step(workspace, snapshot, step)
            if result.is_unfinished:
                self._resume_unfinished(workspace)
            if not result.applied:
                log.debug("pool %s of workspace %s: %s is stale: %s", snapshot.pool, workspace, step, result.reason)
                return number > 0
            if result.has_progressed:
                return True
        return True

    def _resume_unfinished(self, workspace: str) -> bool:
        return any(not self._ledger.resume_unfinished(workspace) for _ in range(MAX_CALLS))


def _is_strict_fair_share(snapshot: PoolSnapshot) -> bool:
    """Whether nobody may pass the first, who is so by what is published."""
    return snapshot.settings.discipline == "fair_share" and snapshot.settings.queueing == "strict"
