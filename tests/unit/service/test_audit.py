"""The audit finds every kind of damage, says what it is, and puts it right; where nothing is wrong it finds nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.connection import RedisClient
from app.store.keys import key
from tests.support.world import World


def audit_of(world: World) -> Audit:
    """Return an audit with chunks that are small enough to need several."""
    return Audit(world.ledger, AuditStore(world.client, world.clock, chunk=3))


def in_use(world: World) -> dict[str, str]:
    """Create two pools, a group and three policies, with allocations, waiters and ended requests; return the ids by name."""
    world.pool("p", gpu=8, licence=4)
    world.pool("q", gpu=2)
    world.group("g", reserved={"gpu": 4})
    world.policy("t", reserved={"gpu": 2}, group="g")
    world.policy("t", pool="q")
    world.policy("u", priority=3)
    made = {
        "held": world.submit("u", gpu=6, walltime_s=600),
        "fixed": world.submit("t", gpu=2, preemptible=False),
        "spare": world.submit("t", gpu=2),
        "waits": world.submit("t", gpu=2, walltime_s=60),
        "big": world.submit("u", gpu=7, licence=1),
        "over": world.submit("u", gpu=99),
    }
    return {name: request.id for name, request in made.items()}


def k(name: str, *parts: str) -> str:
    """Return a key of the test's workspace."""
    return key(name, "test", *parts)


LANE = "orchestrator/t|p|gpu=2,step_run=1"

DAMAGE: dict[str, Callable[[RedisClient, dict[str, str]], object]] = {
    "a unit lost": lambda redis, ids: redis.hincrby(k("pool", "p"), "used:gpu", -2),
    "a unit counted twice": lambda redis, ids: redis.hincrby(k("policy", "p", "orchestrator/u"), "used:gpu", 6),
    "fixed work forgotten": lambda redis, ids: redis.hdel(k("policy", "p", "orchestrator/t"), "fixed:gpu"),
    "a group's use wrong": lambda redis, ids: redis.hset(k("group", "p", "g"), "used:gpu", 7),
    "promises wrong": lambda redis, ids: redis.hset(k("pool", "p"), "children_reserved:gpu", 1),
    "share keys wrong": lambda redis, ids: redis.hset(k("pool", "p"), "reserving_accounts:gpu", 9),
    "units kept without an owner": lambda redis, ids: redis.hset(k("pool", "p"), "patience_held:gpu", 3),
    "a waiter out of the queue": lambda redis, ids: redis.zrem(k("pool_queue", "p"), ids["waits"]),
    "a waiter out of its lane": lambda redis, ids: redis.zrem(k("lane", LANE), ids["waits"]),
    "a wrong score": lambda redis, ids: redis.zadd(k("pool_queue", "p"), {ids["big"]: 5}),
    "a promise of time lost": lambda redis, ids: redis.zrem(k("lane_walltimes", LANE), ids["waits"]),
    "a waiter that never expires": lambda redis, ids: redis.zrem(k("waiting"), ids["waits"]),
    "a lease lost": lambda redis, ids: redis.zrem(k("leases"), ids["held"]),
    "an allocation out of its pool": lambda redis, ids: redis.zrem(k("pool_allocations", "p"), ids["held"]),
    "an end unknown": lambda redis, ids: redis.zrem(k("pool_walltime_ends", "p"), ids["held"]),
    "an end never pruned": lambda redis, ids: redis.zrem(k("ended"), ids["over"]),
    "a stray in the queue": lambda redis, ids: redis.zadd(k("pool_queue", "p"), {"absent": 1}),
    "a stray lease": lambda redis, ids: redis.zadd(k("leases"), {ids["waits"]: 1}),
    "a stray in a lane": lambda redis, ids: redis.zadd(k("lane", LANE), {ids["big"]: 1}),
    "a request lost": lambda redis, ids: redis.delete(k("request", ids["over"])),
    "a lane not listed": lambda redis, ids: redis.hdel(k("pool_parked", "p"), LANE),
    "a lane misplaced": lambda redis, ids: redis.zadd(k("pool_lanes", "p"), {LANE: 1}),
    "a lane in the wrong band": lambda redis, ids: redis.sadd(k("pool_in_share", "p"), LANE),
    "parked on what does not keep it": lambda redis, ids: redis.hset(k("pool_parked", "p"), LANE, "limit|pool|licence 2 1"),
    "miscounted parks": lambda redis, ids: redis.hincrby(k("pool_parking_counts", "p"), "limit|pool|gpu", 4),
}


