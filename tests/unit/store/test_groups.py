"""Groups: accounts between a pool and its policies, whose limits hold and whose shares are divided."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.errors import Conflict, NotFound, RuleViolation
from app.domain.specs import GroupSpec
from tests.support.world import World


def refused_code(world: World, name: str, **numbers: Any) -> str:
    """Return the code with which a group's numbers are refused, and check that nothing changes."""
    before = world.state()
    with pytest.raises(RuleViolation) as error:
        world.group(name, **numbers)
    assert world.state() == before
    return error.value.code


def test_the_departments_limit_holds_over_its_teams(world: World) -> None:
    world.pool(gpu=10)
    world.group("research", reserved={"gpu": 6}, limit={"gpu": 6})
    for team, reserved in (("vision", 5), ("speech", 1)):
        world.policy(team, group="research", priority=1, reserved={"gpu": reserved}, limit={"gpu": 6})
    with pytest.raises(RuleViolation) as error:
        world.policy("audio", group="research", priority=1, reserved={"gpu": 1})
    assert str(error.value) == "the reserved shares in group research add up to 7 of gpu; it has 6 to give"
    a = world.submit("vision", gpu=5)
    b = world.submit("speech", gpu=2)
    c = world.submit("speech", gpu=1)
    assert (world.status(a, b, c), world.used()) == (["allocated", "queued", "allocated"], {"gpu": 6})
    world.release(a)
    assert world.status(b) == ["allocated"]
    assert world.get_pool().groups["research"].used["gpu"] == 3


def test_a_group_in_full(world: World) -> None:
    world.pool(gpu=8)
    world.group("upper", reserved={"gpu": 4}, limit={"gpu": 6}, weight=3)
    world.group("lower", parent="upper", reserved={"gpu": 1})
    world.policy(group="lower", reserved={"gpu": 1})
    world.submit(gpu=1, preemptible=False)
    world.submit(gpu=2)
    pool = world.get_pool()
    upper, lower = pool.groups["upper"], pool.groups["lower"]
    assert (upper.parent, upper.weight, upper.reserved, upper.limit) == (None, 3, {"gpu": 4}, {"gpu": 6})
    assert (lower.parent, lower.weight, lower.reserved, lower.limit) == ("upper", 1, {"gpu": 1}, {})
    for account in (upper, lower, pool):
        assert (account.used["gpu"], account.used_fixed["gpu"]) == (3, 1)
    assert (lower.borrowed["gpu"], upper.borrowed.get("gpu")) == (2, None)


def test_the_mode_of_a_group(world: World) -> None:
    world.pool(gpu=8)
    world.group("g")
    assert world.get_pool().groups["g"].mode == "fair_share"
    for mode in ("fifo", "fair_share"):
        world.group("g", mode=mode)
        assert world.get_pool().groups["g"].mode == mode
    world.group("g", mode="fifo")
    world.group("g")
    assert world.get_pool().groups["g"].mode == "fair_share"


def test_what_cannot_be_promised_is_refused(world: World) -> None:
    world.pool(gpu=8)
    world.group("g", reserved={"gpu": 4})
    world.policy("a", group="g", reserved={"gpu": 3})
    assert refused_code(world, "g", reserved={"gpu": 2}) == "reserved_below_children"
    assert refused_code(world, "g", reserved={"gpu": 4}, limit={"gpu": 3}) == "reserved_beyond_limit"
    assert refused_code(world, "g", reserved={"gpu": 4}, limit={"gpu": 9}) == "limit_beyond_capacity"
    assert refused_code(world, "h", reserved={"gpu": 5}) == "overpromised"
    assert refused_code(world, "h", parent="g", reserved={"gpu": 2}) == "overpromised"
    assert refused_code(world, "h", limit={"tpu": 1}) == "unknown_key"
    assert refused_code(world, "h", settings={"non_preemptible_usage_threshold": {"tpu": 0}}) == "unknown_threshold_key"
    world.group("g", reserved={"gpu": 3})
    world.group("h", reserved={"gpu": 5})


