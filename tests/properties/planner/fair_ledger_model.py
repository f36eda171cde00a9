"""A ledger of one pool with fair share: it keeps the published shares, and serves the least satisfied policy first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from app.domain.plan_steps import AccountUpdate, EvictOverLimit, PlanStep, Preempt, Publication, Reprieve
from app.domain.queue_score import SHARE_UNITS
from app.domain.snapshot import AccountSnapshot, Allocation, PolicyDemand, PoolSnapshot, PublishedStatus, Waiter
from tests.properties.planner.ledger_model import PoolLedger
from tests.properties.planner.oracle import Oracle

BILLION = 10**9
NOISE = 1000
ENDLESS = 2**53 - 1
LEAVING_FOR_LIMIT = "!"


@dataclass
class FairShareLedger(PoolLedger):
    """A pool of discipline `fair_share`."""

    is_watched: bool = False
    eviction_count: int = 0
    """The number of evictions for a limit."""

    # as the planner sees it

    def snapshot(self) -> PoolSnapshot:
        """Return the snapshot of the pool, with all its columns."""
        now = super().snapshot()
        positions = {request.id: position for position, request in enumerate(self.queue())}
        waiters = sorted(
            (replace(request, queue_score=positions[request.id]) for request in now.waiters),
            key=lambda request: request.queue_score,
        )
        holds = (replace(hold, owner=replace(hold.owner, queue_score=positions[hold.owner.id])) for hold in now.holds)
        return replace(now, waiters=tuple(waiters), holds=tuple(holds), demand=self.demand(), is_watched=self.is_watched)

    def demand(self) -> dict[str, PolicyDemand]:
        """Return the queued demand, by policy."""
        waiters_by_component: dict[str, list[Waiter]] = {}
        for request in self.waiters.values():
            waiters_by_component.setdefault(request.component, []).append(request)
        return {
            component: PolicyDemand(len(waiters), dict(_sum(request.amounts for request in waiters)))
            for component, waiters in waiters_by_component.items()
        }

    # order

    def queue(self) -> list[Waiter]:
        """Return the waiters: the least satisfied policy first, then the higher class, then the older."""
        oracle = Oracle(self._snapshot_without_columns())
        policies = [account for name, account in self.accounts.items() if name.startswith("policy:")]
        ratio = {policy.name: self.satisfaction(policy, oracle) for policy in policies}
        return sorted(
            self.waiters.values(),
            key=lambda request: (
                ratio[f"policy:{request.component}"],
                -request.preemption_class,
                request.submission_number,
                request.id,
            ),
        )

    def satisfaction(self, policy: AccountSnapshot, oracle: Oracle) -> int:
        """Return how much of its published share a policy uses, as the ledger calculates it."""
        capacity = self.accounts["pool"].limit
        used = {key: Fraction(oracle.used(policy.name, key), units) for key, units in capacity.items()}
        if not policy.published.fair_shares:
            return int(max(used.values()) / policy.weight * BILLION)
        parts = {key: (used[key] * SHARE_UNITS, due) for key, due in policy.published.fair_shares.items()}
        own = [Fraction(has) / due for has, due in parts.values() if due > NOISE]
        if not own:
            return ENDLESS
        beyond = [Fraction(has) / due if due else Fraction(ENDLESS) for has, due in parts.values() if has > due + NOISE]
        ratios = [
            Fraction(has) / due for key, (has, due) in parts.items() if due > NOISE and key not in policy.published.demand_met
        ]
        return min(ENDLESS, int((max(beyond) if beyond else max(ratios) if ratios else min(own)) * BILLION))

    def _grantable(self) -> Waiter | None:
        oracle, strict = Oracle(super().snapshot()), self.settings.queueing == "strict"
        is_queue_blocked = False
        for request in self.queue():
            blocked = oracle.blocked_by(request)
            if oracle.hold(request) and self._is_fixed_share_used_up(oracle, request):
                self._end_hold(request.id)
                return self._grantable()
            if not blocked and (not is_queue_blocked or oracle.hold(request)):
                return request
            is_queue_blocked = is_queue_blocked or (strict and blocked == "capacity")
        return None

    # acts of users

    def lower_limit(self, name: str, key: str, units: int) -> None:
        """Set the limit of a policy or group; waiters that fit nowhere any more are rejected."""
        account = self.accounts[name]
        self.accounts[name] = replace(account, limit={**account.limit, key: max(units, account.reserved.get(key, 0))})
        for request in tuple(self.waiters.values()):
            if not self._eligible(request):
                self._remove_from_queue(request.id)
        self.grant_all()

    # acts of the planner

    def publish(self, publication: Publication | None) -> None:
        """Apply a publication."""
        if publication is None:
            return
        for update in publication.updates:
            account = self.accounts[update.account]
            self.accounts[update.account] = replace(account, published=apply_update(account.published, update))
        self.is_watched = publication.is_watched
        self.grant_all()

    def take_step(self, step: PlanStep, *, leaves_at_once: bool = False) -> None:
        """Take one step of the planner."""
        if isinstance(step, Reprieve) and self.allocations[step.request].leaving_for == LEAVING_FOR_LIMIT:
            self._set_leaving_for([step.request], None)
            self.grant_all()
            return
        if not isinstance(step, EvictOverLimit):
            super().take_step(step, leaves_at_once=leaves_at_once)
            return
        victims = [self.allocations[victim.request] for victim in step.victims]
        assert all(request.leaving_for is None and request.preemptible for request in victims)
        self._set_leaving_for((request.id for request in victims), LEAVING_FOR_LIMIT)
        self.count_evictions(victims)
        if leaves_at_once:
            for request in victims:
                self._leave(request.id)
        self.grant_all()

    def count_evictions(self, victims: Sequence[Allocation]) -> None:
        """Count evictions."""
        self.eviction_count += len(victims)

    def is_stale(self, step: Preempt) -> bool:
        """True if a condition of the choice does not hold any more."""
        oracle = Oracle(self._snapshot_without_columns())
        return any(not use.min_units <= oracle.used(use.account, use.key) <= use.max_units for use in step.usage_conditions)

    def refusal(self, step: PlanStep) -> str:
        """Return why the ledger would refuse a step; empty if it would take it."""
        if not isinstance(step, Preempt):
            return ""
        now = self.snapshot()
        oracle, waiter = Oracle(now), self.waiters.get(step.waiter)
        ids = {victim.request for victim in step.victims}
        victims = [request for request in now.allocations if request.id in ids and request.leaving_for is None]
        if waiter is None or len(victims) < len(ids) or self.is_stale(step):
            return "stale"
        if oracle.is_backing_off():
            return "backoff"
        if not oracle.fits(waiter, victims):
            return "not enough"
        return "superfluous" if oracle.superfluous(waiter, victims) else ""


def apply_update(status: PublishedStatus, update: AccountUpdate) -> PublishedStatus:
    """Return the published status of an account after an update."""
    texts = {f"fair_share:{key}": str(due) for key, due in status.fair_shares.items()} | {
        f"demand_met:{key}": "1" for key in status.demand_met
    }
    texts |= {"status": status.starvation_status} if status.starvation_status else {}
    texts |= {"below_ms": str(status.below_ms)} if status.below_ms is not None else {}
    texts |= {"over_ms": str(status.over_ms)} if status.over_ms is not None else {}
    assert set(update.removed_fields) <= set(texts)
    texts = {field: text for field, text in texts.items() if field not in update.removed_fields} | dict(update.values)
    return PublishedStatus(
        fair_shares={
            field.removeprefix("fair_share:"): int(text) for field, text in texts.items() if field.startswith("fair_share:")
        },
        demand_met=frozenset(field.removeprefix("demand_met:") for field in texts if field.startswith("demand_met:")),
        starvation_status=texts.get("status", ""),
        below_ms=int(texts["below_ms"]) if "below_ms" in texts else None,
        over_ms=int(texts["over_ms"]) if "over_ms" in texts else None,
    )


def _sum(amounts: object) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in amounts:  # type: ignore[attr-defined]
        total.update(each)
    return total
