"""A ledger of one pool that shares fairly: it keeps what is published, and serves the least satisfied policy first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from app.domain.plan_steps import AccountUpdate, EvictOverLimit, PlanStep, Preempt, Publication, Reprieve
from app.domain.queue_score import SHARE
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
    """How many were evicted for a limit."""

    # as the planner sees it

    def snapshot(self) -> PoolSnapshot:
        """The pool now, with all its columns."""
        now = super().snapshot()
        place = {one.id: at for at, one in enumerate(self.queue())}
        waiters = sorted(
            (replace(one, queue_position=place[one.id]) for one in now.waiters), key=lambda one: one.queue_position
        )
        holds = (replace(hold, owner=replace(hold.owner, queue_position=place[hold.owner.id])) for hold in now.holds)
        return replace(now, waiters=tuple(waiters), holds=tuple(holds), demand=self.demand(), is_watched=self.is_watched)

    def demand(self) -> dict[str, PolicyDemand]:
        """What those ask who wait, by policy."""
        asked: dict[str, list[Waiter]] = {}
        for one in self.waiters.values():
            asked.setdefault(one.component, []).append(one)
        return {
            component: PolicyDemand(len(those), dict(_sum(one.amounts for one in those))) for component, those in asked.items()
        }

    # order

    def queue(self) -> list[Waiter]:
        """Who waits: the least satisfied policy first, then the higher class, then the older."""
        ratio = {name: self.satisfaction(account) for name, account in self.accounts.items() if name.startswith("policy:")}
        return sorted(
            self.waiters.values(),
            key=lambda one: (ratio[f"policy:{one.component}"], -one.preemption_class, one.submission_number, one.id),
        )

    def satisfaction(self, policy: AccountSnapshot) -> int:
        """How much of its published share a policy uses, as the ledger reckons it."""
        oracle, capacity = Oracle(self._snapshot_without_columns()), self.accounts["pool"].limit
        used = {key: Fraction(oracle.used(policy.name, key), units) for key, units in capacity.items()}
        if not policy.published.fair_shares:
            return int(max(used.values()) / policy.weight * BILLION)
        parts = {key: (used[key] * SHARE, due) for key, due in policy.published.fair_shares.items()}
        own = [Fraction(has) / due for has, due in parts.values() if due > NOISE]
        if not own:
            return ENDLESS
        beyond = [Fraction(has) / due if due else Fraction(ENDLESS) for has, due in parts.values() if has > due + NOISE]
        wanted = [
            Fraction(has) / due for key, (has, due) in parts.items() if due > NOISE and key not in policy.published.demand_met
        ]
        return min(ENDLESS, int((max(beyond) if beyond else max(wanted) if wanted else min(own)) * BILLION))

    def _grantable(self) -> Waiter | None:
        oracle, strict = Oracle(super().snapshot()), self.settings.queueing == "strict"
        barred = False
        for one in self.queue():
            blocked = oracle.blocked_by(one)
            if oracle.hold(one) and self._is_fixed_share_used_up(oracle, one):
                self._end_hold(one.id)
                return self._grantable()
            if not blocked and (not barred or oracle.hold(one)):
                return one
            barred = barred or (strict and blocked == "capacity")
        return None

    # what people do

    def lower_limit(self, name: str, key: str, units: int) -> None:
        """Set the limit of a policy or group; whoever fits nowhere any more is rejected."""
        account = self.accounts[name]
        self.accounts[name] = replace(account, limit={**account.limit, key: max(units, account.reserved.get(key, 0))})
        for one in tuple(self.waiters.values()):
            if not self._eligible(one):
                self._remove_from_queue(one.id)
        self.grant_all()

    # what the planner found

    def publish(self, found: Publication | None) -> None:
        """Keep it."""
        if found is None:
            return
        for row in found.updates:
            account = self.accounts[row.account]
            self.accounts[row.account] = replace(account, published=apply_update(account.published, row))
        self.is_watched = found.is_watched
        self.grant_all()

    def take(self, step: PlanStep, *, at_once: bool = False) -> None:
        """One step of the planner."""
        if isinstance(step, Reprieve) and self.allocations[step.request].leaving_for == LEAVING_FOR_LIMIT:
            self._set_leaving_for([step.request], None)
            self.grant_all()
            return
        if not isinstance(step, EvictOverLimit):
            super().take_step(step, at_once=at_once)
            return
        victims = [self.allocations[victim.request] for victim in step.victims]
        assert all(one.leaving_for is None and one.preemptible for one in victims)
        self._set_leaving_for((one.id for one in victims), LEAVING_FOR_LIMIT)
        self.count_evictions(victims)
        if at_once:
            for one in victims:
                self._leave(one.id)
        self.grant_all()

    def count_evictions(self, victims: Sequence[Allocation]) -> None:
        """Count them."""
        self.eviction_count += len(victims)

    def stale(self, step: Preempt) -> bool:
        """Whether what the choice rests on is no longer so."""
        oracle = Oracle(self._snapshot_without_columns())
        return any(not use.min_units <= oracle.used(use.account, use.key) <= use.max_units for use in step.usage_conditions)

    def refusal(self, step: PlanStep) -> str:
        """Why the ledger would not take a step; empty if it would."""
        if not isinstance(step, Preempt):
            return ""
        now = self.snapshot()
        oracle, waiter = Oracle(now), self.waiters.get(step.waiter)
        ids = {victim.request for victim in step.victims}
        victims = [one for one in now.allocations if one.id in ids and one.leaving_for is None]
        if waiter is None or len(victims) < len(ids) or self.stale(step):
            return "stale"
        if oracle.is_backing_off():
            return "backoff"
        if not oracle.fits(waiter, victims):
            return "not enough"
        return "superfluous" if oracle.superfluous(waiter, victims) else ""


def apply_update(kept: PublishedStatus, row: AccountUpdate) -> PublishedStatus:
    """What is kept of an account once a row was written beside it."""
    texts = {f"fair_share:{key}": str(due) for key, due in kept.fair_shares.items()} | {
        f"demand_met:{key}": "1" for key in kept.demand_met
    }
    texts |= {"status": kept.starvation_status} if kept.starvation_status else {}
    texts |= {"below_ms": str(kept.below_ms)} if kept.below_ms is not None else {}
    texts |= {"over_ms": str(kept.over_ms)} if kept.over_ms is not None else {}
    assert set(row.removed_fields) <= set(texts)
    texts = {field: text for field, text in texts.items() if field not in row.removed_fields} | dict(row.values)
    return PublishedStatus(
        fair_shares={field.removeprefix("fair_share:"): int(text) for field, text in texts.items() if field.startswith("fair_share:")},
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
