"""Pools: created, changed, read, deleted; a change that would break a quota is refused, and then nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.domain.declaration import Declaration
from app.domain.errors import Conflict, NotFound, Refusal, RuleViolation
from app.domain.pool_setting_models import PoolSettings
from app.domain.specs import PoolSpec, PoolUpdate
from app.store.keys import key
from tests.support.world import World


def refusal(world: World, act: Callable[[], Any]) -> Refusal:
    """Return the refusal, and check that it changes nothing."""
    before = world.state()
    with pytest.raises(Refusal) as error:
        act()
    assert world.state() == before
    return error.value


def test_a_new_pool_in_full(world: World) -> None:
    body = {"name": "p", "description": 'Größe "8"', "capacity": {"gpu": 8, "tpu": 2}, "settings": {"queueing": "strict"}}
    world.ledger.create_pool(world.workspace, PoolSpec.model_validate(body))
    pool = world.get_pool()
    assert (pool.name, pool.description, pool.capacity) == ("p", 'Größe "8"', {"gpu": 8, "tpu": 2})
    assert (pool.used, pool.used_fixed, pool.on_hold, pool.free, pool.borrowed) == ({}, {}, {}, {"gpu": 8, "tpu": 2}, {})
    settings = PoolSettings(queueing="strict").model_dump()
    assert (pool.settings, pool.queue_length, pool.active_count, pool.unfinished) == (settings, 0, 0, False)
    assert (pool.groups, pool.policies, pool.holds) == ({}, {}, ())


def test_a_pool_with_something_in_it(world: World) -> None:
    world.pool(gpu=8)
    world.policy(reserved={"gpu": 3}, limit={"gpu": 7}, weight=2, priority=4)
    world.submit(gpu=2, preemptible=False)
    world.submit(gpu=4)
    world.submit(gpu=2)
    pool = world.get_pool()
    assert (pool.used["gpu"], pool.used_fixed["gpu"], pool.free, pool.borrowed) == (6, 2, {"gpu": 2}, {"gpu": 3})
    assert (pool.queue_length, pool.active_count) == (1, 2)
    policy = pool.policies["orchestrator/t"]
    assert (policy.priority, policy.weight, policy.parent, policy.queued) == (4, 2, None, 1)
    assert (policy.reserved, policy.limit, policy.used["gpu"], policy.used_fixed["gpu"]) == ({"gpu": 3}, {"gpu": 7}, 6, 2)


def test_names_of_pools_in_order(world: World) -> None:
    for name in ("b", "a.2", "A-1", "a" * 63):
        world.pool(name, gpu=1)
    assert world.pools() == ["A-1", "a.2", "a" * 63, "b"]


def test_a_name_is_taken_once(world: World) -> None:
    world.pool(gpu=1)
    assert refusal(world, lambda: world.pool(tpu=2)).code == "pool_exists"


def test_an_update_is_a_merge(world: World) -> None:
    world.pool(gpu=8, tpu=2, seats=1, settings={"patience_s": 5})
    world.update_pool(tpu=0, seats=3, fpga=1)
    assert world.get_pool().capacity == {"gpu": 8, "seats": 3, "fpga": 1}
    world.update_pool(settings={"queueing": "strict"})
    assert (world.get_pool().settings["queueing"], world.get_pool().settings["patience_s"]) == ("strict", 5)
    world.update_pool(settings={"patience_s": None})
    assert world.get_pool().settings["patience_s"] is None
    for described, expected in ((None, ""), ("new", "new"), (None, "new"), ("", "")):
        world.ledger.update_pool(world.workspace, "p", PoolUpdate(description=described))
        assert world.get_pool().description == expected


def test_what_would_break_a_policy_is_refused_and_nothing_changes(world: World) -> None:
    world.pool(gpu=8, tpu=2)
    world.policy("a", priority=1, reserved={"gpu": 5}, limit={"gpu": 6})
    no = refusal(world, lambda: world.update_pool(gpu=4))
    assert (type(no), no.code) == (Conflict, "breaks_policy")
    assert str(no) == "policy orchestrator/a reserves or is limited to 6 of gpu; the pool would have 4"
    request = world.submit("a", tpu=1)
    for act, code in (
        (lambda: world.update_pool(tpu=0), "key_in_use"), (lambda: world.update_pool(gpu=0), "breaks_policy"),
        (lambda: world.ledger.delete_pool("test", "p"), "in_use"),
        (lambda: world.ledger.delete_policy("test", "p", "orchestrator/a"), "in_use"),
    ):  # fmt: skip
        assert refusal(world, act).code == code
    assert world.get_pool().capacity == {"gpu": 8, "tpu": 2}
    world.release(request)
    world.update_pool(tpu=0)
    world.ledger.delete_policy("test", "p", "orchestrator/a")
    world.ledger.delete_pool("test", "p")
    with pytest.raises(NotFound):
        world.get_pool()


def test_shares_promised_in_all_bound_a_shrink(world: World) -> None:
    world.pool(gpu=8)
    world.policy("a", reserved={"gpu": 3})
    world.policy("b", reserved={"gpu": 3})
    no = refusal(world, lambda: world.update_pool(gpu=5))
    assert (type(no), no.code, str(no)) == (Conflict, "breaks_promises", "6 of gpu are reserved in all; the pool would have 5")
    world.update_pool(gpu=6)


def test_a_groups_numbers_bound_a_shrink(world: World) -> None:
    world.pool(gpu=8)
    world.group("g", limit={"gpu": 6})
    detail = str(refusal(world, lambda: world.update_pool(gpu=5)))
    assert detail == "group g reserves or is limited to 6 of gpu; the pool would have 5"


def test_a_key_a_policy_names_cannot_go_even_if_it_is_limited_to_nothing(world: World) -> None:
    world.pool(gpu=8, tpu=1)
    world.policy(limit={"tpu": 0})
    assert refusal(world, lambda: world.update_pool(tpu=0)).code == "breaks_policy"
    world.policy(limit={})
    world.update_pool(tpu=0)


def test_use_is_protected_of_keys_the_pool_has(world: World) -> None:
    def protecting(**units: int) -> dict[str, Any]:
        return {"non_preemptible_usage_threshold": units}

    no = refusal(world, lambda: world.pool(gpu=8, settings=protecting(gpu=9, tpu=1)))
    assert (type(no), no.code) == (RuleViolation, "unknown_threshold_key")
    assert str(no) == "non_preemptible_usage_threshold of the pool has 1 of tpu; the pool has no tpu"
    world.pool(gpu=8, settings=protecting(gpu=9))
    assert str(refusal(world, lambda: world.update_pool(settings=protecting(tpu=2)))) == str(no).replace("1", "2")
    world.update_pool(tpu=1, settings=protecting(tpu=2))
    assert refusal(world, lambda: world.update_pool(tpu=0)).code == "unknown_threshold_key"
    world.update_pool(tpu=0, settings=protecting())
    assert world.get_pool().settings["non_preemptible_usage_threshold"] == {}


@pytest.mark.parametrize("kind", ["policy", "group"])
def test_a_key_of_which_an_account_protects_its_use_cannot_go(world: World, kind: str) -> None:
    world.pool(gpu=8, tpu=1)
    put: Any = {"policy": world.policy, "group": world.group}[kind]
    put("g", settings={"non_preemptible_usage_threshold": {"tpu": 3}})
    no = refusal(world, lambda: world.update_pool(tpu=0))
    assert (type(no), no.code) == (Conflict, "breaks_policy")
    assert "reserves or is limited to 3 of tpu; the pool would have 0" in str(no)
    world.update_pool(gpu=4)
    put("g", settings={"non_preemptible_usage_threshold": {"gpu": 3}})
    world.update_pool(tpu=0)


def test_a_pool_keeps_at_least_one_key_and_at_most_as_many_as_may_be_asked(world: World) -> None:
    world.pool(gpu=8)
    no = refusal(world, lambda: world.update_pool(gpu=0))
    assert (type(no), no.code) == (RuleViolation, "no_capacity_left")
    more: dict[str, Any] = {f"k{number}": 1 for number in range(31)}
    world.update_pool(**more)
    no = refusal(world, lambda: world.update_pool(one_more=1))
    assert (type(no), no.code) == (RuleViolation, "too_many_keys")
    world.update_pool(one_more=1, gpu=0)


def test_the_first_of_several_changes_that_is_refused_refuses_all(world: World) -> None:
    world.pool(gpu=8, tpu=1)
    world.policy(reserved={"tpu": 1})
    assert refusal(world, lambda: world.update_pool(gpu=16, tpu=0, settings={"queueing": "strict"})).code == "breaks_policy"


def test_a_pool_is_deleted_with_all_that_is_its_own(world: World) -> None:
    before = set(world.state())
    world.pool(gpu=8)
    world.group("g", reserved={"gpu": 4})
    world.policy("a", group="g", reserved={"gpu": 2})
    world.submit("a", gpu=1)
    waiter = world.submit("a", gpu=8)
    assert refusal(world, lambda: world.ledger.delete_pool("test", "p")).code == "in_use"
    world.drop(waiter)
    no = refusal(world, lambda: world.ledger.delete_pool("test", "p"))
    assert str(no) == "pool p is in use: 0 queued, 1 active"
    for each in world.client.zrange("pk:{test}:pool:p:allocations", 0, -1):
        world.drop(world.get(str(each)))
    world.ledger.delete_pool("test", "p")
    left = {key.split(":")[2] for key in set(world.state()) - before}
    assert left <= {"meta", "requests", "request", "events", "ended", "operation", "nudge", "counters"}
    assert {counter.split("|")[1] for counter in world.ledger.read_counters("test")} == {""}, (
        "of the pool nothing is counted any more"
    )
    world.pool(gpu=1)
    assert (world.get_pool().policies, world.get_pool().groups, world.get_pool().used) == ({}, {}, {})


def test_a_deleted_pool_leaves_waiters_of_other_pools(world: World) -> None:
    for pool, gpu in (("p", 2), ("q", 1)):
        world.pool(pool, gpu=gpu)
        world.policy("t", pool)
    world.submit(gpu=2)
    waiter = world.submit(gpu=2)
    world.ledger.delete_pool("test", "q")
    assert world.get(waiter).position == {"p": 1}


def test_what_is_not_there_is_not_found(world: World) -> None:
    acts: list[tuple[Callable[[], Any], str]] = [
        (lambda: world.get_pool(), "no_such_pool"), (lambda: world.queue(), "no_such_pool"),
        (lambda: world.update_pool(gpu=1), "no_such_pool"), (lambda: world.ledger.delete_pool("test", "p"), "no_such_pool"),
        (lambda: world.policy(), "no_such_pool"), (lambda: world.group("g"), "no_such_pool"),
        (lambda: world.ledger.delete_policy("test", "p", "x/y"), "no_such_policy"),
        (lambda: world.ledger.delete_group("test", "p", "g"), "no_such_group"),
    ]  # fmt: skip
    for act, code in acts:
        assert refusal(world, act).code == code


def test_growing_grants_and_shrinking_keeps_what_runs(world: World) -> None:
    world.pool(gpu=4)
    world.policy(priority=1)
    a, b = world.submit(gpu=4), world.submit(gpu=4)
    world.update_pool(gpu=8)
    assert world.status(b) == ["allocated"]
    c, d = world.submit(gpu=8), world.submit(gpu=2)
    world.update_pool(gpu=4)
    rejected = world.get(c)
    assert (world.status(a, b, c, d), rejected.reason and rejected.reason.code) == (
        ["allocated", "allocated", "rejected", "queued"], "exceeds_capacity",
    )  # fmt: skip
    assert (world.used(), world.get_pool().free) == ({"gpu": 8}, {"gpu": 0})
    world.release(a)
    assert world.status(d) == ["queued"]
    world.release(b)
    assert world.status(d) == ["allocated"]


def test_what_is_counted_of_pools_goes_with_them_and_nothing_else(world: World) -> None:
    for pool in ("3", "4", "p"):
        world.pool(pool, gpu=1)
        world.policy(f"t{pool}", pool)
        world.release(world.submit(f"t{pool}", gpu=1))
    world.client.hset(key("counters", world.workspace), "looks|3", "7")
    before = world.ledger.read_counters(world.workspace)
    only = Declaration.model_validate({"pools": [{"name": "p", "capacity": {"gpu": 1}}]})
    world.declarations.apply(world.workspace, only, prune=True)
    after = world.ledger.read_counters(world.workspace)
    removed_counters = {counter for counter in before if counter.split("|")[1:2] in (["3"], ["4"])} - {"looks|3"}
    assert {counter.split("|")[1] for counter in removed_counters} == {"3", "4"}
    assert after == {counter: count for counter, count in before.items() if counter not in removed_counters}
