"""A whole pass by the oracle: the pool after each step, and the step that comes next."""

from __future__ import annotations

from dataclasses import replace

from app.domain.plan_steps import EndHold, PlanStep, Preempt, ReassignVictim, Reprieve
from app.domain.snapshot import HoldSnapshot, PoolSnapshot
from tests.properties.planner.oracle import Oracle, with_leaving_for


def after_step(snapshot: PoolSnapshot, step: PlanStep) -> PoolSnapshot:
    """Return the same pool when a step has been taken, before any victim has left. Of the columns only `stack_exits` moves."""
    if isinstance(step, ReassignVictim):
        return with_leaving_for(snapshot, {step.request}, step.owner)
    if isinstance(step, Reprieve):
        return with_leaving_for(snapshot, {step.request}, None)
    if isinstance(step, EndHold):
        victims = {allocation.id for allocation in snapshot.allocations if allocation.leaving_for == step.owner}
        owner = next(hold.owner for hold in snapshot.holds if hold.owner.id == step.owner)
        holds = tuple(hold for hold in snapshot.holds if hold.owner is not owner)
        return replace(with_leaving_for(snapshot, victims, ""), waiters=(*snapshot.waiters, owner), holds=holds)
    assert isinstance(step, Preempt), "no account is over a limit here"
    waiter = next(allocation for allocation in Oracle(snapshot).queue() if allocation.id == step.waiter)
    now = with_leaving_for(_with_stack_exits(snapshot, step), {victim.request for victim in step.victims}, waiter.id)
    if not Oracle(snapshot).hold(waiter):
        waiters = tuple(allocation for allocation in snapshot.waiters if allocation.id != waiter.id)
        now = replace(now, waiters=waiters, holds=(*snapshot.holds, HoldSnapshot(waiter, {})))
    preemptions = snapshot.preemptions_last_minute + len(step.victims)
    return replace(now, preemptions_last_minute=preemptions, last_decision_ms=snapshot.now_ms)


def _with_stack_exits(snapshot: PoolSnapshot, step: Preempt) -> PoolSnapshot:
    """Return the pool with the units of share keys of new victims counted as left from their stacks."""
    oracle, accounts = Oracle(snapshot), dict(snapshot.accounts)
    ids = {victim.request for victim in step.victims}
    for allocation in (allocation for allocation in snapshot.allocations if allocation.id in ids):
        for name in oracle.path(allocation)[:-1]:
            back = dict(accounts[name].stack_exits)
            for key in oracle.share_keys & set(allocation.amounts):
                back[key] = back.get(key, 0) + allocation.amounts[key]
            accounts[name] = replace(accounts[name], stack_exits=back)
    return replace(snapshot, accounts=accounts)


def plan_steps(snapshot: PoolSnapshot) -> list[PlanStep]:
    """Return a whole pass by these rules: orphaned victims, unfillable holds, then decisions in queue order."""
    steps: list[PlanStep] = []
    while step := _next(snapshot):
        steps.append(step)
        snapshot = after_step(snapshot, step)
    return steps


def _next(snapshot: PoolSnapshot) -> PlanStep | None:
    oracle = Oracle(snapshot)
    if step := oracle.next_orphan():
        return step
    if unfillable := oracle.unfillable_holds():
        return EndHold(unfillable[0].id)
    return oracle.next_preemption()