def test_a_group_is_never_above_itself(world: World) -> None:
    world.pool(gpu=8)
    world.group("a")
    world.group("b", parent="a")
    world.group("c", parent="b")
    assert refused_code(world, "a", parent="c") == "circle"
    assert refused_code(world, "a", parent="a") == "circle"


def test_groups_are_nested_eight_deep_at_most_however_they_come_there(world: World) -> None:
    world.pool(gpu=8)
    world.group("g1")
    for depth in range(2, 9):
        world.group(f"g{depth}", parent=f"g{depth - 1}")
    assert refused_code(world, "g9", parent="g8") == "too_deep"
    world.group("root")
    assert refused_code(world, "g1", parent="root") == "too_deep"
    world.group("g8", parent="root")
    world.group("g1", parent="root")
    assert world.get_pool().groups["g1"].parent == "root"


def test_an_unknown_parent_is_not_found(world: World) -> None:
    world.pool(gpu=8)
    with pytest.raises(NotFound) as absent:
        world.group("g", parent="absent")
    assert (absent.value.code, str(absent.value)) == ("no_such_group", "there is no group absent")


def test_a_group_with_children_is_not_deleted(world: World) -> None:
    world.pool(gpu=8)
    world.group("a", reserved={"gpu": 8})
    world.group("b", parent="a")
    world.policy(group="b")
    for name, child in (("a", "group b"), ("b", "policy orchestrator/t")):
        with pytest.raises(Conflict) as error:
            world.ledger.delete_group("test", "p", name)
        assert str(error.value) == f"group {name} is the parent of {child}"
    world.policy()
    world.ledger.delete_group("test", "p", "b")
    world.ledger.delete_group("test", "p", "a")
    assert world.get_pool().groups == {}
    world.policy(reserved={"gpu": 8})


def test_says_whether_it_is_new(world: World) -> None:
    world.pool(gpu=8)
    assert [world.ledger.set_group("test", "p", "g", GroupSpec(weight=weight)) for weight in (1, 2)] == [True, False]


def test_moving_is_refused_while_units_are_held_and_takes_the_promises_along(world: World) -> None:
    world.pool(gpu=8)
    for name in ("a", "b"):
        world.group(name, reserved={"gpu": 4})
    world.group("child", parent="a", reserved={"gpu": 3})
    world.policy(group="child")
    request = world.submit(gpu=1)
    with pytest.raises(Conflict) as error:
        world.group("child", parent="b", reserved={"gpu": 3})
    assert error.value.code == "moves_in_use"
    world.release(request)
    world.group("child", parent="b", reserved={"gpu": 3})
    assert refused_code(world, "b", reserved={"gpu": 2}) == "reserved_below_children"
    world.group("a", reserved={"gpu": 0})


def test_a_lowered_limit_of_a_group_keeps_allocations_and_grants_none(world: World) -> None:
    world.pool(gpu=8)
    world.group("g")
    world.policy(group="g")
    a, b = world.submit(gpu=3), world.submit(gpu=3)
    world.group("g", limit={"gpu": 4})
    c, d = world.submit(gpu=1), world.submit(gpu=5)
    assert world.status(a, b, c, d) == ["allocated", "allocated", "queued", "rejected"]
    world.release(a)
    assert world.status(c) == ["allocated"]


def test_a_group_at_its_limit_blocks_no_request_outside(world: World) -> None:
    world.pool(gpu=8)
    world.group("g", limit={"gpu": 2})
    world.policy("in", group="g", priority=9)
    world.policy("out")
    allocation, waiter = world.submit("in", gpu=2), world.submit("in", gpu=1)
    outside = world.submit("out", gpu=6)
    assert world.status(waiter, outside) == ["queued", "allocated"]
    world.group("g", limit={"gpu": 3})
    assert world.status(waiter) == ["queued"]
    world.release(allocation)
    assert world.status(waiter) == ["allocated"]
