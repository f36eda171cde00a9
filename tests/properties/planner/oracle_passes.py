"""A whole pass by the oracle: what the pool is like after each step, and which step comes next."""

from __future__ import annotations

from dataclasses import replace

from app.domain.plan_steps import EndHold, PlanStep, Preempt, ReassignVictim, Reprieve
from app.domain.snapshot import HoldSnapshot, PoolSnapshot
from tests.properties.planner.oracle import Oracle, with_leaving_for


def after_step(snapshot: PoolSnapshot, step: PlanStep) -> PoolSnapshot:
    """The same pool when a step has been taken, and nobody has left yet. Of the columns only `back` moves."""
    if isinstance(step, ReassignVictim):
        return with_leaving_for(snapshot, {step.request}, step.owner)
    if isinstance(step, Reprieve):
        return with_leaving_for(snapshot, {step.request}, None)
    if isinstance(step, EndHold):
        theirs = {one.id for one in snapshot.allocations if one.leaving_for == step.owner}
        owner = next(hold.owner for hold in snapshot.holds if hold.owner.id == step.owner)
        holds = tuple(hold for hold in snapshot.holds if hold.owner is not owner)
        return replace(with_leaving_for(snapshot, theirs, ""), waiters=(*snapshot.waiters, owner), holds=holds)
    assert isinstance(step, Preempt), "nobody is over a limit here"
    waiter = next(one for one in Oracle(snapshot).queue() if one.id == step.waiter)
    now = with_leaving_for(_with_stack_exits(snapshot, step), {victim.request for victim in step.victims}, waiter.id)
    if not Oracle(snapshot).hold(waiter):
        others = tuple(one for one in snapshot.waiters if one.id != waiter.id)
        now = replace(now, waiters=others, holds=(*snapshot.holds, HoldSnapshot(waiter, {})))
    stopped = snapshot.preemptions_last_minute + len(step.victims)
    return replace(now, preemptions_last_minute=stopped, last_decision_ms=snapshot.now_ms)


def _with_stack_exits(snapshot: PoolSnapshot, step: Preempt) -> PoolSnapshot:
    """Units of share keys count as gone from a stack when somebody starts to leave."""
    oracle, accounts = Oracle(snapshot), dict(snapshot.accounts)
    ids = {victim.request for victim in step.victims}
    for one in (one for one in snapshot.allocations if one.id in ids):
        for name in oracle.path(one)[:-1]:
            back = dict(accounts[name].stack_exits)
            for key in oracle.share_keys & set(one.amounts):
                back[key] = back.get(key, 0) + one.amounts[key]
            accounts[name] = replace(accounts[name], stack_exits=back)
    return replace(snapshot, accounts=accounts)


def plan_steps(snapshot: PoolSnapshot) -> list[PlanStep]:
    """A whole pass by these rules: strays, holds that nothing can fill, then decisions in queue order."""
    found: list[PlanStep] = []
    while step := _next(snapshot):
        found.append(step)
        snapshot = after_step(snapshot, step)
    return found


def _next(snapshot: PoolSnapshot) -> PlanStep | None:
    oracle = Oracle(snapshot)
    if stray := oracle.next_orphan():
        return stray
    if dead := oracle.unfillable_holds():
        return EndHold(dead[0].id)
    return oracle.next_preemption()
