"""A ledger of one pool in memory: it grants in order as the rules say, keeps holds, and takes the planner's steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from app.domain.plan_steps import EndHold, PlanStep, Preempt, ReassignVictim, Reprieve
from app.domain.snapshot import AccountSnapshot, Allocation, HoldSnapshot, PlannerSettings, PoolSnapshot, Waiter
from tests.properties.planner.costs import MINUTE_MS
from tests.properties.planner.oracle import BOUNDLESS, METERED, Oracle


@dataclass(frozen=True)
class ModelRequest:
    """What somebody asks, as it was written."""

    component: str
    amounts: Mapping[str, int]
    preemptible: bool = True
    preemption_class: int = 5
    checkpoint: str = "none"
    checkpoint_minutes: int | None = None
    walltime_s: int | None = None
    chain: str | None = None


@dataclass(frozen=True)
class ModelPreemption:
    """One who has left, and for whom."""

    victim: str
    waiter: str
    at_ms: int


@dataclass
class PoolLedger:
    """A pool with its accounts, who holds units of it and who waits; `accounts` hold only what was set."""

    settings: PlannerSettings
    accounts: dict[str, AccountSnapshot]
    now_ms: int = 1_000 * MINUTE_MS
    requests: dict[str, ModelRequest] = field(default_factory=dict)
    waiters: dict[str, Waiter] = field(default_factory=dict)
    allocations: dict[str, Allocation] = field(default_factory=dict)
    holds: list[HoldSnapshot] = field(default_factory=list)
    stack_exits: dict[str, Counter[str]] = field(default_factory=dict)
    fence: int = 0
    preemption_times: list[int] = field(default_factory=list)
    """When each preemption was decided."""
    preemptions: list[ModelPreemption] = field(default_factory=list)
    granted_owners: list[str] = field(default_factory=list)
    """Owners of holds who were granted, in order."""

    # as the planner sees it

    def snapshot(self) -> PoolSnapshot:
        """The pool now, with all its columns."""
        bare = self._snapshot_without_columns()
        oracle = Oracle(bare)
        keys = {key for account in bare.accounts.values() for key in account.limit}
        keys |= {key for ask in self.requests.values() for key in ask.amounts}
        accounts = {name: self._account_columns(oracle, account, keys) for name, account in bare.accounts.items()}
        queue = {one.id: replace(one, queue_position=place) for place, one in enumerate(oracle.queue())}
        holds = tuple(replace(hold, owner=queue.pop(hold.owner.id)) for hold in self.holds)
        return replace(bare, accounts=accounts, waiters=tuple(queue.values()), holds=holds)

    def _snapshot_without_columns(self) -> PoolSnapshot:
        recent = [at for at in self.preemption_times if at > self.now_ms - MINUTE_MS]
        return PoolSnapshot(
            pool="p",
            now_ms=self.now_ms,
            settings=self.settings,
            accounts=self.accounts,
            allocations=tuple(sorted(self.allocations.values(), key=lambda one: one.fence)),
            waiters=tuple(one for one in self.waiters.values() if all(hold.owner is not one for hold in self.holds)),
            holds=tuple(self.holds),
            preemptions_last_minute=len(recent),
            last_decision_ms=max(self.preemption_times, default=None),
        )

    def _account_columns(self, oracle: Oracle, account: AccountSnapshot, keys: set[str]) -> AccountSnapshot:
        cleared = Counter[str]()
        for hold in self.holds:
            if account.name in oracle.path(hold.owner):
                for key, asked in hold.owner.amounts.items():
                    cleared[key] += max(0, asked - oracle.pending_units(hold, account.name, key))
        return replace(
            account,
            used={key: units for key in keys if (units := oracle.used(account.name, key))},
            used_fixed={key: units for key in keys if (units := oracle.used(account.name, key, fixed=True))},
            units_on_hold={key: units for key, units in cleared.items() if units},
            stack_exits=dict(self.stack_exits.get(account.name, {})),
        )

    # what people do

    def submit(self, asked: ModelRequest) -> str | None:
        """Take in an ask: its id, or None if it can never be granted."""
        number = len(self.requests) + 1
        waiter = Waiter(
            id=f"r{number:02}",
            component=asked.component,
            amounts=asked.amounts,
            preemptible=asked.preemptible,
            preemption_class=asked.preemption_class,
            submission_number=number,
            chain=asked.chain,
        )
        if not self._eligible(waiter):
            return None
        self.requests[waiter.id] = asked
        self.waiters[waiter.id] = waiter
        self.grant_all()
        return waiter.id

    def release(self, id_: str) -> None:
        """One has finished by itself."""
        self._free_units(self.allocations[id_])
        self.grant_all()

    def cancel(self, id_: str) -> None:
        """A waiter goes away; those leaving for it leave for nobody."""
        self._remove_from_queue(id_)
        self.grant_all()

    def resize(self, key: str, units: int) -> None:
        """Change the capacity; whoever fits nowhere any more is rejected."""
        pool = self.accounts["pool"]
        floor = sum(account.reserved.get(key, 0) for account in self.accounts.values() if account.parent == "pool")
        self.accounts["pool"] = replace(pool, limit={**pool.limit, key: max(units, floor, 1)})
        for one in tuple(self.waiters.values()):
            if not self._eligible(one):
                self._remove_from_queue(one.id)
        self.grant_all()

    def save(self, id_: str) -> None:
        """A routine checkpoint."""
        self.allocations[id_] = replace(self.allocations[id_], checkpointed_ms=self.now_ms)

    def _eligible(self, one: Waiter) -> bool:
        pool, policy = self.accounts["pool"], self.accounts[f"policy:{one.component}"]
        for key, asked in one.amounts.items():
            bounds = [self.accounts[name].limit.get(key, BOUNDLESS) for name in Oracle(self._snapshot_without_columns()).path(one)[:-1]]
            bounds.append(pool.limit.get(key, BOUNDLESS if key in METERED else 0))
            if not one.preemptible and key in pool.limit:
                bounds.append(policy.reserved.get(key, 0))
            if asked > min(bounds):
                return False
        return True

    # granting

    def grant_all(self) -> None:
        """Grant whom the rules allow to be granted, until there is nobody."""
        while one := self._grantable():
            if any(hold.owner.id == one.id for hold in self.holds):
                self.granted_owners.append(one.id)
            self._remove_from_queue(one.id)
            self.fence += 1
            asked = self.requests[one.id]
            self.allocations[one.id] = Allocation(
                id=one.id,
                component=one.component,
                amounts=one.amounts,
                fence=self.fence,
                preemptible=one.preemptible,
                preemption_class=one.preemption_class,
                checkpoint=asked.checkpoint,
                checkpoint_minutes=asked.checkpoint_minutes,
                walltime_s=asked.walltime_s,
                granted_ms=self.now_ms,
                chain=one.chain,
            )

    def _grantable(self) -> Waiter | None:
        now = self.snapshot()
        oracle, strict = Oracle(now), self.settings.queueing == "strict"
        barred = False
        for one in oracle.queue():
            blocked = oracle.blocked_by(one)
            if oracle.hold(one) and self._is_fixed_share_used_up(oracle, one):
                self._end_hold(one.id)
                return self._grantable()
            if not blocked and (not barred or oracle.hold(one)):
                return one
            barred = barred or (strict and blocked == "capacity")
        return None

    def _is_fixed_share_used_up(self, oracle: Oracle, one: Waiter) -> bool:
        policy = oracle.path(one)[0]
        return not one.preemptible and any(
            oracle.used(policy, key, fixed=True) + asked > oracle.reserved(policy, key)
            for key, asked in one.amounts.items()
            if key in self.accounts["pool"].limit
        )

    def _remove_from_queue(self, id_: str) -> None:
        del self.waiters[id_]
        self._end_hold(id_)

    def _end_hold(self, id_: str) -> None:
        self.holds = [hold for hold in self.holds if hold.owner.id != id_]
        self._set_leaving_for((one.id for one in tuple(self.allocations.values()) if one.leaving_for == id_), "")

    def _set_leaving_for(self, ids: Iterable[str], leaving_for: str | None) -> None:
        for id_ in ids:
            self.allocations[id_] = replace(self.allocations[id_], leaving_for=leaving_for)

    # leaving

    def take_step(self, step: PlanStep, *, at_once: bool = False) -> None:
        """One step of the planner; what is stale is an error here. At once: without any grace."""
        if isinstance(step, ReassignVictim):
            assert self.allocations[step.request].leaving_for == ""
            assert any(hold.owner.id == step.owner for hold in self.holds)
            self._set_leaving_for([step.request], step.owner)
        elif isinstance(step, Reprieve):
            assert self.allocations[step.request].leaving_for == ""
            self._set_leaving_for([step.request], None)
        elif isinstance(step, EndHold):
            assert any(hold.owner.id == step.owner for hold in self.holds)
            self._end_hold(step.owner)
        else:
            assert isinstance(step, Preempt), "nobody is over a limit here"
            self._preempt(step)
            if at_once:
                for victim in step.victims:
                    self._leave(victim.request)
        self.grant_all()

    def is_stale(self, step: Preempt) -> bool:
        """Whether what the choice rests on is no longer so."""
        now = self.snapshot()
        oracle, waiter = Oracle(now), self.waiters[step.waiter]
        victims = [self.allocations[victim.request] for victim in step.victims]
        if any(
            now.accounts[rest.account].stack_exits.get(rest.key, 0) > rest.max_stack_exits for rest in step.borrowed_conditions
        ):
            return True
        if not all(oracle.fits_unused_share(waiter, account) for account in step.unused_share_accounts):
            return True
        return bool(step.reserved_accounts) and not oracle.lies_within_reserved(waiter, victims)

    def _preempt(self, step: Preempt) -> None:
        victims = [self.allocations[victim.request] for victim in step.victims]
        assert victims
        assert all(one.leaving_for is None for one in victims)
        assert [one.fence for one in victims] == [victim.fence for victim in step.victims]
        self._set_leaving_for((one.id for one in victims), step.waiter)
        if not any(hold.owner.id == step.waiter for hold in self.holds):
            self.holds.append(HoldSnapshot(self.waiters[step.waiter], {}))
        self.preemption_times += [self.now_ms] * len(victims)
        for one in victims:
            self._count_stack_exits(one)

    def leave(self, id_: str) -> None:
        """One of those who are leaving has left."""
        self._leave(id_)
        self.grant_all()

    def _leave(self, id_: str) -> None:
        one = self.allocations[id_]
        assert one.leaving_for is not None
        self._free_units(one)
        self.preemptions.append(ModelPreemption(id_, one.leaving_for, self.now_ms))
        number = int(id_[1:])
        asked = self.requests[id_]
        self.waiters[id_] = Waiter(
            id=id_,
            component=one.component,
            amounts=one.amounts,
            preemptible=one.preemptible,
            preemption_class=one.preemption_class,
            submission_number=number,
            chain=asked.chain,
            preempted_fence=self.fence,
        )
        if not self._eligible(self.waiters[id_]):
            del self.waiters[id_]

    def _free_units(self, one: Allocation) -> None:
        oracle = Oracle(self._snapshot_without_columns())
        del self.allocations[one.id]
        for at, hold in enumerate(self.holds):
            if hold.owner.id == one.leaving_for:
                self.holds[at] = _with_freed_units(oracle, hold, one)
        if one.leaving_for is None:
            self._count_stack_exits(one)

    def _count_stack_exits(self, one: Allocation) -> None:
        oracle = Oracle(self._snapshot_without_columns())
        for account in oracle.path(one)[:-1]:
            counted = self.stack_exits.setdefault(account, Counter())
            counted.update({key: units for key, units in one.amounts.items() if key in oracle.share_keys})


def _with_freed_units(oracle: Oracle, hold: HoldSnapshot, one: Allocation) -> HoldSnapshot:
    brought = {account: dict(amounts) for account, amounts in hold.freed_units.items()}
    for account in set(oracle.path(hold.owner)) & set(oracle.path(one)):
        place = brought.setdefault(account, {})
        for key in set(hold.owner.amounts) & set(one.amounts):
            place[key] = place.get(key, 0) + one.amounts[key]
    return replace(hold, freed_units=brought)
