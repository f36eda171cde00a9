"""Builders of pools of discipline `fair_share`: the settings of every account, its starvation, and its published statuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from app.domain.amounts import encode
from app.domain.plan_steps import EndHold, EvictOverLimit, Preempt, Publication, ReassignVictim, Reprieve
from app.domain.snapshot import PlannerSettings, PolicyDemand, PoolSnapshot, PublishedStatus
from tests.unit.planner.builders import NOW_MS, PoolBuilder

SETTINGS = {
    "fair_share_tolerance",
    "starvation_timeout_s",
    "aggressive_starvation",
    "aggressive_starvation_timeout_s",
    "allow_aggressive_preemption",
    "aggressive_preemption_threshold",
    "preemption_threshold",
    "non_preemptible_usage_threshold",
    "over_limit",
    "over_limit_after_s",
}
"""The settings of the pool that groups and policies can override."""


@dataclass
class FairShareBuilder(PoolBuilder):
    """A pool in the making: `a_fair_pool(gpu=8).policy("low").policy("high", **STARVING).runs("a", "low", gpu=8)`."""

    pool_settings: dict[str, str] = field(default_factory=dict)
    pool_status: PublishedStatus = field(default_factory=PublishedStatus)
    """The published status of the pool itself."""
    is_watched: bool = False
    hidden_demand: dict[str, PolicyDemand] = field(default_factory=dict)
    """The demand of waiters that the snapshot does not show."""

    def with_settings(self, **terms: Any) -> FairShareBuilder:
        """Set settings of the pool, those that accounts can override included."""
        self.pool_settings |= _texts({name: value for name, value in terms.items() if name in SETTINGS})
        super().with_settings(**{name: value for name, value in terms.items() if name not in SETTINGS})
        return self

    def group(self, name: str, parent: str | None = None, **numbers: Any) -> FairShareBuilder:
        """Add a group: amounts, settings, and its published status."""
        super().group(name, parent, **_account_fields(numbers, len(self.accounts) + 1))
        return self

    def policy(self, component: str, group: str | None = None, **numbers: Any) -> FairShareBuilder:
        """Add a policy."""
        super().policy(component, group, **_account_fields(numbers, len(self.accounts) + 1))
        return self

    def runs(self, name: str, component: str, *, ran_s: int = 3600, **ask: Any) -> FairShareBuilder:
        """Add an allocation."""
        super().runs(name, component, ran_s=ran_s, **ask)
        return self

    def runs_several(self, component: str, *units: int, **ask: Any) -> FairShareBuilder:
        """Add allocations a1, a2, … of policy a with so many gpus each, in order of grant."""
        for number, each in enumerate(units, 1):
            self.runs(f"{component}{number}", component, gpu=each, **ask)
        return self

    def waits(self, name: str, component: str, **ask: Any) -> FairShareBuilder:
        """Add a waiter."""
        super().waits(name, component, **ask)
        return self

    def holds(self, name: str, component: str, freed_units: Mapping[str, Any] | None = None, **ask: Any) -> FairShareBuilder:
        """Add a waiter with a hold."""
        super().holds(name, component, freed_units, **ask)
        return self

    def snapshot(self) -> PoolSnapshot:
        """Return the pool in the form that the planner reads."""
        now = super().snapshot()
        pool = replace(now.accounts["pool"], settings=self.pool_settings, published=self.pool_status)
        demand = dict(self.hidden_demand)
        for waiter in (*self.waiters, *(hold.owner for hold in self.hold_snapshots)):
            so_far = demand.get(waiter.component, PolicyDemand(0, {}))
            demand[waiter.component] = PolicyDemand(so_far.requests + 1, dict(Counter(so_far.units) + Counter(waiter.amounts)))
        waiters = tuple(
            replace(waiter, queue_score=waiter.queue_score or position) for position, waiter in enumerate(now.waiters, 1)
        )
        return replace(now, accounts={**now.accounts, "pool": pool}, waiters=waiters, demand=demand, is_watched=self.is_watched)

    def steps(self) -> list[tuple[str, ...]]:
        """Return the steps of the plan in short."""
        return [_describe(step) for step in self.plan().steps]

    def evicted_victims(self) -> dict[str, str]:
        """Return the evicted allocations: request → the account over its limit."""
        steps = (step for step in self.plan().steps if isinstance(step, EvictOverLimit))
        return {victim.request: victim.account for step in steps for victim in step.victims}

    def published_fields(self) -> dict[str, dict[str, str | None]]:
        """Return what is published: account → field → text, None if the field is removed."""
        publication = self.plan().publication
        if publication is None:
            return {}
        return {
            update.account: {**dict(update.values), **dict.fromkeys(update.removed_fields)} for update in publication.updates
        }

    def publication(self) -> Publication | None:
        """Return the publication of the plan."""
        return self.plan().publication


def a_fair_share_pool(**capacity: int) -> FairShareBuilder:
    """Return an empty pool of discipline `fair_share`."""
    return FairShareBuilder(capacity, PlannerSettings(discipline="fair_share"))


def starving(below_s: int = 31) -> dict[str, Any]:
    """Return the status of an account that starves, and has been below its fair share for that long."""
    return {"status": "starving", "below_s": below_s}


def aggressive(below_s: int = 121) -> dict[str, Any]:
    """Return the status of an account that starves aggressively; its pool has to allow that."""
    return {"status": "aggressively_starving", "below_s": below_s, "aggressive_starvation": True}


STARVING, AGGRESSIVE = starving(), aggressive()


def _account_fields(numbers: dict[str, Any], creation_number: int) -> dict[str, Any]:
    settings = _texts({name: value for name, value in numbers.items() if name in SETTINGS})
    below, over = numbers.get("below_s"), numbers.get("over_s")
    published = PublishedStatus(
        fair_shares=numbers.get("fair", {}),
        demand_met=frozenset(numbers.get("sated", ())),
        starvation_status=numbers.get("status", ""),
        below_ms=None if below is None else NOW_MS - below * 1000,
        over_ms=None if over is None else NOW_MS - over * 1000,
    )
    fields = {"fair", "sated", "status", "below_s", "over_s"} | SETTINGS
    return {
        "creation_number": creation_number,
        "settings": settings,
        "published": published,
        **{key: value for key, value in numbers.items() if key not in fields},
    }


def _texts(settings: dict[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in settings.items()}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return encode(value) if isinstance(value, Mapping) else str(value)


def _describe(step: object) -> tuple[str, ...]:
    if isinstance(step, Preempt):
        return ("preempt", step.waiter, *(victim.request for victim in step.victims))
    if isinstance(step, EvictOverLimit):
        return ("evict", *(victim.request for victim in step.victims))
    if isinstance(step, ReassignVictim):
        return ("reassign", step.request, step.owner)
    if isinstance(step, Reprieve):
        return ("reprieve", step.request)
    assert isinstance(step, EndHold)
    return ("end hold", step.owner)
