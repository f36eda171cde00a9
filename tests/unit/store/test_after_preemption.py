"""After a preemption: the request goes back to the queue, or ends; its age, its retries and its timeline."""

from __future__ import annotations

import pytest

from app.domain.models import HeartbeatResult
from app.domain.reasons import Reason, ReasonCode
from app.domain.specs import WorkspaceSettings
from app.domain.states import RequestState
from tests.support.preemption_cases import SAVES, assert_void, later_transitions, preempting_victim, victim_and_waiter
from tests.support.world import World


@pytest.mark.parametrize(("retries", "ways"), [
    (0, ["preempted"]), (1, ["queued", "preempted"]), (-1, ["queued", "queued", "queued", "queued"]),
])  # fmt: skip
def test_it_goes_back_to_the_queue_as_often_as_it_may(world: World, retries: int, ways: list[str]) -> None:
    victim, waiter = victim_and_waiter(world, {"grace_s": 0}, retries=retries)
    for times, way in enumerate(ways, 1):
        assert world.preempt(waiter, victim).applied
        request = world.get(victim)
        assert (request.status, request.preemptions, request.retries) == (way, times, retries)
        assert request.reason == Reason(ReasonCode.PRIORITY, by=waiter.id)
        if way == "preempted":
            assert (request.ended_ms, request.fence, request.preempted_by) == (world.clock.now_ms(), times * 2 - 1, waiter.id)
            assert_void(world, victim, times * 2 - 1)
        world.release(waiter)
        assert world.status(victim) == ["allocated" if way == "queued" else "preempted"]
        waiter = world.submit("high", gpu=4)


def test_a_new_grant_has_no_trace_of_the_preemptor(world: World) -> None:
    victim, waiter = preempting_victim(world, {"grace_s": 0})
    world.release(waiter)
    request = world.get(victim)
    assert (request.status, request.fence, request.reason, request.preempted_by, request.preemptions) == (
        "allocated",
        3,
        None,
        None,
        1,
    )


def test_it_keeps_its_age_and_its_place(world: World) -> None:
    victim, waiter = victim_and_waiter(world)
    world.clock.advance(100)
    later, first = world.submit("low", gpu=4), world.submit("low", gpu=4, preemption_class=9)
    world.preempt(waiter, victim)
    world.release(victim, outcome="vacated")
    request = world.get(victim)
    assert (request.submitted_ms, request.number) == (victim.submitted_ms, victim.number)
    assert (world.queue(), request.position) == ([first.id, victim.id, later.id], {"p": 2})


def test_how_long_it_may_go_unasked_for_counts_anew(world: World) -> None:
    victim, _ = preempting_victim(world, queue_ttl_s=100)
    world.clock.advance(1000)
    world.release(victim, outcome="vacated")
    world.pass_time(99.999)
    assert world.status(victim) == ["queued"]
    world.pass_time(0.001)
    assert world.get(victim).reason == Reason(ReasonCode.NOT_POLLED)


def test_it_stands_in_every_pool_that_takes_it_and_goes_on_where_there_is_room(world: World) -> None:
    world.pool("q", gpu=4)
    world.policy("low", "q")
    blocker = world.submit("low", gpu=4)
    assert blocker.pool == "q"
    victim, _ = preempting_victim(world)
    world.release(victim, outcome="vacated")
    assert world.get(victim).position == {"p": 1, "q": 1}
    world.release(blocker)
    request = world.get(victim)
    assert (request.status, request.pool, request.position, world.queue()) == ("allocated", "q", {}, [])


def test_where_no_pool_takes_it_any_more_it_is_rejected(world: World) -> None:
    victim, waiter = preempting_victim(world)
    world.policy("low", limit={"gpu": 3})
    assert world.status(victim) == ["preempting"]
    world.release(victim, outcome="vacated")
    request = world.get(victim)
    assert (request.status, request.reason and request.reason.code, request.preempted_by) == (
        "rejected",
        ReasonCode.EXCEEDS_LIMIT,
        None,
    )
    assert later_transitions(world, victim)[1:] == [
        ("preempted", RequestState.PREEMPTING, RequestState.QUEUED),
        ("rejected", RequestState.QUEUED, RequestState.REJECTED),
    ]
    assert world.status(waiter) == ["allocated"]


@pytest.mark.parametrize(("way", "becomes"), [
    ("forced", "preempted"), ("failed", "preempted"), ("silent", "preempted"), ("vacated", "queued"), ("completed", "queued"),
])  # fmt: skip
def test_a_victim_without_a_checkpoint_is_requeued_only_if_the_pool_allows_it(world: World, way: str, becomes: str) -> None:
    victim, waiter = preempting_victim(world, {"requeue_failed_checkpoint": False}, **({} if way == "forced" else SAVES))
    if way == "failed":
        world.checkpoint(victim, "failed")
        world.release(victim, outcome="vacated")
    elif way == "completed":
        world.checkpoint(victim, "completed")
    elif way == "vacated":
        world.release(victim, outcome="vacated")
    else:
        world.enforce_deadlines(600)
        world.enforce_deadlines(30)
    assert world.status(victim, waiter) == [becomes, "allocated"]
    assert (later_transitions(world, victim)[-1][0], world.get(victim).preemptions) == (
        "forced" if way in ("forced", "silent") else "preempted",
        1,
    )
    assert world.ledger.read_counters(world.workspace).get("requeued|p", 0) == (becomes == "queued")


def test_an_unmanaged_allocation_may_report_a_checkpoint(world: World) -> None:
    world.ledger.update_workspace(world.workspace, WorkspaceSettings(unmanaged="allow"))
    free = world.submit("stranger")
    assert world.checkpoint(free, "completed", reference="r") == HeartbeatResult(RequestState.ALLOCATED, None)
    assert world.get(free).checkpoint_reference == "r"


def test_a_long_story_keeps_its_beginning_and_its_end(world: World) -> None:
    victim, waiter = victim_and_waiter(world, {"grace_s": 0}, retries=-1)
    for _ in range(33):
        world.preempt(waiter, victim)
        world.release(waiter)
        waiter = world.submit("high", gpu=4)
    story = [line.event for line in world.get(victim).timeline]
    assert (story, world.get(victim).preemptions) == (["submitted", "allocated", *["preempted", "allocated"] * 31], 33)


def test_a_checkpoint_of_any_time_is_where_it_goes_on_from(world: World) -> None:
    victim, waiter = victim_and_waiter(world, {"grace_s": 0}, **SAVES)
    world.clock.advance(60)
    before = world.state()
    for state in ("started", "progress", "failed"):
        assert world.checkpoint(victim, state).directive == "continue"
    assert world.state() == before, "a report without a notice changes nothing"
    assert world.checkpoint(victim, "completed", reference="half") == HeartbeatResult(RequestState.ALLOCATED, None)
    saved = world.clock.now_ms()
    assert [(each.checkpointed_ms, each.id) for each in world.snapshot().allocations] == [(saved, victim.id)]
    world.clock.advance(60)
    world.preempt(waiter, victim)
    request = world.get(victim)
    assert (request.resume, request.checkpoint_reference) == (True, "half")
    world.release(waiter)
    other = world.submit("high", gpu=4)
    assert [each.checkpointed_ms for each in world.snapshot().allocations] == [None], "this time it has saved nothing yet"
    world.preempt(other, victim)
    request = world.get(victim)
    assert (request.resume, request.checkpoint_reference, request.preemptions) == (True, "half", 2)
