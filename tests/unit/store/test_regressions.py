"""Faults that random histories found, each in its shortest form."""

from __future__ import annotations

import json

import pytest

from app.domain.ledger_limits import LedgerLimits
from app.domain.models import Request
from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.connection import RedisClient
from app.store.ledger import Ledger
from tests.support.world import World


class OneCall(Ledger):
    """A ledger whose caller dies before it resumes the unfinished work."""

    def _finish(self, workspace: str) -> None:
        pass


def test_a_request_ordered_before_the_owner_of_a_hold_is_granted_first(world: World) -> None:
    world.pool(gpu=3, settings={"patience_s": 2})
    world.policy("large")
    world.policy("small", reserved={"gpu": 1})
    holder = world.submit("small", gpu=1)
    large = world.submit("large", gpu=3)
    world.pass_time(2)
    small = world.submit("small", gpu=1)
    assert [hold.request for hold in world.get_pool().holds] == [large.id]
    assert world.status(large, small) == ["queued", "queued"]
    world.release(holder)  # the small one is now in share, and so before the owner of the hold
    assert world.status(large, small) == ["queued", "allocated"]


def test_the_owner_of_a_hold_is_granted_although_an_earlier_hold_kept_him_before(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 2})
    world.policy()
    first, second = world.submit(gpu=3), world.submit(gpu=1)
    large = world.submit(gpu=4)
    world.pass_time(2)
    request = world.submit(gpu=2)
    world.release(first)
    assert world.status(large, request) == ["queued", "queued"]
    other = world.submit(gpu=3, preemption_class=9)  # before the owner, whose hold binds no earlier request
    world.cancel(large)
    assert world.status(other, request) == ["allocated", "queued"]
    world.pass_time(2)
    assert [hold.request for hold in world.get_pool().holds] == [request.id]
    world.release(other)
    assert world.status(request) == ["allocated"]
    world.release(second)


def test_newcomers_at_both_ends_of_a_lane_do_not_hide_that_the_rest_has_to_move(world: World) -> None:
    world.pool(gpu=1)
    world.policy("a")
    world.policy("z")
    world.submit("a", gpu=1)
    waits, moves = world.submit("a", gpu=1), world.submit("z", gpu=1)
    living, world.ledger = world.ledger, OneCall(world.client, world.clock, LedgerLimits(chunk=1))
    world.policy("z", priority=3)  # dies when the lane of `a` has been looked at
    first, last = (world.submit("z", gpu=1, preemption_class=rank) for rank in (9, 1))
    world.ledger = living
    while world.ledger.resume_unfinished(world.workspace):
        pass
    assert world.queue() == [first.id, moves.id, last.id, waits.id]


def test_a_policy_deleted_during_a_sync_leaves_no_waiter_in_the_queue(client: RedisClient) -> None:
    world = World(client, chunk=1)
    for name in ("p", "q"):
        world.pool(name, gpu=1)
        world.policy("other", pool=name)
        world.policy(pool=name)
    holders = [world.submit("other", gpu=1), world.submit("other", gpu=1)]
    for _ in range(3):
        world.submit(gpu=1)
    shut_out = {"priority": 0, "profile": "batch", "group": "", "reserved": "", "limit": "gpu=0", "weight": 1, "settings": "[]"}
    assert world.call("set_policy", op="1", pool="p", component="orchestrator/t", **shut_out).fields["more"] == "1"
    world.call("delete_policy", op="2", pool="p", component="orchestrator/t")
    world.call("release", allocations=json.dumps([[holders[1].id, "2", "succeeded"]]))  # one of them leaves through q meanwhile
    world.ledger.delete_policy("test", "p", "orchestrator/t")
    assert client.exists("pk:{test}:pool:p:queue") == 0


def test_many_constraints_may_rise_at_once(world: World) -> None:
    # More than unpack takes: policies × keys × kinds.
    keys = {f"k{number}": 400 for number in range(31)}
    world.pool("p", None, **keys)
    for number in range(150):
        world.policy(f"t{number}", limit=dict.fromkeys(keys, 2))
        world.submit(f"t{number}", lease_s=5, resources=dict.fromkeys(keys, 2))
    waiting = world.submit("t0", resources=dict.fromkeys(keys, 2))
    assert world.status(waiting) == ["queued"]
    world.clock.advance(5)
    assert sum(world.ledger.clean_up("test").expired_leases for _ in range(15)) == 150, "each call within its work budget"
    assert world.status(waiting) == ["allocated"]


def left_by_a_dead_caller(client: RedisClient) -> tuple[World, Request]:
    """Create twenty waiters for one unit each; a release freed thirty, but its caller died after the first of several calls."""
    world = World(client, chunk=5)
    world.pool(gpu=50)
    world.policy()
    world.policy("big")
    holder = world.submit("big", gpu=50)
    for _ in range(20):
        world.submit(gpu=1)
    world.call("release", allocations=json.dumps([[holder.id, "1", "succeeded"]]))
    assert 0 < world.get_pool().queue_length < 20
    return world, holder


