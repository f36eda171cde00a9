"""After a change of a pool, a group or a policy, every waiter is checked again, however little one call may touch.

Lua counts the parts of a change, whatever the server is, and each test runs with four sizes of them: two backends are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.domain.models import Request
from app.domain.names import component_id
from app.store.connection import RedisClient
from tests.support.audit_findings import findings
from tests.support.world import World

pytestmark = pytest.mark.backends("fake", "embedded")


@pytest.fixture(params=[1, 2, 7, 200])
def small(client: RedisClient, request: pytest.FixtureRequest) -> Iterator[World]:
    """Yield a workspace in which a call processes this many items."""
    world = World(client, chunk=request.param)
    yield world
    assert findings(world) == []


def fill(world: World, component: str = "t", count: int = 5, **fields: Any) -> list[Request]:
    """Submit waiters of different shapes, two of each."""
    return [world.submit(component, memory_mb=1 + number // 2, **fields) for number in range(count)]


def test_a_new_policy_queues_waiters_and_a_changed_one_rejects_misfits(small: World) -> None:
    for pool in ("p", "q"):
        small.pool(pool, gpu=1)
    small.policy("t", "p", priority=1)
    a, b, c = (small.submit(gpu=1) for _ in range(3))
    small.policy("t", "q", priority=1)
    assert (small.get(b).pool, small.get(c).position) == ("q", {"p": 1, "q": 1})
    small.policy("t", "p", priority=1, limit={"gpu": 0})
    assert (small.status(a), small.get(c).position) == (["allocated"], {"q": 1})
    small.policy("t", "q", priority=1, limit={"gpu": 0})
    rejected = small.get(c)
    assert rejected.reason is not None
    assert (rejected.status, [str(each.code) for each in rejected.reason.pools]) == ("rejected", ["exceeds_limit"] * 2)


def test_a_new_priority_reorders_the_whole_queue(small: World) -> None:
    small.pool(gpu=1)
    small.policy("low", priority=1)
    small.policy("high", priority=9)
    small.submit("high", gpu=1)
    lows, highs = fill(small, "low", gpu=1), fill(small, "high", gpu=1)
    assert small.queue() == [each.id for each in highs + lows]
    small.policy("low", priority=50)
    assert small.queue() == [each.id for each in lows + highs]
    assert [small.get(each).position["p"] for each in lows + highs] == list(range(1, 11))


def test_a_growing_pool_grants_in_order_what_fits(small: World) -> None:
    small.pool(gpu=1)
    small.policy()
    small.submit(gpu=1)
    waiting = fill(small, count=7, gpu=1)
    small.update_pool(gpu=5)
    assert small.status(*waiting) == ["allocated"] * 4 + ["queued"] * 3
    assert [small.get(each).fence for each in waiting[:4]] == [2, 3, 4, 5]


def test_a_shrinking_pool_rejects_those_that_fit_nowhere_any_more(small: World) -> None:
    small.pool(gpu=4)
    small.pool("q", gpu=3)
    small.policy()
    small.policy("u")
    small.policy("u", "q")
    small.submit("u", gpu=4)
    small.submit("u", gpu=3)
    rejected, stay, here = fill(small, gpu=4), fill(small, "u", gpu=3), fill(small, gpu=2)
    small.update_pool(gpu=2)
    assert small.status(*rejected, *stay, *here) == ["rejected"] * 5 + ["queued"] * 10
    assert [small.get(each).position for each in stay] == [{"q": place} for place in range(1, 6)]
    assert small.queue() == [each.id for each in here]
    small.update_pool(gpu=4)
    assert small.get(stay[0]).position == {"p": 1, "q": 1}
    assert len(small.queue()) == 10


def test_a_new_or_removed_key_changes_the_eligible_waiters(small: World) -> None:
    small.pool(gpu=1, tpu=1)
    small.policy()
    small.submit(gpu=1)
    with_tpu, with_cpu = small.submit(gpu=1, tpu=1), small.submit(gpu=1, mcpu=5)
    small.update_pool(tpu=0)
    assert small.status(with_tpu, with_cpu) == ["rejected", "queued"]
    small.update_pool(mcpu=4)
    rejected = small.get(with_cpu)
    assert (rejected.status, rejected.reason and rejected.reason.code) == ("rejected", "exceeds_capacity")


def test_a_limit_lifted_and_a_share_given_grant_at_once(small: World) -> None:
    small.pool(gpu=8)
    small.group("g", limit={"gpu": 2})
    small.policy("t", group="g", limit={"gpu": 2})
    small.submit(gpu=2)
    waiting = fill(small, gpu=1)
    small.policy("t", group="g")
    assert small.status(*waiting) == ["queued"] * 5
    small.group("g", limit={"gpu": 6})
    assert small.status(*waiting) == ["allocated"] * 4 + ["queued"]
    small.group("g")
    assert small.status(*waiting) == ["allocated"] * 5


def test_a_new_share_puts_its_owner_first(small: World) -> None:
    small.pool(gpu=4)
    small.policy("a", priority=9)
    small.policy("b")
    small.submit("a", gpu=4)
    firsts, lasts = fill(small, "a", gpu=1), fill(small, "b", gpu=1)
    small.policy("b", reserved={"gpu": 1})
    assert small.queue() == [each.id for each in lasts + firsts]
    small.policy("b")
    assert small.queue() == [each.id for each in firsts + lasts]


def test_components_that_share_a_beginning_are_all_looked_at(small: World) -> None:
    names = ["a", "a-", "a.b", "a_", "aa", "ab", "A", "a0", "B.x-y_z"]
    small.pool(gpu=1)
    for kind in ("orchestrator", "orchestrator.x"):
        for name in names:
            small.policy(component_id(kind, name))
    small.submit("a", gpu=1)
    waiting = [small.submit(component_id(kind, name), gpu=1) for kind in ("orchestrator", "orchestrator.x") for name in names]
    small.update_pool(gpu=1 + len(waiting))
    assert small.status(*waiting) == ["allocated"] * len(waiting)


# ---- a caller that dies in the middle


def call_once(world: World, command: str, **args: Any) -> str:
    """Call the command once, as a caller that then dies; return its field `more`."""
    return str(world.call(command, **args).fields["more"])


def test_what_a_caller_left_is_finished_by_the_next_change(client: RedisClient) -> None:
    world = World(client, chunk=2)
    world.pool(gpu=1)
    world.policy()
    holder = world.submit(gpu=1)
    waiting = fill(world, count=9, gpu=1)
    assert call_once(world, "update_pool", name="p", description="", capacity="gpu=6", settings="{}") == "1"
    assert world.get_pool().unfinished
    world.release(holder)
    assert (world.get_pool().unfinished, world.status(*waiting)) == (False, ["allocated"] * 6 + ["queued"] * 3)
    assert findings(world) == []


@pytest.mark.parametrize("stop", range(1, 12))
def test_every_part_of_a_change_is_consistent_and_another_caller_resumes_it(client: RedisClient, stop: int) -> None:
    world = World(client, chunk=2)
    world.pool(gpu=4)
    world.policy()
    request = world.submit(gpu=4)
    rejected, stay = fill(world, count=4, gpu=4), fill(world, count=4, gpu=1)
    call_once(world, "update_pool", name="p", description="", capacity="gpu=3", settings="{}")
    for _ in range(stop):
        call_once(world, "resume_unfinished")
    assert findings(world) == []
    late = world.submit(gpu=1)
    world.release(request)
    while world.ledger.resume_unfinished(world.workspace):
        assert findings(world) == []
    assert world.status(*rejected, *stay, late) == ["rejected"] * 4 + ["allocated"] * 3 + ["queued"] * 2


def test_no_request_passes_others_during_a_recheck(client: RedisClient) -> None:
    world = World(client, chunk=1)
    world.pool(gpu=2)
    world.policy("a", priority=1)
    world.policy("b", priority=1)
    allocation, waiting = world.submit("a", gpu=2), world.submit("b", gpu=2)
    fill(world, "b", gpu=2)
    numbers = {"priority": 9, "profile": "batch", "group": "", "reserved": "", "limit": "", "weight": 1, "settings": "[]"}
    call_once(world, "set_policy", op="1", pool="p", component="orchestrator/b", **numbers)
    world.call("drop", id=allocation.id)
    late = world.submit("a", gpu=1)
    while world.ledger.resume_unfinished(world.workspace):
        pass
    assert world.status(waiting, late) == ["allocated", "queued"]
    assert findings(world) == []


def test_a_change_on_top_of_an_unfinished_one_starts_again(client: RedisClient) -> None:
    world = World(client, chunk=1)
    world.pool(gpu=2)
    world.policy("a", priority=1)
    world.policy("b", priority=2)
    world.submit("a", gpu=2)
    firsts, seconds = fill(world, "a", gpu=1), fill(world, "b", gpu=1)
    for priority in (5, 0, 7, 1):
        args = {
            "pool": "p",
            "component": "orchestrator/a",
            "group": "",
            "reserved": "",
            "limit": "",
            "weight": 1,
            "settings": "[]",
        }
        call_once(world, "set_policy", op=str(priority), priority=priority, profile="batch", **args)
        for _ in range(priority):
            call_once(world, "resume_unfinished")
    while world.ledger.resume_unfinished(world.workspace):
        pass
    assert world.queue() == [each.id for each in seconds + firsts]
    assert findings(world) == []


def test_a_change_of_discipline_and_back_before_it_was_done(client: RedisClient) -> None:
    world = World(client, chunk=2)
    world.pool(gpu=1)
    world.policy("a", priority=9999)
    world.submit("a", gpu=1)
    members = [world.submit("a", gpu=1, preemption_class=each) for each in (10, 9, 5, 2, 0)]
    before = world.client.zrange("pk:{test}:pool:p:queue", 0, -1, withscores=True)
    call_once(world, "update_pool", name="p", description="", capacity="", settings='{"discipline": "classes"}')
    for _ in range(3):
        call_once(world, "resume_unfinished")
    world.update_pool(settings={"discipline": "reserved"})
    assert world.client.zrange("pk:{test}:pool:p:queue", 0, -1, withscores=True) == before
    assert world.queue() == [each.id for each in members]
    assert findings(world) == []


def test_grants_left_by_a_dead_caller_are_made_in_order(client: RedisClient) -> None:
    world = World(client, chunk=1)
    world.pool(gpu=4)
    world.policy()
    request = world.submit(gpu=4)
    waiting = fill(world, count=6, gpu=1)
    world.call("drop", id=request.id)
    late = world.submit(gpu=1)
    while world.ledger.resume_unfinished(world.workspace):
        pass
    assert world.status(*waiting, late) == ["allocated"] * 4 + ["queued"] * 3
    assert findings(world) == []
