"""Policies: the units that may be reserved, and the waiters and allocations of a replaced policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.domain.errors import Conflict, NotFound, Refusal, RuleViolation
from app.domain.specs import PolicySpec
from app.store.keys import key
from tests.support.world import World

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"reserved": {"gpu": 4}}, "overpromised", "the reserved shares in the pool add up to 9 of gpu; it has 8 to give"),
    ({"reserved": {"gpu": 3}, "limit": {"gpu": 2}}, "reserved_beyond_limit",
     "policy orchestrator/b reserves 3 of gpu, more than its limit of 2"),
    ({"reserved": {"gpu": 9}}, "reserved_beyond_limit", "policy orchestrator/b reserves 9 of gpu, more than its limit of 8"),
    ({"limit": {"gpu": 9}}, "limit_beyond_capacity", "policy orchestrator/b limits gpu to 9; the pool has 8"),
    ({"reserved": {"mcpu": 1}}, "unknown_key", "the pool has no mcpu; a policy or a group can only have keys of its pool"),
    ({"settings": {"non_preemptible_usage_threshold": {"gpu": 1, "mcpu": 2}}}, "unknown_threshold_key",
     "non_preemptible_usage_threshold of policy orchestrator/b has 2 of mcpu; the pool has no mcpu"),
    ({"limit": {"mcpu": 1}}, "unknown_key", "the pool has no mcpu; a policy or a group can only have keys of its pool"),
]  # fmt: skip


@pytest.mark.parametrize(("numbers", "code", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_promised_is_refused_and_nothing_changes(
    world: World, numbers: dict[str, Any], code: str, message: str
) -> None:
    world.pool(gpu=8, tpu=2)
    world.policy("a", reserved={"gpu": 5}, limit={"gpu": 6})
    before = world.state()
    with pytest.raises(RuleViolation) as error:
        world.policy("b", **numbers)
    assert (error.value.code, str(error.value)) == (code, message)
    assert world.state() == before


def test_a_policy_gives_its_own_reservation_back_when_it_is_replaced(world: World) -> None:
    world.pool(gpu=8)
    world.policy("a", reserved={"gpu": 5})
    world.policy("b", reserved={"gpu": 3})
    world.policy("a", reserved={"gpu": 4})
    world.policy("b", reserved={"gpu": 4})
    with pytest.raises(RuleViolation):
        world.policy("a", reserved={"gpu": 5})
    assert {name: policy.reserved for name, policy in world.get_pool().policies.items()} == {
        "orchestrator/a": {"gpu": 4}, "orchestrator/b": {"gpu": 4},
    }  # fmt: skip


def test_says_whether_it_is_new(world: World) -> None:
    world.pool(gpu=8)
    answers = [world.ledger.set_policy("test", "p", "x/y", PolicySpec(priority=priority)) for priority in (1, 2)]
    assert answers == [True, False]


def test_a_replaced_policy_forgets_what_is_not_said_again(world: World) -> None:
    world.pool(gpu=8)
    world.policy(priority=5, weight=3, reserved={"gpu": 2}, limit={"gpu": 4}, settings={"over_limit": "keep"})
    world.policy()
    policy = world.get_pool().policies["orchestrator/t"]
    assert (policy.priority, policy.weight, policy.reserved, policy.limit, policy.settings) == (0, 1, {}, {}, {})


SETTINGS: dict[str, Any] = {
    "over_limit": "keep",
    "over_limit_after_s": 0,
    "fair_share_tolerance": 0.000001,
    "starvation_timeout_s": 60,
    "aggressive_starvation": False,
    "aggressive_starvation_timeout_s": 315_360_000,
    "allow_aggressive_preemption": True,
    "aggressive_preemption_threshold": 0,
    "preemption_threshold": 1.25,
    "non_preemptible_usage_threshold": {"gpu": 0, "tpu": 2},
}
"""Every setting a policy or group can have."""
WRITTEN = {
    "over_limit": "keep",
    "over_limit_after_s": "0",
    "fair_share_tolerance": "0.000001",
    "starvation_timeout_s": "60",
    "aggressive_starvation": "0",
    "aggressive_starvation_timeout_s": "315360000",
    "allow_aggressive_preemption": "1",
    "aggressive_preemption_threshold": "0",
    "preemption_threshold": "1.25",
    "non_preemptible_usage_threshold": "gpu=0,tpu=2",
}
"""The texts of these settings in Redis."""


def fields(world: World, *account: str) -> dict[str, str]:
    """Return the hash of a policy or group of pool `p`."""
    account_fields: dict[str, str] = world.state()[key(account[0], world.workspace, "p", account[1])]
    return account_fields


PUT: dict[str, Callable[..., None]] = {"policy": World.policy, "group": World.group}
"""Each sets the account `team/t` of its kind."""


@pytest.mark.parametrize("kind", ["policy", "group"])
def test_settings_of_its_own_are_kept_as_texts_and_come_back(world: World, kind: str) -> None:
    world.pool(gpu=8, tpu=2)
    account, put = (kind, "team/t"), PUT[kind]
    put(world, "team/t", settings=SETTINGS)
    assert {name: value for name, value in fields(world, *account).items() if name in SETTINGS} == WRITTEN
    settings = {**world.get_pool().policies, **world.get_pool().groups}["team/t"].settings
    assert settings == SETTINGS
    assert {name: type(value) for name, value in settings.items()} == {name: type(value) for name, value in SETTINGS.items()}
    put(world, "team/t", settings={"starvation_timeout_s": 5, "over_limit": None, "non_preemptible_usage_threshold": {}})
    assert {**world.get_pool().policies, **world.get_pool().groups}["team/t"].settings == {"starvation_timeout_s": 5}
    assert not {*fields(world, *account)} & ({*SETTINGS} - {"starvation_timeout_s"})


@pytest.mark.parametrize("kind", ["policy", "group"])
def test_what_was_published_of_it_is_not_touched_by_a_change(world: World, kind: str) -> None:
    world.pool(gpu=8, tpu=2)
    account, put = (kind, "team/t"), PUT[kind]
    put(world, "team/t", settings=SETTINGS, weight=2)
    published = {"status": "starving", "below_ms": "7", "over_ms": "8", "creation_number": "3"}
    for name, value in published.items():
        world.client.hset(key(kind, world.workspace, "p", "team/t"), name, value)
    put(world, "team/t", settings={"preemption_threshold": 2})
    assert published.items() <= fields(world, *account).items()


def test_a_new_policy_is_the_youngest_and_keeps_its_number(world: World) -> None:
    world.pool(gpu=8)
    world.policy("a")
    world.group("g")
    world.policy("b", group="g")
    world.policy("a", weight=2, settings={"preemption_threshold": 2})
    world.group("g", weight=2)
    accounts = (("policy", "orchestrator/a"), ("group", "g"), ("policy", "orchestrator/b"))
    ages = [fields(world, *account)["creation_number"] for account in accounts]
    assert ages == ["1", "2", "3"]
    world.ledger.delete_policy("test", "p", "orchestrator/a")
    world.policy("a")
    assert fields(world, "policy", "orchestrator/a")["creation_number"] == "4"


def test_an_unset_limit_follows_resizes_and_a_set_one_stays(world: World) -> None:
    world.pool(gpu=4)
    world.policy("free")
    world.policy("bound", limit={"gpu": 4})
    world.update_pool(gpu=8)
    assert world.submit("free", gpu=5).status == "allocated"
    assert world.submit("bound", gpu=5).status == "rejected"


def test_a_limit_as_large_as_the_pool_is_none_until_the_pool_grows(world: World) -> None:
    world.pool(gpu=4)
    world.policy("a", limit={"gpu": 4}, priority=1)
    world.policy("b")
    world.submit("a", gpu=3)
    first = world.submit("a", gpu=2)
    world.update_pool(gpu=8)
    assert world.status(first) == ["queued"]
    assert world.submit("b", gpu=5).status == "allocated"


def test_a_waiter_at_a_limit_blocks_no_other(world: World) -> None:
    world.pool(gpu=8)
    world.policy("capped", priority=9, limit={"gpu": 2})
    world.policy("other")
    a = world.submit("capped", gpu=2)
    b = world.submit("capped", gpu=1)
    c = world.submit("other", gpu=6)
    assert world.status(a, b, c) == ["allocated", "queued", "allocated"]
    world.release(a)
    assert world.status(b) == ["allocated"]


def test_work_goes_on_above_a_lowered_limit_and_nothing_new_is_granted(world: World) -> None:
    world.pool(gpu=8)
    world.policy(limit={"gpu": 8})
    a, b = world.submit(gpu=3), world.submit(gpu=3)
    world.policy(limit={"gpu": 4})
    c = world.submit(gpu=1)
    world.release(a)
    assert (world.status(a, b, c), world.used()) == (["released", "allocated", "allocated"], {"gpu": 4})


def test_preemptible_work_does_not_use_up_the_fixed_share(world: World) -> None:
    world.pool(gpu=2)
    world.policy(priority=1, reserved={"gpu": 1}, limit={"gpu": 2})
    a = world.submit(gpu=1, preemptible=False)
    b = world.submit(gpu=1, preemptible=False)
    c = world.submit(gpu=1)
    assert world.status(a, b, c) == ["allocated", "queued", "allocated"]
    world.release(a)
    assert world.status(b) == ["allocated"]


def test_fixed_work_waits_for_its_own_reservation_alone(world: World) -> None:
    world.pool("shared", gpu=8)
    world.policy("sandbox", "shared", priority=10, reserved={"gpu": 4}, limit={"gpu": 8})
    world.policy("prod", "shared", priority=100, reserved={"gpu": 2}, limit={"gpu": 8})
    p1 = world.submit("prod", gpu=2, preemptible=False)
    s = world.submit("sandbox", gpu=6)
    p2 = world.submit("prod", gpu=2, preemptible=False)
    assert world.status(p1, s, p2) == ["allocated", "allocated", "queued"]
    world.release(p1)
    assert world.status(p2, s) == ["allocated", "allocated"]


def test_a_larger_reservation_lets_fixed_work_in(world: World) -> None:
    world.pool(gpu=4)
    world.policy(reserved={"gpu": 1})
    world.submit(gpu=1, preemptible=False)
    waiter = world.submit(gpu=1, preemptible=False)
    world.policy(reserved={"gpu": 2})
    assert world.status(waiter) == ["allocated"]


def test_a_policy_in_use_is_not_taken_away(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    running, waiting = world.submit(gpu=1), world.submit(gpu=1)
    for usage in ("1 queued, 1 active", "0 queued, 1 active"):
        with pytest.raises(Conflict) as error:
            world.ledger.delete_policy("test", "p", "orchestrator/t")
        assert str(error.value) == f"policy orchestrator/t is in use: {usage}"
        world.drop(waiting)
    world.release(running)
    world.ledger.delete_policy("test", "p", "orchestrator/t")
    assert world.submit(gpu=1).status == "rejected"


def test_a_policy_without_eligible_waiters_can_be_deleted(world: World) -> None:
    world.pool("small", gpu=1)
    world.pool("large", gpu=4)
    for pool in ("small", "large"):
        world.policy("t", pool)
    world.submit(gpu=4)
    waiter = world.submit(gpu=2)
    world.ledger.delete_policy("test", "small", "orchestrator/t")
    assert world.get(waiter).position == {"large": 1}


def test_moving_is_refused_while_units_are_held(world: World) -> None:
    world.pool(gpu=4)
    world.group("g")
    world.policy()
    request = world.submit(gpu=1)
    with pytest.raises(Conflict) as error:
        world.policy(group="g")
    assert (error.value.code, str(error.value)) == (
        "moves_in_use", "policy orchestrator/t cannot move to another parent while it holds units",
    )  # fmt: skip
    world.release(request)
    world.policy(group="g")
    assert world.get_pool().policies["orchestrator/t"].parent == "g"


def test_a_policy_moves_with_its_waiters(world: World) -> None:
    world.pool(gpu=4)
    world.group("tight", limit={"gpu": 1})
    world.policy("a", group="tight")
    world.policy("b")
    holder = world.submit("b", gpu=4)
    waiter = world.submit("a", gpu=1)
    second = world.submit("a", gpu=1)
    world.policy("a")
    world.release(holder)
    assert world.status(waiter, second) == ["allocated", "allocated"]
    assert world.get_pool().groups["tight"].used == {}


def test_an_unknown_group_is_not_found(world: World) -> None:
    world.pool(gpu=4)
    with pytest.raises(NotFound) as absent:
        world.policy(group="g")
    assert (absent.value.code, str(absent.value)) == ("no_such_group", "there is no group g")


def test_a_waiter_that_no_policy_fits_any_more_is_rejected(world: World) -> None:
    world.pool(gpu=4)
    world.policy(reserved={"gpu": 2})
    world.submit(gpu=4)
    fixed, free = world.submit(gpu=2, preemptible=False), world.submit(gpu=2)
    world.policy(reserved={"gpu": 1})
    rejected = world.get(fixed)
    assert (world.status(fixed, free), rejected.reason and rejected.reason.code) == (["rejected", "queued"], "exceeds_reserved")
    with pytest.raises(Refusal):
        world.cancel(fixed)


def test_a_limit_as_large_as_the_pool_lets_no_request_pass_a_strict_line(world: World) -> None:
    world.pool(gpu=4, settings={"queueing": "strict"})
    world.policy("a", limit={"gpu": 4}, priority=1)
    world.policy("b")
    world.submit("a", gpu=3)
    first, behind = world.submit("a", gpu=2), world.submit("b", gpu=1)
    assert world.status(first, behind) == ["queued", "queued"]


def test_a_policy_may_reserve_as_much_as_its_limit(world: World) -> None:
    world.pool(gpu=4)
    world.policy(reserved={"gpu": 2}, limit={"gpu": 2})
    assert world.get_pool().policies["orchestrator/t"].reserved == {"gpu": 2}


def test_a_policy_without_allocations_is_not_deleted_while_requests_wait_for_it(world: World) -> None:
    world.pool(gpu=1)
    world.policy("other")
    world.policy()
    world.submit("other", gpu=1)
    world.submit(gpu=1)
    with pytest.raises(Conflict) as error:
        world.ledger.delete_policy("test", "p", "orchestrator/t")
    assert str(error.value) == "policy orchestrator/t is in use: 1 queued, 0 active"
