"""Plans whose shares have changed meanwhile: no step of them is applied."""

from __future__ import annotations

from app.domain.plan_steps import AccountUpdate, Preempt, Publication, UsageCondition
from app.store.keys import key
from app.store.plan_store import StepResult
from tests.support.world import World


def stale(reason: str) -> StepResult:
    """Return the result of a step that is not applied."""
    return StepResult(applied=False, has_progressed=False, is_unfinished=False, reason=reason)


def test_fair_share_preempts_again_only_after_five_seconds(world: World) -> None:
    world.pool(gpu=8, settings={"discipline": "fair_share"})
    world.policy("low")
    world.policy("high")
    first, second = world.submit("low", gpu=4), world.submit("low", gpu=4)
    waiters = [world.submit("high", gpu=4) for _ in range(2)]
    assert world.preempt(waiters[0], first).applied
    world.clock.advance(4.999)
    assert world.preempt(waiters[1], second) == stale("backoff")
    world.clock.advance(0.001)
    assert world.preempt(waiters[1], second).applied


def test_a_preemption_is_stale_if_its_waiter_uses_more_than_was_judged(world: World) -> None:
    world.pool(gpu=8)
    world.policy("low")
    world.policy("high", priority=1)
    victim = world.submit("low", gpu=6)
    world.submit("high", gpu=2)
    waiter = world.submit("high", gpu=4)
    most = UsageCondition("policy:orchestrator/high", "gpu", 0, 1)
    step = Preempt(waiter.id, (world.victim(victim, "starvation"),), usage_conditions=(most,))
    assert world.apply_step(step) == stale("use")


def test_shares_that_were_found_before_a_change_of_the_pool_are_not_written(world: World) -> None:
    world.pool(gpu=4, settings={"discipline": "fair_share"})
    world.policy()
    snapshot = world.snapshot(even_if_idle=True)
    world.policy(weight=2)
    update = AccountUpdate("policy:orchestrator/t", (("fair:gpu", "7"),), ())
    result = world.plan_store.write_fair_shares(world.workspace, snapshot, Publication((update,), is_watched=True))
    assert result == stale("rules")
    assert world.client.hget(key("policy", world.workspace, "p", "orchestrator/t"), "fair:gpu") is None