def test_nothing_is_found_where_nothing_is_wrong(world: World) -> None:
    in_use(world)
    assert audit_of(world).run("test") == []


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_found_and_put_right(world: World, damage: Callable[[RedisClient, dict[str, str]], object]) -> None:
    ids = in_use(world)
    before = {name: world.get(request).status for name, request in ids.items()}
    audit = audit_of(world)
    damage(world.client, ids)
    findings = audit.run("test")
    assert findings
    assert audit.run("test") == findings, "looking changes nothing"
    assert audit.run("test", repair=True)
    assert audit.run("test") == []
    left = {name: request for name, request in ids.items() if world.client.exists(k("request", request))}
    assert {name: world.get(request).status for name, request in left.items()} == {name: before[name] for name in left}
    assert world.used("p") == {"gpu": 8, "licence": 0}


def test_a_repair_grants_the_requests_that_the_damage_kept_waiting(world: World) -> None:
    world.pool(gpu=4)
    world.policy()
    world.submit(gpu=2)
    world.client.hincrby(k("pool", "p"), "used:gpu", 2)
    waits = world.submit(gpu=2)
    assert world.status(waits) == ["queued"]
    (findings,) = audit_of(world).run("test", repair=True)
    assert str(findings) == "account p pool used gpu: 4, should be 2"
    assert world.status(waits) == ["allocated"]


def test_a_fence_counter_that_is_behind_is_found(world: World) -> None:
    in_use(world)
    fence = world.client.hget(k("meta"), "fence")
    world.client.hset(k("meta"), "fence", 1)
    findings = audit_of(world).run("test", repair=True)
    assert {(finding.kind, finding.location) for finding in findings} == {("counter", "fence")}
    assert (world.client.hget(k("meta"), "fence"), audit_of(world).run("test")) == (fence, [])


ANA, ALL = "orchestrator/user-ana", "orchestrator/user-*"

TEMPLATE_DAMAGE: dict[str, Callable[[RedisClient], object]] = {
    "a policy not listed at its template": lambda redis: redis.zrem(k("pool_instances", "p", ALL), ANA),
    "a policy of a template that is not there": lambda redis: redis.hset(k("policy", "p", ANA), "template", "orchestrator/x*"),
    "a stray at a template": lambda redis: redis.zadd(k("pool_instances", "p", ALL), {"orchestrator/user-eve": 1}),
    "miscounted policies": lambda redis: redis.hincrby(k("pool", "p"), "instances", 2),
    "miscounted templates": lambda redis: redis.hset(k("meta"), "templates", 0),
    "miscounted pools of a template": lambda redis: redis.hset(k("templates"), ALL, 7),
    "a template not listed": lambda redis: redis.delete(k("templates")),
    "a template never checked": lambda redis: redis.delete(k("template_checks")),
}


@pytest.mark.parametrize("damage", TEMPLATE_DAMAGE.values(), ids=TEMPLATE_DAMAGE)
def test_damage_to_templates_is_found_and_put_right(world: World, damage: Callable[[RedisClient], object]) -> None:
    world.pool(gpu=4, settings={"template_idle_s": 60})
    world.policy("user-*", limit={"gpu": 1})
    held = [world.submit(f"user-{name}", gpu=1) for name in ("ana", "bob")]
    audit = audit_of(world)
    assert audit.run("test") == []
    damage(world.client)
    findings = audit.run("test")
    assert findings
    assert audit.run("test") == findings, "looking changes nothing"
    audit.run("test", repair=True)
    assert audit.run("test") == []
    assert world.status(*held) == ["allocated", "allocated"]
    for each in held:
        world.release(each)
    world.pass_time(200)
    world.pass_time(200)
    assert {policy.template for policy in world.get_pool().policies.values()} == {None}