def test_a_repeated_release_goes_on_with_what_the_first_left(client: RedisClient) -> None:
    world, holder = left_by_a_dead_caller(client)
    world.release(holder, fence=1)
    assert world.get_pool().queue_length == 0


def test_the_next_submit_resumes_unfinished_work_and_replies_the_later_state(client: RedisClient) -> None:
    world, _ = left_by_a_dead_caller(client)
    assert world.submit(gpu=1).status == "allocated"
    assert world.get_pool().queue_length == 0


def test_the_audit_finds_nothing_in_a_pool_that_is_being_looked_at(client: RedisClient) -> None:
    world = World(client, chunk=1)
    world.pool(gpu=1)
    world.policy()
    world.submit(gpu=1)
    for gpu in (1, 1, 1):
        world.submit(gpu=gpu)
    world.call("update_pool", name="p", description="", capacity="", settings='{"discipline":"classes"}')
    assert world.get_pool().unfinished
    assert Audit(world.ledger, AuditStore(client, world.clock, 3)).run("test") == []


@pytest.mark.backends("fake", "embedded")  # hundreds of requests, and the bound is in Lua
def test_a_page_of_the_queue_passes_over_only_so_many_in_share(client: RedisClient) -> None:
    world = World(client)
    world.pool(gpu=10)
    world.policy("owner", reserved={"gpu": 5}, priority=1)
    world.policy("lender")
    world.submit("lender", gpu=10)
    world.submit_all([world.request_spec("owner", gpu=1) for _ in range(900)])
    last = world.submit("lender", gpu=1)
    ids, _ = world.ledger.list_queue("test", "p", count=5)
    whole = world.queue()
    assert 0 < len(ids) <= 5
    assert ids == whole[: len(ids)]
    assert whole[-1] == last.id
    assert len(whole) == 901


def test_a_lost_request_does_not_stop_its_pool(client: RedisClient) -> None:
    world = World(client)
    world.pool(gpu=2, settings={"patience_s": 1})
    world.policy()
    holder = world.submit(gpu=2, lease_s=3)
    owner = world.submit(gpu=2)
    other = world.submit(gpu=1)
    world.pass_time(1)
    assert [hold.request for hold in world.get_pool().holds] == [owner.id]
    for lost in (owner, holder):
        client.delete(f"pk:{{test}}:request:{lost.id}")
    world.submit(gpu=1)
    world.pass_time(5)
    audit = Audit(world.ledger, AuditStore(client, world.clock, 3))
    assert audit.run("test", repair=True)
    assert audit.run("test") == []
    assert world.status(other) == ["allocated"]


def test_a_lost_party_of_a_preemption_stops_no_pool(client: RedisClient) -> None:
    for lost in ("victim", "waiter"):
        client.flushall()
        world = World(client)
        world.pool(gpu=4)
        world.policy("low")
        world.policy("high", priority=1)
        victim, waiter = world.submit("low", gpu=4, retries=0), world.submit("high", gpu=4)
        other = world.submit("high", gpu=2)
        world.preempt(waiter, victim)
        client.delete(f"pk:{{test}}:request:{(victim if lost == 'victim' else waiter).id}")
        world.enforce_deadlines(30)
        audit = Audit(world.ledger, AuditStore(client, world.clock, 3))
        assert audit.run("test", repair=True)
        assert audit.run("test") == []
        assert world.status(waiter if lost == "victim" else other) == ["allocated"]


def test_lost_counters_never_count_again_what_they_counted(client: RedisClient) -> None:
    world = World(client)
    world.pool(gpu=2)
    world.policy()
    world.submit(gpu=1)
    client.delete("pk:{test}:meta")
    audit = Audit(world.ledger, AuditStore(client, world.clock, 3))
    assert {finding.location for finding in audit.run("test", repair=True)} == {"seq", "fence", "policies", "bytes of bodies"}
    assert audit.run("test") == []
    assert world.submit(gpu=1).fence == 2


def test_a_hold_whose_owner_was_lost_stops_no_change(client: RedisClient) -> None:
    for change in ("move", "strict", "shut out"):
        client.flushall()
        world = World(client)
        world.pool(gpu=4, settings={"patience_s": 1})
        world.group("g")
        world.policy("holder")
        world.policy()
        world.submit("holder", gpu=4)
        owner = world.submit(gpu=2)
        other = world.submit(gpu=2)
        world.pass_time(1)
        assert [hold.request for hold in world.get_pool().holds] == [owner.id]
        client.delete(f"pk:{{test}}:request:{owner.id}")
        if change == "move":
            world.policy(group="g")
        elif change == "strict":
            world.update_pool(settings={"queueing": "strict"})
        else:
            world.policy(limit={"gpu": 1})
        assert world.get_pool().holds == ()
        assert world.get(other).status in ("queued", "rejected")
