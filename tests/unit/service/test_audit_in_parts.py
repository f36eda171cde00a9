"""The audit of a pool with many lanes, and its repair, are made of bounded calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.connection import RedisClient
from app.store.keys import key
from tests.properties.counted_scripts import BUDGET, CountedScripts
from tests.support.audit_findings import findings
from tests.support.world import World

pytestmark = pytest.mark.backends("fake", "embedded")

LANES = 60
MAX_STEPS = 30 * BUDGET
"""The most steps of a call that ends with its work budget. Arguments and elements of replies of its commands are steps too."""
BOUNDED = ("audit_lanes", "audit_requests", "resume_unfinished")
SLOT = "limit|pool|unit"


def queue_lanes(world: World, settings: dict[str, object]) -> None:
    """Queue requests, each of another shape."""
    world.pool(unit=1, settings=settings)
    for component in ("a", "b"):
        world.policy(component)
    world.submit("a", unit=1)
    specs = [world.request_spec("ab"[number % 2], unit=1, memory_mb=1 + number) for number in range(LANES)]
    world.submit_all(specs)


def pool_key(name: str, *parts: str) -> str:
    """Return a key of the pool."""
    return key(name, "test", "p", *parts)


DAMAGE: dict[str, Callable[[RedisClient], object]] = {
    "every lane is lost": lambda redis: redis.delete(pool_key("pool_parked")),
    "half of the lanes are lost": lambda redis: redis.hdel(
        pool_key("pool_parked"), *list(redis.hkeys(pool_key("pool_parked")))[: LANES // 2]
    ),
    "a lane is out of place": lambda redis: redis.zadd(
        pool_key("pool_lanes"), {str(list(redis.hkeys(pool_key("pool_parked")))[-1]): 5}
    ),
    "no lane has a place": lambda redis: redis.delete(pool_key("pool_lanes")),
    "the numbers of the constraints are wrong": lambda redis: redis.hincrby(pool_key("pool_parking_counts"), SLOT, 7),
}


@pytest.mark.parametrize("discipline", ["reserved", "fair_share"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_lanes_are_compared_and_repaired_in_parts(client: RedisClient, damage: str, discipline: str) -> None:
    world = World(client)
    queue_lanes(world, {"discipline": discipline})
    queue = world.queue()
    DAMAGE[damage](client)
    scripts = CountedScripts(client)
    world.ledger._scripts = scripts
    store = AuditStore(client, world.clock)
    store._scripts = scripts
    assert Audit(world.ledger, store).run(world.workspace, repair=True)
    assert {name: steps for name, steps in scripts.steps.items() if name in BOUNDED and steps > MAX_STEPS} == {}
    fresh = World(client)
    assert findings(fresh) == []
    assert fresh.queue() == queue
