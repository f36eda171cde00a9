"""A ledger of one pool in memory: it grants in the order of the rules, keeps holds, and applies the planner's steps."""

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
    """A request as it was submitted."""

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
    """A victim that has left, and its waiter."""

    victim: str
    waiter: str
    at_ms: int


@dataclass
class PoolLedger:
    """A pool with its accounts, allocations and waiters. `accounts` contains only values that were set."""

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
    """The time of each preemption."""
    preemptions: list[ModelPreemption] = field(default_factory=list)
    granted_owners: list[str] = field(default_factory=list)
    """Owners of holds that were granted, in order."""

    # as the planner sees it

    def snapshot(self) -> PoolSnapshot:
        """Return the snapshot of the pool, with all its columns."""
        bare = self._snapshot_without_columns()
        oracle = Oracle(bare)
        keys = {key for account in bare.accounts.values() for key in account.limit}
        keys |= {key for ask in self.requests.values() for key in ask.amounts}
        accounts = {name: self._account_columns(oracle, account, keys) for name, account in bare.accounts.items()}
        queue = {request.id: replace(request, queue_score=position) for position, request in enumerate(oracle.queue())}
        holds = tuple(replace(hold, owner=queue.pop(hold.owner.id)) for hold in self.holds)
        return replace(bare, accounts=accounts, waiters=tuple(queue.values()), holds=holds)

    def _snapshot_without_columns(self) -> PoolSnapshot:
        recent = [at_ms for at_ms in self.preemption_times if at_ms > self.now_ms - MINUTE_MS]
        return PoolSnapshot(
            pool="p",
            now_ms=self.now_ms,
            settings=self.settings,
            accounts=self.accounts,
            allocations=tuple(sorted(self.allocations.values(), key=lambda request: request.fence)),
            waiters=tuple(
                request for request in self.waiters.values() if all(hold.owner is not request for hold in self.holds)
            ),
            holds=tuple(self.holds),
            preemptions_last_minute=len(recent),
            last_decision_ms=max(self.preemption_times, default=None),
        )

    def _account_columns(self, oracle: Oracle, account: AccountSnapshot, keys: set[str]) -> AccountSnapshot:
        units_on_hold = Counter[str]()
        for hold in self.holds:
            if account.name in oracle.path(hold.owner):
                for key, units in hold.owner.amounts.items():
                    units_on_hold[key] += max(0, units - oracle.pending_units(hold, account.name, key))
        return replace(
            account,
            used={key: units for key in keys if (units := oracle.used(account.name, key))},
            used_fixed={key: units for key in keys if (units := oracle.used(account.name, key, fixed=True))},
            units_on_hold={key: units for key, units in units_on_hold.items() if units},
            stack_exits=dict(self.stack_exits.get(account.name, {})),
        )

    # acts of users

    def submit(self, request: ModelRequest) -> str | None:
        """Submit a request: its id, or None if it can never be granted."""
        number = len(self.requests) + 1
        waiter = Waiter(
            id=f"r{number:02}",
            component=request.component,
            amounts=request.amounts,
            preemptible=request.preemptible,
            preemption_class=request.preemption_class,
            submission_number=number,
            chain=request.chain,
        )
        if not self._eligible(waiter):
            return None
        self.requests[waiter.id] = request
        self.waiters[waiter.id] = waiter
        self.grant_all()
        return waiter.id

    def release(self, id_: str) -> None:
        """Release an allocation that has finished."""
        self._free_units(self.allocations[id_])
        self.grant_all()

    def cancel(self, id_: str) -> None:
        """Cancel a waiter; its victims are orphaned."""
        self._remove_from_queue(id_)
        self.grant_all()

    def resize(self, key: str, units: int) -> None:
        """Change the capacity; a waiter that fits nowhere any more is rejected."""
        pool = self.accounts["pool"]
        floor = sum(account.reserved.get(key, 0) for account in self.accounts.values() if account.parent == "pool")
        self.accounts["pool"] = replace(pool, limit={**pool.limit, key: max(units, floor, 1)})
        for request in tuple(self.waiters.values()):
            if not self._eligible(request):
                self._remove_from_queue(request.id)
        self.grant_all()

    def save(self, id_: str) -> None:
        """Record a routine checkpoint."""
        self.allocations[id_] = replace(self.allocations[id_], checkpointed_ms=self.now_ms)

    def _eligible(self, request: Waiter) -> bool:
        pool, policy = self.accounts["pool"], self.accounts[f"policy:{request.component}"]
        for key, units in request.amounts.items():
            bounds = [
                self.accounts[name].limit.get(key, BOUNDLESS)
                for name in Oracle(self._snapshot_without_columns()).path(request)[:-1]
            ]
            bounds.append(pool.limit.get(key, BOUNDLESS if key in METERED else 0))
            if not request.preemptible and key in pool.limit:
                bounds.append(policy.reserved.get(key, 0))
            if units > min(bounds):
                return False
        return True

    # granting

    def grant_all(self) -> None:
        """Grant every waiter that the rules allow to be granted."""
        while waiter := self._grantable():
            if any(hold.owner.id == waiter.id for hold in self.holds):
                self.granted_owners.append(waiter.id)
            self._remove_from_queue(waiter.id)
            self.fence += 1
            spec = self.requests[waiter.id]
            self.allocations[waiter.id] = Allocation(
                id=waiter.id,
                component=waiter.component,
                amounts=waiter.amounts,
                fence=self.fence,
                preemptible=waiter.preemptible,
                preemption_class=waiter.preemption_class,
                checkpoint=spec.checkpoint,
                checkpoint_minutes=spec.checkpoint_minutes,
                walltime_s=spec.walltime_s,
                granted_ms=self.now_ms,
                chain=waiter.chain,
            )

    def _grantable(self) -> Waiter | None:
        now = self.snapshot()
        oracle, strict = Oracle(now), self.settings.queueing == "strict"
        is_queue_blocked = False
        for request in oracle.queue():
            blocked = oracle.blocked_by(request)
            if oracle.hold(request) and self._is_fixed_share_used_up(oracle, request):
                self._end_hold(request.id)
                return self._grantable()
            if not blocked and (not is_queue_blocked or oracle.hold(request)):
                return request
            is_queue_blocked = is_queue_blocked or (strict and blocked == "capacity")
        return None

    def _is_fixed_share_used_up(self, oracle: Oracle, request: Waiter) -> bool:
        policy = oracle.path(request)[0]
        return not request.preemptible and any(
            oracle.used(policy, key, fixed=True) + units > oracle.reserved(policy, key)
            for key, units in request.amounts.items()
            if key in self.accounts["pool"].limit
        )

    def _remove_from_queue(self, id_: str) -> None:
        del self.waiters[id_]
        self._end_hold(id_)

    def _end_hold(self, id_: str) -> None:
        self.holds = [hold for hold in self.holds if hold.owner.id != id_]
        self._set_leaving_for((request.id for request in tuple(self.allocations.values()) if request.leaving_for == id_), "")

    def _set_leaving_for(self, ids: Iterable[str], leaving_for: str | None) -> None:
        for id_ in ids:
            self.allocations[id_] = replace(self.allocations[id_], leaving_for=leaving_for)

    # leaving

    def take_step(self, step: PlanStep, *, leaves_at_once: bool = False) -> None:
        """Take one step of the planner; a stale step is an error here. `leaves_at_once`: victims have no grace."""
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
            assert isinstance(step, Preempt), "no account is over a limit here"
            self._preempt(step)
            if leaves_at_once:
                for victim in step.victims:
                    self._leave(victim.request)
        self.grant_all()

    def is_stale(self, step: Preempt) -> bool:
        """True if a condition of the choice does not hold any more."""
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
        assert all(request.leaving_for is None for request in victims)
        assert [request.fence for request in victims] == [victim.fence for victim in step.victims]
        self._set_leaving_for((request.id for request in victims), step.waiter)
        if not any(hold.owner.id == step.waiter for hold in self.holds):
            self.holds.append(HoldSnapshot(self.waiters[step.waiter], {}))
        self.preemption_times += [self.now_ms] * len(victims)
        for request in victims:
            self._count_stack_exits(request)

    def leave(self, id_: str) -> None:
        """Let a victim leave."""
        self._leave(id_)
        self.grant_all()

    def _leave(self, id_: str) -> None:
        request = self.allocations[id_]
        assert request.leaving_for is not None
        self._free_units(request)
        self.preemptions.append(ModelPreemption(id_, request.leaving_for, self.now_ms))
        number = int(id_[1:])
        spec = self.requests[id_]
        self.waiters[id_] = Waiter(
            id=id_,
            component=request.component,
            amounts=request.amounts,
            preemptible=request.preemptible,
            preemption_class=request.preemption_class,
            submission_number=number,
            chain=spec.chain,
            preempted_fence=self.fence,
        )
        if not self._eligible(self.waiters[id_]):
            del self.waiters[id_]

    def _free_units(self, request: Allocation) -> None:
        oracle = Oracle(self._snapshot_without_columns())
        del self.allocations[request.id]
        for number, hold in enumerate(self.holds):
            if hold.owner.id == request.leaving_for:
                self.holds[number] = _with_freed_units(oracle, hold, request)
        if request.leaving_for is None:
            self._count_stack_exits(request)

    def _count_stack_exits(self, request: Allocation) -> None:
        oracle = Oracle(self._snapshot_without_columns())
        for account in oracle.path(request)[:-1]:
            exits = self.stack_exits.setdefault(account, Counter())
            exits.update({key: units for key, units in request.amounts.items() if key in oracle.share_keys})


def _with_freed_units(oracle: Oracle, hold: HoldSnapshot, request: Allocation) -> HoldSnapshot:
    freed_units = {account: dict(amounts) for account, amounts in hold.freed_units.items()}
    for account in set(oracle.path(hold.owner)) & set(oracle.path(request)):
        at_account = freed_units.setdefault(account, {})
        for key in set(hold.owner.amounts) & set(request.amounts):
            at_account[key] = at_account.get(key, 0) + request.amounts[key]
    return replace(hold, freed_units=freed_units)
