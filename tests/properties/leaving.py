"""The same small workspace with a planner: capacity is reclaimed, and victims answer or do not.

Beside the planner's decisions there are random ones, which follow no rule of preemption: the scripts must refuse a step that
does not fit, and every step that they apply must keep the ledger right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from app.domain.errors import Conflict, StaleFence
from app.domain.plan_steps import BorrowedCondition, EndHold, PlanStep, Preempt, ReassignVictim, Reprieve, Trigger, Victim
from app.domain.snapshot import PoolSnapshot
from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.plan_store import PlanStore
from app.store.snapshot_reader import UnfinishedWork
from tests.properties.calls import Died
from tests.properties.fairly import Excess
from tests.properties.lawful import Law, enough, fitting
from tests.properties.machine import Histories, how, indexes, there_is
from tests.properties.oracle import FOR_NONE, NO_OWNER, WHOLE, Model, Request
from tests.properties.snapshot import Snapshot as Taken
from tests.support.strict_reconciler import StrictReconciler

ROUNDS = 1000


class Leavings(Histories):
    """Histories in which holders have to leave."""

    @property
    def planning(self) -> PlanStore:
        """Return the store of plans, with the calls of this machine."""
        planning = PlanStore(self.world.client, self.world.clock, self.world.ledger._limits)
        planning._scripts = self.calls
        return planning

    @property
    def audit(self) -> Audit:
        """Return the audit."""
        return Audit(self.world.ledger, AuditStore(self.world.client, self.world.clock))

    # the planner

    @rule(lives=st.sampled_from((None, None, None, 1, 3, 6, 10)))
    def reconcile(self, lives: int | None) -> None:
        """Run one pass of the planner, checked after each of its calls; at times it dies before its end."""
        reconciling = StrictReconciler(self.planning, self.world.ledger)
        self.calls.lives, self.calls.after = lives, self._after
        try:
            reconciling.run(self.world.workspace)
        except Died:
            pass
        else:
            self._is_quiet()
        finally:
            self.calls.lives = self.calls.after = None
        self.checker.check()

    def _is_quiet(self) -> None:
        """Check that no waiter may preempt; a waiter of several pools may have to ask in another one first."""
        model, snapshot = self.checker.model, self.checker.snapshot
        if not snapshot.unfinished() and len(model.pools) == 1:
            faults = [fault for pool in model.pools for fault in Law(model, snapshot, pool).overlooked()]
            for pool in model.pools:
                excess = Excess(model, snapshot, pool)
                faults += [*excess.overlooked(), *excess.lingering(), *excess.misnoted(), *_unpublished(model, snapshot, pool)]
            assert not faults, "\n".join(faults)

    def _after(self, command: str) -> None:
        self.checker.served.ended = command == "end_hold"
        self.checker.check(planned=command in ("preempt", "evict_over_limit"))

    @rule()
    def reconcile_more(self) -> None:
        self.reconcile(None)

    @rule()
    def compare(self) -> None:
        """Run an audit: it finds nothing, whatever is unfinished, and changes nothing."""
        differences = [str(difference) for difference in self.audit.run(self.world.workspace)]
        assert not differences, "\n".join(differences)
        self.checker.unchanged()

    # made-up steps

    def _take(self, how: str, pool: str, step: PlanStep) -> bool | None:
        """Return True if the step was applied; None if the caller died of it or the pool cannot be planned now."""
        snapshot = self._snapshot(pool)
        if not snapshot:
            return None

        def take() -> bool:
            taken = self.planning.apply_step(self.world.workspace, snapshot, step)
            while taken.is_unfinished and self.world.ledger.resume_unfinished(self.world.workspace):
                pass
            return taken.applied

        self.checker.served.ended = isinstance(step, EndHold)
        taken = self._do(how, take)
        return None if taken is None else bool(taken)

    def _snapshot(self, pool: str) -> PoolSnapshot | None:
        try:
            return self.planning.read_snapshot(self.world.workspace, pool) if pool in self.checker.model.pools else None
        except UnfinishedWork:
            return None

    @precondition(there_is("queued"))
    @rule(pool=indexes, waiter=indexes, first=indexes, wild=st.sampled_from((0, 0, 0, 1, 2, 3)), how=how)
    def stop(self, pool: int, waiter: int, first: int, wild: int, how: str) -> None:
        """Preempt for a waiter: the fewest that it needs, or any."""
        model, name = self.checker.model, self._pool(pool)
        queue = model.queue(name) if name in model.pools else []
        if not queue:
            return
        waiting_request = queue[waiter % len(queue)]
        running = sorted(model.holders(name), key=lambda other: other.fence)
        running = [*running[first % len(running) :], *running[: first % len(running)]] if running else []
        victims = running[: first % 3] if wild else enough(model, name, waiting_request, running)
        step = Preempt(
            waiting_request.id,
            tuple(Victim(other.id, other.fence + (wild == 2), Trigger.PRIORITY) for other in victims),
            unused_share_accounts=(f"policy:{waiting_request.component}",) if wild == 3 else (),
            borrowed_conditions=tuple(BorrowedCondition(f"policy:{other.component}", "gpu", 0) for other in victims)
            if wild == 3
            else (),
        )
        fits = bool(victims) and fitting(model, name, waiting_request, victims)
        if taken := self._take(how, name, step):
            assert fits, f"{[other.id for other in victims]} were stopped in {name} for {waiting_request.id}, and should not be"
        elif taken is False and not wild and victims and not self._bounded(name):
            elsewhere = any(waiting_request.id in holds for place, holds in model.clearings.items() if place != name)
            assert not fits or elsewhere or self.checker.snapshot.unfinished() or not waiting_request.preemptible, (
                f"{step} was not taken"
            )

    def _bounded(self, pool: str) -> bool:
        settings = self.checker.model.pools[pool].settings
        strays = NO_OWNER in self.checker.model.leaving[pool].values()
        usual = "5" if self.checker.model.is_fair(pool) else "0"
        return strays or "max_preemptions_per_minute" in settings or settings.get("backoff_s", usual) != "0"

    @precondition(there_is("preempting"))
    @rule(which=indexes, owner=st.sampled_from((None, 0, 1)), how=how)
    def judge(self, which: int, owner: int | None, how: str) -> None:
        """Reassign or reprieve a victim, which is applied only for a victim without a waiter."""
        model, request = self.checker.model, self._pick(which, "preempting")
        if not request:
            return
        owners = sorted(model.clearings[request.pool])
        owner_id = owners[owner % len(owners)] if owners and owner is not None else None
        step: PlanStep = (
            ReassignVictim(request.id, request.fence, owner_id) if owner_id else Reprieve(request.id, request.fence)
        )
        stray = model.leaving[request.pool][request.id] in ((NO_OWNER,) if owner_id else (NO_OWNER, FOR_NONE))
        taken = self._take(how, request.pool, step)
        assert taken is None or taken == stray, f"{step}: {taken}"

    @rule(which=indexes, how=how)
    def end_hold(self, which: int, how: str) -> None:
        """End a hold, which is applied only to one that nothing can fill any more."""
        model = self.checker.model
        holds_by_pool = sorted((pool, owner) for pool, holds in model.clearings.items() for owner in holds)
        if holds_by_pool:
            pool, owner = holds_by_pool[which % len(holds_by_pool)]
            lacks = list(model.will_lack(pool, model.requests[owner]))
            if self._take(how, pool, EndHold(owner)):
                assert lacks, f"the hold of {owner} in {pool} was ended, and would be filled"

    # leaving

    @rule(how=how)
    def depart(self, how: str) -> None:
        """Enforce the deadlines."""

        def through() -> None:
            for _ in range(ROUNDS):
                done, more = self.planning.enforce_deadlines(self.world.workspace)
                if not more:
                    return
                while not done and self.world.ledger.resume_unfinished(self.world.workspace):
                    pass
            raise AssertionError("departures do not come to an end")

        due = {
            id_
            for id_, deadline_ms in self.checker.snapshot.get("preemption_deadlines").items()
            if deadline_ms <= self.world.clock.now_ms()
        }
        last = {id_ for id_ in due if self._of(id_, "directive") == "terminate"}
        self._do(how, through)
        left = last & self.checker.snapshot.get("preemption_deadlines").keys()
        assert how or not left, f"{left} had to go, and are there"

    def pass_time(self, seconds: float, how: str) -> None:
        """Let time pass, and enforce the deadlines of victims."""
        super().pass_time(seconds, how)
        self.depart("")

    @precondition(there_is("preempting"))
    @rule(
        which=indexes,
        state=st.sampled_from(("started", "progress", "defer", "completed", "failed")),
        seconds=st.sampled_from((1, 3)),
        off=st.sampled_from((0, 0, 0, 1)),
        any_status=st.booleans(),
        how=how,
    )
    def answer(self, which: int, state: str, seconds: int, off: int, any_status: bool, how: str) -> None:
        """Report a checkpoint; at times of a request that was not preempted, or with a wrong fence."""
        statuses = ("preempting", "allocated") if any_status else ("preempting",)
        request = self._pick(which, *statuses)
        if not request:
            return
        reference = "s3://there" if state == "completed" else None
        ledger = self.world.ledger
        answer = self._do(
            how, lambda: ledger.checkpoint(self.world.workspace, request.id, request.fence + off, state, seconds, reference)
        )
        if off:
            assert isinstance(answer, StaleFence)
        elif state == "defer" and request.status == "allocated":
            assert isinstance(answer, Conflict)
        elif answer is not None:
            self._answered(request, state, answer)

    def _answered(self, before: Request, state: str, answer: Any) -> None:
        now = self.checker.model.requests[before.id]
        if before.status == "preempting" and state == "completed":
            assert now.status != "preempting", f"{now} has saved its work, and did not leave"
        elif before.status == "preempting":
            assert now.status == "preempting"
            assert self._of(now.id, "deadline_ms") == str(answer.deadline_ms)

    def _of(self, id_: str, field: str) -> str:
        return str(self.checker.snapshot.get("request", id_).get(field, ""))

    @precondition(there_is("preempting", "allocated"))
    @rule(which=indexes, how=how)
    def vacate(self, which: int, how: str) -> None:
        """Release an allocation as vacated; one that was not preempted is refused."""
        request = self._pick(which, "preempting") or self._pick(which, "allocated")
        if request:
            ledger, is_preempted = self.world.ledger, self._of(request.id, "preempting_fence") == str(request.fence)
            answer = self._do(how, lambda: ledger.release(self.world.workspace, request.id, request.fence, "vacated"))
            assert isinstance(answer, Conflict) == (request.status == "allocated" and not is_preempted) or answer is None

    # outcomes of all steps

    def rest(self, rounds: int = 40) -> None:
        """Run passes without new requests and releases until no victim leaves and none is added."""
        self.finish()
        before, quiet = self.checker.preemptions, 0
        for _ in range(rounds):
            preemptions = self.checker.preemptions
            self.reconcile(None)
            self.world.clock.advance(8)
            self.depart("")
            self.finish()
            leaving = any(self.checker.model.leaving.values())
            quiet = quiet + 1 if preemptions == self.checker.preemptions and not leaving else 0
            if quiet == 2:
                assert not self.audit.run(self.world.workspace)
                return
        raise AssertionError(f"{self.checker.preemptions - before} preemptions, and no rest")


def _unpublished(model: Model, snapshot: Taken, pool: str) -> Iterator[str]:
    """Yield differences from the state after a completed pass: a starving account is below its share, and shares are
    published."""
    place = model.pools[pool]
    queue = {request.component for request in model.queue(pool) if request.amounts.keys() & place.capacity.keys()}
    for name, account in place.accounts.items():
        starves, since = account.settings.get("status", ""), account.settings.get("below_ms")
        if not model.is_fair(pool) and (account.fair or account.sated or starves or since):
            yield f"{pool} {name} has fair shares, and the pool has none: {account}"
        if starves and since is None:
            yield f"{pool} {name} is {starves} since {since}"
        if model.is_fair(pool) and name.removeprefix("policy:") in queue and account.fair.keys() != place.capacity.keys():
            yield f"{pool} {name} waits and has the shares {account.fair}"
    for key in place.capacity:
        if sum(account.fair.get(key, 0) for account in place.accounts.values()) > WHOLE:
            yield f"{pool}: more than all of {key} is shared out"
    times = [account.settings.get(mark) for account in place.accounts.values() for mark in ("below_ms", "over_ms")]
    times.append(place.settings.get("over_ms"))
    if (place.settings.get("watched") == "1") != any(times):
        yield f"{pool} is watched: {place.settings.get('watched')}, since {times}"
