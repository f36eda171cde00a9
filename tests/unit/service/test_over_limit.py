"""Use beyond a limit: a plan and a dry run say how much it is, whose, and what the planner then really does."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.declaration import Declaration, export_pool
from app.domain.models import Request
from app.domain.over_limit import OverLimitUse
from app.domain.specs import PoolUpdate
from app.service.dry_run import DryRun
from app.service.reconcile import Reconciler
from app.store.workspace_copy import WorkspaceCopier
from tests.support.fake_redis import FakeRedisProvider
from tests.support.world import World


@pytest.fixture
def dry_run(world: World) -> DryRun:
    """Return dry runs on the world."""
    return DryRun(WorkspaceCopier(world.client, FakeRedisProvider(), world.clock), world.limits)


def busy_pool(world: World, **settings: Any) -> list[Request]:
    """Create a pool of 8 gpu: `research` uses 5, one of them fixed, `vision` 3; return the requests by age."""
    world.pool(gpu=8, settings=settings)
    world.group("lab")
    world.policy("research", group="lab", reserved={}, limit={})
    world.policy("vision", reserved={"gpu": 1})
    ana, bob = {"user": "ana", "host": "gpu-01"}, {"user": "bob"}
    return [
        world.submit("research", gpu=2, labels=ana),
        world.submit("vision", gpu=1, preemptible=False),
        world.submit("research", gpu=3, labels=bob),
        world.submit("vision", gpu=2),
    ]


def planned(world: World, change: dict[str, Any]) -> tuple[OverLimitUse, ...]:
    """Return the use beyond limits in the plan of a change of the pool."""
    declared = export_pool(world.ledger.get_pool(world.workspace, "p")).model_dump(exclude_unset=True)
    declaration = Declaration.model_validate({"pools": [{**declared, **change}]})
    return world.declarations.plan(world.workspace, declaration).over_limit


def evicted(world: World, requests: list[Request], after_s: int) -> list[str]:
    """Return the requests that the planner preempts after this time."""
    while Reconciler(world.plan_store, world.ledger).run(world.workspace):
        pass
    assert set(world.status(*requests)) == {"allocated"}
    world.clock.advance(after_s)
    while Reconciler(world.plan_store, world.ledger).run(world.workspace):
        pass
    return [request.id for request in requests if world.get(request).status != "allocated"]


def test_a_plan_names_the_use_beyond_a_capacity_and_whose_it_is(world: World) -> None:
    requests = busy_pool(world)
    (use,) = planned(world, {"capacity": {"gpu": 6}})
    assert (use.kind, use.name, use.key, use.used, use.limit, use.beyond) == ("pool", "p", "gpu", 8, 6, 2)
    holders = [(holder.component, holder.units, holder.owners) for holder in use.holders]
    assert holders == [("orchestrator/research", 5, ("bob", "ana@gpu-01")), ("orchestrator/vision", 3, ())]
    assert use.holders[0].requests == (requests[2].id, requests[0].id)
    assert (use.over_limit, use.after_s, use.victims, use.victim_count) == ("keep", None, (), 0)
    assert use.sentence == (
        "pool p: 8 gpu in use, 2 more than its capacity of 6: research 5 (bob, ana@gpu-01), vision 3. "
        "With over_limit=keep, running work stays, and nothing new is granted there until the use is within the limit."
    )


def test_nothing_is_said_of_a_change_that_leaves_the_use_within_its_limits(world: World) -> None:
    busy_pool(world)
    assert planned(world, {"capacity": {"gpu": 9}}) == ()
    assert planned(world, {"description": "ours"}) == ()


def test_use_over_a_limit_is_shown_only_if_the_change_makes_it_larger_or_changes_over_limit(world: World) -> None:
    busy_pool(world)
    world.update_pool(gpu=6)
    assert planned(world, {"description": "ours"}) == ()
    assert [use.beyond for use in planned(world, {"capacity": {"gpu": 5}})] == [3]
    assert [use.victim_count for use in planned(world, {"settings": {"over_limit": "evict"}})] == [1]


def test_the_limits_of_groups_and_policies_are_shown_with_their_own_settings(world: World) -> None:
    requests = busy_pool(world)
    evict = {"component": "research", "group": "lab", "limit": {"gpu": 4}, "settings": {"over_limit": "evict"}}
    uses = planned(
        world,
        {
            "groups": [{"name": "lab", "limit": {"gpu": 4}}],
            "policies": [evict, {"component": "vision", "reserved": {"gpu": 1}, "limit": {"gpu": 2}}],
        },
    )
    shown = [(use.kind, use.name, use.beyond, use.over_limit, use.after_s, [id_ for id_, _ in use.victims]) for use in uses]
    assert shown == [
        ("group", "lab", 1, "keep", None, []),
        ("policy", "orchestrator/research", 1, "evict", 30, [requests[2].id]),
        ("policy", "orchestrator/vision", 1, "keep", None, []),
    ]


@pytest.mark.parametrize("capacity", [7, 6, 4, 2, 1])
def test_the_victims_are_those_that_the_planner_takes(world: World, dry_run: DryRun, capacity: int) -> None:
    requests = busy_pool(world, over_limit="evict", over_limit_after_s=20)
    world.policy("vision", reserved={"gpu": 1})
    before = world.state()
    (use,) = dry_run.update_pool(world.workspace, "p", PoolUpdate(capacity={"gpu": capacity})).over_limit
    assert planned(world, {"capacity": {"gpu": capacity}}) == (use,)
    assert world.state() == before
    world.update_pool(gpu=capacity)
    victims = [request for request, _ in use.victims]
    assert use.after_s == 20
    assert use.victim_count == len(victims)
    assert victims == sorted(victims, key=[request.id for request in requests].index, reverse=True), "the newest first"
    assert sorted(evicted(world, requests, 20)) == sorted(victims)


def test_units_that_may_not_be_preempted_stay(world: World, dry_run: DryRun) -> None:
    world.pool(gpu=4, settings={"over_limit": "evict"})
    world.policy("vision", reserved={})
    world.policy("fixed", reserved={"gpu": 3})
    world.submit("fixed", gpu=3, preemptible=False)
    newest = world.submit("vision", gpu=1)
    world.policy("fixed", reserved={"gpu": 1})
    (use,) = dry_run.update_pool(world.workspace, "p", PoolUpdate(capacity={"gpu": 1})).over_limit
    assert (use.victims, use.staying) == (((newest.id, "orchestrator/vision"),), 2)
    assert use.sentence.endswith(
        "With over_limit=evict, 1 request is preempted after 30 s; 2 gpu beyond it stay, because they may not be preempted."
    )


def test_nothing_is_preempted_where_no_preemption_is_allowed(world: World) -> None:
    requests = busy_pool(world, over_limit="evict", max_preemptions_per_minute=0)
    (use,) = planned(world, {"capacity": {"gpu": 6}})
    assert (use.victims, use.staying) == ((), 2)
    assert "none of it may be preempted now" in use.sentence
    world.update_pool(gpu=6)
    assert evicted(world, requests, 60) == []


def test_owners_and_requests_of_components_that_a_token_cannot_see_are_left_out(world: World) -> None:
    requests = busy_pool(world, over_limit="evict")
    (use,) = planned(world, {"capacity": {"gpu": 2}})
    visible = use.visible_to(lambda kind, name: name == "vision")
    assert [(holder.units, holder.owners, holder.requests) for holder in visible.holders] == [
        (5, (), ()),
        (3, (), (requests[3].id, requests[1].id)),
    ]
    assert visible.victim_count == use.victim_count == 3
    assert {component for _, component in visible.victims} == {"orchestrator/vision"}
    assert "ana" not in visible.sentence


def test_many_components_are_counted_in_the_sentence(world: World) -> None:
    world.pool(gpu=8)
    for name in "abcdefg":
        world.policy(name)
        world.submit(name, gpu=1)
    (use,) = planned(world, {"capacity": {"gpu": 1}})
    assert "a 1, b 1, c 1, d 1, e 1 and 2 more components." in use.sentence
