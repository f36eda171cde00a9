"""The deadlines of a preemption: notices, the time to leave, and the status afterwards."""

from __future__ import annotations

import pytest

from app.domain.errors import Conflict
from app.domain.models import HeartbeatResult
from app.domain.reasons import Reason, ReasonCode
from app.domain.states import RequestState
from app.store.connection import RedisClient
from app.store.keys import key
from tests.support.preemption_cases import (
    ENDS,
    SAVES,
    assert_void,
    later_transitions,
    next_step,
    preempting_victim,
    victim_and_waiter,
)
from tests.support.world import World

# ---- it is told


def test_its_units_stay_counted_until_it_has_left(world: World) -> None:
    victim, waiter = preempting_victim(world)
    request = world.get(victim)
    assert (request.status, request.fence, request.pool, world.used()) == ("preempting", 1, "p", {"gpu": 4})
    assert (request.reason, request.preempted_by) == (Reason(ReasonCode.PRIORITY, by=waiter.id), waiter.id)
    world.release(victim, outcome="vacated")
    assert (world.status(victim, waiter), world.used()) == (["queued", "allocated"], {"gpu": 4})


@pytest.mark.parametrize(("checkpoint", "directive", "seconds"), [
    ("none", "terminate", 30), ("manual", "checkpoint", 600), ("auto", "checkpoint", 600),
])  # fmt: skip
def test_a_heartbeat_and_a_look_tell_it_what_to_do_and_until_when(
    world: World, checkpoint: str, directive: str, seconds: int
) -> None:
    victim, waiter = victim_and_waiter(world, checkpoint=checkpoint, lease_s=60)
    assert (next_step(world, victim), next_step(world, waiter)) == (("continue", None), (None, None))
    assert world.heartbeat(victim) == HeartbeatResult(RequestState.ALLOCATED, world.clock.now_ms() + 60_000)
    world.clock.advance(10)
    world.preempt(waiter, victim)
    now = world.clock.now_ms()
    world.clock.advance(20)
    beat = HeartbeatResult(RequestState.PREEMPTING, now + 80_000, directive, now + seconds * 1000)
    assert world.heartbeat(victim) == beat
    request = world.get(victim)
    assert HeartbeatResult(request.status, request.lease_expires_ms, request.directive or "", request.deadline_ms) == beat


def test_how_long_is_a_setting_of_the_pool(world: World) -> None:
    victim, _ = preempting_victim(world, {"checkpoint_timeout_s": 7, "grace_s": 3}, **SAVES)
    assert next_step(world, victim) == ("checkpoint", 7)
    world.enforce_deadlines(7)
    assert next_step(world, victim) == ("terminate", 3)


# ---- the first step: save


def test_silence_ends_the_first_step_and_then_the_second(world: World) -> None:
    victim, waiter = preempting_victim(world, **SAVES)
    assert (world.enforce_deadlines(599.999), next_step(world, victim)) == (0, ("checkpoint", 0.001))
    world.heartbeat(victim)  # which is no answer
    assert (world.enforce_deadlines(0.001), next_step(world, victim)) == (1, ("terminate", 30))
    assert (world.enforce_deadlines(29.999), world.status(victim)) == (0, ["preempting"])
    assert (world.enforce_deadlines(0.001), world.status(victim, waiter)) == (1, ["queued", "allocated"])
    assert later_transitions(world, victim) == [
        ("preempting", RequestState.ALLOCATED, RequestState.PREEMPTING),
        ("terminating", RequestState.PREEMPTING, RequestState.PREEMPTING),
        ("forced", RequestState.PREEMPTING, RequestState.QUEUED),
    ]


@pytest.mark.parametrize("state", ["started", "progress"])
def test_a_checkpoint_in_progress_extends_the_deadline_by_half_once(world: World, state: str) -> None:
    victim, _ = preempting_victim(world, {"checkpoint_timeout_s": 9}, **SAVES)
    now = world.clock.now_ms()
    assert world.checkpoint(victim, state) == HeartbeatResult(RequestState.PREEMPTING, None, "checkpoint", now + 9000), (
        "not before the deadline"
    )
    world.enforce_deadlines(9)
    assert next_step(world, victim) == ("checkpoint", 4.5)
    world.checkpoint(victim, state)
    assert (world.enforce_deadlines(4.499), world.enforce_deadlines(0.001), next_step(world, victim)) == (
        0,
        1,
        ("terminate", 30),
    )


