"""A request that names pools: only these are eligible, in every command that looks for the pools of a request."""

from __future__ import annotations

import pytest

from app.domain.specs import WorkspaceSettings
from app.service.reconcile import Reconciler, UndecidedPools
from app.store.keys import key
from tests.support.audit_findings import findings
from tests.support.world import World


@pytest.fixture
def two_pools(world: World) -> World:
    """Create pools `a` and `b` of one unit; the component prefers `a`."""
    for name, priority in (("a", 9), ("b", 1)):
        world.pool(name, unit=1, settings={"grace_s": 0})
        world.policy(pool=name, priority=priority)
    return world


def test_it_is_granted_in_a_pool_that_it_names(two_pools: World) -> None:
    request = two_pools.submit(unit=1, pools=["b"])
    assert (request.status, request.pool, request.pools) == ("allocated", "b", ["b"])
    assert two_pools.get(request).pools == ["b"]
    assert two_pools.submit(unit=1).pools is None


def test_it_waits_only_there_and_passes_by_the_others(two_pools: World) -> None:
    first, second = two_pools.submit(unit=1), two_pools.submit(unit=1)
    waiter, anywhere = two_pools.submit(unit=1, pools=["b"]), two_pools.submit(unit=1)
    assert two_pools.get(waiter).position == {"b": 1}
    assert two_pools.get(anywhere).position == {"a": 1, "b": 2}
    assert (two_pools.queue("a"), two_pools.queue("b")) == ([anywhere.id], [waiter.id, anywhere.id])
    two_pools.release(first)
    assert two_pools.status(waiter, anywhere) == ["queued", "allocated"]
    two_pools.release(second)
    assert two_pools.get(waiter).pool == "b"
    assert findings(two_pools) == []


def test_the_preferred_of_the_named_pools_is_tried_first(two_pools: World) -> None:
    two_pools.pool("c", unit=1)
    two_pools.policy(pool="c", priority=5)
    holders = [two_pools.submit(unit=1) for _ in range(3)]
    assert [holder.pool for holder in holders] == ["a", "c", "b"]
    waiter = two_pools.submit(unit=1, pools=["b", "c"])
    two_pools.cancel(two_pools.submit(unit=1))
    for holder in holders[:2]:
        two_pools.release(holder)
    assert two_pools.get(waiter).pool == "c"


def test_a_named_pool_that_is_created_later_queues_it(two_pools: World) -> None:
    two_pools.submit(unit=1, pools=["b"])
    waiter, other = two_pools.submit(unit=1, pools=["b", "c"]), two_pools.submit(unit=1, pools=["b"])
    two_pools.pool("c", unit=1)
    assert two_pools.get(waiter).position == {"b": 1}
    two_pools.policy(pool="c")
    assert two_pools.get(waiter).pool == "c"
    assert two_pools.get(other).position == {"b": 1}
    assert findings(two_pools) == []


def test_another_pool_that_is_created_later_does_not_queue_it(two_pools: World) -> None:
    two_pools.submit(unit=1, pools=["b"])
    waiter = two_pools.submit(unit=1, pools=["b"])
    two_pools.pool("d", unit=1)
    two_pools.policy(pool="d", priority=99)
    assert (two_pools.status(waiter), two_pools.get(waiter).position) == (["queued"], {"b": 1})
    assert findings(two_pools) == []


def test_it_is_rejected_when_its_last_pool_can_grant_it_no_more(two_pools: World) -> None:
    two_pools.update_pool("b", unit=2)
    holder = two_pools.submit(unit=2, pools=["b"])
    waiter = two_pools.submit(unit=2, pools=["b"])
    two_pools.update_pool("a", unit=5)
    assert two_pools.status(waiter) == ["queued"]
    two_pools.update_pool("b", unit=1)
    reason = two_pools.get(waiter).reason
    assert two_pools.status(waiter) == ["rejected"]
    assert reason
    assert reason.message == "b: asks 2 of unit; the pool has 1 in all"
    two_pools.release(holder)
    assert findings(two_pools) == []


def test_a_victim_returns_to_the_pools_that_it_named(two_pools: World) -> None:
    two_pools.policy("high", "b", priority=99)
    victim = two_pools.submit(unit=1, pools=["b"])
    two_pools.submit("high", unit=1)
    Reconciler(two_pools.plan_store, two_pools.ledger).run(two_pools.workspace)
    assert (two_pools.status(victim), two_pools.get(victim).position) == (["queued"], {"b": 1})
    assert two_pools.submit(unit=1).pool == "a"
    assert findings(two_pools) == []


def test_the_owner_of_a_hold_is_granted_out_of_its_own_lane(two_pools: World) -> None:
    two_pools.update_pool("b", settings={"grace_s": 30})
    two_pools.policy("low", "b", priority=0)
    victim = two_pools.submit("low", unit=1, pools=["b"])
    owner = two_pools.submit(unit=1, pools=["b"])
    two_pools.preempt(owner, victim, pool="b")
    assert two_pools.status(victim, owner) == ["preempting", "queued"]
    assert findings(two_pools) == []
    two_pools.release(victim, outcome="vacated")
    assert two_pools.get(owner).pool == "b"
    assert not two_pools.client.exists(key("lane", two_pools.workspace, "orchestrator/t|p|step_run=1,unit=1|pools=b"))
    assert findings(two_pools) == []


def test_the_owner_of_a_hold_loses_it_when_its_pool_is_too_small(two_pools: World) -> None:
    two_pools.update_pool("b", settings={"grace_s": 30}, unit=2)
    two_pools.policy("low", "b", priority=0)
    victims = [two_pools.submit("low", unit=1, pools=["b"]) for _ in range(2)]
    owner = two_pools.submit(unit=2, pools=["b"])
    two_pools.preempt(owner, *victims, pool="b")
    two_pools.update_pool("b", unit=1)
    assert two_pools.status(owner) == ["rejected"]
    assert two_pools.get_pool("b").holds == ()
    assert findings(two_pools) == []


def test_it_does_not_wait_for_a_decision_of_a_pool_that_it_does_not_name(two_pools: World) -> None:
    two_pools.submit(unit=1)
    two_pools.submit(unit=1)
    waiter, anywhere = two_pools.submit(unit=1, pools=["b"]), two_pools.submit(unit=1)
    snapshot = two_pools.snapshot("b")
    assert {each.id: each.pools for each in snapshot.waiters} == {waiter.id: ["b"], anywhere.id: None}
    assert UndecidedPools({"a", "b"}).deferred_waiters(snapshot) == {anywhere.id}


def test_a_component_without_a_policy_is_not_let_past_the_pools_that_it_names(two_pools: World) -> None:
    two_pools.ledger.update_workspace(two_pools.workspace, WorkspaceSettings(unmanaged="allow"))
    assert two_pools.submit("stranger", unit=1).pool is None
    named = two_pools.submit("stranger", unit=1, pools=["b"])
    assert named.status == "rejected"
    assert named.reason
    assert named.reason.message == "b: has no policy for this component"


def test_a_repeated_submit_with_other_pools_is_another_request(two_pools: World) -> None:
    one = two_pools.submit(unit=1, pools=["b"], key="k")
    assert two_pools.submit(unit=1, pools=["b", "b"], key="k").id == one.id
