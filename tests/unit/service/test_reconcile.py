"""A reconcile pass over several pools of a workspace."""

from __future__ import annotations

import pytest

from app.service.reconcile import Reconciler
from app.store.keys import key
from tests.support.world import World


def full_pools(world: World, *pools: str) -> None:
    """Make pools of one unit, each of which is in use by preemptible work of low rank."""
    for pool in pools:
        world.pool(pool, gpu=1, settings={"grace_s": 0})
        world.policy(f"low-{pool}", pool)
        world.submit(f"low-{pool}", gpu=1)


def test_a_pool_that_cannot_be_read_keeps_no_other_from_being_decided(world: World) -> None:
    full_pools(world, "a", "b")
    waiters = []
    for pool in ("a", "b"):
        world.policy(f"high-{pool}", pool, priority=9)
        waiters.append(world.submit(f"high-{pool}", gpu=1))
    records = key("pool_allocation_records", world.workspace, "a")
    for request in world.client.hkeys(records):
        world.client.hset(records, str(request), "not a record of an allocation")
    Reconciler(world.plan_store, world.ledger).run(world.workspace)
    assert world.status(*waiters) == ["queued", "allocated"]


@pytest.mark.parametrize("preferred", ["a", "b"])
def test_a_waiter_preempts_in_the_pool_it_prefers(world: World, preferred: str) -> None:
    full_pools(world, "a", "b")
    for pool in ("a", "b"):
        world.policy("high", pool, priority=9 if pool == preferred else 8)
    waiter = world.submit("high", gpu=1)
    Reconciler(world.plan_store, world.ledger).run(world.workspace)
    assert world.get(waiter).pool == preferred
