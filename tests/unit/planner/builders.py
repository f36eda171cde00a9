"""Builders of pools for tests of the planner: allocations, waiters and holds, and the resulting plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from app.domain.amounts import Amounts
from app.domain.plan_steps import EndHold, Preempt, ReassignVictim, Reprieve
from app.domain.snapshot import AccountSnapshot, Allocation, HoldSnapshot, PlannerSettings, PoolSnapshot, Waiter
from app.planner.decisions import DecisionReason, RefusalReason
from app.planner.planning_pass import PoolPlan, plan_pool

NOW_MS = 100_000_000
MINUTE_MS = 60_000


@dataclass
class PoolBuilder:
    """A pool in the making: `a_pool(gpu=8).policy("low").runs("a", "low", gpu=2).waits("w", "low", gpu=8)`."""

    capacity: Amounts
    settings: PlannerSettings = field(default_factory=PlannerSettings)
    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    allocations: list[Allocation] = field(default_factory=list)
    waiters: list[Waiter] = field(default_factory=list)
    hold_snapshots: list[HoldSnapshot] = field(default_factory=list)
    stack_exits: dict[str, Amounts] = field(default_factory=dict)
    preemptions_last_minute: int = 0
    last_decision_ms: int | None = None

    def with_settings(self, **terms: Any) -> PoolBuilder:
        """Change settings of the pool."""
        self.settings = replace(self.settings, **terms)
        return self

    def group(self, name: str, parent: str | None = None, **numbers: Any) -> PoolBuilder:
        """Add a group."""
        self.accounts[f"group:{name}"] = {"parent": f"group:{parent}" if parent else "pool", **numbers}
        return self

    def policy(self, component: str, group: str | None = None, **numbers: Any) -> PoolBuilder:
        """Add a policy: `priority`, `reserved`, `limit`, `profile`."""
        self.accounts[f"policy:{component}"] = {"parent": f"group:{group}" if group else "pool", **numbers}
        return self

    def runs(self, name: str, component: str, *, ran_s: int = 3600, **ask: Any) -> PoolBuilder:
        """Add an allocation. A keyword that is no field of an allocation is a resource. Later ones have a later grant."""
        fields, amounts = _split_fields(Allocation, ask)
        saved_s = fields.pop("saved_s", None)
        if saved_s is not None:
            fields["checkpointed_ms"] = NOW_MS - saved_s * 1000
        defaults = {"fence": len(self.allocations) + 1, "preemptible": True, "preemption_class": 5, "checkpoint": "none"}
        times = {"checkpoint_minutes": None, "walltime_s": None, "granted_ms": NOW_MS - ran_s * 1000}
        self.allocations.append(Allocation(id=name, component=component, amounts=amounts, **{**defaults, **times, **fields}))
        return self

    def waits(self, name: str, component: str, **ask: Any) -> PoolBuilder:
        """Add a waiter at the end of the queue."""
        self.waiters.append(self._waiter(name, component, ask))
        return self

    def holds(self, name: str, component: str, freed_units: Mapping[str, Amounts] | None = None, **ask: Any) -> PoolBuilder:
        """Add a waiter with a hold, behind all other holds."""
        self.hold_snapshots.append(HoldSnapshot(self._waiter(name, component, ask), freed_units or {}))
        return self

    def _waiter(self, name: str, component: str, ask: dict[str, Any]) -> Waiter:
        fields, amounts = _split_fields(Waiter, ask)
        defaults = {
            "preemptible": True,
            "preemption_class": 5,
            "submission_number": len(self.waiters) + len(self.hold_snapshots),
        }
        return Waiter(id=name, component=component, amounts=amounts, **{**defaults, **fields})

    def snapshot(self) -> PoolSnapshot:
        """Return the pool in the form that the planner reads."""
        accounts = {"pool": self._account("pool", {"parent": None, "limit": self.capacity})}
        accounts |= {name: self._account(name, numbers) for name, numbers in self.accounts.items()}
        return PoolSnapshot(
            pool="p",
            now_ms=NOW_MS,
            settings=self.settings,
            accounts=accounts,
            allocations=tuple(self.allocations),
            waiters=tuple(self.waiters),
            holds=tuple(self.hold_snapshots),
            preemptions_last_minute=self.preemptions_last_minute,
            last_decision_ms=self.last_decision_ms,
        )

    def _account(self, name: str, numbers: dict[str, Any]) -> AccountSnapshot:
        inside = [each for each in self.allocations if name in self.path(each.component)]
        units_on_hold: Counter[str] = Counter()
        for hold in self.hold_snapshots:
            if name in self.path(hold.owner.component):
                pending = _sum(each for each in inside if each.leaving_for == hold.owner.id)
                units_on_hold.update({key: max(0, units - pending[key]) for key, units in hold.owner.amounts.items()})
        plain = {"reserved": {}, "limit": {}, "units_on_hold": units_on_hold, "stack_exits": self.stack_exits.get(name, {})}
        used = {"used": _sum(inside), "used_fixed": _sum(each for each in inside if not each.preemptible)}
        return AccountSnapshot(name=name, **{**plain, **used, **numbers})

    def path(self, component: str) -> list[str]:
        """Return the accounts from a policy up to the pool."""
        path = [f"policy:{component}"]
        while path[-1] != "pool":
            path.append(self.accounts[path[-1]]["parent"])
        return path

    def plan(self, *skip: str) -> PoolPlan:
        """Return the plan of the planner."""
        return plan_pool(self.snapshot(), frozenset(skip))

    def victims(self, waiter: str = "w") -> dict[str, str]:
        """Return the victims of a waiter: request → trigger."""
        steps = [step for step in self.plan().steps if isinstance(step, Preempt) and step.waiter == waiter]
        return {victim.request: victim.trigger.value for step in steps for victim in step.victims}

    def preempt_step(self, waiter: str = "w") -> Preempt:
        """Return the only preempt step of a waiter."""
        (step,) = (step for step in self.plan().steps if isinstance(step, Preempt) and step.waiter == waiter)
        return step

    def reason(self, waiter: str = "w", *skip: str) -> DecisionReason:
        """Return the reason of the decision about a waiter."""
        return self.plan(*skip).decisions[waiter].reason

    def refusals(self, victim: str, waiter: str = "w") -> dict[str | None, RefusalReason]:
        """Return why each rule does not let the waiter take the allocation; under None why no rule was asked."""
        verdicts = {verdict.allocation: verdict for verdict in self.plan().decisions[waiter].verdicts()}
        return dict(verdicts[victim].refusals)


def a_pool(**capacity: int) -> PoolBuilder:
    """Return an empty pool."""
    return PoolBuilder(capacity)


def describe_steps(plan: PoolPlan) -> list[tuple[str, ...]]:
    """Return the steps of a plan in short."""
    return [_describe(step) for step in plan.steps]


def _describe(step: object) -> tuple[str, ...]:
    if isinstance(step, Preempt):
        return ("preempt", step.waiter, *(victim.request for victim in step.victims))
    if isinstance(step, ReassignVictim):
        return ("reassign", step.request, step.owner)
    if isinstance(step, Reprieve):
        return ("reprieve", step.request)
    assert isinstance(step, EndHold)
    return ("end hold", step.owner)


def after_plan(pool: PoolBuilder) -> tuple[PoolBuilder, int]:
    """Return the pool after its plan was carried out and all victims have left at once, and the number of preemptions.

    A victim waits again; every waiter that fits is granted, in queue order.
    """
    pool = replace(
        pool, allocations=list(pool.allocations), waiters=list(pool.waiters), hold_snapshots=list(pool.hold_snapshots)
    )
    preemptions = 0
    for step in pool.plan().steps:
        assert isinstance(step, Preempt)
        victims = {victim.request for victim in step.victims}
        newest = max(each.fence for each in pool.allocations)
        victims_left = [each for each in pool.allocations if each.id in victims]
        pool.allocations = [each for each in pool.allocations if each.id not in victims]
        _grant(pool, next(each for each in pool.waiters if each.id == step.waiter), newest + 1)
        pool.waiters += [_requeue(each, newest) for each in victims_left]
        preemptions += len(victims_left)
    for waiter in in_queue_order(pool):
        if fits(pool, waiter):
            _grant(pool, waiter, max((each.fence for each in pool.allocations), default=0) + 1)
    pool.waiters = in_queue_order(pool)
    return pool, preemptions


def fits(pool: PoolBuilder, waiter: Waiter) -> bool:
    """True if a waiter could be granted now."""
    accounts = pool.snapshot().accounts
    for name in pool.path(waiter.component):
        account = accounts[name]
        for key, units in waiter.amounts.items():
            bound = account.limit.get(key, None if name != "pool" or key == "step_run" else 0)
            if bound is not None and account.used.get(key, 0) + units > bound:
                return False
            is_bound = name.startswith("policy:") and not waiter.preemptible and key in pool.capacity
            if is_bound and account.used_fixed.get(key, 0) + units > account.reserved.get(key, 0):
                return False
    return True


def in_queue_order(pool: PoolBuilder) -> list[Waiter]:
    """Return the waiters in order: in share before borrowing, higher rank, older, id."""
    accounts = pool.snapshot().accounts
    share_keys = {key for name, account in accounts.items() if name != "pool" for key, n in account.reserved.items() if n}

    def order(waiter: Waiter) -> tuple[object, ...]:
        policy = accounts[f"policy:{waiter.component}"]
        used = policy.used if waiter.preemptible else policy.used_fixed
        keys = share_keys & waiter.amounts.keys()
        unused = (policy.reserved.get(key, 0) - used.get(key, 0) - waiter.amounts[key] for key in keys)
        in_share = bool(keys) and all(units >= 0 for units in unused)
        rank = [-policy.priority, -waiter.preemption_class]
        if pool.settings.discipline == "classes":
            rank.reverse()
        front = [not in_share, *rank] if pool.settings.order == "share_first" else [*rank, not in_share]
        return (*front, waiter.submission_number, waiter.id)

    return sorted(pool.waiters, key=order)


def _grant(pool: PoolBuilder, waiter: Waiter, fence: int) -> None:
    assert fits(pool, waiter), f"{waiter.id} does not fit"
    pool.waiters.remove(waiter)
    fields = {"preemptible": waiter.preemptible, "preemption_class": waiter.preemption_class, "fence": fence}
    pool.runs(waiter.id, waiter.component, chain=waiter.chain, **fields, **waiter.amounts)


def _requeue(each: Allocation, newest: int) -> Waiter:
    number = int(each.id.strip("abcdefghijklmnopqrstuvwxyz") or each.fence)
    return Waiter(each.id, each.component, each.amounts, each.preemptible, each.preemption_class, number, each.chain, newest)


def _split_fields(kind: type, ask: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    names = {*kind.__dataclass_fields__, "saved_s"}  # type: ignore[attr-defined]
    amounts = {key: units for key, units in ask.items() if key not in names}
    return {key: value for key, value in ask.items() if key in names}, {"step_run": 1} | amounts


def _sum(allocations: Any) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in allocations:
        total.update(each.amounts)
    return total