def test_it_may_put_it_off_for_so_long_in_all(world: World) -> None:
    victim, _ = preempting_victim(world, {"max_deferral_s": 300}, **SAVES)
    now = world.clock.now_ms()
    assert world.checkpoint(victim, "defer", 200) == HeartbeatResult(RequestState.PREEMPTING, None, "checkpoint", now + 800_000)
    world.clock.advance(700)
    assert world.checkpoint(victim, "defer", 200).deadline_ms == now + 900_000
    before = world.get(victim)
    assert world.checkpoint(victim, "defer", 1).deadline_ms == now + 900_000
    assert world.get(victim) == before
    assert (world.enforce_deadlines(199.999), world.enforce_deadlines(0.001), next_step(world, victim)) == (
        0,
        1,
        ("terminate", 30),
    )
    assert world.checkpoint(victim, "defer", 1).directive == "terminate", "which is not put off"
    assert next_step(world, victim) == ("terminate", 30)


def test_a_deferral_and_a_checkpoint_in_progress_both_extend(world: World) -> None:
    victim, _ = preempting_victim(world, {"checkpoint_timeout_s": 10, "max_deferral_s": 5}, **SAVES)
    world.checkpoint(victim, "defer", 99)
    world.checkpoint(victim, "progress")
    assert (world.enforce_deadlines(14.999), world.enforce_deadlines(0.001), next_step(world, victim)) == (
        0,
        0,
        ("checkpoint", 5),
    )


def test_a_deferral_without_a_notice_is_refused(world: World) -> None:
    victim, _ = victim_and_waiter(world, **SAVES)
    before = world.state()
    with pytest.raises(Conflict) as error:
        world.checkpoint(victim, "defer", 10)
    assert (error.value.code, world.state()) == ("not_leaving", before)


def test_a_saved_checkpoint_vacates(world: World) -> None:
    victim, waiter = preempting_victim(world, **SAVES)
    world.clock.advance(12)
    assert world.checkpoint(victim, "completed", reference="s3://b/1") == HeartbeatResult(RequestState.QUEUED, None)
    request = world.get(victim)
    assert (request.resume, request.checkpoint_reference, request.preemptions) == (True, "s3://b/1", 1)
    assert (request.pool, request.fence, request.granted_ms, request.directive, request.deadline_ms) == (None,) * 5
    assert world.status(victim, waiter) == ["queued", "allocated"]
    before = world.state()
    assert world.checkpoint(victim, "completed", reference="s3://b/1", fence=1) == HeartbeatResult(RequestState.QUEUED, None)
    assert world.state() == before
    assert world.counters(*ENDS) == {
        "preemptions|p|batch|priority": 1, "requeued|p": 1, "checkpoints_ms|p": 12_000,
        **{f"checkpoints|p|{most}": 1 for most in (15, 30, 60, 120, 300, 600, 1800, "inf")},
    }  # fmt: skip


def test_a_routine_checkpoint_is_kept_and_does_not_say_that_it_has_left(world: World) -> None:
    victim, waiter = preempting_victim(world, **SAVES)
    asked_until = world.clock.now_ms() + 600_000
    for _ in range(2):
        beat = world.checkpoint(victim, "completed", reference="step 7", routine=True)
        assert beat == HeartbeatResult(RequestState.PREEMPTING, None, "checkpoint", asked_until)
    assert world.status(victim, waiter) == ["preempting", "queued"]
    world.enforce_deadlines(600)
    assert next_step(world, victim) == ("terminate", 30), "it is no answer to what was asked"
    world.checkpoint(victim, "completed", reference="step 8", routine=True)
    assert (world.enforce_deadlines(30), world.status(victim, waiter)) == (1, ["queued", "allocated"])
    request = world.get(victim)
    assert (request.resume, request.checkpoint_reference, request.preemptions) == (True, "step 8", 1)


