"""The end of a hold with many victims: they are orphaned in parts, and are not judged or forced before."""

from __future__ import annotations

from itertools import pairwise

import pytest

from app.domain.models import Request
from app.service.reconcile import Reconciler
from app.store.audit import AuditStore
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.snapshot_reader import SnapshotReader, SnapshotSizes, UnfinishedWork
from app.store.workspace_copy import WorkspaceCopier
from tests.properties.counted_scripts import CountedScripts
from tests.support.audit_findings import findings
from tests.support.fake_redis import FakeRedisProvider
from tests.support.small_budget import give_small_budget
from tests.support.world import World

VICTIMS = 100
BUDGET = 40


def hold_with_victims(world: World) -> tuple[Request, list[Request]]:
    """Make a waiter for which many allocations are leaving. From now on the work budget is small, and no call resumes work."""
    (owner,), victims = holds_with_victims(world, 1)
    return owner, victims


def holds_with_victims(world: World, count: int) -> tuple[list[Request], list[Request]]:
    """Make several such waiters that share the victims."""
    world.pool(gpu=VICTIMS)
    world.policy("low")
    world.policy("high", priority=1)
    victims = world.submit_all([world.request_spec("low", gpu=1, checkpoint="auto")] * VICTIMS)
    owners = [world.submit("high", gpu=VICTIMS // count) for _ in range(count)]
    for part, owner in enumerate(owners):
        assert world.preempt(owner, *victims[part::count]).applied
    give_small_budget(world, BUDGET)
    world.ledger._resume_later = lambda *_: None
    return owners, victims


def orphaned(world: World) -> int:
    """Return how many victims are orphaned."""
    return sum(owner == "-" for owner in world.client.hvals(key("pool_victims", world.workspace, "p")))


def reconcile(world: World) -> None:
    """Run one reconcile pass, without pauses between parts."""
    Reconciler(world.plan_store, world.ledger, pause=lambda _: None).run(world.workspace)


def test_the_victims_of_a_hold_are_orphaned_in_parts(world: World) -> None:
    owner, victims = hold_with_victims(world)
    world.cancel(owner)
    counts = [orphaned(world)]
    while world.ledger.resume_unfinished(world.workspace):
        assert findings(world) == []
        counts.append(orphaned(world))
    counts.append(orphaned(world))
    steps = [later - earlier for earlier, later in pairwise(counts)]
    assert counts[-1] == VICTIMS
    assert 0 < max(steps) < VICTIMS / 2
    assert world.client.exists(key("preemption_deadlines", world.workspace)) == 0
    assert world.client.exists(key("hold_victims", world.workspace, "p", owner.id)) == 0
    reconcile(world)
    assert set(world.status(*victims)) == {"allocated"}


def test_no_decision_is_made_before_all_are_orphaned(world: World) -> None:
    owner, victims = hold_with_victims(world)
    snapshot = world.snapshot()
    world.cancel(owner)
    assert orphaned(world) < VICTIMS
    with pytest.raises(UnfinishedWork):
        world.snapshot()
    other = world.submit("high", gpu=1)
    reply = world.preempt(other, victims[0], snapshot=snapshot)
    assert (reply.applied, reply.reason) == (False, "unfinished")
    reconcile(world)
    statuses = world.status(*victims)
    assert (statuses.count("preempting"), statuses.count("allocated")) == (1, VICTIMS - 1)


def test_no_other_hold_ends_before_all_are_orphaned(world: World) -> None:
    (owner, other), _ = holds_with_victims(world, 2)
    world.cancel(owner)
    world.client.hdel(key("pool", world.workspace, "p"), "orphaned_victims")  # as if none was orphaned yet
    reply = world.call("end_hold", pool="p", owner=other.id)
    assert (reply.tag, reply.fields) == ("stale", {"why": "unjudged"})
    world.client.hset(key("pool", world.workspace, "p"), "orphaned_victims", orphaned(world))
    assert world.ledger.resume_all_unfinished(world.workspace)


def test_no_deadline_is_enforced_on_a_victim_of_a_closed_hold(world: World) -> None:
    owner, victims = hold_with_victims(world)
    world.cancel(owner)
    world.clock.advance(700)
    assert world.plan_store.enforce_deadlines(world.workspace)[0] == 0
    assert world.enforce_deadlines() == 0
    assert {world.get(victim).directive for victim in victims} == {"checkpoint"}
    reconcile(world)
    assert set(world.status(*victims)) == {"allocated"}


@pytest.mark.parametrize("outcome", ["vacated", "succeeded"])
def test_a_victim_of_a_closed_hold_may_exit(world: World, outcome: str) -> None:
    owner, victims = hold_with_victims(world)
    world.cancel(owner)
    for victim in victims:
        world.release(victim, outcome=outcome)
    assert world.ledger.resume_all_unfinished(world.workspace)
    assert world.client.exists(key("pool_victims", world.workspace, "p")) == 0
    assert findings(world) == []


def test_a_copy_orphans_the_victims_of_closed_holds(world: World) -> None:
    (owner, other), _ = holds_with_victims(world, 2)
    world.cancel(owner)
    assert orphaned(world) < VICTIMS / 2
    with WorkspaceCopier(world.client, FakeRedisProvider(), world.clock).copy(world.workspace) as copy:
        there = World(copy.client, world.workspace)
        assert orphaned(there) == VICTIMS // 2
        assert [finding for finding in findings(there) if "bytes of bodies" not in finding] == []
        assert len(there.client.smembers(key("hold_victims", world.workspace, "p", other.id))) == VICTIMS // 2
        assert there.snapshot().holds[0].owner.id == other.id


def test_an_audit_reads_the_victims_of_a_hold_apart_from_the_holds(client: RedisClient) -> None:
    world = World(client)
    owner, _ = hold_with_victims(world)
    store = AuditStore(client, world.clock)
    members = key("hold_victims", world.workspace, "p", owner.id)
    assert list(store.check_holds(world.workspace, "p", repair=False)) == []
    world.client.sadd(members, "lost")
    assert [finding.location for finding in store.check_holds(world.workspace, "p", repair=True)] == ["p lost"]
    assert not world.client.sismember(members, "lost")
    scripts = CountedScripts(client)
    scripts.call("audit_holds", world.workspace, pool="p", kind="holds", owner="", cursor="0", count=5, repair=False)
    assert scripts.steps["audit_holds"] < VICTIMS


def test_a_copied_row_of_a_victim_whose_deadline_passed_is_read_again(world: World) -> None:
    owner, _ = hold_with_victims(world)
    sizes = SnapshotSizes(allocations=VICTIMS // 2)
    world.plan_store._reader = SnapshotReader(world.clock, sizes)
    world.snapshot()
    world.cancel(owner)
    world.clock.advance(700)
    assert world.plan_store.enforce_deadlines(world.workspace)[0] == 0
    assert world.ledger.resume_all_unfinished(world.workspace)
    assert {each.leaving_for for each in world.snapshot().allocations} == {""}


def test_a_damaged_list_of_victims_does_not_keep_work_unfinished(world: World) -> None:
    owner, victims = hold_with_victims(world)
    world.client.sadd(key("hold_victims", world.workspace, "p", owner.id), "lost")
    world.cancel(owner)
    assert world.ledger.resume_all_unfinished(world.workspace, VICTIMS)
    assert findings(world) == []
    reconcile(world)
    assert set(world.status(*victims)) == {"allocated"}
