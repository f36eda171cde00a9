"""Victim holds: their owner, the units that they keep, the requests that they bind, their end, and their victims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.domain.errors import Conflict
from app.domain.models import Request
from app.store.keys import key
from tests.support.world import World


def on_hold(world: World, pool: str = "p", of: str = "gpu") -> dict[str, int]:
    """Return the units of a key that victim holds keep, by account."""
    view, place = world.get_pool(pool), world.workspace
    places = {"pool": key("pool", place, pool)}
    places |= {group: key("group", place, pool, group) for group in view.groups}
    places |= {policy.partition("/")[2]: key("policy", place, pool, policy) for policy in view.policies}
    units_by_account = {name: int(str(world.client.hget(index, f"victim_held:{of}") or 0)) for name, index in places.items()}
    return {name: units for name, units in units_by_account.items() if units}


def hold_kinds(world: World, pool: str = "p") -> dict[str, str]:
    """Return the owners of holds, and the kind of each."""
    return {hold.request: hold.kind for hold in world.get_pool(pool).holds}


def vacate(world: World, *victims: Request) -> None:
    """Release victims as vacated, without a notice."""
    for victim in victims:
        world.release(victim, outcome="vacated")


def assert_strays(world: World, *victims: Request, pool: str = "p") -> None:
    """Check that these have no waiter any more: no deadline counts, and a nudge was sent."""
    place = world.workspace
    assert world.client.hgetall(key("pool_victims", place, pool)) == {victim.id: "-" for victim in victims}
    assert {each.id for each in world.snapshot(pool).allocations if each.leaving_for == ""} == {victim.id for victim in victims}
    assert (world.client.exists(key("preemption_deadlines", place)), world.client.get(key("nudge", place))) == (0, "pending")
    assert (world.enforce_deadlines(10_000), set(world.status(*victims))) == (0, {"preempting"})


def pool_with_group(world: World, *sizes: int, **pool: Any) -> list[Request]:
    """Create a pool with a group `g` of `high`, and holders of `low` of these sizes."""
    world.pool(**pool)
    world.group("g")
    world.policy("low")
    world.policy("high", priority=1, group="g")
    return [world.submit("low", gpu=size, retries=0) for size in sizes]


# ---- units kept


def test_it_keeps_its_amount_less_what_is_still_coming_at_every_account(world: World) -> None:
    (outside,) = pool_with_group(world, 2, gpu=8)
    world.policy("inside", group="g")
    inside = world.submit("inside", gpu=4, retries=0)
    waiter = world.submit("high", gpu=8)
    world.preempt(waiter, inside, outside)
    assert (on_hold(world), hold_kinds(world)) == ({"pool": 2, "g": 4, "high": 8}, {waiter.id: "victims"})
    assert (world.get_pool().on_hold["gpu"], world.used()) == (2, {"gpu": 6})
    vacate(world, inside)
    assert (on_hold(world), world.get_pool().on_hold["gpu"]) == ({"pool": 6, "g": 8, "high": 8}, 6)
    vacate(world, outside)
    assert (on_hold(world), hold_kinds(world), world.status(waiter), world.used()) == ({}, {}, ["allocated"], {"gpu": 8})
    assert on_hold(world, of="step_run") == {}


def test_each_key_is_kept_for_itself(world: World) -> None:
    (victim,) = pool_with_group(world, 2, gpu=4, tpu=2)
    busy = world.submit("low", tpu=1, retries=0)
    waiter = world.submit("high", gpu=4, tpu=2)
    world.preempt(waiter, victim, busy)
    assert (on_hold(world), on_hold(world, of="tpu")) == ({"pool": 2, "g": 4, "high": 4}, {"pool": 1, "g": 2, "high": 2})
    vacate(world, victim)
    assert (on_hold(world), on_hold(world, of="tpu")) == ({"pool": 4, "g": 4, "high": 4}, {"pool": 1, "g": 2, "high": 2})
    vacate(world, busy)
    assert (on_hold(world), on_hold(world, of="tpu"), world.status(waiter)) == ({}, {}, ["allocated"])


def test_others_have_what_is_free_beyond_it(world: World) -> None:
    (victim,) = pool_with_group(world, 4, gpu=8)
    waiter = world.submit("high", gpu=6)
    world.preempt(waiter, victim)
    three, two, one_gpu = (world.submit("low", gpu=gpu) for gpu in (3, 2, 1))
    assert (world.status(three, two, one_gpu), on_hold(world)["pool"]) == (["queued", "allocated", "queued"], 2)
    world.cancel(waiter)
    assert (world.status(three, one_gpu), on_hold(world)) == (["queued", "allocated"], {}), "at once, when it ends"


def test_victims_may_bring_more_than_is_asked_and_the_rest_is_for_others(world: World) -> None:
    (victim,) = pool_with_group(world, 8, gpu=8)
    waiter, other = world.submit("high", gpu=3), world.submit("low", gpu=5)
    world.preempt(waiter, victim)
    assert on_hold(world) == {"g": 3, "high": 3}
    vacate(world, victim)
    assert (world.status(waiter, other), on_hold(world)) == (["allocated", "allocated"], {})


@pytest.mark.parametrize("where", ["policy", "group"])
def test_it_keeps_its_place_below_the_limit_of_its_policy_and_group(world: World, where: str) -> None:
    (victim,) = pool_with_group(world, 4, gpu=8)
    if where == "policy":
        world.policy("high", priority=1, group="g", limit={"gpu": 5})
    else:
        world.group("g", limit={"gpu": 5})
    busy, waiter = world.submit("low", gpu=1), world.submit("high", gpu=4)
    world.preempt(waiter, victim)
    second, other = world.submit("high", gpu=2), world.submit("low", gpu=2)
    assert (world.status(waiter, second, other), on_hold(world)) == (["queued", "queued", "allocated"], {"g": 4, "high": 4})
    world.cancel(waiter)
    assert (world.status(second), on_hold(world), world.status(busy)) == (["queued"], {}, ["allocated"])
    world.release(busy)
    assert world.status(second) == ["allocated"]


# ---- several holds


def test_each_owner_gets_the_units_of_its_victims(world: World) -> None:
    a, b = pool_with_group(world, 4, 4, gpu=8)
    first, second = world.submit("high", gpu=4), world.submit("high", gpu=4)
    world.preempt(first, a)
    world.preempt(second, b)
    assert on_hold(world) == {"g": 8, "high": 8}
    vacate(world, b)
    assert (world.status(first, second), on_hold(world)) == (["queued", "allocated"], {"g": 4, "high": 4})
    vacate(world, a)
    assert (world.status(first), on_hold(world)) == (["allocated"], {})


def test_an_earlier_hold_binds_the_later_owner_by_all_it_keeps(world: World) -> None:
    a, b = pool_with_group(world, 4, 2, gpu=8)
    first = world.submit("high", gpu=6)
    world.preempt(first, a)
    second = world.submit("high", gpu=2, preemption_class=9)
    assert world.status(second) == ["queued"], "two are free, and kept"
    world.preempt(second, b)
    assert on_hold(world) == {"pool": 2, "g": 8, "high": 8}
    vacate(world, b)
    assert (world.status(first, second), on_hold(world)) == (["queued", "allocated"], {"pool": 2, "g": 6, "high": 6})
    vacate(world, a)
    assert (world.status(first), on_hold(world)) == (["allocated"], {})


def test_a_later_hold_binds_the_earlier_owner_by_what_its_victims_have_brought(world: World) -> None:
    a, b, c = pool_with_group(world, 2, 2, 4, gpu=8)
    first, second = world.submit("high", gpu=2), world.submit("high", gpu=6)
    world.preempt(first, a)
    world.preempt(second, b, c)
    vacate(world, b)
    assert (world.status(first, second), world.used()) == (["queued", "queued"], {"gpu": 6}), "though two are free"
    assert on_hold(world) == {"pool": 2, "g": 8, "high": 8}
    vacate(world, a)
    assert (world.status(first, second), on_hold(world)) == (["allocated", "queued"], {"pool": 2, "g": 6, "high": 6})
    vacate(world, c)
    assert (world.status(second), on_hold(world)) == (["allocated"], {})


def test_a_later_hold_binds_an_earlier_owner_only_by_freed_units(world: World) -> None:
    a, b, c = pool_with_group(world, 2, 2, 2, gpu=8)
    first = world.submit("high", gpu=4)
    world.preempt(first, a)
    second = world.submit("high", gpu=4)
    world.preempt(second, b, c)
    assert on_hold(world) == {"pool": 2, "g": 8, "high": 8}
    world.update_pool(gpu=10)
    assert (world.status(first, second), on_hold(world)) == (["allocated", "queued"], {"g": 4, "high": 4})
    assert world.client.hgetall(key("pool_victims", world.workspace, "p")) == {a.id: "-", b.id: second.id, c.id: second.id}


def test_the_owner_of_a_hold_passes_an_earlier_waiter_without_patience(world: World) -> None:
    first, second = pool_with_group(world, 2, 2, gpu=4, settings={"order": "priority_first", "patience_s": 5})
    world.policy("owner", reserved={"gpu": 4})
    patient = world.submit("high", gpu=2)
    world.pass_time(5)
    waiter = world.submit("owner", gpu=4)
    world.preempt(waiter, first, second, reason="reclaim")
    assert hold_kinds(world) == {patient.id: "patience", waiter.id: "victims"}
    assert (world.get_pool().on_hold["gpu"], on_hold(world)) == (2, {"owner": 4})
    vacate(world, first)
    assert (world.status(patient, waiter), on_hold(world)) == (["queued", "queued"], {"pool": 2, "owner": 4})
    vacate(world, second)
    assert (world.status(patient, waiter), hold_kinds(world)) == (["queued", "allocated"], {patient.id: "patience"})


def test_whose_way_is_cleared_has_no_hold_of_patience(world: World) -> None:
    (victim,) = pool_with_group(world, 4, gpu=4, settings={"patience_s": 5})
    waiter = world.submit("high", gpu=4)
    world.pass_time(5)
    assert hold_kinds(world) == {waiter.id: "patience"}
    world.preempt(waiter, victim)
    assert (hold_kinds(world), world.get_pool().on_hold) == ({waiter.id: "victims"}, {})
    world.pass_time(5)
    assert (hold_kinds(world), on_hold(world)) == ({waiter.id: "victims"}, {"g": 4, "high": 4})
    world.cancel(waiter)
    assert (hold_kinds(world), on_hold(world)) == ({}, {})


def test_of_one_shape_patience_is_lost_by_the_first_whose_way_is_not_cleared(world: World) -> None:
    victim, _ = pool_with_group(world, 2, 2, gpu=4, settings={"patience_s": 5})
    first, second = world.submit("high", gpu=2), world.submit("high", gpu=2)
    world.preempt(first, victim)
    world.pass_time(5)
    assert hold_kinds(world) == {first.id: "victims", second.id: "patience"}


def test_strict_only_the_owner_of_a_hold_passes(world: World) -> None:
    a, b = pool_with_group(world, 2, 2, gpu=4, settings={"queueing": "strict"})
    owner = world.submit("low", gpu=2)
    world.preempt(owner, a)
    before, behind = world.submit("high", gpu=3), world.submit("low", gpu=1)
    vacate(world, a)
    assert (world.status(before, owner, behind), on_hold(world)) == (["queued", "allocated", "queued"], {})
    world.release(b)
    assert world.status(before, behind) == ["queued", "queued"]


# ---- a hold ends

End = Callable[[World, Request], object]
ENDS: dict[str, End] = {
    "granted here": lambda world, _: world.update_pool(gpu=8),
    "granted elsewhere": lambda world, _: world.update_pool("q", gpu=5),
    "cancelled": lambda world, owner: world.cancel(owner),
    "dropped": lambda world, owner: world.drop(owner),
    "expired": lambda world, _: world.pass_time(60),
    "shut out here": lambda world, _: world.policy("high", priority=1, group="g", limit={"gpu": 3}),
    "its policy moved": lambda world, _: world.policy("high", priority=1),
    "its group moved": lambda world, _: world.group("g", parent="h"),
}
BECOMES = {
    "granted here": ("allocated", "p"),
    "granted elsewhere": ("allocated", "q"),
    "cancelled": ("cancelled", None),
    "dropped": ("cancelled", None),
    "expired": ("expired", None),
}


@pytest.mark.parametrize("end", sorted(ENDS))
def test_a_hold_ends(world: World, end: str) -> None:
    (victim,) = pool_with_group(world, 4, gpu=4)
    world.group("h")
    world.pool("q", gpu=4)
    world.policy("elsewhere", "q")
    world.policy("high", "q")
    world.submit("elsewhere", gpu=1)
    waiter, other = world.submit("high", gpu=4, queue_ttl_s=60), world.submit("low", gpu=1)
    assert (world.preempt(waiter, victim).applied, on_hold(world)) == (True, {"g": 4, "high": 4})
    ENDS[end](world, waiter)
    request = world.get(waiter)
    assert (str(request.status), request.pool) == BECOMES.get(end, ("queued", None))
    assert (on_hold(world), hold_kinds(world), world.status(other)) == ({}, {}, ["queued"])
    assert world.client.hget(key("request", world.workspace, waiter.id), "victim_hold_pool") is None
    assert_strays(world, victim)


def test_a_hold_ends_when_its_owner_fits_nowhere_any_more(world: World) -> None:
    (victim,) = pool_with_group(world, 4, gpu=4)
    waiter = world.submit("high", gpu=4)
    world.preempt(waiter, victim)
    world.policy("high", priority=1, group="g", limit={"gpu": 3})
    assert (world.status(waiter), on_hold(world), hold_kinds(world)) == (["rejected"], {}, {})
    assert_strays(world, victim)


def test_a_hold_ends_when_its_owners_fixed_share_is_used_up(world: World) -> None:
    (victim,) = pool_with_group(world, 4, gpu=6)
    world.policy("high", priority=1, reserved={"gpu": 4})
    waiter = world.submit("high", gpu=4, preemptible=False)
    world.preempt(waiter, victim, reason="reclaim")
    assert on_hold(world) == {"high": 4}
    rival = world.submit("high", gpu=2, preemptible=False)
    assert (world.status(waiter, rival), on_hold(world), hold_kinds(world)) == (["queued", "allocated"], {}, {})
    assert_strays(world, victim)


def test_a_limit_ends_no_hold_with_victims(world: World) -> None:
    (victim,) = pool_with_group(world, 2, gpu=4)
    busy = world.submit("high", gpu=2)
    waiter = world.submit("high", gpu=2)
    world.preempt(waiter, victim)
    world.policy("high", priority=1, group="g", limit={"gpu": 3})
    assert hold_kinds(world) == {waiter.id: "victims"}
    vacate(world, victim)
    assert (world.status(waiter), on_hold(world)) == (["queued"], {"pool": 2, "g": 2, "high": 2})
    world.release(busy)
    assert (world.status(waiter), on_hold(world)) == (["allocated"], {})


def test_numbers_that_change_leave_a_hold_as_it_is(world: World) -> None:
    a, b = pool_with_group(world, 2, 2, gpu=4)
    waiter = world.submit("high", gpu=4)
    world.preempt(waiter, a, b)
    vacate(world, a)
    before = on_hold(world)
    world.policy("high", priority=7, group="g", reserved={"gpu": 0}, limit={"gpu": 4})
    world.update_pool(gpu=5, settings={"discipline": "classes"})
    assert (on_hold(world), hold_kinds(world)) == (before, {waiter.id: "victims"})
    vacate(world, b)
    assert world.status(waiter) == ["allocated"]


# ---- orphaned victims


def orphaned_victim(world: World, **fields: Any) -> Request:
    """Create a victim whose waiter does not need it any more."""
    pool_with_group(world, gpu=4)
    victim = world.submit("low", gpu=4, **fields)
    waiter = world.submit("high", gpu=4)
    world.preempt(waiter, victim)
    world.cancel(waiter)
    return victim


def test_a_stray_is_called_back(world: World) -> None:
    victim = orphaned_victim(world, checkpoint="auto")
    world.checkpoint(victim, "progress")
    before = world.get(victim)
    assert world.reprieve(victim).applied
    request = world.get(victim)
    assert (request.status, request.fence, request.directive, request.deadline_ms, request.reason, request.preempted_by) == (
        "allocated", before.fence, "continue", None, None, None,
    )  # fmt: skip
    assert [line.event for line in request.timeline] == ["submitted", "allocated", "preempting", "reprieved"]
    assert (request.preemptions, world.heartbeat(victim).directive, world.enforce_deadlines(10_000)) == (0, "continue", 0)
    waiter = world.submit("high", gpu=4)
    assert world.preempt(waiter, victim).applied, "and may be told again"
    world.enforce_deadlines(600)
    assert world.get(victim).directive == "terminate", "its answer of before is no answer now"


def test_a_stray_may_leave_or_end_by_itself(world: World) -> None:
    for way, becomes in (("vacated", "allocated"), ("succeeded", "released")):
        world.client.flushall()
        victim = orphaned_victim(world, retries=1)
        world.release(victim, outcome=way)
        assert (world.status(victim), on_hold(world)) == ([becomes], {})
        assert world.client.exists(key("pool_victims", world.workspace, "p")) == 0


def test_no_deadline_counts_for_a_stray_whatever_it_says(world: World) -> None:
    victim = orphaned_victim(world, checkpoint="auto")
    world.checkpoint(victim, "defer", 10)
    assert world.client.exists(key("preemption_deadlines", world.workspace)) == 0
    world.checkpoint(victim, "failed")
    assert world.client.exists(key("preemption_deadlines", world.workspace)) == 0
    assert (world.enforce_deadlines(10_000), world.status(victim)) == (0, ["preempting"])


def test_a_minute_after_its_reprieve_an_allocation_cannot_leave_any_more(world: World) -> None:
    victim = orphaned_victim(world)
    assert world.reprieve(victim).applied
    world.clock.advance(60.001)
    with pytest.raises(Conflict) as error:
        world.release(victim, outcome="vacated")
    assert error.value.code == "not_leaving"


def test_a_stray_that_is_passed_on_is_given_the_time_it_left_for_nothing(world: World) -> None:
    a, b = pool_with_group(world, 2, 2, gpu=5)
    old_owner, heir = world.submit("high", gpu=2), world.submit("high", gpu=3)
    assert (world.preempt(old_owner, a).applied, world.preempt(heir, b).applied) == (True, True)
    deadline_ms = world.get(a).deadline_ms
    world.cancel(old_owner)
    world.clock.advance(7)
    assert world.pass_on(a, heir).applied
    assert deadline_ms is not None
    assert world.get(a).deadline_ms == deadline_ms + 7000


def test_a_stray_is_passed_on_with_the_time_it_had(world: World) -> None:
    a, b = pool_with_group(world, 2, 2, gpu=5)
    old_owner, heir = world.submit("high", gpu=2), world.submit("high", gpu=3)
    assert (world.preempt(old_owner, a).applied, world.preempt(heir, b).applied) == (True, True)
    assert on_hold(world) == {"pool": 1, "g": 5, "high": 5}
    world.clock.advance(10)
    deadline = world.get(a).deadline_ms
    world.cancel(old_owner)
    assert on_hold(world) == {"pool": 1, "g": 3, "high": 3}
    assert world.pass_on(a, heir).applied
    request = world.get(a)
    assert (on_hold(world), request.deadline_ms, request.preempted_by) == ({"g": 3, "high": 3}, deadline, heir.id)
    assert world.client.zscore(key("preemption_deadlines", world.workspace), a.id) == deadline
    assert [(event.event, event.by, event.rank, event.by_rank) for event in world.events() if event.request == a.id][-1] == (
        "passed_on", heir.id, "0,5", "1,5",
    )  # fmt: skip
    assert world.get(heir).timeline[-1].victims == ((a.id, "0,5"),)
    assert (world.enforce_deadlines(20), world.status(heir, a, b)) == (2, ["allocated", "preempted", "preempted"])


def test_the_owner_is_granted_early_and_its_other_victims_are_orphaned(world: World) -> None:
    a, b = pool_with_group(world, 2, 2, gpu=5)
    old_owner, heir = world.submit("high", gpu=2), world.submit("high", gpu=3)
    world.preempt(old_owner, a)
    world.preempt(heir, b)
    world.cancel(old_owner)
    world.pass_on(a, heir)
    vacate(world, a)
    assert (world.status(heir), on_hold(world), hold_kinds(world)) == (["allocated"], {}, {})
    assert_strays(world, b)
    assert (world.reprieve(b).applied, world.used()) == (True, {"gpu": 5})


def test_only_strays_are_judged_and_each_once(world: World) -> None:
    a, b, c = pool_with_group(world, 2, 2, 2, gpu=6)
    first, second, none = (world.submit("high", gpu=2) for _ in range(3))
    world.preempt(first, a)
    world.preempt(second, b)
    before = world.state()
    assert [world.reprieve(a).reason, world.pass_on(a, second).reason, world.reprieve(c).reason] == ["victim"] * 3
    assert world.state() == before
    world.cancel(first)
    before = world.state()
    assert (world.pass_on(a, none).reason, world.pass_on(a, first).reason) == ("hold", "hold")
    assert world.state() == before
    assert world.pass_on(a, second).applied
    before = world.state()
    assert (world.pass_on(a, second).reason, world.reprieve(a).reason, world.state()) == ("victim", "victim", before)


# ---- a hold that no victims can fill


def test_a_hold_that_will_be_filled_is_not_ended(world: World) -> None:
    a, b = pool_with_group(world, 2, 2, gpu=4)
    waiter, none = world.submit("high", gpu=4), world.submit("high", gpu=1)
    world.preempt(waiter, a, b)
    vacate(world, a)
    before = world.state()
    assert (world.end_hold(waiter).reason, world.end_hold(none).reason, world.state()) == ("enough", "hold", before)


def test_a_hold_that_cannot_be_filled_is_ended_or_asks_again(world: World) -> None:
    for way in ("ends", "asks again"):
        world.client.flushall()
        a, b = pool_with_group(world, 2, 2, gpu=4)
        waiter = world.submit("high", gpu=2)
        world.preempt(waiter, a)
        since = world.get_pool().holds
        world.clock.advance(1)
        world.update_pool(gpu=3)
        if way == "asks again":
            assert world.preempt(waiter, b).applied
            assert (world.get_pool().holds, on_hold(world)) == (since, {"g": 2, "high": 2})
            vacate(world, b)
            assert (world.status(waiter), on_hold(world)) == (["queued"], {"g": 2, "high": 2})
            vacate(world, a)
            assert (world.status(waiter), on_hold(world)) == (["allocated"], {})
        else:
            assert world.end_hold(waiter).applied
            assert (hold_kinds(world), on_hold(world), world.end_hold(waiter).reason) == ({}, {}, "hold")
            assert_strays(world, a)


def test_before_strays_are_judged_no_hold_ends_for_want(world: World) -> None:
    a, b = pool_with_group(world, 2, 2, gpu=4)
    first, second = world.submit("high", gpu=2), world.submit("high", gpu=2)
    world.preempt(first, a)
    world.preempt(second, b)
    world.cancel(first)
    world.update_pool(gpu=3)
    assert world.end_hold(second).reason == "unjudged"
    world.reprieve(a)
    assert world.end_hold(second).applied
    assert_strays(world, b)


# ---- the parts of a hold that bind others


def test_a_later_hold_does_not_bind_the_earlier_owner_by_free_units_it_keeps(world: World) -> None:
    a, b = pool_with_group(world, 4, 2, gpu=8)
    first, second = world.submit("high", gpu=4), world.submit("high", gpu=4)
    assert (world.preempt(first, a).applied, world.preempt(second, b).applied) == (True, True)
    world.update_pool(gpu=10)
    assert world.status(first, second) == ["allocated", "queued"]


def test_a_later_hold_ends_if_the_earlier_one_leaves_it_too_little(world: World) -> None:
    a, b = pool_with_group(world, 2, 4, gpu=8)
    first, second = world.submit("high", gpu=4), world.submit("high", gpu=4)
    assert (world.preempt(first, a).applied, world.preempt(second, b).applied) == (True, True)
    world.update_pool(gpu=6)
    assert world.end_hold(second).applied
