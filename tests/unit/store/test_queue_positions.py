"""The position that a waiter gets is its place in the queue that is shown."""

from __future__ import annotations

import pytest

from tests.support.world import World


def positions(world: World, pool: str = "p") -> list[int]:
    """Return the positions of the requests in the queue, in order."""
    return [world.get(each).position[pool] for each in world.queue(pool)]


@pytest.mark.parametrize("discipline", ["reserved", "classes"])
@pytest.mark.parametrize("order", ["share_first", "priority_first"])
def test_places_count_up_along_the_queue(world: World, order: str, discipline: str) -> None:
    world.pool(gpu=8, settings={"order": order, "discipline": discipline})
    for component, priority, reserved in (("a", 5, 2), ("b", 5, 0), ("c", 9999, 3), ("d", 0, 1)):
        world.policy(component, priority=priority, reserved={"gpu": reserved})
    world.submit("b", gpu=8)
    asks = [(component, gpu, each) for gpu in (1, 3) for each in (5, 10, 0) for component in "abcd"]
    for component, gpu, each in asks:
        world.submit(component, gpu=gpu, preemption_class=each)
    assert positions(world) == list(range(1, len(asks) + 1))


def test_a_waiter_has_a_place_in_every_pool_it_is_eligible_in(world: World) -> None:
    for pool, gpu in (("a", 1), ("b", 2), ("c", 4)):
        world.pool(pool, gpu=gpu)
        world.policy("t", pool)
        world.policy("u", pool, priority=9)
    assert [world.submit("u", gpu=gpu).pool for gpu in (4, 2, 1)] == ["c", "b", "a"]
    world.submit("u", gpu=4)
    waiter = world.submit(gpu=2)
    assert world.get(waiter).position == {"b": 1, "c": 2}


def test_a_request_that_does_not_wait_has_no_position(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    a, b = world.submit(gpu=1), world.submit(gpu=1)
    assert (world.get(a).position, world.get(b).position) == ({}, {"p": 1})
    world.release(a)
    assert world.get(b).position == {}


def test_positions_follow_cancelled_and_preferred_requests(world: World) -> None:
    world.pool(gpu=1)
    world.policy("a")
    world.policy("b", priority=1)
    world.submit("a", gpu=1)
    first, second, third = (world.submit("a", gpu=1) for _ in range(3))
    assert [world.get(each).position["p"] for each in (first, second, third)] == [1, 2, 3]
    world.cancel(second)
    ahead = world.submit("b", gpu=1)
    assert [world.get(each).position["p"] for each in (ahead, first, third)] == [1, 2, 3]


def test_places_in_a_long_lane(world: World) -> None:
    world.pool(gpu=1)
    world.policy("t", reserved={"gpu": 1})
    world.policy("u", priority=5)
    world.submit("u", gpu=1)
    world.submit_all([world.request_spec(["t", "u"][number % 2], gpu=1) for number in range(120)])
    assert positions(world) == list(range(1, 121))
