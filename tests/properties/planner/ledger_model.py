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
class Asked:
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
class Preempted:
    """One who has left, and for whom."""

    victim: str
    waiter: str
    at_ms: int


@dataclass
class Book:
    """A pool with its accounts, who holds units of it and who waits; `accounts` hold only what was set."""

    terms: PlannerSettings
    accounts: dict[str, AccountSnapshot]
    now_ms: int = 1_000 * MINUTE_MS
    asks: dict[str, Asked] = field(default_factory=dict)
    waiting: dict[str, Waiter] = field(default_factory=dict)
    live: dict[str, Allocation] = field(default_factory=dict)
    holds: list[HoldSnapshot] = field(default_factory=list)
    back: dict[str, Counter[str]] = field(default_factory=dict)
    fence: int = 0
    stopped: list[int] = field(default_factory=list)
    """When each preemption was decided."""
    story: list[Preempted] = field(default_factory=list)
    served: list[str] = field(default_factory=list)
    """Owners of holds who were granted, in order."""

    # as the planner sees it

    def snapshot(self) -> PoolSnapshot:
        """The pool now, with all its columns."""
        bare = self._bare()
        oracle = Oracle(bare)
        keys = {key for account in bare.accounts.values() for key in account.limit}
        keys |= {key for ask in self.asks.values() for key in ask.amounts}
        accounts = {name: self._columns(oracle, account, keys) for name, account in bare.accounts.items()}
        queue = {one.id: replace(one, queue_position=place) for place, one in enumerate(oracle.queue())}
        holds = tuple(replace(hold, owner=queue.pop(hold.owner.id)) for hold in self.holds)
        return replace(bare, accounts=accounts, waiters=tuple(queue.values()), holds=holds)

    def _bare(self) -> PoolSnapshot:
        recent = [at for at in self.stopped if at > self.now_ms - MINUTE_MS]
        return PoolSnapshot(
            pool="p",
            now_ms=self.now_ms,
            settings=self.terms,
            accounts=self.accounts,
            allocations=tuple(sorted(self.live.values(), key=lambda one: one.fence)),
            waiters=tuple(one for one in self.waiting.values() if all(hold.owner is not one for hold in self.holds)),
            holds=tuple(self.holds),
            preemptions_last_minute=len(recent),
            last_decision_ms=max(self.stopped, default=None),
        )

    def _columns(self, oracle: Oracle, account: AccountSnapshot, keys: set[str]) -> AccountSnapshot:
        cleared = Counter[str]()
        for hold in self.holds:
            if account.name in oracle.path(hold.owner):
                for key, asked in hold.owner.amounts.items():
                    cleared[key] += max(0, asked - oracle.coming(hold, account.name, key))
        return replace(
            account,
            used={key: units for key in keys if (units := oracle.used(account.name, key))},
            used_fixed={key: units for key in keys if (units := oracle.used(account.name, key, fixed=True))},
            units_on_hold={key: units for key, units in cleared.items() if units},
            stack_exits=dict(self.back.get(account.name, {})),
        )

    # what people do

    def submit(self, asked: Asked) -> str | None:
        """Take in an ask: its id, or None if it can never be granted."""
        number = len(self.asks) + 1
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
        self.asks[waiter.id] = asked
        self.waiting[waiter.id] = waiter
        self.settle()
        return waiter.id

    def release(self, id_: str) -> None:
        """One has finished by itself."""
        self._give_back(self.live[id_])
        self.settle()

    def cancel(self, id_: str) -> None:
        """A waiter goes away; those leaving for it leave for nobody."""
        self._out_of_queue(id_)
        self.settle()

    def resize(self, key: str, units: int) -> None:
        """Change the capacity; whoever fits nowhere any more is rejected."""
        pool = self.accounts["pool"]
        floor = sum(account.reserved.get(key, 0) for account in self.accounts.values() if account.parent == "pool")
        self.accounts["pool"] = replace(pool, limit={**pool.limit, key: max(units, floor, 1)})
        for one in tuple(self.waiting.values()):
            if not self._eligible(one):
                self._out_of_queue(one.id)
        self.settle()

    def save(self, id_: str) -> None:
        """A routine checkpoint."""
        self.live[id_] = replace(self.live[id_], checkpointed_ms=self.now_ms)

    def _eligible(self, one: Waiter) -> bool:
        pool, policy = self.accounts["pool"], self.accounts[f"policy:{one.component}"]
        for key, asked in one.amounts.items():
            bounds = [self.accounts[name].limit.get(key, BOUNDLESS) for name in Oracle(self._bare()).path(one)[:-1]]
            bounds.append(pool.limit.get(key, BOUNDLESS if key in METERED else 0))
            if not one.preemptible and key in pool.limit:
                bounds.append(policy.reserved.get(key, 0))
            if asked > min(bounds):
                return False
        return True

    # granting

    def settle(self) -> None:
        """Grant whom the rules allow to be granted, until there is nobody."""
        while one := self._grantable():
            if any(hold.owner.id == one.id for hold in self.holds):
                self.served.append(one.id)
            self._out_of_queue(one.id)
            self.fence += 1
            asked = self.asks[one.id]
            self.live[one.id] = Allocation(
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
        oracle, strict = Oracle(now), self.terms.queueing == "strict"
        barred = False
        for one in oracle.queue():
            blocked = oracle.blocked(one)
            if oracle.hold(one) and self._fixed_used_up(oracle, one):
                self._end_hold(one.id)
                return self._grantable()
            if not blocked and (not barred or oracle.hold(one)):
                return one
            barred = barred or (strict and blocked == "capacity")
        return None

    def _fixed_used_up(self, oracle: Oracle, one: Waiter) -> bool:
        policy = oracle.path(one)[0]
        return not one.preemptible and any(
            oracle.used(policy, key, fixed=True) + asked > oracle.reserved(policy, key)
            for key, asked in one.amounts.items()
            if key in self.accounts["pool"].limit
        )

    def _out_of_queue(self, id_: str) -> None:
        del self.waiting[id_]
        self._end_hold(id_)

    def _end_hold(self, id_: str) -> None:
        self.holds = [hold for hold in self.holds if hold.owner.id != id_]
        self._mark((one.id for one in tuple(self.live.values()) if one.leaving_for == id_), "")

    def _mark(self, ids: Iterable[str], leaving_for: str | None) -> None:
        for id_ in ids:
            self.live[id_] = replace(self.live[id_], leaving_for=leaving_for)

    # leaving

    def take(self, step: PlanStep, *, at_once: bool = False) -> None:
        """One step of the planner; what is stale is an error here. At once: without any grace."""
        if isinstance(step, ReassignVictim):
            assert self.live[step.request].leaving_for == ""
            assert any(hold.owner.id == step.owner for hold in self.holds)
            self._mark([step.request], step.owner)
        elif isinstance(step, Reprieve):
            assert self.live[step.request].leaving_for == ""
            self._mark([step.request], None)
        elif isinstance(step, EndHold):
            assert any(hold.owner.id == step.owner for hold in self.holds)
            self._end_hold(step.owner)
        else:
            assert isinstance(step, Preempt), "nobody is over a limit here"
            self._stop(step)
            if at_once:
                for victim in step.victims:
                    self._leave(victim.request)
        self.settle()

    def stale(self, step: Preempt) -> bool:
        """Whether what the choice rests on is no longer so."""
        now = self.snapshot()
        oracle, waiter = Oracle(now), self.waiting[step.waiter]
        victims = [self.live[victim.request] for victim in step.victims]
        if any(
            now.accounts[rest.account].stack_exits.get(rest.key, 0) > rest.max_stack_exits for rest in step.borrowed_conditions
        ):
            return True
        if not all(oracle.fits_unused(waiter, account) for account in step.unused_share_accounts):
            return True
        return bool(step.reserved_accounts) and not oracle.lies_within(waiter, victims)

    def _stop(self, step: Preempt) -> None:
        victims = [self.live[victim.request] for victim in step.victims]
        assert victims
        assert all(one.leaving_for is None for one in victims)
        assert [one.fence for one in victims] == [victim.fence for victim in step.victims]
        self._mark((one.id for one in victims), step.waiter)
        if not any(hold.owner.id == step.waiter for hold in self.holds):
            self.holds.append(HoldSnapshot(self.waiting[step.waiter], {}))
        self.stopped += [self.now_ms] * len(victims)
        for one in victims:
            self._count_back(one)

    def leave(self, id_: str) -> None:
        """One of those who are leaving has left."""
        self._leave(id_)
        self.settle()

    def _leave(self, id_: str) -> None:
        one = self.live[id_]
        assert one.leaving_for is not None
        self._give_back(one)
        self.story.append(Preempted(id_, one.leaving_for, self.now_ms))
        number = int(id_[1:])
        asked = self.asks[id_]
        self.waiting[id_] = Waiter(
            id=id_,
            component=one.component,
            amounts=one.amounts,
            preemptible=one.preemptible,
            preemption_class=one.preemption_class,
            submission_number=number,
            chain=asked.chain,
            preempted_fence=self.fence,
        )
        if not self._eligible(self.waiting[id_]):
            del self.waiting[id_]

    def _give_back(self, one: Allocation) -> None:
        oracle = Oracle(self._bare())
        del self.live[one.id]
        for at, hold in enumerate(self.holds):
            if hold.owner.id == one.leaving_for:
                self.holds[at] = _brought(oracle, hold, one)
        if one.leaving_for is None:
            self._count_back(one)

    def _count_back(self, one: Allocation) -> None:
        oracle = Oracle(self._bare())
        for account in oracle.path(one)[:-1]:
            counted = self.back.setdefault(account, Counter())
            counted.update({key: units for key, units in one.amounts.items() if key in oracle.shared})


def _brought(oracle: Oracle, hold: HoldSnapshot, one: Allocation) -> HoldSnapshot:
    brought = {account: dict(amounts) for account, amounts in hold.freed_units.items()}
    for account in set(oracle.path(hold.owner)) & set(oracle.path(one)):
        place = brought.setdefault(account, {})
        for key in set(hold.owner.amounts) & set(one.amounts):
            place[key] = place.get(key, 0) + one.amounts[key]
    return replace(hold, freed_units=brought)