def test_whose_checkpoint_failed_is_told_to_end_at_once(world: World) -> None:
    victim, _ = preempting_victim(world, **SAVES)
    world.clock.advance(5)
    now = world.clock.now_ms()
    assert world.checkpoint(victim, "failed") == HeartbeatResult(RequestState.PREEMPTING, None, "terminate", now + 30_000)
    world.clock.advance(9)
    before = world.state()
    assert world.checkpoint(victim, "failed").deadline_ms == now + 30_000
    assert world.state() == before, "once"
    assert world.enforce_deadlines(21) == 1
    assert [event for event, _, _ in later_transitions(world, victim)] == ["preempting", "terminating", "forced"]
    assert world.counters(*ENDS) == {"preemptions|p|batch|priority": 1, "failed_checkpoints|p": 1, "requeued|p": 1}


def test_a_checkpoint_at_the_last_moment_counts(world: World) -> None:
    victim, _ = preempting_victim(world, {"requeue_failed_checkpoint": False}, **SAVES)
    world.enforce_deadlines(600)
    world.clock.advance(29)
    assert world.checkpoint(victim, "completed", reference="r").status == "queued"
    assert (world.get(victim).resume, world.ledger.read_counters(world.workspace)["checkpoints|p|inf"]) == (True, 1)


# ---- the second step: end


def test_no_grace_is_one_event_and_the_units_at_once(world: World) -> None:
    victim, waiter = preempting_victim(world, {"grace_s": 0}, **SAVES)
    assert world.status(victim, waiter) == ["queued", "allocated"]
    assert later_transitions(world, victim) == [("preempted", RequestState.ALLOCATED, RequestState.QUEUED)]
    (event,) = [each for each in world.events() if each.event == "preempted"]
    assert (event.reason, event.by, event.rank, event.by_rank) == ("priority", waiter.id, "0,5", "1,5")
    request = world.get(victim)
    assert (request.preemptions, request.resume, request.reason and request.reason.by) == (1, False, waiter.id)
    assert (world.enforce_deadlines(10_000), world.client.exists(key("preemption_deadlines", world.workspace))) == (0, 0)
    assert_void(world, victim, 1)


def test_a_forced_victim_has_lost_its_fence(world: World) -> None:
    victim, waiter = preempting_victim(world)
    assert (world.enforce_deadlines(30), world.status(victim, waiter)) == (1, ["queued", "allocated"])
    assert later_transitions(world, victim)[-1] == ("forced", RequestState.PREEMPTING, RequestState.QUEUED)
    assert_void(world, victim, 1)


def test_a_victim_that_once_left_in_time_can_be_forced_later(world: World) -> None:
    for says in ("completed", "vacated"):
        world.client.flushall()
        victim, waiter = preempting_victim(world, retries=-1, **SAVES)
        if says == "completed":
            world.checkpoint(victim, "completed")
        else:
            world.release(victim, outcome="vacated")
        world.release(waiter)
        again = world.submit("high", gpu=4)
        fence = world.get(victim).fence
        assert world.preempt(again, victim).applied
        world.enforce_deadlines(600)
        world.enforce_deadlines(30)
        assert fence is not None
        assert_void(world, victim, fence)


def test_all_of_one_decision_are_told_at_once_and_the_waiter_starts_when_the_last_has_left(world: World) -> None:
    world.pool(gpu=4)
    world.policy("low")
    world.policy("high", priority=1)
    first, other = world.submit("low", gpu=3), world.submit("low", gpu=1, **SAVES)
    waiter = world.submit("high", gpu=4)
    world.preempt(waiter, first, other)
    now = world.clock.now_ms()
    assert [(event.request, event.at_ms) for event in world.events() if event.event == "preempting"] == [
        (first.id, now), (other.id, now),
    ]  # fmt: skip
    small = world.submit("high", gpu=1)
    world.release(first, outcome="vacated")
    assert (world.status(waiter, small), world.used()) == (["queued", "queued"], {"gpu": 1})
    world.checkpoint(other, "completed")
    assert world.status(waiter, small, first, other) == ["allocated", "queued", "queued", "queued"]


