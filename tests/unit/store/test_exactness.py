"""Numbers stay exact up to 2^53-1, and names of any valid length and spelling give different keys."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.queue_score import MAX_AMOUNT
from tests.support.world import World

LONG = "k" + "-" * 31 + "." * 31


def test_the_largest_amount_is_held_and_given_back(world: World) -> None:
    world.pool(gpu=MAX_AMOUNT)
    world.policy(reserved={"gpu": MAX_AMOUNT}, limit={"gpu": MAX_AMOUNT})
    a = world.submit(gpu=MAX_AMOUNT, preemptible=False)
    b = world.submit(gpu=1)
    assert (world.status(a, b), world.get_pool().used["gpu"], world.get_pool().free) == (
        ["allocated", "queued"],
        MAX_AMOUNT,
        {"gpu": 0},
    )
    world.release(a)
    assert (world.status(b), world.get_pool().free) == (["allocated"], {"gpu": MAX_AMOUNT - 1})


def test_one_unit_too_many_is_seen_among_the_largest(world: World) -> None:
    world.pool(gpu=MAX_AMOUNT)
    world.policy()
    a = world.submit(gpu=MAX_AMOUNT - 1)
    b, c = world.submit(gpu=2), world.submit(gpu=1)
    assert (world.status(a, b, c), world.used()) == (["allocated", "queued", "allocated"], {"gpu": MAX_AMOUNT})
    world.release(c)
    assert (world.status(b), world.used()) == (["queued"], {"gpu": MAX_AMOUNT - 1})


def test_an_unbounded_key_never_goes_beyond_what_is_exact(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    a = world.submit(mcpu=MAX_AMOUNT - 1)
    b, c = world.submit(mcpu=2), world.submit(mcpu=1)
    assert (world.status(a, b, c), world.get_pool().used["mcpu"]) == (["allocated", "queued", "allocated"], MAX_AMOUNT)
    world.release(a)
    assert (world.status(b), world.get_pool().used["mcpu"]) == (["allocated"], 3)


def test_promises_of_the_largest_amounts_are_summed_exactly(world: World) -> None:
    world.pool(gpu=MAX_AMOUNT)
    world.policy("a", reserved={"gpu": MAX_AMOUNT - 1})
    world.policy("b", reserved={"gpu": 1})
    message = f"the reserved shares in the pool add up to {MAX_AMOUNT + 1} of gpu; it has {MAX_AMOUNT} to give"
    with pytest.raises(Exception, match=message):
        world.policy("c", reserved={"gpu": 1})
    with pytest.raises(Exception, match=f"{MAX_AMOUNT} of gpu are reserved in all; the pool would have {MAX_AMOUNT - 1}"):
        world.update_pool(gpu=MAX_AMOUNT - 1)


def test_a_hold_of_the_largest_amount(world: World) -> None:
    world.pool(gpu=MAX_AMOUNT, settings={"patience_s": 1})
    world.policy()
    holder = world.submit(gpu=1)
    big = world.submit(gpu=MAX_AMOUNT)
    world.pass_time(1)
    small = world.submit(gpu=1)
    assert (world.get_pool().on_hold["gpu"], world.status(big, small)) == (MAX_AMOUNT, ["queued", "queued"])
    world.release(holder)
    assert world.status(big, small) == ["allocated", "queued"]


def test_durations_of_ten_years(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    years = 10 * 365 * 24 * 3600
    a = world.submit(gpu=1, lease_s=years, walltime_s=years, queue_ttl_s=years)
    b = world.submit(gpu=1, queue_ttl_s=years)
    assert a.lease_expires_ms == world.clock.now_ms() + years * 1000
    world.pass_time(years - 0.001)
    assert world.status(a, b) == ["allocated", "queued"]
    world.pass_time(0.001)
    assert world.status(a, b) == ["expired", "expired"]


def test_as_many_keys_as_may_be_with_names_as_long_as_may_be(world: World) -> None:
    keys = [f"{LONG[:-2]}{number:02d}" for number in range(32)]
    capacity: dict[str, Any] = dict.fromkeys(keys, 2)
    world.pool(**capacity)
    world.policy(reserved=dict.fromkeys(keys, 1), limit=dict.fromkeys(keys, 2))
    a = world.submit(resources=dict.fromkeys(keys, 1), preemptible=False)
    b, c = (world.submit(resources=dict.fromkeys(keys, 2)) for _ in range(2))
    assert (world.status(a, b, c), world.used()) == (["allocated", "queued", "queued"], dict.fromkeys(keys, 1))
    world.release(a)
    assert (world.status(b, c), world.get(c).position) == (["allocated", "queued"], {"p": 1})
    assert world.get(b).resources == {**dict.fromkeys(keys, 2), "step_run": 1}
    capacity[keys[0]] = 4
    world.update_pool(**capacity)
    world.release(b)
    assert world.status(c) == ["allocated"]


def test_names_as_long_and_odd_as_may_be(world: World) -> None:
    far = World(world.client, workspace="W" + "-" * 61 + ".")
    pool, group, component = "P" + "." * 62, "g" + "_" * 62, "T" + "-" * 62 + "/" + "9" + "." * 62
    far.pool(pool, **{LONG: 2}, settings={"patience_s": 1})
    far.group(group, pool, reserved={LONG: 2}, limit={LONG: 2})
    far.policy(component, pool, group=group, reserved={LONG: 1}, limit={LONG: 2})
    allocation = far.submit(component, resources={LONG: 1}, preemptible=False)
    big, small = far.submit(component, resources={LONG: 2}), far.submit(component, resources={LONG: 1}, preemptible=False)
    far.pass_time(1)
    far.policy(component, pool, group=group, reserved={LONG: 2}, limit={LONG: 2})
    assert far.status(allocation, big, small) == ["allocated", "queued", "allocated"]
    far.release(allocation)
    far.release(small)
    assert (far.status(big), far.get_pool(pool).groups[group].used) == (["allocated"], {LONG: 2, "step_run": 1})
    assert {key.split(":")[1] for key in far.state()} == {"{" + far.workspace + "}"}


def test_names_that_look_like_parts_of_keys_do_not_meet(world: World) -> None:
    names = ["queue", "active", "p.queue", "pool", "policy", "group", "a-b", "a.b", "a_b", "A-b"]
    for name in names:
        world.pool(name, gpu=1)
        world.group(name, name)
        world.policy(f"{name}/{name}", name, group=name)
    allocations = [world.submit(f"{name}/{name}", gpu=1) for name in names]
    waiting = [world.submit(f"{name}/{name}", gpu=1) for name in names]
    assert [each.pool for each in allocations] == names
    for name, request, waiter in zip(names, allocations, waiting, strict=True):
        assert world.queue(name) == [waiter.id]
        world.release(request)
        assert world.get(waiter).pool == name


def test_a_reason_with_the_largest_numbers(world: World) -> None:
    world.pool(gpu=MAX_AMOUNT - 1)
    world.policy()
    rejected = world.submit(gpu=MAX_AMOUNT)
    assert rejected.reason is not None
    assert (rejected.reason.pools[0].requested, rejected.reason.pools[0].bound) == (MAX_AMOUNT, MAX_AMOUNT - 1)
