"""Backfill: best effort, strict queues, patience holds, and requests that pass a hold by their walltimes."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.models import Request
from app.store.keys import key
from tests.support.world import World


def test_a_release_grants_everything_it_can_in_order_at_once(world: World) -> None:
    world.pool(gpu=8)
    world.policy(priority=1)
    a = world.submit(gpu=8)
    b, c, d, e = (world.submit(gpu=gpu) for gpu in (5, 4, 2, 1))
    assert world.queue() == [b.id, c.id, d.id, e.id]
    world.release(a)
    assert world.status(b, c, d, e) == ["allocated", "queued", "allocated", "allocated"]
    assert world.used() == {"gpu": 8}
    assert [world.get(each).fence for each in (b, d, e)] == [2, 3, 4]


def test_strict_no_request_passes_the_first_one_blocked_by_capacity(world: World) -> None:
    world.pool(gpu=8, settings={"queueing": "strict"})
    world.policy("t", priority=1)
    world.policy("capped", priority=5, limit={"gpu": 1})
    a, x, y = world.submit("t", gpu=6), world.submit("capped", gpu=1), world.submit("capped", gpu=1)
    b, c = world.submit("t", gpu=4), world.submit("t", gpu=1)
    assert world.status(a, x, y, b, c) == ["allocated", "allocated", "queued", "queued", "queued"]
    world.release(x)
    assert world.status(y, b, c) == ["allocated", "queued", "queued"]
    world.cancel(b)
    assert world.status(c) == ["allocated"]


def test_strict_requests_before_the_first_blocked_one_are_granted_and_later_ones_wait(world: World) -> None:
    world.pool(gpu=4, settings={"queueing": "strict"})
    for name, priority in (("low", 1), ("mid", 5), ("high", 9)):
        world.policy(name, priority=priority)
    world.submit("mid", gpu=2)
    blocked = world.submit("mid", gpu=4)
    low, high = world.submit("low", gpu=1), world.submit("high", gpu=1)
    assert world.status(blocked, low, high) == ["queued", "queued", "allocated"]


def test_strict_a_waiter_at_a_limit_stops_blocking(world: World) -> None:
    world.pool(gpu=4, settings={"queueing": "strict"})
    world.policy("a", priority=1, limit={"gpu": 3})
    world.policy("b")
    world.submit("b", gpu=2)
    blocked = world.submit("a", gpu=3)
    behind = world.submit("b", gpu=1)
    assert world.status(blocked, behind) == ["queued", "queued"]
    first = world.submit("a", gpu=1, preemption_class=9)
    assert world.status(first, blocked, behind) == ["allocated", "queued", "allocated"]
    world.release(first)
    assert world.status(blocked) == ["queued"]


def test_strict_the_line_moves_as_far_as_capacity_goes(world: World) -> None:
    world.pool(gpu=4, settings={"queueing": "strict"})
    world.policy()
    holder = world.submit(gpu=4)
    waiting = [world.submit(gpu=gpu) for gpu in (1, 2, 3, 1)]
    world.release(holder)
    assert world.status(*waiting) == ["allocated", "allocated", "queued", "queued"]


@pytest.mark.parametrize("chunk", [1, 200])
def test_a_change_of_queueing_takes_effect_on_waiters(client: Any, chunk: int) -> None:
    world = World(client, chunk=chunk)
    world.pool(gpu=4, settings={"queueing": "strict"})
    world.policy()
    world.submit(gpu=2)
    big, small, second_small = world.submit(gpu=3), world.submit(gpu=1), world.submit(gpu=1)
    assert world.status(big, small, second_small) == ["queued", "queued", "queued"]
    world.update_pool(settings={"queueing": "best_effort"})
    assert world.status(big, small, second_small) == ["queued", "allocated", "allocated"]
    world.update_pool(settings={"queueing": "strict"})
    world.drop(small)
    late = world.submit(gpu=1)
    assert world.status(big, late) == ["queued", "queued"]


def test_a_large_waiter_is_not_starved_by_small_ones(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 1})
    world.policy(priority=1)
    a, b = world.submit(gpu=2), world.submit(gpu=2)
    big = world.submit(gpu=4)
    world.pass_time(4)
    world.release(a)
    c = world.submit(gpu=1)
    assert world.status(c, big) == ["queued", "queued"]
    pool = world.get_pool()
    assert ([(hold.request, hold.kind) for hold in pool.holds], pool.on_hold["gpu"]) == ([(big.id, "patience")], 4)
    world.release(b)
    assert (world.status(big, c), world.get_pool().holds, world.get_pool().on_hold) == (["allocated", "queued"], (), {})
    world.release(big)
    assert world.status(c) == ["allocated"]


def test_patience_ends_after_its_time_and_not_before(world: World) -> None:
    world.pool(gpu=4)
    world.policy()
    world.submit(gpu=1)
    big = world.submit(gpu=4)
    world.pass_time(299.999)
    assert world.get_pool().holds == ()
    assert world.submit(gpu=1).status == "allocated"
    world.pass_time(0.001)
    assert [hold.request for hold in world.get_pool().holds] == [big.id]
    assert world.submit(gpu=1).status == "queued"


@pytest.mark.parametrize("settings", [{"patience_s": None}, {"queueing": "strict", "patience_s": 1}])
def test_without_patience_no_waiter_gets_a_hold(world: World, settings: dict[str, Any]) -> None:
    world.pool(gpu=4, settings=settings)
    world.policy()
    world.submit(gpu=1)
    world.submit(gpu=4)
    world.pass_time(10**6)
    assert world.get_pool().holds == ()


def test_one_hold_a_pool_and_the_first_in_order_has_it(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 5})
    world.policy("a", priority=1)
    world.policy("b", priority=2)
    world.submit("a", gpu=3)
    first, second = world.submit("a", gpu=4), world.submit("b", gpu=3)
    world.pass_time(5)
    world.pass_time(5)
    assert [hold.request for hold in world.get_pool().holds] == [second.id]
    world.cancel(second)
    assert world.get_pool().holds == ()
    world.pass_time(0)
    assert [hold.request for hold in world.get_pool().holds] == [first.id]


def test_a_hold_binds_only_those_behind_its_owner(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 5})
    world.policy("a", priority=5)
    world.policy("low", priority=1)
    world.policy("high", priority=9)
    world.submit("a", gpu=2)
    world.submit("a", gpu=4)
    world.pass_time(5)
    low, high = world.submit("low", gpu=1), world.submit("high", gpu=1)
    assert world.status(low, high) == ["queued", "allocated"]


def test_a_hold_leaves_what_is_beyond_it_to_others(world: World) -> None:
    world.pool(gpu=8, settings={"patience_s": 5})
    world.policy()
    world.submit(gpu=5)
    world.submit(gpu=4)
    world.pass_time(5)
    world.update_pool(gpu=8, tpu=2)
    assert world.submit(tpu=1).status == "allocated"
    assert world.submit(gpu=1).status == "queued"


def test_a_hold_counts_against_limits_on_its_owners_path_for_those_it_binds(world: World) -> None:
    world.pool(gpu=8, settings={"patience_s": 5})
    world.policy("a", limit={"gpu": 5})
    world.policy("b")
    world.submit("b", gpu=4)
    big = world.submit("a", gpu=5)
    world.pass_time(5)
    sibling = world.submit("a", gpu=1)
    assert world.status(big, sibling) == ["queued", "queued"]
    world.update_pool(gpu=16)
    assert world.status(big, sibling) == ["allocated", "queued"]


def test_a_hold_ends_when_a_limit_keeps_its_owner(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 5})
    world.policy("a", priority=1, limit={"gpu": 3})
    world.policy("b", priority=1)
    world.submit("b", gpu=2)
    big = world.submit("a", gpu=3)
    world.pass_time(5)
    waiting = world.submit("b", gpu=1)
    assert ([hold.request for hold in world.get_pool().holds], world.status(waiting)) == ([big.id], ["queued"])
    world.submit("a", gpu=1, preemption_class=9)
    assert (world.get_pool().holds, world.status(big, waiting)) == ((), ["queued", "allocated"])


def test_a_waiter_at_a_limit_keeps_no_other_from_the_hold(world: World) -> None:
    world.pool(gpu=8, settings={"patience_s": 10})
    world.policy("a", limit={"gpu": 4})
    world.policy("b")
    world.submit("b", gpu=5)
    limited = world.submit("a", gpu=4)
    world.submit("a", gpu=1)
    blocked = world.submit("b", gpu=5)
    world.pass_time(10)
    assert ([hold.request for hold in world.get_pool().holds], world.status(limited)) == ([blocked.id], ["queued"])


@pytest.mark.parametrize("how", ["cancel", "drop", "reject", "elsewhere", "setting", "strict"])
def test_a_hold_ends_with_its_reason(world: World, how: str) -> None:
    world.pool(gpu=4, settings={"patience_s": 5})
    world.policy("a")
    world.policy("b")
    world.submit("b", gpu=2)
    big = world.submit("a", gpu=4)
    world.pass_time(5)
    small = world.submit("b", gpu=1)
    assert (len(world.get_pool().holds), world.status(small)) == (1, ["queued"])
    if how == "cancel":
        world.cancel(big)
    elif how == "drop":
        world.drop(big)
    elif how == "reject":
        world.policy("a", limit={"gpu": 3})
    elif how == "elsewhere":
        world.pool("q", gpu=4)
        world.policy("a", "q")
    else:
        world.update_pool(settings={"patience_s": None} if how == "setting" else {"queueing": "strict"})
    assert (world.get_pool().holds, world.get_pool().on_hold) == ((), {})
    assert world.status(small) == ["queued" if how == "strict" else "allocated"]


def test_time_at_a_limit_does_not_use_up_patience(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 10})
    world.policy("a", limit={"gpu": 1})
    world.policy("b")
    mine, other = world.submit("a", gpu=1), world.submit("b", gpu=3)
    waiter = world.submit("a", gpu=1)
    world.pass_time(9)
    world.policy("a", limit={"gpu": 2})
    world.pass_time(9)
    assert world.get_pool().holds == ()
    world.pass_time(1)
    assert [hold.request for hold in world.get_pool().holds] == [waiter.id]
    assert world.status(mine, other) == ["allocated", "allocated"]


def test_those_that_end_in_time_may_pass_a_hold(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 10})
    world.policy()
    world.submit(gpu=3, walltime_s=100)
    world.submit(gpu=4)
    world.pass_time(10)
    late, unknown, short = world.submit(gpu=1, walltime_s=91), world.submit(gpu=1), world.submit(gpu=1, walltime_s=90)
    assert world.status(late, unknown, short) == ["queued", "queued", "allocated"]


def test_without_a_walltime_no_request_passes_a_hold(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 10})
    world.policy()
    world.submit(gpu=2, walltime_s=100)
    world.submit(gpu=1)
    world.submit(gpu=4)
    world.pass_time(10)
    assert world.submit(gpu=1, walltime_s=1).status == "queued"


def test_the_end_is_when_enough_has_ended_for_the_owner(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 10})
    world.policy()
    world.submit(gpu=1, walltime_s=50)
    world.submit(gpu=2, walltime_s=200)
    world.submit(gpu=2)
    world.pass_time(10)
    short, long = world.submit(gpu=1, walltime_s=40), world.submit(gpu=1, walltime_s=41)
    assert world.status(short, long) == ["allocated", "queued"]


def test_of_those_waiting_the_first_that_ends_in_time_is_taken_from_within_its_lane(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 10})
    world.policy()
    first, second = world.submit(gpu=3, walltime_s=1000), world.submit(gpu=1)
    world.submit(gpu=4)
    world.pass_time(10)
    waiting = [world.submit(gpu=1, walltime_s=walltime) for walltime in (2000, 500, 20)]
    world.release(second)
    assert world.status(*waiting) == ["queued", "allocated", "queued"]
    assert world.status(first) == ["allocated"]


def test_an_allocation_beyond_its_walltime_may_end_at_any_moment(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 10})
    world.policy()
    world.submit(gpu=3, walltime_s=5)
    world.submit(gpu=4)
    world.pass_time(10)
    assert world.submit(gpu=1, walltime_s=1).status == "queued"


@pytest.mark.parametrize("chunk", [1, 2, 200])
def test_any_number_may_be_kept_by_a_hold_whatever_one_call_touches(client: Any, chunk: int) -> None:
    world = World(client, chunk=chunk)
    world.pool(gpu=8, settings={"patience_s": 10})
    world.policy()
    holder = world.submit(gpu=7, walltime_s=1000)
    big = world.submit(gpu=8)
    world.pass_time(10)
    requests = [world.submit(gpu=1, memory_mb=number, walltime_s=2000) for number in range(1, 6)]
    request = world.submit(gpu=1, memory_mb=9)
    world.cancel(request)
    assert (world.status(big, *requests), world.get_pool().unfinished) == (["queued"] * 6, False)
    world.update_pool(gpu=9)
    assert (world.status(big, *requests), world.get_pool().unfinished) == (["queued"] * 6, False)
    world.release(holder)
    assert world.status(big, *requests) == ["allocated", "allocated", *["queued"] * 4]
    world.release(big)
    assert world.status(*requests) == ["allocated"] * 5


@pytest.mark.parametrize("preferred", ["a", "b"])
def test_units_free_in_two_pools_at_once_are_granted_in_the_preferred_pool_first(world: World, preferred: str) -> None:
    for name in ("a", "b"):
        world.pool(name, gpu=4, settings={"queueing": "strict"})
        world.policy("first", name, priority=9)
        world.policy("t", name, priority=2 if name == preferred else 1)
        world.policy(f"busy-{name}", name)
        world.submit(f"busy-{name}", gpu=2)
    first, waiter = world.submit("first", gpu=4), world.submit("t", gpu=2)
    assert world.status(first, waiter) == ["queued", "queued"]
    world.cancel(first)
    assert world.get(waiter).pool == preferred


def test_strict_a_request_at_its_limit_delays_no_later_grant(world: World) -> None:
    world.pool(gpu=8, settings={"queueing": "strict"})
    world.policy("capped", priority=9, limit={"gpu": 2})
    world.policy("other")
    world.submit("capped", gpu=2)
    capped, other = world.submit("capped", gpu=1), world.submit("other", gpu=1)
    assert world.status(capped, other) == ["queued", "allocated"]


def test_strict_a_lane_whose_new_head_is_at_its_limit_leaves_the_line(world: World) -> None:
    world.pool(gpu=4, tpu=1, settings={"queueing": "strict", "order": "priority_first"})
    world.policy("capped", limit={"gpu": 1})
    world.policy("other")
    world.submit("other", tpu=1)
    blocked = world.submit("other", gpu=1, tpu=1, preemption_class=7)
    behind = world.submit("capped", gpu=1, preemption_class=3)
    first = world.submit("capped", gpu=1, preemption_class=9)
    assert world.status(blocked, behind, first) == ["queued", "queued", "allocated"]
    new_head = world.submit("capped", gpu=1, preemption_class=8)  # in the lane of `behind`, and before `blocked`
    later = world.submit("other", gpu=1, preemption_class=8)
    assert world.status(new_head, later) == ["queued", "allocated"], "a request at its limit blocks nothing behind it"


def strict_pool_with_a_victim_hold(world: World) -> tuple[Request, Request]:
    """Return the owner of a victim hold whose policy is at its limit with the hold, and a request that waits behind it."""
    world.pool(gpu=5, settings={"queueing": "strict", "order": "priority_first"})
    world.policy("low", priority=1)
    world.policy("capped", priority=9, limit={"gpu": 3})
    world.policy("other", priority=5)
    victims = [world.submit("low", gpu=2) for _ in range(2)]
    owner, behind = world.submit("capped", gpu=2), world.submit("other", gpu=1)
    assert world.preempt(owner, victims[0]).applied
    return owner, behind


def test_strict_a_new_head_at_the_limit_by_a_hold_of_its_lane_lets_others_pass(world: World) -> None:
    owner, behind = strict_pool_with_a_victim_hold(world)
    assert world.status(owner, behind) == ["queued", "queued"]
    new_head = world.submit("capped", gpu=2, preemption_class=9)
    assert world.status(owner, new_head, behind) == ["queued", "queued", "allocated"]


def test_strict_the_owner_of_a_hold_is_the_first_of_the_line_again_when_the_new_head_leaves(world: World) -> None:
    owner, behind = strict_pool_with_a_victim_hold(world)
    new_head = world.submit("capped", gpu=2, preemption_class=9)
    world.release(behind)
    world.cancel(new_head)
    later = world.submit("other", gpu=1, preemption_class=9)
    assert world.status(owner, later) == ["queued", "queued"], "no request passes the first that capacity blocks"


def test_patience_counts_from_the_return_to_the_queue(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 300, "grace_s": 0})
    world.policy("low")
    world.policy("high", priority=1)
    victim = world.submit("low", gpu=4)
    young = world.submit("low", gpu=4)
    world.clock.advance(200)
    waiter = world.submit("high", gpu=4)
    assert world.preempt(waiter, victim).applied
    assert world.status(victim, waiter) == ["queued", "allocated"]
    world.pass_time(100)
    assert [hold.request for hold in world.get_pool().holds] == [young.id], "the older request waits again for 100 s only"


def test_patience_goes_on_when_the_lane_lacks_another_key(world: World) -> None:
    world.pool(gpu=2, tpu=2, settings={"patience_s": 300})
    world.policy()
    gpus, tpu = world.submit(gpu=2), world.submit(tpu=1)
    waiter = world.submit(gpu=2, tpu=2)
    world.clock.advance(200)
    world.release(gpus)
    assert world.status(waiter, tpu) == ["queued", "allocated"]
    world.pass_time(100)
    assert [hold.request for hold in world.get_pool().holds] == [waiter.id]


def test_the_promised_end_of_a_released_allocation_is_forgotten(world: World) -> None:
    world.pool(gpu=2)
    world.policy()
    request = world.submit(gpu=2, walltime_s=60)
    assert world.client.zcard(key("pool_walltime_ends", "test", "p")) == 1
    world.release(request)
    assert world.client.exists(key("pool_walltime_ends", "test", "p")) == 0