def test_however_many_are_due_a_call_goes_through_a_part_of_them(client: RedisClient) -> None:
    world = World(client, chunk=2)
    world.pool(gpu=5)
    world.policy("low")
    world.policy("high", priority=1)
    victims = [world.submit("low", gpu=1) for _ in range(5)]
    world.preempt(world.submit("high", gpu=5), *victims)
    world.clock.advance(30)
    calls = [world.plan_store.enforce_deadlines(world.workspace) for _ in range(4)]
    assert calls == [(2, True), (2, True), (1, False), (0, False)]
    assert world.status(*victims) == ["queued"] * 5


# ---- it ends otherwise


def test_a_victim_that_ends_by_itself_is_released(world: World) -> None:
    victim, waiter = preempting_victim(world, **SAVES)
    released = world.release(victim)
    assert (released.status, released.outcome, released.reason, released.preempted_by) == ("released", "succeeded", None, None)
    assert (released.preemptions, released.directive, released.deadline_ms) == (0, None, None)
    assert later_transitions(world, victim)[1:] == [("released", RequestState.PREEMPTING, RequestState.RELEASED)]
    assert (world.status(waiter), world.enforce_deadlines(10_000)) == (["allocated"], 0)
    assert world.counters(*ENDS) == {"preemptions|p|batch|priority": 1}


def test_a_lease_may_lapse_on_the_way_out(world: World) -> None:
    victim, waiter = preempting_victim(world, lease_s=60, **SAVES)
    world.clock.advance(50)
    world.heartbeat(victim)
    world.pass_time(59.999)
    assert world.status(victim, waiter) == ["preempting", "queued"]
    world.pass_time(0.001)
    request = world.get(victim)
    assert (request.status, request.reason, request.preempted_by) == ("expired", Reason(ReasonCode.LEASE_LAPSED), None)
    assert (world.status(waiter), world.enforce_deadlines(10_000)) == (["allocated"], 0)
    assert_void(world, victim, 1)


def test_an_operator_may_drop_it_on_the_way_out(world: World) -> None:
    victim, waiter = preempting_victim(world, **SAVES)
    dropped = world.drop(victim)
    assert (dropped.status, dropped.reason, dropped.preempted_by) == ("released", Reason(ReasonCode.DROPPED), None)
    assert (world.status(waiter), world.enforce_deadlines(10_000)) == (["allocated"], 0)


# ---- vacated


def test_vacated_says_it_has_left_and_says_it_again(world: World) -> None:
    victim, _ = preempting_victim(world, **SAVES)
    left = world.release(victim, outcome="vacated")
    assert (left.status, left.preemptions, left.resume, left.outcome) == ("queued", 1, False, None)
    assert later_transitions(world, victim)[-1] == ("preempted", RequestState.PREEMPTING, RequestState.QUEUED)
    before = world.state()
    assert world.release(victim, 1, "vacated").status == "queued"
    assert world.state() == before


def test_a_release_as_vacated_without_a_notice_is_refused(world: World) -> None:
    victim, waiter = preempting_victim(world)
    world.release(victim, outcome="vacated")
    world.release(waiter)
    assert (world.get(victim).status, world.get(victim).fence) == ("allocated", 3)
    fresh = world.submit("high")
    before = world.state()
    for request in (victim, fresh):
        with pytest.raises(Conflict) as error:
            world.release(request, outcome="vacated")
        assert error.value.code == "not_leaving"
    assert world.state() == before


def test_a_victim_reprieved_too_late_may_still_vacate(world: World) -> None:
    victim, waiter = preempting_victim(world)
    world.cancel(waiter)
    assert world.reprieve(victim).applied
    world.release(victim, outcome="vacated")
    assert later_transitions(world, victim) == [
        ("preempting", RequestState.ALLOCATED, RequestState.PREEMPTING),
        ("reprieved", RequestState.PREEMPTING, RequestState.ALLOCATED),
        ("preempted", RequestState.ALLOCATED, RequestState.QUEUED),
        ("allocated", RequestState.QUEUED, RequestState.ALLOCATED),
    ]
    request = world.get(victim)
    assert (request.fence, request.preemptions, request.reason, request.preempted_by) == (2, 1, None, None)
    assert_void(world, waiter, 1)
