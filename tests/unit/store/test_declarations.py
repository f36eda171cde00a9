"""One script for a whole declaration: it has the effect of single commands at once, or no effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.domain.declaration import Declaration, PoolDeclaration, export_pool
from app.domain.declaration_diff import DeclarationPlan, DeclarationStep, plan_declaration
from app.domain.errors import Conflict
from app.domain.specs import PoolUpdate
from app.store import declaration_codec
from app.store.connection import RedisClient
from app.store.keys import key, prefix
from tests.support.audit_findings import findings
from tests.support.world import World


def export_pools(world: World) -> dict[str, PoolDeclaration]:
    """Return the present pools."""
    return {name: export_pool(world.get_pool(name)) for name in world.pools()}


def plan_pools(world: World, *pools: dict[str, Any]) -> DeclarationPlan:
    """Return the plan that leaves exactly these pools in the workspace."""
    return plan_declaration(export_pools(world), Declaration.model_validate({"pools": list(pools)}), prune=True)


def declare(world: World, *pools: dict[str, Any]) -> bool:
    """Declare these pools and no others."""
    return world.ledger.declare(world.workspace, plan_pools(world, *pools).steps)


def refusal(world: World, *pools: dict[str, Any]) -> tuple[str, str]:
    """Return code and sentence of the conflict, and check that nothing has changed."""
    before = world.state()
    with pytest.raises(Conflict) as error:
        declare(world, *pools)
    assert world.state() == before
    return error.value.code, str(error.value)


def comparable_state(world: World) -> dict[str, Any]:
    """Return all data except the parts that differ between runs: ids of stream entries and of operations, counters of changed
    rules and of births, and nudges.
    """
    state: dict[str, Any] = {}
    for full_key, value in world.state().items():
        name = full_key.removeprefix(prefix(world.workspace))
        if name == "events":
            state[name] = [fields for _, fields in value]
        elif name.startswith("request:"):
            state[name] = {field: text.partition(" ")[2] if field[0] == "e" else text for field, text in value.items()}
        elif name == "meta" or (name.startswith("pool:") and name.count(":") == 1):
            state[name] = {
                field: text for field, text in value.items() if field not in ("rules", "last_creation_number", "watched")
            }
        elif name.startswith("pool:") and isinstance(value, dict):
            state[name] = {field: text for field, text in value.items() if field != "creation_number"}
        elif not name.startswith("operation:"):
            state[name] = value
    return state


# ---- the same effect as single commands

Act = Callable[[World], Any]


def seed(world: World) -> None:
    """Create two pools with groups and policies, with allocations and waiters."""
    world.pool(gpu=8, tpu=2)
    world.pool("q", gpu=2)
    world.group("g", reserved={"gpu": 4})
    world.group("h", parent="g", reserved={"gpu": 2})
    world.policy("a", group="h", reserved={"gpu": 2}, settings={"over_limit": "evict", "starvation_timeout_s": 9})
    world.policy("a", "q", priority=3)
    world.policy("b", reserved={"gpu": 1}, priority=1)
    world.policy("idle", group="g", reserved={"gpu": 1, "tpu": 0})
    world.submit("b", own_id="r1", gpu=6)
    world.submit("a", own_id="r2", gpu=2, preemptible=False)
    world.submit("b", own_id="r3", gpu=4)
    world.submit("a", own_id="r4", gpu=1, walltime_s=9)
    world.submit("a", own_id="r5", gpu=2, preemptible=False)


def _delete_policy(pool: str, component: str) -> Act:
    return lambda world: world.ledger.delete_policy(world.workspace, pool, f"orchestrator/{component}")


def _delete_group(group: str) -> Act:
    return lambda world: world.ledger.delete_group(world.workspace, "p", group)


WAYS: dict[str, list[Act]] = {
    "a pool": [lambda w: w.pool("new", {"queueing": "strict", "patience_s": None}, gpu=3, mcpu=1000)],
    "a pool with accounts": [
        lambda w: w.pool("new", gpu=3),
        lambda w: w.group("x", "new", reserved={"gpu": 2}),
        lambda w: w.group("y", "new", parent="x", reserved={"gpu": 1}, weight=4),
        lambda w: w.policy("c", "new", group="y", reserved={"gpu": 1}, limit={"gpu": 2}, priority=9),
    ],
    "grown": [lambda w: w.update_pool(gpu=12)],
    "shrunk below its use": [lambda w: w.update_pool(gpu=7)],
    "another key, and one less": [
        lambda w: w.policy("idle", group="g", reserved={"gpu": 1}),
        lambda w: w.update_pool(tpu=0, npu=5),
    ],
    "settings": [lambda w: w.update_pool(settings={"order": "priority_first", "patience_s": None})],
    "settings of taking back": [
        lambda w: w.update_pool(
            settings={"requeue_failed_checkpoint": False, "max_victims": 0, "cost_key": "tpu", "backoff_s": 1}
        )
    ],
    "settings of fair share": [
        lambda w: w.update_pool(settings={"discipline": "fair_share", "preemption_threshold": 0.5, "over_limit": "keep"}),
        lambda w: w.update_pool(settings={"non_preemptible_usage_threshold": {"gpu": 2}, "aggressive_starvation": True}),
    ],
    "settings of a group and a policy": [
        lambda w: w.group("g", reserved={"gpu": 4}, mode="fifo", settings={"fair_share_tolerance": 0.5}),
        lambda w: w.policy("b", reserved={"gpu": 1}, priority=1, settings={"non_preemptible_usage_threshold": {"gpu": 1}}),
        lambda w: w.policy("a", group="h", reserved={"gpu": 2}),
    ],
    "a profile alone": [lambda w: w.policy("idle", group="g", reserved={"gpu": 1, "tpu": 0}, profile="sensitive")],
    "a queue that is strict": [lambda w: w.update_pool(settings={"queueing": "strict"})],
    "numbers of policies and groups": [
        lambda w: w.policy("b", reserved={"gpu": 2}, limit={"gpu": 7}, priority=5, weight=2, profile="training"),
        lambda w: w.group("g", reserved={"gpu": 5}, limit={"gpu": 6}),
    ],
    "less for a group and its child": [
        lambda w: w.policy("idle", group="g"),
        lambda w: w.group("g", reserved={"gpu": 2}),
    ],
    "a policy goes": [_delete_policy("p", "idle")],
    "a policy moves, and its group goes": [
        lambda w: w.policy("c", group="g", reserved={"gpu": 1}),
        lambda w: w.group("k", parent="g"),
        lambda w: w.policy("idle", group="k"),
        lambda w: w.policy("c", reserved={"gpu": 1}),
        lambda w: w.policy("idle", reserved={"gpu": 1}),
        _delete_group("k"),
    ],
    "two change places": [
        lambda w: w.group("e", parent="g", reserved={"gpu": 1}),
        lambda w: w.policy("idle"),
        lambda w: w.group("e", reserved={"gpu": 1}),
        lambda w: w.group("g", reserved={"gpu": 3}),
        lambda w: w.policy("idle", group="e", reserved={"gpu": 1}),
    ],
    "a component in one more pool": [lambda w: w.policy("b", "q", reserved={"gpu": 2})],
    "no waiter fits any more": [lambda w: w.policy("b", limit={"gpu": 3}, priority=1), lambda w: w.update_pool(gpu=6)],
}


@pytest.mark.backends("fake", "embedded")  # two workspaces are built and compared, whichever server holds them
@pytest.mark.parametrize("way", sorted(WAYS))
def test_it_leaves_what_single_commands_leave(client: RedisClient, way: str) -> None:
    singly, at_once = World(client, "singly"), World(client, "at-once")
    for world in (singly, at_once):
        seed(world)
    assert comparable_state(at_once) == comparable_state(singly), "they begin alike"
    for act in WAYS[way]:
        act(singly)
    declarations = [pool.model_dump() for pool in export_pools(singly).values()]
    assert plan_pools(at_once, *declarations).changes, "there is something to do"
    assert declare(at_once, *declarations)
    assert comparable_state(at_once) == comparable_state(singly)
    assert plan_pools(at_once, *declarations).changes == ()
    assert (findings(at_once), findings(singly)) == ([], [])


def test_everything_goes_as_by_single_commands(world: World) -> None:
    world.pool(gpu=8)
    world.group("g", reserved={"gpu": 4})
    world.policy("a", group="g", reserved={"gpu": 2})
    world.release(world.submit("a", gpu=1))
    assert declare(world)
    assert world.pools() == []
    assert not [key for key in world.state() if ":pool" in key or ":component" in key]


# ---- independent of the order

P: dict[str, Any] = {"name": "p", "capacity": {"gpu": 8}}


def test_shares_change_hands_in_one_step(world: World) -> None:
    world.pool(gpu=8)
    world.policy("a", reserved={"gpu": 6})
    world.policy("b", reserved={"gpu": 2})
    after = [{"component": "a", "reserved": {"gpu": 2}}, {"component": "b", "reserved": {"gpu": 6}}]
    assert declare(world, P | {"policies": after})
    assert {name: policy.reserved["gpu"] for name, policy in world.get_pool().policies.items()} == {
        "orchestrator/a": 2,
        "orchestrator/b": 6,
    }


def test_new_policies_are_the_youngest_in_the_order_of_the_file(world: World) -> None:
    world.pool(gpu=8)
    world.policy("old", weight=2)
    names = ["new", "old", "newer"]
    assert declare(world, P | {"groups": [{"name": "g"}], "policies": [{"component": name} for name in names]})
    state, test = world.state(), world.workspace
    born = [state[key("policy", test, "p", f"orchestrator/{name}")]["creation_number"] for name in names]
    assert (born, state[key("group", test, "p", "g")]["creation_number"]) == (["3", "1", "4"], "2")


def test_groups_turn_upside_down(world: World) -> None:
    world.pool(gpu=8)
    world.group("a", reserved={"gpu": 4})
    world.group("b", parent="a", reserved={"gpu": 2})
    world.policy("t", group="b", reserved={"gpu": 1})
    turned = [{"name": "a", "parent": "b", "reserved": {"gpu": 2}}, {"name": "b", "reserved": {"gpu": 4}}]
    assert declare(world, P | {"groups": turned, "policies": [{"component": "t", "group": "a", "reserved": {"gpu": 2}}]})
    pool = world.get_pool()
    assert {name: group.parent for name, group in pool.groups.items()} == {"a": "b", "b": None}
    assert pool.policies["orchestrator/t"].parent == "a"


def test_no_waiter_is_rejected_on_the_way(world: World) -> None:
    world.pool(gpu=8)
    world.pool("q", gpu=8)
    world.policy("t")
    world.policy("t", "q", limit={"gpu": 1})
    world.submit("t", gpu=8)
    waits = world.submit("t", gpu=6)
    smaller = {"name": "p", "capacity": {"gpu": 2}, "policies": [{"component": "t"}]}
    assert declare(world, smaller, {"name": "q", "capacity": {"gpu": 8}, "policies": [{"component": "t"}]})
    request = world.get(waits)
    assert (request.status, request.pool) == ("allocated", "q"), "it fits only there now"


def test_a_waiter_that_fits_nowhere_any_more_is_rejected_with_each_pools_reason(world: World) -> None:
    world.pool(gpu=8)
    world.policy("t")
    world.submit("t", gpu=8)
    waits = world.submit("t", gpu=6)
    assert declare(world, {"name": "p", "capacity": {"gpu": 2}, "policies": [{"component": "t"}]})
    request = world.get(waits)
    assert (request.status, request.reason and request.reason.message) == (
        "rejected",
        "p: asks 6 of gpu; the pool has 2 in all",
    )


@pytest.mark.parametrize("chunk", [1, 2, 200])
def test_a_waiter_that_fits_now_is_granted_with_any_chunk(client: RedisClient, chunk: int) -> None:
    world = World(client, chunk=chunk)
    world.pool(gpu=1)
    for team in "abc":
        world.policy(team)
    request = world.submit("a", gpu=1)
    waiting = [world.submit(team, gpu=1) for team in "abcabc"]
    policies = [{"component": team, "priority": index} for index, team in enumerate("abc")]
    assert declare(world, {"name": "p", "capacity": {"gpu": 5}, "policies": policies})
    assert world.status(request, *waiting) == ["allocated", "queued", *["allocated"] * 2, "queued", *["allocated"] * 2]
    assert findings(world) == []


def test_it_is_gone_on_with_when_its_caller_dies(world: World) -> None:
    world.pool(gpu=1)
    for team in "abc":
        world.policy(team)
    allocation, *waiting = [world.submit(team, gpu=1) for team in "aabc"]
    step = DeclarationStep(
        export_pool(world.get_pool()), export_pool(world.get_pool()).model_copy(update={"capacity": {"gpu": 4}})
    )
    reply = world.call("declare", chunk=1, op="o", changes=declaration_codec.encode_steps([step]))
    assert (reply.fields["more"], world.status(*waiting)) == ("1", ["queued"] * 3)
    while world.ledger.resume_unfinished(world.workspace):
        pass
    assert world.status(allocation, *waiting) == ["allocated"] * 4


# ---- one refusal refuses all of it


def a_pool_in_use(world: World) -> None:
    """Create a pool p with a group g, whose policy t holds 6 of 8 gpu and waits for 4 more, and an idle policy."""
    world.pool(gpu=8, tpu=1)
    world.group("g", reserved={"gpu": 4})
    world.policy("t", group="g")
    world.policy("idle")
    world.submit("t", gpu=6)
    world.submit("t", gpu=4)


IN_USE: dict[str, Any] = {
    "name": "p",
    "capacity": {"gpu": 8, "tpu": 1},
    "groups": [{"name": "g", "reserved": {"gpu": 4}}],
    "policies": [{"component": "t", "group": "g"}, {"component": "idle"}],
}
FRESH: dict[str, Any] = {"name": "new", "capacity": {"gpu": 1}, "policies": [{"component": "t"}]}


def test_what_is_in_use_does_not_go(world: World) -> None:
    a_pool_in_use(world)
    assert refusal(world, FRESH) == ("in_use", "pool p is in use: 1 queued, 1 active")
    without = IN_USE | {"policies": [{"component": "idle"}]}
    assert refusal(world, FRESH, without) == ("in_use", "pool p: policy orchestrator/t is in use: 1 queued, 1 active")


def test_a_policy_with_waiters_only_is_not_deleted(world: World) -> None:
    a_pool_in_use(world)
    world.submit("idle", gpu=3)
    without = IN_USE | {"policies": IN_USE["policies"][:1]}
    assert refusal(world, without) == ("in_use", "pool p: policy orchestrator/idle is in use: 1 queued, 0 active")


def test_what_holds_units_does_not_move(world: World) -> None:
    a_pool_in_use(world)
    out = IN_USE | {"policies": [{"component": "t"}, {"component": "idle", "priority": 3}]}
    sentence = "pool p: policy orchestrator/t cannot move to another parent while it holds units"
    assert refusal(world, FRESH, out) == ("moves_in_use", sentence)
    below = IN_USE | {"groups": [{"name": "g", "parent": "h"}, {"name": "h"}]}
    assert refusal(world, below) == ("moves_in_use", "pool p: group g cannot move to another parent while it holds units")


def test_a_key_that_is_held_is_not_removed(world: World) -> None:
    a_pool_in_use(world)
    without = IN_USE | {"capacity": {"tpu": 1}, "groups": [{"name": "g"}]}
    sentence = "pool p: 6 of gpu are held; a key can be removed when none is"
    assert refusal(world, FRESH, without) == ("key_in_use", sentence)


CHANGES: dict[str, Act] = {
    "capacity": lambda w: w.update_pool(gpu=9),
    "a key": lambda w: w.update_pool(npu=1),
    "a setting": lambda w: w.update_pool(settings={"patience_s": 1}),
    "the description": lambda w: w.ledger.update_pool(w.workspace, "p", PoolUpdate(description="new")),
    "a policy": lambda w: w.policy("idle", weight=2),
    "a policy's priority": lambda w: w.policy("idle", priority=1),
    "a policy's limit": lambda w: w.policy("idle", limit={"gpu": 3}),
    "a policy's group": lambda w: w.policy("idle", group="g"),
    "a new policy": lambda w: w.policy("new"),
    "a policy gone": lambda w: w.ledger.delete_policy(w.workspace, "p", "orchestrator/idle"),
    "a group's share": lambda w: w.group("g", reserved={"gpu": 3}),
    "a group's mode": lambda w: w.group("g", reserved={"gpu": 4}, mode="fifo"),
    "a group's settings": lambda w: w.group("g", reserved={"gpu": 4}, settings={"preemption_threshold": 2}),
    "a policy's settings": lambda w: w.policy("idle", settings={"starvation_timeout_s": 1}),
    "a setting that is null now": lambda w: w.update_pool(settings={"patience_s": None}),
    "a setting that is not null any more": lambda w: w.update_pool(settings={"over_limit": "keep"}),
    "a new group": lambda w: w.group("h"),
    "a pool taken away": lambda w: w.ledger.delete_pool(w.workspace, "empty"),
    "a pool of that name": lambda w: w.pool("new", gpu=1),
}


@pytest.mark.backends("fake", "embedded")  # the rule is in Lua alone, and each case builds two pools
@pytest.mark.parametrize("change", sorted(CHANGES))
def test_what_changed_since_the_plan_is_not_overrun(world: World, change: str) -> None:
    a_pool_in_use(world)
    world.pool("empty", gpu=1)
    plan = plan_pools(world, FRESH, IN_USE | {"policies": [{"component": "t", "group": "g", "priority": 5}]})
    CHANGES[change](world)
    before = world.state()
    assert not world.ledger.declare(world.workspace, plan.steps)
    assert world.state() == before


def test_an_operation_that_is_named_may_be_repeated(world: World) -> None:
    world.pool(gpu=1)
    plan = plan_pools(world, FRESH)
    for _ in range(2):
        assert world.ledger.declare(world.workspace, plan.steps, operation="o")
    assert not world.ledger.declare(world.workspace, plan.steps)


def test_a_policy_goes_once_its_pools_queue_is_in_line(world: World) -> None:
    world.pool(gpu=2)
    world.pool("q", gpu=2)
    world.policy()
    world.policy(pool="q")
    for gpu in (2, 2, 1):
        world.submit(gpu=gpu)
    stuck = world.submit(gpu=2)
    world.policy("idle")
    world.call("update_pool", chunk=1, name="p", description="", capacity="", settings='{"discipline":"classes"}')
    assert world.get_pool().unfinished
    keep = [export_pool(world.get_pool(name)).model_dump() for name in ("p", "q")]
    keep[0]["policies"] = [policy for policy in keep[0]["policies"] if policy["component"] != "idle"]
    assert declare(world, *keep)
    assert (list(world.get_pool().policies), world.status(stuck)) == (["orchestrator/t"], ["queued"])


# ---- holds


def test_a_move_ends_the_hold_of_patience(world: World) -> None:
    world.pool(gpu=8, settings={"patience_s": 5})
    world.group("g")
    world.policy("small")
    world.policy("large", group="g")
    world.submit("small", gpu=4)
    waits = world.submit("large", gpu=8)
    world.pass_time(6)
    assert [hold.request for hold in world.get_pool().holds] == [waits.id]
    declaration = export_pool(world.get_pool()).model_dump()
    assert declare(
        world, declaration | {"policies": [{"component": "small"}, {"component": "large", "group": "g", "priority": 2}]}
    )
    assert [hold.request for hold in world.get_pool().holds] == [waits.id], "a change of numbers leaves it"
    assert declare(world, declaration | {"groups": [], "policies": [{"component": "small"}, {"component": "large"}]})
    assert (world.get_pool().holds, world.get_pool().on_hold) == ((), {})
    assert world.status(world.submit("small", gpu=1)) == ["allocated"]
