"""A reconcile pass over a workspace: the decisions that no single script can make.

1. Enforce the deadlines of victims. Bounded calls follow each other until none is left.
2. Decide each pool:
   a. Read a snapshot.
   b. Plan (`app.planner`), leaving out each waiter that prefers a pool that is not decided yet.
   c. Write the plan's results for accounts: fair shares, starvation, use over a limit.
   d. Apply the steps one by one. A step that no longer holds is not applied, and the pool begins again with a.
3. Give the patience hold of each pool to a waiter that capacity has blocked for too long.

A failure in one pool is logged and does not stop the others. A pass keeps nothing for the next. The job lock (`reconcile_lock`)
only saves duplicate work: if two passes overlap, a step that one pass applies makes conflicting steps of the other stale.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from app.domain.errors import StoreUnavailable
from app.domain.plan_steps import PlanStep, Publication
from app.domain.snapshot import PoolSnapshot
from app.planner.planning_pass import plan_pool
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore, StepResult
from app.store.snapshot_reader import UnfinishedWork

log = logging.getLogger(__name__)

MAX_CALLS = 150
"""The most bounded calls of one kind in a pass; the next pass does the rest."""
LOG_INTERVAL_S = 30.0
"""The least seconds between two logged errors of one pool, because each nudge tries that pool again."""
MAX_SNAPSHOTS = 200
"""The most snapshots of one pool that a pass reads."""
MAX_STALE_PLANS = 5
"""The number of stale plans in a row after which a pool is left to the next pass."""


@dataclass(slots=True)
class UndecidedPools:
    """The pools that a pass has not decided yet, and the waiters that it deferred in decided pools."""

    pools: set[str]
    deferred: dict[str, frozenset[str]] = field(default_factory=dict)

    def deferred_waiters(self, snapshot: PoolSnapshot) -> frozenset[str]:
        """Return the waiters of a pool that prefer another pool in which the pass may still serve them."""
        return frozenset(
            waiter.id
            for waiter in snapshot.waiters
            if any(
                waiter.allows(pool) and (pool in self.pools or waiter.id in self.deferred.get(pool, ()))
                for pool in snapshot.preferred_pools.get(waiter.component, ())
            )
        )


class Reconciler:
    """The reconcile passes of every workspace."""

    def __init__(
        self,
        plan_store: PlanStore,
        ledger: Ledger,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._plan_store, self._ledger, self._monotonic, self._pause = plan_store, ledger, monotonic, pause
        self._logged_until: dict[tuple[str, str], float] = {}

    def run(self, workspace: str) -> bool:
        """Run one bounded pass. Return True if there is more to do at once.

        1. Enforce deadlines.
        2. Decide each pool.
        3. Give patience holds.
        """
        has_more = self._isolate_failures(workspace, "-", partial(self._enforce_deadlines, workspace))
        pools = self._ledger.list_pools(workspace)
        has_more |= self._decide_pools(workspace, pools)
        for pool in pools:
            self._isolate_failures(workspace, pool, partial(self._ledger.give_patience_hold, workspace, pool))
        return has_more

    def _enforce_deadlines(self, workspace: str) -> bool:
        for _ in range(MAX_CALLS):
            done, more = self._plan_store.enforce_deadlines(workspace)
            if more and not done:
                self._finish_unfinished_work(workspace)
            elif not more:
                return False
        return True

    def _decide_pools(self, workspace: str, pools: list[str]) -> bool:
        undecided = UndecidedPools(set(pools))
        has_more, ready = False, list(pools)
        for _ in pools:
            for pool in ready:
                if self._isolate_failures(workspace, pool, partial(self._decide_pool, workspace, pool, undecided)):
                    has_more = True
                else:
                    undecided.pools.discard(pool)
            ready = [pool for pool in ready if undecided.deferred.get(pool)]
            if not ready:
                break
        return has_more

    def _isolate_failures(self, workspace: str, pool: str, work: Callable[[], object]) -> bool:
        """Return True if the work has more to do. Log an error, so that the other pools are decided nevertheless."""
        try:
            return bool(work())
        except StoreUnavailable:
            raise
        except Exception:
            key, now = (workspace, pool), self._monotonic()
            if now >= self._logged_until.get(key, now):
                self._logged_until[key] = now + LOG_INTERVAL_S
                log.exception("pool %s of workspace %s could not be reconciled", pool, workspace)
            return False

    def _decide_pool(self, workspace: str, pool: str, undecided: UndecidedPools) -> bool:
        """Decide one pool until its plan is empty. Return True if the plan is not empty at the end."""
        stale_plans, replanned = 0, False
        for _ in range(MAX_SNAPSHOTS):
            try:
                snapshot = self._plan_store.read_snapshot(workspace, pool)
            except UnfinishedWork:
                if not self._finish_unfinished_work(workspace):
                    return True
                continue
            deferred = undecided.deferred_waiters(snapshot) if snapshot else frozenset[str]()
            undecided.deferred[pool] = deferred
            if not snapshot:
                return False
            pool_plan = plan_pool(snapshot, deferred)
            if pool_plan.publication and not self._publish_shares(workspace, snapshot, pool_plan.publication):
                stale_plans += 1
            elif pool_plan.publication and _is_strict_fair_share(snapshot) and not replanned:
                replanned = True  # the shares written just now may have changed the queue order
                continue
            elif not pool_plan.steps:
                return False
            else:
                stale_plans, replanned = (0 if self._apply(workspace, snapshot, pool_plan.steps) else stale_plans + 1), False
            if stale_plans == MAX_STALE_PLANS:
                return True
        return True

    def _publish_shares(self, workspace: str, snapshot: PoolSnapshot, publication: Publication) -> bool:
        """Write the plan's results for accounts. Return False if the rules of the pool have changed meanwhile."""
        result = self._plan_store.write_fair_shares(workspace, snapshot, publication)
        if result.is_unfinished:
            self._finish_unfinished_work(workspace)
        return result.applied

    def _apply(self, workspace: str, snapshot: PoolSnapshot, steps: Sequence[PlanStep]) -> bool:
        """Apply steps until one is stale or the pool differs from the plan. Return False if the first one is stale."""
        for number, step in enumerate(steps):
            result = self._apply_step(workspace, snapshot, step)
            if not result.applied:
                log.debug("pool %s of workspace %s: %s is stale: %s", snapshot.pool, workspace, step, result.reason)
                return number > 0
            if result.has_progressed:
                return True
        return True

    def _apply_step(self, workspace: str, snapshot: PoolSnapshot, step: PlanStep) -> StepResult:
        """Apply a step. A preemption of many victims is applied in parts.

        After each part, pause for its duration, so that other workspaces are served. If a later part is stale, the result says
        that the pool has changed. Then the pool is planned again.
        """
        has_progressed, part = False, step
        while True:
            start = self._monotonic()
            result = self._plan_store.apply_step(workspace, snapshot, part)
            if result.is_unfinished:
                self._finish_unfinished_work(workspace)
            if not result.applied and part is not step:
                log.debug("pool %s of workspace %s: the rest of %s is stale: %s", snapshot.pool, workspace, step, result.reason)
                return StepResult(True, True, False, "")
            has_progressed |= result.has_progressed
            if result.rest is None:
                return result._replace(has_progressed=has_progressed)
            part = result.rest
            self._pause(self._monotonic() - start)

    def _finish_unfinished_work(self, workspace: str) -> bool:
        return self._ledger.resume_all_unfinished(workspace, MAX_CALLS)


def _is_strict_fair_share(snapshot: PoolSnapshot) -> bool:
    """True if no waiter may pass the first one, and the order depends on the shares just written."""
    return snapshot.settings.discipline == "fair_share" and snapshot.settings.queueing == "strict"
