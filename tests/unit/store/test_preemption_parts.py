"""A preemption of many victims in parts: each part is checked like the whole decision, and the hold stays between parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from app.domain.models import Request
from app.domain.plan_steps import BorrowedCondition, Preempt, UsageCondition
from app.domain.snapshot import PoolSnapshot
from app.planner.planning_pass import plan_pool
from app.service.reconcile import Reconciler
from app.store.keys import key
from app.store.plan_store import StepResult
from app.store.preemption_parts import VICTIMS_PER_CALL
from tests.support.audit_findings import findings
from tests.support.small_budget import give_small_budget
from tests.support.world import World

VICTIMS = 2 * VICTIMS_PER_CALL + 10


@dataclass
class LargeWaiter:
    """A waiter that needs the units of many allocations, and its plan."""

    world: World
    waiter: Request
    victims: list[Request]
    snapshot: PoolSnapshot
    step: Preempt

    def take(self, step: Preempt | None = None) -> StepResult:
        """Apply one part of a step, the first of the plan by default."""
        return self.world.plan_store.apply_step(self.world.workspace, self.snapshot, step or self.step)

    def preempting(self) -> list[str]:
        """Return the allocations that are leaving, in the order of the plan."""
        statuses = dict(zip((each.id for each in self.victims), self.world.status(*self.victims), strict=True))
        return [victim.request for victim in self.step.victims if statuses[victim.request] == "preempting"]


def large_waiter(world: World, count: int = VICTIMS, **settings: Any) -> LargeWaiter:
    """Make a pool that small allocations fill, a waiter that asks for all of it, and the plan."""
    world.pool(gpu=count, settings=settings)
    world.policy("low")
    world.policy("high", priority=1, reserved={"gpu": count // 2})
    victims = world.submit_all([world.request_spec("low", gpu=1)] * count)
    waiter = world.submit("high", gpu=count)
    snapshot = world.snapshot()
    (step,) = plan_pool(snapshot).steps
    assert isinstance(step, Preempt)
    assert len(step.victims) == count
    return LargeWaiter(world, waiter, victims, snapshot, step)


def reconcile(world: World) -> None:
    """Run one reconcile pass, without pauses between parts."""
    Reconciler(world.plan_store, world.ledger, pause=lambda _: None).run(world.workspace)


def test_the_parts_of_a_preemption_follow_each_other(world: World) -> None:
    large, parts = large_waiter(world), []
    result = large.take()
    while result.rest:
        assert result == StepResult(True, False, False, "", result.rest)
        parts.append(len(large.preempting()))
        assert large.preempting() == [victim.request for victim in large.step.victims[: parts[-1]]]
        assert findings(world) == []
        result = large.take(result.rest)
    assert result == StepResult(True, False, False, "")
    assert parts == [VICTIMS_PER_CALL, 2 * VICTIMS_PER_CALL]
    assert len(large.preempting()) == VICTIMS
    events = [event for event in world.events() if event.event == "clearing"]
    assert [len(event.victims) for event in events] == [VICTIMS_PER_CALL, VICTIMS_PER_CALL, 10]
    world.enforce_deadlines(30)
    assert world.status(large.waiter) == ["allocated"]


def test_a_part_ends_with_the_work_budget(world: World) -> None:
    large = large_waiter(world)
    give_small_budget(world, 200)
    result = large.take()
    assert result.rest
    assert 0 < len(large.preempting()) < VICTIMS_PER_CALL
    assert [victim.request for victim in result.rest.victims] == [
        victim.request for victim in large.step.victims[len(large.preempting()) :]
    ]
    reconcile(world)
    assert len(large.preempting()) == VICTIMS


def test_a_reconcile_takes_all_parts_and_pauses_as_long_as_each_took(world: World) -> None:
    large, now = large_waiter(world), iter(range(1_000))
    pauses: list[float] = []
    Reconciler(world.plan_store, world.ledger, lambda: float(next(now)), pauses.append).run(world.workspace)
    assert len(large.preempting()) == VICTIMS
    assert pauses == [1.0, 1.0]


# ---- a plan that does not hold is refused before its first part


def test_no_part_begins_if_the_whole_plan_does_not_suffice(world: World) -> None:
    large = large_waiter(world)
    short = Preempt(large.waiter.id, large.step.victims[:-1])
    before = world.state()
    assert large.take(short).reason == "not enough"
    assert world.state() == before


def test_no_part_begins_if_one_of_its_victims_is_superfluous(world: World) -> None:
    large = large_waiter(world)
    smaller = world.submit("high", gpu=VICTIMS - 1)
    large.snapshot = world.snapshot()
    before = world.state()
    assert large.take(Preempt(smaller.id, large.step.victims)).reason == "superfluous"
    assert world.state() == before
    assert large.take(Preempt(smaller.id, large.step.victims[1:])).applied


def test_the_bound_per_minute_counts_the_whole_decision(world: World) -> None:
    large = large_waiter(world, max_preemptions_per_minute=VICTIMS)
    world.update_pool(settings={"max_preemptions_per_minute": VICTIMS - 1})
    large.snapshot = world.snapshot()
    before = world.state()
    assert large.take().reason == "budget"
    assert world.state() == before
    world.update_pool(settings={"max_preemptions_per_minute": VICTIMS})
    large.snapshot = world.snapshot()
    rest = large.take().rest
    while rest:
        rest = large.take(rest).rest
    assert len(large.preempting()) == VICTIMS


def test_the_backoff_of_a_pool_does_not_stop_the_rest_of_a_decision(world: World) -> None:
    large = large_waiter(world, backoff_s=60)
    rest = large.take().rest
    assert rest
    assert large.take(Preempt(large.waiter.id, rest.victims)).reason == "backoff"
    assert large.take(rest).applied


# ---- the conditions of a plan are adjusted for the victims of earlier parts


def test_a_later_part_counts_the_victims_of_earlier_ones_as_out_of_the_stack(world: World) -> None:
    large = large_waiter(world)
    condition = BorrowedCondition("policy:orchestrator/low", "gpu", 0)
    result = large.take(Preempt(large.waiter.id, large.step.victims, borrowed_conditions=(condition,)))
    assert result.rest
    assert result.rest.borrowed_conditions == (BorrowedCondition("policy:orchestrator/low", "gpu", VICTIMS_PER_CALL),)
    assert large.take(result.rest).applied


def test_a_part_keeps_the_conditions_on_the_account_of_the_waiter(world: World) -> None:
    large = large_waiter(world)
    condition = UsageCondition("policy:orchestrator/high", "gpu", 1, VICTIMS)
    assert large.take(Preempt(large.waiter.id, large.step.victims, usage_conditions=(condition,))).reason == "use"


def test_a_later_part_is_stale_if_another_allocation_left_the_stack(world: World) -> None:
    large = large_waiter(world)
    world.policy("low", reserved={"gpu": 1})
    large.snapshot = world.snapshot()
    condition = BorrowedCondition("policy:orchestrator/low", "gpu", 0)
    rest = large.take(Preempt(large.waiter.id, large.step.victims, borrowed_conditions=(condition,))).rest
    assert rest
    world.release(world.get(rest.victims[-1].request))
    assert large.take(rest).reason == "share"


@pytest.mark.parametrize("grace_s", [0, 30])
def test_a_later_part_counts_units_that_earlier_victims_freed_at_once(world: World, grace_s: int) -> None:
    large = large_waiter(world, grace_s=grace_s)
    condition = UsageCondition("policy:orchestrator/low", "gpu", VICTIMS, VICTIMS)
    rest = large.take(Preempt(large.waiter.id, large.step.victims, usage_conditions=(condition,))).rest
    assert rest
    least = VICTIMS if grace_s else len(rest.victims)
    assert [each.min_units for each in rest.usage_conditions] == [least]
    assert world.get_pool().used["gpu"] == least
    assert large.take(rest).applied


# ---- a process that dies between two parts


def release_the_rest(large: LargeWaiter, rest: Preempt) -> None:
    """Release the victims that are left in the plan."""
    for victim in rest.victims:
        large.world.release(large.world.get(victim.request))


def test_the_next_reconcile_completes_what_a_process_has_begun(world: World) -> None:
    large = large_waiter(world)
    large.take()
    reconcile(world)
    assert len(large.preempting()) == VICTIMS
    assert world.client.hlen(key("pool_holds", world.workspace, "p")) == 1


def test_units_that_become_free_meanwhile_are_kept_for_the_owner(world: World) -> None:
    large = large_waiter(world)
    rest = large.take().rest
    assert rest
    release_the_rest(large, rest)
    other = world.submit("low", gpu=1)
    assert world.status(other) == ["queued"]
    assert large.take(rest).reason == "victim"
    reconcile(world)
    assert len(large.preempting()) == VICTIMS_PER_CALL
    world.enforce_deadlines(30)
    assert world.status(large.waiter) == ["allocated"]


def protect_the_rest(large: LargeWaiter) -> None:
    """Protect the victims that are left in the plan from preemption."""
    large.world.update_pool(settings={"min_runtime_s": 100_000})


def cancel_the_owner(large: LargeWaiter) -> None:
    """Cancel the owner."""
    large.world.cancel(large.waiter)


@pytest.mark.parametrize("change", [protect_the_rest, cancel_the_owner])
def test_a_hold_ends_if_the_rest_cannot_be_had(world: World, change: Callable[[LargeWaiter], None]) -> None:
    large = large_waiter(world)
    rest = large.take().rest
    assert rest
    change(large)
    assert not large.take(rest).applied
    reconcile(world)
    assert set(world.status(*large.victims)) == {"allocated"}
    assert world.client.exists(key("pool_holds", world.workspace, "p")) == 0


def test_a_later_part_opens_no_hold(world: World) -> None:
    large = large_waiter(world)
    rest = large.take().rest
    assert rest
    assert world.end_hold(large.waiter).applied
    for victim in large.preempting():
        assert world.reprieve(world.get(victim)).applied
    before = world.state()
    assert large.take(rest).reason == "hold"
    assert world.state() == before


def test_a_second_worker_that_completes_the_plan_makes_the_rest_stale(world: World) -> None:
    large = large_waiter(world)
    rest = large.take().rest
    assert rest
    reconcile(world)
    before = world.state()
    assert large.take(rest).reason == "victim"
    assert world.state() == before
