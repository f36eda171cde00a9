"""Submit, cancel and drop: one ask in, one answer out, and what the request then says of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.domain.errors import Conflict, NotFound
from app.domain.reasons import ReasonCode
from app.domain.specs import WorkspaceSettings
from tests.support.world import World


def test_settings_become_one_request(world: World) -> None:
    world.pool(gpu=4, tensorrt_sessions=2)
    world.policy("orch", priority=10, reserved={"gpu": 2}, limit={"gpu": 4})
    settings = {"gpu_count": 2, "cpu_count": 4.0, "memory": "16GiB", "pool_resources": {"tensorrt_sessions": 1}}
    request = world.submit("orch", settings=settings)
    resources = {"gpu": 2, "mcpu": 4000, "memory_mb": 17180, "tensorrt_sessions": 1, "step_run": 1}
    assert (request.status, request.resources) == ("allocated", resources)
    assert world.get_pool().used == resources


def test_settings_round_up_and_override(world: World) -> None:
    world.pool(gpu=4)
    world.policy("orch")
    overridden = {"gpu": 3, "mcpu": 9, "step_run": 7}
    a = world.submit("orch", settings={"cpu_count": 0.29, "memory": "512MB", "gpu_count": 1, "pool_resources": overridden})
    b = world.submit("orch", settings={"cpu_count": 1.0005, "memory": "8GiB", "gpu_count": 0, "pool_resources": {"gpu": 3}})
    assert a.resources == {"gpu": 1, "mcpu": 290, "memory_mb": 512, "step_run": 1}
    assert b.resources == {"mcpu": 1001, "memory_mb": 8590, "step_run": 1}
    assert (a.status, b.status) == ("allocated", "allocated")


def test_everything_asked_comes_back(world: World) -> None:
    world.pool(gpu=4)
    world.policy("kind/name")
    fields: dict[str, Any] = {
        "preemptible": True, "preemption_class": 3, "checkpoint": "auto", "checkpoint_minutes": 7, "walltime_s": 60,
        "retries": -1, "lease_s": 30, "queue_ttl_s": 40, "labels": {"team/x": "grün \"1\" | \\"},
    }  # fmt: skip
    request = world.submit("kind/name", gpu=2, **fields)
    assert {name: getattr(request, name) for name in fields} == fields
    assert (request.component_type, request.component, request.number) == ("kind", "name", 1)
    assert (request.submitted_ms, request.granted_ms) == (world.clock.now_ms(), world.clock.now_ms())
    assert (request.pool, request.fence, request.ended_ms, request.position) == ("p", 1, None, {})
    assert world.get(request)._replace(timeline=()) == request


def test_defaults_of_an_ask(world: World) -> None:
    world.pool(gpu=1)
    world.policy("t")
    request = world.ledger.submit(world.workspace, type(world.request_spec())(component="t"))
    assert (request.preemptible, request.preemption_class, request.checkpoint, request.retries) == (True, 5, "none", 3)
    assert (request.lease_s, request.queue_ttl_s, request.resources) == (60, 600, {"step_run": 1})


def test_all_keys_or_none(world: World) -> None:
    world.pool(gpu=8, licence=2)
    world.policy(priority=1)
    a = world.submit(gpu=1, licence=2)
    b = world.submit(gpu=4, licence=1)
    assert (world.status(a, b), world.used()) == (["allocated", "queued"], {"gpu": 1, "licence": 2})
    c = world.submit(gpu=7)
    world.release(a)
    assert world.status(b, c) == ["queued", "allocated"]
    world.release(c)
    assert (world.status(b), world.used()) == (["allocated"], {"gpu": 4, "licence": 1})


def test_the_primary_pool_wins_and_the_other_entry_goes(world: World) -> None:
    for pool, priority in (("eu-west-gpu", 20), ("eu-north-gpu", 10)):
        world.pool(pool, gpu=1)
        world.policy("regional", pool, priority=priority, limit={"gpu": 1})
    a, b, c = (world.submit("regional", gpu=1) for _ in range(3))
    assert [a.pool, b.pool, c.pool] == ["eu-west-gpu", "eu-north-gpu", None]
    assert world.get(c).position == {"eu-west-gpu": 1, "eu-north-gpu": 1}
    world.release(b)
    assert world.get(c).pool == "eu-north-gpu"
    assert (world.queue("eu-west-gpu"), world.queue("eu-north-gpu")) == ([], [])
    world.release(a)
    assert (world.get(c).pool, world.used("eu-west-gpu")) == ("eu-north-gpu", {"gpu": 0})


def test_of_pools_of_one_priority_the_first_by_name_wins(world: World) -> None:
    for pool in ("b", "a", "c"):
        world.pool(pool, gpu=1)
        world.policy("t", pool, priority=3)
    assert [world.submit(gpu=1).pool for _ in range(3)] == ["a", "b", "c"]


@pytest.mark.parametrize(("low", "high"), [("p", "q"), ("q", "p"), ("aa", "b"), ("b", "aa")])
def test_of_pools_that_become_free_at_once_the_one_of_higher_priority_wins(world: World, low: str, high: str) -> None:
    for pool, priority in ((low, 1), (high, 2)):
        world.pool(pool, gpu=1)
        world.policy("t", pool, priority=priority)
    world.submit(gpu=1, lease_s=10)
    world.submit(gpu=1, lease_s=10)
    waiter = world.submit(gpu=1)
    world.pass_time(10)
    assert world.get(waiter).pool == high


def test_a_pool_that_cannot_yet_is_no_reason_to_wait_where_another_can(world: World) -> None:
    world.pool("first", gpu=2)
    world.pool("second", gpu=8)
    world.policy("t", "first", priority=9)
    world.policy("t", "second", priority=1)
    world.submit(gpu=1)
    assert world.submit(gpu=2).pool == "second"


def test_a_component_without_a_policy_is_rejected_or_by_a_setting_allowed(world: World) -> None:
    world.pool(gpu=1)
    refused = world.submit("stranger", gpu=1)
    assert refused.status == "rejected"
    assert refused.reason is not None
    assert (refused.reason.code, refused.reason.pools) == (ReasonCode.NO_POLICY, ())
    world.ledger.update_workspace(world.workspace, WorkspaceSettings(unmanaged="allow"))
    allowed = world.submit("stranger", gpu=5, lease_s=10)
    assert (allowed.status, allowed.pool, allowed.fence, world.used()) == ("allocated", None, 1, {"gpu": 0})
    assert world.release(allowed).status == "released"
    lapsing = world.submit("stranger", gpu=5, lease_s=10)
    world.pass_time(10)
    assert world.status(lapsing) == ["expired"]


def test_unmanaged_is_for_components_without_any_policy(world: World) -> None:
    world.ledger.update_workspace(world.workspace, WorkspaceSettings(unmanaged="allow"))
    world.pool(gpu=1)
    world.policy("t")
    assert world.submit(gpu=2).status == "rejected"
    world.ledger.update_workspace(world.workspace, WorkspaceSettings(unmanaged="reject"))
    assert world.submit("stranger").status == "rejected"


def test_cancel_and_drop(world: World) -> None:
    world.pool(gpu=1)
    world.policy(priority=1)
    a, b, c = (world.submit(gpu=1) for _ in range(3))
    assert world.cancel(b).status == "cancelled"
    dropped = world.drop(a)
    assert (dropped.status, dropped.reason and dropped.reason.code) == ("released", ReasonCode.DROPPED)
    assert (world.status(a, b, c), world.used()) == (["released", "cancelled", "allocated"], {"gpu": 1})
    with pytest.raises(Conflict) as error:
        world.cancel(c)
    assert (error.value.code, world.status(c)) == ("not_queued", ["allocated"])


def test_a_dropped_waiter_is_cancelled_and_a_final_request_stays_as_it_is(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    a, b = world.submit(gpu=1), world.submit(gpu=1)
    dropped = world.drop(b)
    assert (dropped.status, dropped.reason and dropped.reason.code) == ("cancelled", ReasonCode.DROPPED)
    released, rejected = world.release(a), world.submit(gpu=2)
    before = world.state()
    assert [world.drop(each) for each in (released, rejected)] == [released, rejected]
    assert world.state() == before


def test_what_is_not_there_is_not_found(world: World) -> None:
    ghost = "0" * 20
    acts: list[Callable[[], Any]] = [
        lambda: world.get(ghost), lambda: world.ledger.cancel("test", ghost), lambda: world.ledger.drop("test", ghost),
        lambda: world.ledger.release("test", ghost, 1), lambda: world.ledger.heartbeat("test", ghost, 1),
    ]  # fmt: skip
    for act in acts:
        with pytest.raises(NotFound) as absent:
            act()
        assert absent.value.code == "no_such_request"
    assert world.state() == {}


def test_a_batch_is_taken_in_one_by_one(world: World) -> None:
    world.pool(gpu=4)
    world.policy()
    answers = world.submit_all([world.request_spec(gpu=gpu) for gpu in (3, 2, 5, 1)])
    assert [answer.status for answer in answers] == ["allocated", "queued", "rejected", "allocated"]
    assert [answer.number for answer in answers] == [1, 2, 3, 4]
    assert world.used() == {"gpu": 4}


def test_releases_in_one_round_trip_stand_each_for_itself(world: World) -> None:
    world.pool(gpu=2)
    world.policy()
    a, b, c = (world.submit(gpu=1) for _ in range(3))
    allocations = [(a.id, 1), (b.id, 99), ("0" * 20, 1)]
    released, stale, absent = world.ledger.release_all(world.workspace, allocations)
    assert (released.status, stale.code, absent.code) == ("released", "stale_fence", "no_such_request")  # type: ignore[union-attr]
    assert (world.status(b, c), world.used()) == (["allocated", "allocated"], {"gpu": 2})


def test_workspaces_do_not_see_each_other(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    a = world.submit(gpu=1, key="k", lease_s=10)
    before = world.state()
    other = World(world.client, workspace="Test.2")
    assert other.pools() == []
    with pytest.raises(NotFound):
        other.get(a)
    other.pool(gpu=5)
    other.policy()
    b = other.submit(gpu=1, key="k")
    assert (b.id != a.id, b.fence, b.number) == (True, 1, 1)
    other.release(b)
    other.pass_time(100)
    assert (world.state(), world.used(), other.used()) == (before, {"gpu": 1}, {"gpu": 0})
