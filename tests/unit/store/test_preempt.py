"""Preemption for a waiter: a step is applied whole or not at all, and both sides get the event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest

from app.domain.models import Event, Request
from app.domain.plan_steps import BorrowedCondition, Preempt, Trigger, Victim
from app.domain.snapshot import PoolSnapshot
from app.domain.states import RequestState
from app.store.connection import RedisClient
from app.store.plan_store import StepResult
from app.store.snapshot_reader import UnfinishedWork
from tests.support.world import World

APPLIED = StepResult(applied=True, has_progressed=False, is_unfinished=False, reason="")


def pool_with_allocations(world: World, *sizes: int, settings: dict[str, Any] | None = None) -> list[Request]:
    """Create a pool of eight: holders of `low` of these sizes, and `high`, which ranks above and has four reserved."""
    world.pool(gpu=8, settings=settings)
    world.policy("low")
    world.policy("high", priority=1, reserved={"gpu": 4})
    return [world.submit("low", gpu=size) for size in sizes]


# ---- stale, and nothing changed

Make = Callable[[World], StepResult]
STALE: dict[str, tuple[str, Make]] = {}


def stale_because(why: str) -> Callable[[Make], Make]:
    """Register a function that makes a step stale for this reason."""

    def note(make: Make) -> Make:
        STALE[make.__name__.strip("_").replace("_", " ")] = (why, make)
        return make

    return note


def plain(world: World) -> tuple[Request, Request, PoolSnapshot]:
    """Create a holder of all units and a waiter; return both with the snapshot."""
    (victim,) = pool_with_allocations(world, 8)
    return victim, world.submit("high", gpu=4), world.snapshot()


@stale_because("pool")
def _no_such_pool(world: World) -> StepResult:
    victim, waiter, snapshot = plain(world)
    return world.preempt(waiter, victim, snapshot=replace(snapshot, pool="gone"))


@stale_because("unfinished")
def _work_is_left(world: World) -> StepResult:
    victim, waiter, snapshot = plain(world)
    world.submit("low", gpu=1)
    world.call("update_pool", chunk=1, name="p", description="", capacity="", settings='{"patience_s":"1"}')
    with pytest.raises(UnfinishedWork):
        world.snapshot()
    return world.preempt(waiter, victim, snapshot=snapshot)


def _ruled(change: Callable[[World], object]) -> Make:
    def make(world: World) -> StepResult:
        victim, waiter, snapshot = plain(world)
        change(world)
        return world.preempt(waiter, victim, snapshot=snapshot)

    return make


def _make_and_delete_a_group(world: World) -> None:
    world.group("g")
    world.ledger.delete_group(world.workspace, "p", "g")


STALE |= {
    "a policy changed": ("rules", _ruled(lambda world: world.policy("low", priority=3))),
    "a group changed": ("rules", _ruled(lambda world: world.group("new"))),
    "a group went": ("rules", _ruled(_make_and_delete_a_group)),
    "the pool changed": ("rules", _ruled(lambda world: world.update_pool(settings={"backoff_s": 0}))),
    "the waiter left": ("waiter", _ruled(lambda world: world.cancel(world.get(world.queue()[0])))),
}


@stale_because("waiter")
def _the_waiter_is_granted(world: World) -> StepResult:
    victim, waiter, snapshot = plain(world)
    other = world.submit("high", gpu=1)
    world.release(victim)
    assert world.status(waiter, other) == ["allocated", "allocated"]
    return world.preempt(waiter, other, snapshot=snapshot)


@stale_because("waiter")
def _the_waiter_is_gone(world: World) -> StepResult:
    victim, _, snapshot = plain(world)
    return world.apply_step(Preempt("0" * 20, (world.victim(victim),)), snapshot)


@stale_because("waiter")
def _the_waiter_has_no_policy_here(world: World) -> StepResult:
    victim, _, snapshot = plain(world)
    return world.preempt(elsewhere(world), victim, snapshot=snapshot)


def elsewhere(world: World) -> Request:
    """Create a waiter in another pool."""
    world.pool("q", gpu=2)
    world.policy("other", "q")
    world.submit("other", gpu=2)
    return world.submit("other", gpu=2)


@stale_because("waiter")
def _the_waiter_is_not_eligible_here(world: World) -> StepResult:
    victim, _, _ = plain(world)
    world.policy("other", limit={"gpu": 1})
    return world.preempt(elsewhere(world), victim)


@stale_because("hold elsewhere")
def _its_way_is_cleared_elsewhere(world: World) -> StepResult:
    victim, waiter, _ = plain(world)
    world.pool("q", gpu=4)
    world.policy("low", "q")
    other = world.submit("low", gpu=4)
    world.policy("high", "q")
    assert world.preempt(waiter, other, pool="q").applied
    return world.preempt(waiter, victim)


def _lost(change: Callable[[World, Request], object]) -> Make:
    def make(world: World) -> StepResult:
        small, large = pool_with_allocations(world, 4, 4)
        waiter = world.submit("high", gpu=8)
        snapshot, victims = world.snapshot(), (world.victim(small), world.victim(large))
        change(world, small)
        return world.preempt(waiter, *victims, snapshot=snapshot)

    return make


def _runs_anew(world: World, victim: Request) -> None:
    first = world.submit("low", gpu=4, preemption_class=9)
    world.preempt(first, victim)
    world.release(victim, outcome="vacated")
    world.release(first)
    assert (world.status(victim), world.get(victim).fence) == (["allocated"], 4)


STALE |= {
    "a victim ended": ("victim", _lost(lambda world, victim: world.release(victim))),
    "a victim is leaving": ("victim", _lost(lambda world, victim: world.preempt(world.submit("high", gpu=4), victim))),
    "a victim runs anew": ("victim", _lost(_runs_anew)),
}


@stale_because("victim")
def _a_victim_is_gone(world: World) -> StepResult:
    _, waiter, _ = plain(world)
    return world.preempt(waiter, Victim("0" * 20, 1, Trigger.PRIORITY))


@stale_because("victim")
def _a_victim_is_named_twice(world: World) -> StepResult:
    victim, _ = pool_with_allocations(world, 4, 4)
    return world.preempt(world.submit("high", gpu=8), victim, victim)


@stale_because("nothing")
def _there_are_no_victims(world: World) -> StepResult:
    victim, waiter, _ = plain(world)
    assert world.preempt(waiter, victim).applied
    return world.preempt(waiter)


@stale_because("victim")
def _a_victim_is_fixed(world: World) -> StepResult:
    pool_with_allocations(world, 4)
    fixed = world.submit("high", gpu=4, preemptible=False)
    return world.preempt(world.submit("high", gpu=4), fixed)


@stale_because("victim")
def _a_victim_is_of_another_pool(world: World) -> StepResult:
    world.pool("q", gpu=4)
    world.policy("low", "q")
    there = world.submit("low", gpu=4)
    _, waiter, _ = plain(world)
    return world.preempt(waiter, there)


@stale_because("share")
def _what_was_borrowed_lies_in_a_share_now(world: World) -> StepResult:
    first, second = pool_with_allocations(world, 4, 4)
    waiter = world.submit("high", gpu=4)
    back = world.snapshot().accounts["policy:orchestrator/low"].stack_exits.get("gpu", 0)
    borrowed = [BorrowedCondition("policy:orchestrator/low", "gpu", back)]
    world.preempt(world.submit("high", gpu=2, preemption_class=9), first)
    return world.preempt(waiter, second, borrowed=borrowed)


@stale_because("share")
def _a_policy_it_was_borrowed_above_is_gone(world: World) -> StepResult:
    victim, waiter, _ = plain(world)
    return world.preempt(waiter, victim, borrowed=[BorrowedCondition("policy:orchestrator/gone", "gpu", 9)])


@stale_because("share")
def _the_waiter_does_not_fit_into_the_unused_share(world: World) -> StepResult:
    (victim,) = pool_with_allocations(world, 6)
    world.submit("high", gpu=2)
    return world.preempt(world.submit("high", gpu=4), victim, reason="reclaim", unused=["policy:orchestrator/high"])


@stale_because("share")
def _the_unused_share_is_claimed(world: World) -> StepResult:
    first, other = pool_with_allocations(world, 4, 4)
    unused = ["policy:orchestrator/high"]
    assert world.preempt(world.submit("high", gpu=3), first, reason="reclaim", unused=unused).applied
    return world.preempt(world.submit("high", gpu=2), other, reason="reclaim", unused=unused)


@stale_because("share")
def _the_fixed_share_is_used_up(world: World) -> StepResult:
    (victim,) = pool_with_allocations(world, 6)
    world.submit("high", gpu=1, preemptible=False)
    world.submit("high", gpu=1, preemptible=False)
    waiter = world.submit("high", gpu=3, preemptible=False)
    return world.preempt(waiter, victim)


@stale_because("share")
def _the_fixed_share_is_claimed(world: World) -> StepResult:
    first, other = pool_with_allocations(world, 4, 4)
    assert world.preempt(world.submit("high", gpu=3, preemptible=False), first, reason="reclaim").applied
    return world.preempt(world.submit("high", gpu=2, preemptible=False), other, reason="reclaim")


@stale_because("unjudged")
def _orphaned_victim(world: World) -> StepResult:
    earlier, later = pool_with_allocations(world, 4, 4)
    first = world.submit("high", gpu=4)
    world.preempt(first, earlier)
    world.cancel(first)
    return world.preempt(world.submit("high", gpu=4), later)


@stale_because("not enough")
def _it_would_not_fit(world: World) -> StepResult:
    victim, _ = pool_with_allocations(world, 4, 4)
    return world.preempt(world.submit("high", gpu=6), victim)


@stale_because("not enough")
def _an_earlier_hold_takes_what_they_bring(world: World) -> StepResult:
    first, other, third = pool_with_allocations(world, 4, 2, 2)
    assert world.preempt(world.submit("high", gpu=6), first, other).applied
    return world.preempt(world.submit("high", gpu=4), third)


@stale_because("not enough")
def _it_would_not_fit_below_the_limit_of_its_group(world: World) -> StepResult:
    (outside,) = pool_with_allocations(world, 4)
    world.group("g", limit={"gpu": 4})
    world.policy("in", group="g")
    world.submit("in", gpu=4)
    return world.preempt(world.submit("in", gpu=4, preemption_class=9), outside)


@stale_because("not enough")
def _it_would_not_lie_within_its_share(world: World) -> StepResult:
    pool_with_allocations(world, 2)
    allocation, _ = world.submit("high", gpu=3), world.submit("high", gpu=3)
    waiter = world.submit("high", gpu=3, preemption_class=9)
    return world.preempt(waiter, allocation, within=["policy:orchestrator/high"])


@stale_because("superfluous")
def _one_would_do(world: World) -> StepResult:
    first, other = pool_with_allocations(world, 4, 4)
    return world.preempt(world.submit("high", gpu=4), first, other)


@stale_because("superfluous")
def _enough_are_leaving_for_it(world: World) -> StepResult:
    first, other = pool_with_allocations(world, 4, 4)
    waiter = world.submit("high", gpu=4)
    assert world.preempt(waiter, first).applied
    return world.preempt(waiter, other)


@stale_because("budget")
def _too_many_in_a_minute(world: World) -> StepResult:
    first, other = pool_with_allocations(world, 4, 4, settings={"max_preemptions_per_minute": 1})
    return world.preempt(world.submit("high", gpu=8), first, other)


@stale_because("backoff")
def _too_soon(world: World) -> StepResult:
    first, other = pool_with_allocations(world, 4, 4, settings={"backoff_s": 5})
    assert world.preempt(world.submit("high", gpu=4), first).applied
    world.clock.advance(4.999)
    return world.preempt(world.submit("high", gpu=4), other)


@pytest.mark.backends("fake", "embedded")  # the rule is in Lua alone, and each case reads its workspace several times
@pytest.mark.parametrize("case", sorted(STALE))
def test_a_step_that_is_stale_says_why_and_changes_nothing(world: World, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    why, make = STALE[case]
    before: dict[str, Any] = {}
    take = world.plan_store.apply_step

    def noting(*args: Any) -> StepResult:
        before.clear()
        before.update(world.state())
        return take(*args)

    monkeypatch.setattr(world.plan_store, "apply_step", noting)
    assert make(world) == StepResult(applied=False, has_progressed=False, is_unfinished=False, reason=why)
    assert world.state() == before


# ---- budgets


def test_so_many_in_a_minute(world: World) -> None:
    victim, second_victim, third_victim = pool_with_allocations(world, 2, 2, 2, settings={"max_preemptions_per_minute": 2})
    world.submit("low", gpu=2)
    first, second, last = (world.submit("high", gpu=2) for _ in range(3))
    assert world.preempt(first, victim) == APPLIED
    world.clock.advance(20)
    assert world.preempt(second, second_victim) == APPLIED
    assert world.snapshot().preemptions_last_minute == 2
    world.clock.advance(39.999)
    assert (world.preempt(last, third_victim).reason, world.snapshot().preemptions_last_minute) == ("budget", 2)
    world.clock.advance(0.001)
    assert (world.snapshot().preemptions_last_minute, world.preempt(last, third_victim)) == (1, APPLIED)
    assert world.snapshot().last_decision_ms == world.clock.now_ms()


def test_a_budget_of_zero_forbids_all_preemptions_and_null_none(world: World) -> None:
    victim, waiter, _ = plain(world)
    world.update_pool(settings={"max_preemptions_per_minute": 0})
    assert world.preempt(waiter, victim).reason == "budget"
    world.update_pool(settings={"max_preemptions_per_minute": None})
    assert world.preempt(waiter, victim) == APPLIED


def test_a_pause_between_decisions(world: World) -> None:
    victim, second_victim = pool_with_allocations(world, 4, 4, settings={"backoff_s": 5})
    first, second = world.submit("high", gpu=4), world.submit("high", gpu=4)
    world.preempt(first, victim)
    world.clock.advance(5)
    assert world.preempt(second, second_victim) == APPLIED


def test_a_pool_that_is_deleted_takes_its_decisions_along(world: World) -> None:
    (victim,) = pool_with_allocations(world, 8, settings={"grace_s": 0})
    waiter = world.submit("high", gpu=4)
    world.preempt(waiter, victim)
    world.cancel(victim)
    world.release(waiter)
    world.ledger.delete_pool(world.workspace, "p")
    assert [name for name in world.state() if ":pool:" in name] == []


# ---- taken


def test_where_no_grace_is_given_the_waiter_has_it_at_once(world: World) -> None:
    first, other = pool_with_allocations(world, 4, 4, settings={"grace_s": 0})
    waiter = world.submit("high", gpu=8)
    assert world.preempt(waiter, first, other) == APPLIED._replace(has_progressed=True)
    assert (world.status(waiter, first, other), world.get_pool().holds) == (["allocated", "queued", "queued"], ())


def test_units_that_are_free_count_first(world: World) -> None:
    (victim,) = pool_with_allocations(world, 6)
    waiter = world.submit("high", gpu=4)
    assert world.preempt(waiter, victim) == APPLIED


def test_own_work_makes_room_within_the_share(world: World) -> None:
    pool_with_allocations(world, 4)
    own = world.submit("high", gpu=3)
    waiter = world.submit("high", gpu=3, preemption_class=9)
    assert world.preempt(waiter, own, within=["policy:orchestrator/high"]) == APPLIED
    world.release(own, outcome="vacated")
    assert world.status(waiter) == ["allocated"]


def test_a_fixed_waiter_is_judged_by_what_of_its_share_is_fixed(world: World) -> None:
    pool_with_allocations(world, 4)
    own = world.submit("high", gpu=4)
    waiter = world.submit("high", gpu=4, preemptible=False)
    assert world.preempt(waiter, own, reason="reclaim") == APPLIED
    world.release(own, outcome="vacated")
    assert (world.status(waiter), world.get_pool().used_fixed) == (["allocated"], {"gpu": 4, "step_run": 1})


def test_an_owner_of_a_hold_may_preempt_more_and_its_own_hold_does_not_bind_it(world: World) -> None:
    first, other = pool_with_allocations(world, 4, 4)
    waiter = world.submit("high", gpu=4)
    unused = ["policy:orchestrator/high"]
    world.preempt(waiter, first, reason="reclaim", unused=unused)
    world.update_pool(gpu=4)
    assert world.preempt(waiter, other, reason="reclaim", unused=unused) == APPLIED
    assert [hold.request for hold in world.get_pool().holds] == [waiter.id]


def test_of_two_planners_at_once_the_second_changes_nothing(world: World) -> None:
    victim, second_victim = pool_with_allocations(world, 4, 4)
    first, second = world.submit("high", gpu=4), world.submit("high", gpu=4)
    snapshot = world.snapshot()
    steps = [Preempt(first.id, (world.victim(victim),)), Preempt(second.id, (world.victim(second_victim),))]
    assert [world.apply_step(step, snapshot) for step in steps] == [APPLIED, APPLIED], (
        "steps of one plan do not stand in each other's way"
    )
    before = world.state()
    assert [world.apply_step(step, snapshot).reason for step in steps] == ["victim", "victim"]
    rival = Preempt(second.id, (world.victim(victim),))
    assert (world.apply_step(rival, snapshot).reason, world.state()) == ("victim", before)


def test_what_a_call_cannot_finish_is_left_for_the_next(client: RedisClient) -> None:
    world = World(client, chunk=1)
    (victim,) = pool_with_allocations(world, 8, settings={"grace_s": 0})
    allocations = [world.submit("low", gpu=1, memory_mb=size) for size in (1, 2, 3)]
    waiter = world.submit("high", gpu=4)
    taken = world.preempt(waiter, victim)
    assert (taken.applied, taken.has_progressed, taken.is_unfinished) == (True, True, True)
    with pytest.raises(UnfinishedWork):
        world.snapshot()
    while world.ledger.resume_unfinished(world.workspace):
        pass
    assert world.status(waiter, *allocations) == ["allocated"] + ["allocated"] * 3


# ---- the notice to the victim


def later_events(world: World, request: Request) -> list[Event]:
    """Return the events of a request after its grant or its first wait."""
    return [event for event in world.events() if event.request == request.id and event.event not in ("submitted", "allocated")]


def test_both_sides_of_a_preemption_get_its_reason_and_both_ranks(world: World) -> None:
    first, other = pool_with_allocations(world, 4, 4)
    waiter = world.submit("high", gpu=8, preemption_class=7)
    world.clock.advance(3)
    world.preempt(waiter, first, other, reason="sensitive")
    for victim in (first, other):
        (event,) = later_events(world, victim)
        assert (event.event, event.from_status, event.to_status, event.pool, event.fence, event.at_ms) == (
            "preempting", RequestState.ALLOCATED, RequestState.PREEMPTING, "p", victim.fence, world.clock.now_ms(),
        )  # fmt: skip
        assert (event.reason, event.by, event.rank, event.by_rank, event.victims) == ("sensitive", waiter.id, "0,5", "1,7", ())
    (event,) = later_events(world, waiter)
    assert (event.event, event.reason) == ("clearing", "sensitive")
    assert (event.from_status, event.to_status) == (RequestState.QUEUED, RequestState.QUEUED)
    assert (event.rank, event.by, event.by_rank, event.victims) == ("1,7", None, None, ((first.id, "0,5"), (other.id, "0,5")))
    assert world.get(waiter).reason is None, "it is told of, and goes on waiting"


def test_each_line_of_a_story_is_an_event_of_the_stream(world: World) -> None:
    first, other = pool_with_allocations(world, 4, 4)
    waiter, second = world.submit("high", gpu=4), world.submit("high", gpu=4)
    world.preempt(waiter, first)
    world.preempt(second, other)
    world.cancel(waiter)
    world.pass_on(first, second)
    world.release(other, outcome="vacated")
    world.reprieve(first)
    facts_of = attrgetter("id", "event", "at_ms", "pool", "reason", "by", "rank", "by_rank", "victims")
    for request in (first, other, waiter, second):
        events = (event for event in world.events() if event.request == request.id)
        assert [*map(facts_of, events)] == [*map(facts_of, world.get(request).timeline)]
    names = [[event.event for event in later_events(world, request)] for request in (first, other)]
    assert names == [["preempting", "passed_on", "reprieved"], ["preempting", "preempted"]]


def test_it_is_counted_by_pool_profile_and_reason(world: World) -> None:
    first, other = pool_with_allocations(world, 4, 2)
    world.policy("team", profile="training")
    third = world.submit("team", gpu=2)
    world.preempt(world.submit("high", gpu=4), first, reason="reclaim")
    world.preempt(world.submit("high", gpu=4), other, third)
    assert world.counters("preemptions") == {
        "preemptions|p|batch|reclaim": 1, "preemptions|p|batch|priority": 1, "preemptions|p|training|priority": 1,
    }  # fmt: skip
