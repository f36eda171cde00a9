"""The sums of a pool are compared in parts, and repaired by the difference."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from app.domain.models import AuditFinding
from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.scripts import Arg, ScriptReply, Scripts
from tests.support.world import World


class Interrupted(Scripts):
    """Scripts of an audit with an interruption before one of them."""

    def __init__(self, world: World, command: str, happens: Callable[[], object]) -> None:
        super().__init__(world.client)
        self._command, self._happens = command, happens

    def call(self, command: str, workspace: str, /, **args: Arg) -> ScriptReply:
        """Call the interruption, then the script."""
        if command == self._command:
            self._happens()
        return super().call(command, workspace, **args)


def audit(world: World, command: str = "", happens: Callable[[], object] = lambda: None) -> AuditStore:
    """Return an audit in small parts."""
    store = AuditStore(world.client, world.clock, chunk=2)
    store._scripts = store._sums._scripts = Interrupted(world, command, happens)
    return store


def damage(world: World) -> str:
    """Count two units too many at the pool, of which two are used; return its key."""
    world.pool(gpu=40)
    for name in ("low", "mid", "high"):
        world.policy(name)
    for _ in range(2):
        world.submit("low", gpu=1)
    pool = key("pool", world.workspace, "p")
    world.client.hincrby(pool, "used:gpu", 2)
    return pool


FINDING = AuditFinding("account", "p pool used gpu", "4", "2")


def test_what_is_booked_while_it_is_repaired_is_kept(world: World) -> None:
    pool = damage(world)
    store = audit(world, "repair_sums", lambda: world.submit("high", gpu=5))
    assert store.check_accounts(world.workspace, "p", repair=True) == [FINDING]
    assert world.client.hget(pool, "used:gpu") == "7"
    assert store.check_accounts(world.workspace, "p", repair=False) == []


def test_another_repair_is_not_made_twice(world: World) -> None:
    pool = damage(world)
    other = audit(world)
    once = [lambda: other.check_accounts(world.workspace, "p", repair=True)]
    store = audit(world, "repair_sums", lambda: once.pop()() if once else None)
    assert store.check_accounts(world.workspace, "p", repair=True) == [], "the other one has repaired it"
    assert world.client.hget(pool, "used:gpu") == "2"


def test_a_pool_that_is_declared_all_the_time_is_too_busy(world: World, caplog: pytest.LogCaptureFixture) -> None:
    damage(world)
    store = audit(world, "read_sum_changes", lambda: world.policy("mid", priority=1))
    with caplog.at_level(logging.WARNING):
        assert store.check_accounts(world.workspace, "p", repair=True) == []
    assert "pool p of workspace test changes too fast to be compared" in caplog.text
    assert audit(world).check_accounts(world.workspace, "p", repair=True) == [FINDING]


def test_a_pool_that_is_gone_has_no_sums(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert audit(world).check_accounts(world.workspace, "p", repair=True) == []
    assert caplog.text == ""


def test_the_expected_units_of_a_hold_are_those_of_its_victims(world: World) -> None:
    world.pool(gpu=4)
    world.policy("low")
    world.policy("high", priority=1)
    victims = [world.submit("low", gpu=2) for _ in range(2)]
    owner = world.submit("high", gpu=4)
    world.preempt(owner, *victims)
    hold = key("hold", world.workspace, "p", owner.id)
    before = world.client.hgetall(hold)
    world.client.hincrby(hold, "expected|pool|gpu", -1)
    (finding,) = audit(world).check_holds(world.workspace, "p", repair=True)
    assert str(finding) == "hold p expected|pool|gpu: 3, should be 4"
    assert world.client.hgetall(hold) == before
    assert list(audit(world).check_holds(world.workspace, "p", repair=False)) == []


@pytest.mark.parametrize("kind", ["records", "victims", "holds"])
def test_what_belongs_to_no_request_is_found(world: World, kind: str) -> None:
    world.pool(gpu=4)
    place = {"records": "pool_allocation_records", "victims": "pool_victims", "holds": "pool_holds"}[kind]
    world.client.hset(key(place, world.workspace, "p"), "absent", "victims 1 1" if kind == "holds" else "x")
    if kind == "holds":
        world.client.hset(key("pool", world.workspace, "p"), "victim_holds", 1)
    assert len(list(audit(world).check_holds(world.workspace, "p", repair=True))) == (2 if kind == "holds" else 1)
    assert not world.client.exists(key(place, world.workspace, "p"))
    assert list(audit(world).check_holds(world.workspace, "p", repair=False)) == []


def at(name: str, *parts: str) -> str:
    """Return a key of pool `p`."""
    return key(name, "test", "p", *parts)


Damage = Callable[[RedisClient, str, str], object]
DAMAGE: dict[str, Damage] = {
    "units leaving": lambda client, victim, owner: client.hincrby(at("pool"), "leaving:gpu", 3),
    "orphaned victims": lambda client, victim, owner: client.hset(at("pool"), "orphaned_victims", 1),
    "a victim not listed": lambda client, victim, owner: client.srem(at("hold_victims", owner), victim),
    "a stray victim": lambda client, victim, owner: client.sadd(at("hold_victims", owner), "absent"),
    "an owner forgotten": lambda client, victim, owner: client.hset(at("pool_victims"), victim, "-"),
}


@pytest.mark.parametrize("change", DAMAGE.values(), ids=DAMAGE)
def test_damage_of_what_is_kept_of_victims_is_repaired(world: World, change: Damage) -> None:
    world.pool(gpu=4)
    world.policy("low")
    world.policy("high", priority=1)
    victim = world.submit("low", gpu=4)
    owner = world.submit("high", gpu=4)
    world.preempt(owner, victim)
    change(world.client, victim.id, owner.id)
    store = Audit(world.ledger, AuditStore(world.client, world.clock, chunk=2))
    assert len(store.run(world.workspace)) >= 1
    store.run(world.workspace, repair=True)
    assert store.run(world.workspace) == []
