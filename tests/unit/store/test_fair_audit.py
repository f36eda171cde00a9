"""The audit finds damage of what fair shares go by, and puts it right.

The audit is in Lua and does not depend on the server, and runs several times in each test: two backends are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.keys import key
from tests.support.audit_findings import findings
from tests.support.world import World
from tests.unit.store.test_fair_order import FAIR, reconcile

pytestmark = pytest.mark.backends("fake", "embedded")


def in_use(world: World) -> None:
    """Create two policies that wait for capacity, one at its limit, and one behind a hold."""
    world.pool(gpu=8, settings={**FAIR, "patience_s": 1})
    for team in ("a", "b"):
        world.policy(team)
    world.policy("capped", limit={"gpu": 1})
    world.submit("a", gpu=4)
    world.submit("capped", gpu=1)
    world.submit("b", gpu=2)
    world.submit("a", gpu=3)
    world.submit("a", gpu=2)
    world.pass_time(2)
    world.submit("a", gpu=1)
    world.submit("b", gpu=4)
    world.submit("capped", gpu=1)
    reconcile(world)


def workspace_key(name: str, *parts: str) -> str:
    """Return a key of the test's workspace."""
    return key(name, "test", *parts)


A, B = "orchestrator/a", "orchestrator/b"
LANE = f"{B}|p|gpu=4,step_run=1"
SPOT = "limit|pool|gpu"

DAMAGE = {
    "a satisfaction forgotten": lambda redis: redis.zrem(workspace_key("pool_satisfaction", "p"), B),
    "a satisfaction wrong": lambda redis: redis.zadd(workspace_key("pool_satisfaction", "p"), {A: 17}),
    "all of them": lambda redis: redis.delete(workspace_key("pool_satisfaction", "p")),
    "a use that was not noted": lambda redis: redis.hset(workspace_key("policy", "p", B), "fair_share:gpu", 1),
    "a lane out of place": lambda redis: redis.zadd(workspace_key("pool_lanes", "p"), {LANE: 5}),
    "a lane out of its park": lambda redis: redis.zrem(workspace_key("pool_parking", "p", f"{SPOT}@{B}", "4"), LANE),
    "a lane on the spot of another": lambda redis: redis.hset(workspace_key("pool_parked", "p"), LANE, f"{SPOT}@{A} 4 1"),
    "a lane on an unknown spot": lambda redis: redis.hset(workspace_key("pool_parked", "p"), LANE, f"{SPOT} 4 1"),
    "a policy not found on a constraint": lambda redis: redis.zrem(workspace_key("pool_parking_needs", "p", SPOT), B),
    "its least need wrong": lambda redis: redis.zadd(workspace_key("pool_parking_needs", "p", SPOT), {B: 40}),
    "a need not found": lambda redis: redis.zrem(workspace_key("pool_parking_tree", "p", f"{SPOT}@{B}", "1."), "4"),
    "a wrong score in the tree": lambda redis: redis.zadd(
        workspace_key("pool_parking_tree", "p", f"{SPOT}@{B}", "."), {"1": 3}
    ),
    "a lane blocked since another time": lambda redis: redis.zadd(workspace_key("pool_blocked_since", "p"), {LANE: 3}),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_found_and_put_right(world: World, damage: Any) -> None:
    in_use(world)
    assert findings(world) == []
    before, queue = world.status(*map(world.get, world.queue())), world.queue()
    damage(world.client)
    assert findings(world) != []
    repair(world)
    assert findings(world) == []
    reconcile(world)
    assert world.queue() == queue
    assert world.status(*map(world.get, queue)) == before
    for holder in release_in_turn(world):
        world.ledger.drop(world.workspace, holder)
    assert world.queue() == [], "every waiter is found"


def release_in_turn(world: World) -> Iterator[str]:
    """Release the oldest allocation until none is left, and yield each."""
    while allocation_ids := world.client.zrange(workspace_key("pool_allocations", "p"), 0, 0):
        yield str(next(iter(allocation_ids)))


def repair(world: World) -> None:
    """Run an audit that repairs its findings."""
    Audit(world.ledger, AuditStore(world.client, world.clock)).run(world.workspace, repair=True)
