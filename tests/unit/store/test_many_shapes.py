"""Very many shapes: the first lane that fits is found whatever its need, and no call exceeds its work budget."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from app.domain.ids import request_id
from app.domain.ledger_limits import MAX_STEPS
from app.domain.models import Request
from app.domain.specs import PolicySpec
from app.store import codec
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.ledger import Ledger
from app.store.lua_linker import load_commands
from app.store.scripts import Scripts
from tests.properties.counted_scripts import BUDGET, CountedScripts
from tests.support.audit_findings import findings
from tests.support.world import World

pytestmark = pytest.mark.backends("fake", "embedded")  # the rule is in Lua


def needs_of_any_length(rng: random.Random, count: int) -> list[int]:
    """Return different amounts, as many of one digit as of ten."""
    return list({rng.randint(1, 16 ** rng.randint(1, 10)) for _ in range(count)})


@pytest.mark.parametrize("seed", range(4))
def test_freed_units_go_to_the_first_lanes_that_fit(client: RedisClient, seed: int) -> None:
    rng, world = random.Random(seed), World(client)
    holdings = [16**length + rng.randint(0, 16**length) for length in range(2, 11)]
    world.pool(unit=sum(holdings))
    world.policy()
    holders = [world.submit(unit=units) for units in holdings]
    waiters = {world.submit(unit=need).id: need for need in needs_of_any_length(rng, 80)}
    free = 0
    for holder, units in rng.sample(list(zip(holders, holdings, strict=True)), len(holders)):
        free += units
        granted = []
        for waiter, need in waiters.items():
            if need <= free:
                granted.append(waiter)
                free -= need
        world.release(holder)
        assert [waiter for waiter in waiters if world.get(waiter).status == "allocated"] == granted
        for waiter in granted:
            del waiters[waiter]
    assert findings(world) == []


CROSSING = 400
"""Lanes that cross between share and borrowing at once; the work budget moves fewer."""


def lanes_in_share(world: World) -> int:
    """Return the number of lanes that the pool counts as in share."""
    return int(world.client.scard(key("pool_in_share", world.workspace, "p")))


def set_up_crossing(world: World) -> tuple[Request, Request]:
    """Create an owner that uses all of its reserved units, a lender with the rest, and lanes of the owner with different
    amounts."""
    world.pool(unit=3 * CROSSING)
    world.policy("owner", reserved={"unit": 2 * CROSSING}, priority=1)
    world.policy("lender", priority=9)
    owned, lent = world.submit("owner", unit=2 * CROSSING), world.submit("lender", unit=CROSSING)
    world.submit_all([world.request_spec("owner", unit=need) for need in range(CROSSING + 1, 2 * CROSSING + 1)])
    assert lanes_in_share(world) == 0
    return owned, lent


def test_lanes_that_cross_into_the_share_are_moved_within_the_budget_and_nothing_is_granted_before(client: RedisClient) -> None:
    world = World(client)
    owned, _ = set_up_crossing(world)
    late = world.submit("lender", unit=1)
    reply = world.call("release", allocations=f'[["{owned.id}", "{owned.fence}", "succeeded"]]')
    assert reply.fields["more"] == "1"
    assert 0 < lanes_in_share(world) < CROSSING
    assert world.get_pool().unfinished
    assert world.status(late) == ["queued"]
    assert world.ledger.resume_all_unfinished(world.workspace)
    granted = world.get(str(world.client.zrange(key("pool_allocations", world.workspace, "p"), -2, -2)[0]))
    assert granted.resources["unit"] == CROSSING + 1, "the first waiter in share, though the lender has the higher priority"
    assert findings(world) == []


def test_lanes_cross_though_the_pools_with_unfinished_work_take_the_whole_budget(client: RedisClient) -> None:
    world = World(client)
    owned, _ = set_up_crossing(world)
    world.call("release", allocations=f'[["{owned.id}", "{owned.fence}", "succeeded"]]')
    command = load_commands()["resume_unfinished"]
    tiny = replace(
        command, text=command.text.replace(f"server_calls.count >= {MAX_STEPS}", "server_calls.count >= 1"), sha="0" * 40
    )
    world.ledger._scripts = Scripts(client, {**load_commands(), command.name: tiny})
    before = lanes_in_share(world)
    world.ledger.resume_unfinished(world.workspace)
    assert lanes_in_share(world) > before


def test_a_request_that_enters_while_lanes_cross_waits_for_them(client: RedisClient) -> None:
    world = World(client)
    owned, _ = set_up_crossing(world)
    world.call("release", allocations=f'[["{owned.id}", "{owned.fence}", "succeeded"]]')
    row = codec.encode_request(entered := request_id(), world.request_spec("owner", unit=1), None)
    reply = world.call("submit", remember_s=60, specs=json.dumps([row]), with_status=False)
    assert reply.fields["more"] == "1"
    assert world.status(world.get(entered)) == ["queued"]
    assert world.ledger.resume_all_unfinished(world.workspace)
    assert findings(world) == []


class InterruptedLedger(Ledger):
    """A ledger that leaves the unfinished work of a change to others."""

    def resume_unfinished(self, workspace: str) -> bool:
        return False


def test_a_change_of_rules_is_resumed_within_the_budget_of_each_call(client: RedisClient) -> None:
    world = World(client)
    world.pool(unit=1)
    for number in range(100):
        world.policy(f"idle{number}")
    world.policy()
    world.submit(unit=1)
    waiters = [world.submit(unit=1, memory_mb=1 + number) for number in range(100)]
    world.ledger._scripts = scripts = CountedScripts(client)
    world.policy(priority=5)
    assert scripts.steps["resume_unfinished"] < 20 * BUDGET
    world.ledger._scripts = Scripts(client)
    assert [world.get(waiter.id).position for waiter in waiters] == [{"p": 1 + number} for number in range(100)]
    assert findings(world) == []


def test_a_recheck_begins_anew_with_another_master(client: RedisClient) -> None:
    world = World(client, chunk=1)
    world.pool(unit=10)
    world.policy()
    world.policy("other", priority=1)
    world.submit("other", unit=10)
    first, *rest = [world.submit(unit=1, memory_mb=1 + number) for number in range(3)]
    world.cancel(first)
    late = world.submit("other", unit=1)
    interrupted = InterruptedLedger(client, world.clock, world.limits)
    interrupted.set_policy(world.workspace, "p", "orchestrator/t", PolicySpec(priority=5))
    work = key("pool_unfinished", world.workspace, "p")
    assert world.ledger.resume_unfinished(world.workspace)
    client.hset(work, mapping={"review_page": "end of-another-master", "review_policies": ""})
    assert world.ledger.resume_all_unfinished(world.workspace)
    assert not client.exists(work)
    assert world.queue() == [waiter.id for waiter in [*rest, late]]
    assert findings(world) == []


def test_a_batch_ends_with_the_budget_and_the_ledger_sends_the_rest(client: RedisClient) -> None:
    world = World(client)
    world.pool(unit=1000)
    world.policy()
    specs = [world.request_spec(unit=1) for _ in range(150)]
    rows = json.dumps([codec.encode_request(request_id(), spec, None) for spec in specs])
    outcomes = world.call("submit", remember_s=60, specs=rows, with_status=False).fields["outcomes"]
    assert 0 < len(outcomes) < len(specs)
    answers = world.submit_all(specs)
    assert [answer.status for answer in answers] == ["allocated"] * len(specs)
    released = world.ledger.release_all(world.workspace, [(answer.id, answer.fence) for answer in answers])
    assert [getattr(answer, "status", None) for answer in released] == ["released"] * len(specs)


def test_a_tail_of_the_shape_makes_a_lane_of_its_own(client: RedisClient) -> None:
    world = World(client)
    world.pool(unit=1)
    world.policy()
    holder, plain, tailed = (world.submit(unit=1) for _ in range(3))
    world.cancel(tailed)
    row = codec.encode_request(tailed_id := request_id(), world.request_spec(unit=1), None)
    row["fields"] += ["shape", "pools=p"]
    world.call("submit", remember_s=60, specs=json.dumps([row]), with_status=False)
    lanes = world.client.zrange(key("pool_lanes", world.workspace, "p"), 0, -1)
    assert sorted(lanes) == ["orchestrator/t|p|step_run=1,unit=1", "orchestrator/t|p|step_run=1,unit=1|pools=p"]
    assert [waiter.amounts for waiter in world.snapshot().waiters] == [{"step_run": 1, "unit": 1}] * 2
    world.release(holder)
    world.release(plain)
    assert world.status(world.get(tailed_id)) == ["allocated"]
    assert findings(world) == []
