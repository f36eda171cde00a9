"""A test per declared reply of every command: each is brought about once (`adopt` and `depose`: `test_master`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.domain.declaration import PoolDeclaration, export_pool
from app.domain.declaration_diff import DeclarationStep
from app.domain.models import Request
from app.domain.specs import RequestSpec
from app.store import codec, declaration_codec
from app.store.keys import key
from app.store.lua_linker import load_commands
from app.store.scripts import ScriptReply
from tests.support.reply_acts import (
    ABSENT,
    ACTS,
    NOWHERE,
    Act,
    allocation_and_waiter,
    register_call,
    replies,
    victim_and_waiter,
)
from tests.support.world import World
from tests.unit.store import copy_replies, snapshot_replies, template_replies
from tests.unit.store.reply_calls import PATIENCE, POLICY

assert copy_replies  # the three register what brings their replies about
assert snapshot_replies
assert template_replies


@replies("delete_policy", "unfinished")
def _while_its_queue_is_being_brought_in_line(world: World) -> ScriptReply:
    world.policy("idle")
    world.submit(gpu=2)
    world.submit(gpu=1)
    world.call("update_pool", chunk=1, name="p", description="", capacity="", settings='{"discipline":"classes"}')
    return world.call("delete_policy", op="o", pool="p", component="orchestrator/idle")


register_call("delete_policy", "deleted", op="o", pool="p", component="orchestrator/t")
register_call("delete_policy", "not_found", op="o", pool="p", component="orchestrator/absent")
register_call("set_policy", "set", pool="p", **POLICY)
register_call("set_policy", "refused", pool="p", **POLICY | {"limit": "tpu=1"})
register_call("set_policy", "not_found", pool=NOWHERE, **POLICY)
register_call("create_pool", "created", op="o", name="q", description="", capacity="gpu=1", settings="{}")
register_call("create_pool", "exists", op="o", name="p", description="", capacity="gpu=1", settings="{}")
register_call("delete_pool", "deleted", op="o", name="p")
register_call("delete_pool", "not_found", op="o", name=NOWHERE)
register_call("update_pool", "updated", name="p", description="", capacity="gpu=3", settings="{}")
register_call("update_pool", "refused", name="p", description="", capacity="gpu=0", settings="{}")
register_call("update_pool", "not_found", name=NOWHERE, description="", capacity="", settings="{}")
register_call("get_pool", "found", name="p", kind="groups", cursor="0", count=100)
register_call("get_pool", "not_found", name=NOWHERE, kind="groups", cursor="0", count=100)
register_call("take_outbox", "taken", count=5, claim_ms=1, start_ms=1, tries=3, ids='["one","two"]')
register_call("mark_dispatched", "done", sent='[["a","",1]]', start_ms=1)
register_call("mark_dispatch_failed", "noted", tasks='["a"]', again_ms=1)
register_call("measure_outbox", "viewed")
register_call("start", "not_found", id=ABSENT, fence=1, runner="w")
register_call("get_task", "not_found", task="a")
register_call("cancel_task", "not_found", task="a")
register_call("acknowledge_end", "not_found", task="a", request="")
register_call("list_queue", "page", pool="p", after=-(2**53), count=10)
register_call("list_queue", "not_found", pool=NOWHERE, after=-(2**53), count=10)
register_call("read_run_times", "found", pool="p", components='["orchestrator/t"]')
register_call("reassign_or_reprieve", "stale", pool="p", id=ABSENT, fence=1, owner=None)
register_call("write_fair_shares", "stale", pool="p", rows="[]", watched="0", rules="0")
register_call("clean_up", "cleaned", retention_s=1, available_since_ms=None, expected=None)
for command, tag in (("record_availability", "recorded"), ("read_availability", "available")):
    register_call(command, tag, gap_s=15)
register_call("throttle", "allowed", token="t", per_s=1)
register_call("sample_usage", "sampled", pool="p", apart_ms=1, most=1, listed=9)
register_call("sample_usage", "not_found", pool=NOWHERE, apart_ms=1, most=1, listed=9)
ACTS["sample_usage", "early"] = lambda world: [
    world.call("sample_usage", pool="p", apart_ms=1, most=1, listed=9) for _ in range(2)
][1]
register_call("create_token", "created", digest="d", name="ci", record='{"id":"1","name":"ci"}', lasts_s="")
register_call("find_token", "not_found", digest="d")
register_call("revoke_token", "not_found", op="o", id_or_name="ci")
register_call("update_workspace", "set", settings="{}")


@replies("begin_reconcile", "idle")
def _(world: World) -> ScriptReply:
    world.settle()
    return world.call("begin_reconcile", token="a", ttl_ms=1000, why="tick")


@replies("claim_nudge", "not_pending")
def _(world: World) -> ScriptReply:
    world.settle()
    return world.call("claim_nudge")


def rules_of_pool(world: World) -> str:
    """Return the number of the rules of pool `p`."""
    return world.snapshot(even_if_idle=True).rules_version


ACTS["repair_sums", "repaired"] = lambda world: world.call(
    "repair_sums", pool="p", rules=rules_of_pool(world), corrections='[["pool","used:tpu","0","1"]]'
)
ACTS["read_sum_changes", "read"] = lambda world: world.call(
    "read_sum_changes", pool="p", event="0-0", number=0, rules=rules_of_pool(world), most=9
)


@replies("write_fair_shares", "published")
def _(world: World) -> ScriptReply:
    rows = json.dumps([["policy:orchestrator/t", ["fair_share:gpu", "1"], []]])
    rules = world.snapshot(even_if_idle=True).rules_version
    return world.call("write_fair_shares", pool="p", rows=rows, watched="1", rules=rules)


@replies("explain", "found")
def _(world: World) -> ScriptReply:
    world.submit(gpu=2)
    return world.call("explain", id=world.submit(gpu=1).id)


def evict(world: World, *, over: bool) -> ScriptReply:
    """Evict a running request, in a pool that is below its use or not."""
    request = world.submit(gpu=2)
    if over:
        world.update_pool(gpu=1)
    victims = json.dumps([[request.id, str(request.fence), "pool"]])
    return world.call("evict_over_limit", pool="p", victims=victims, rules=world.snapshot(even_if_idle=True).rules_version)


@replies("cancel", "cancelled")
def _(world: World) -> ScriptReply:
    world.submit(gpu=2)
    return world.call("cancel", id=world.submit(gpu=1).id)


@replies("cancel", "conflict")
def _(world: World) -> ScriptReply:
    return world.call("cancel", id=world.submit(gpu=1).id)


ACTS["evict_over_limit", "applied"] = lambda world: evict(world, over=True)
ACTS["evict_over_limit", "stale"] = lambda world: evict(world, over=False)


def declare(world: World, **fields: Any) -> ScriptReply:
    """Declare the pool with these fields changed; without fields, declare its deletion."""
    before = export_pool(world.get_pool())
    after = PoolDeclaration.model_validate(before.model_dump() | fields) if fields else None
    return world.call("declare", op="o", changes=declaration_codec.encode_steps([DeclarationStep(before, after)]))


@replies("declare", "declared")
def _(world: World) -> ScriptReply:
    return declare(world, capacity={"gpu": 3})


@replies("declare", "changed")
def _(world: World) -> ScriptReply:
    new = PoolDeclaration(name="p", capacity={"gpu": 1})
    return world.call("declare", op="o", changes=declaration_codec.encode_steps([DeclarationStep(None, new)]))


@replies("declare", "unfinished")
def _while_there_is_a_review(world: World) -> ScriptReply:
    world.submit(gpu=2)
    world.submit(gpu=1)
    world.call("update_pool", chunk=1, name="p", description="", capacity="", settings='{"discipline":"classes"}')
    return declare(world)


@replies("declare", "in_use")
def _(world: World) -> ScriptReply:
    world.submit(gpu=1)
    return declare(world)


@replies("declare", "refused")
def _(world: World) -> ScriptReply:
    world.submit(gpu=1)
    return declare(world, capacity={"tpu": 1})


@replies("drop", "dropped")
def _(world: World) -> ScriptReply:
    return world.call("drop", id=world.submit(gpu=1).id)


@replies("heartbeat", "alive")
def _(world: World) -> ScriptReply:
    return world.call("heartbeat", id=world.submit(gpu=1).id, fence=1)


@replies("take_job_lock", "held")
def _(world: World) -> ScriptReply:
    world.call("take_job_lock", job="audit", token="a", ttl_ms=60_000)
    return world.call("take_job_lock", job="audit", token="b", ttl_ms=60_000)


@replies("record_refused_poll", "recorded")
def _(world: World) -> ScriptReply:
    return world.call("record_refused_poll", id=[world.submit(gpu=2, queue_ttl_s=9) for _ in "12"][1].id, components="")


ACTS["heartbeat", "stale_fence"] = lambda world: world.call("heartbeat", id=world.submit(gpu=1).id, fence=2)
ACTS["get_request", "found"] = lambda world: world.call("get_request", id=world.submit(gpu=1).id, poll=True)


@replies("give_patience_hold", "given")
def _(world: World) -> ScriptReply:
    world.submit(gpu=1)
    world.submit(gpu=2)
    world.clock.advance(300)
    return world.call("give_patience_hold", **PATIENCE)


@replies("give_patience_hold", "more")
def _(world: World) -> ScriptReply:
    world.submit(gpu=2)
    for mcpu in (1, 2, 3):
        world.submit(gpu=2, mcpu=mcpu)
    world.clock.advance(300)
    for mcpu in (4, 5, 6):
        world.submit(gpu=2, mcpu=mcpu, preemption_class=9)
    return world.call("give_patience_hold", **PATIENCE)


@replies("delete_policy", "in_use")
def _(world: World) -> ScriptReply:
    world.submit(gpu=1)
    return world.call("delete_policy", op="o", pool="p", component="orchestrator/t")


@replies("delete_pool", "in_use")
def _(world: World) -> ScriptReply:
    world.submit(gpu=1)
    return world.call("delete_pool", op="o", name="p")


@replies("release", "released")
def _(world: World) -> ScriptReply:
    allocations = [[world.submit(gpu=1).id, "1", "succeeded"], [world.submit(gpu=1).id, "1", "failed"], [ABSENT, "1", "failed"]]
    reply = world.call("release", allocations=json.dumps(allocations))
    assert [outcome[0] for outcome in reply.fields["outcomes"]] == ["released", "stale_fence", "not_found"]
    return reply


@replies("submit", "admitted")
def _(world: World) -> ScriptReply:
    spec, other = (RequestSpec(component="t", resources={"gpu": gpu}) for gpu in (1, 2))
    sent = [("a", spec, "k"), ("b", spec, "k"), ("c", other, "k"), ("a", other, None)]
    asks = [codec.encode_request(*each) for each in sent]
    reply = world.call("submit", remember_s=60, specs=json.dumps(asks), with_status=False)
    assert [outcome[0] for outcome in reply.fields["outcomes"]] == ["admitted", "known", "conflict", "id_taken"]
    return reply


# ---- taking back


def preempt(world: World, rules: str) -> ScriptReply:
    victim, waiter = allocation_and_waiter(world)
    victims = json.dumps([[victim.id, "1", "priority"]])
    nothing = {"unused_share_accounts": "[]", "reserved_accounts": "[]", "stack_exits": "[]", "used_ranges": "[]"}
    whole = {"continues": False, "rest_count": 0, "rest_units": "{}"}
    return world.call("preempt", pool="p", waiter=waiter.id, victims=victims, rules=rules, **whole, **nothing)


@replies("preempt", "applied")
def _(world: World) -> ScriptReply:
    return preempt(world, str(world.client.hget(key("pool", world.workspace, "p"), "rules")))


@replies("preempt", "stale")
def _(world: World) -> ScriptReply:
    return preempt(world, "0")


@replies("reassign_or_reprieve", "applied")
def _(world: World) -> ScriptReply:
    victim, waiter = victim_and_waiter(world)
    world.cancel(waiter)
    return world.call("reassign_or_reprieve", pool="p", id=victim.id, fence=1, owner=None)


@replies("end_hold", "applied")
def _(world: World) -> ScriptReply:
    victim, _ = world.submit(gpu=1), world.submit(gpu=1)
    waiter = world.submit(gpu=1, preemption_class=9)
    assert world.preempt(waiter, victim).applied
    world.update_pool(gpu=1)
    return world.call("end_hold", pool="p", owner=waiter.id)


def checkpoint(world: World, request: Request, state: str, fence: int = 1) -> ScriptReply:
    return world.call("checkpoint", op="o", id=request.id, fence=fence, state=state, seconds=1, reference="r", routine="")


@replies("checkpoint", "alive")
def _(world: World) -> ScriptReply:
    return checkpoint(world, victim_and_waiter(world)[0], "defer")


@replies("checkpoint", "left")
def _(world: World) -> ScriptReply:
    return checkpoint(world, victim_and_waiter(world)[0], "completed")


@replies("checkpoint", "not_leaving")
def _(world: World) -> ScriptReply:
    return checkpoint(world, world.submit(gpu=1), "defer")


@replies("checkpoint", "stale_fence")
def _(world: World) -> ScriptReply:
    return checkpoint(world, victim_and_waiter(world)[0], "progress", 2)


@replies("begin_reconcile", "begun")
def _(world: World) -> ScriptReply:
    allocation_and_waiter(world)
    return world.call("begin_reconcile", token="a", ttl_ms=60_000, why="tick")


@replies("begin_reconcile", "held")
def _(world: World) -> ScriptReply:
    allocation_and_waiter(world)
    world.call("begin_reconcile", token="a", ttl_ms=60_000, why="tick")
    return world.call("begin_reconcile", token="b", ttl_ms=60_000, why="nudge")


@replies("claim_nudge", "claimed")
def _(world: World) -> ScriptReply:
    allocation_and_waiter(world)
    return world.call("claim_nudge")


@replies("finish_reconcile", "again")
def _(world: World) -> ScriptReply:
    allocation_and_waiter(world)
    world.call("begin_reconcile", token="a", ttl_ms=60_000, why="tick")
    return world.call("finish_reconcile", token="a", next="b", ttl_ms=60_000, took_ms=1, found="more")


def a_token(world: World, digest: str = "d") -> ScriptReply:
    return world.call("create_token", digest=digest, name="ci", record='{"id":"1","name":"ci"}', lasts_s="")


@replies("create_token", "taken")
def _(world: World) -> ScriptReply:
    a_token(world)
    return a_token(world, "e")


@replies("find_token", "found")
def _(world: World) -> ScriptReply:
    a_token(world)
    return world.call("find_token", digest="d")


@replies("revoke_token", "revoked")
def _(world: World) -> ScriptReply:
    a_token(world)
    return world.call("revoke_token", op="o", id_or_name="1")


@replies("throttle", "wait")
def _(world: World) -> ScriptReply:
    world.call("throttle", token="t", per_s=1)
    return world.call("throttle", token="t", per_s=1)


def park(world: World, digest: str = "d", replaced: str = "", key: str = "", due_ms: int | None = None) -> ScriptReply:
    """Park a task of one GPU."""
    fields = [*codec.encode_request("ask", RequestSpec(component="t", resources={"gpu": 1}), None)["fields"], "task", "a"]
    named = {"task": "a", "name": "x", "id": "one", "spec": json.dumps(fields), "message": "m", "most": 3, "due_ms": due_ms}
    return world.call("park_task", remember_s=60, key=key, digest=digest, replaced=replaced, fence=1, limits="", **named)


def with_task(act: Callable[[World], ScriptReply]) -> Act:
    """Return an act on an existing task."""

    def done(world: World) -> ScriptReply:
        park(world, key="k")
        return act(world)

    return done


def start_task(world: World, runner: str = "w", fence: int = 1) -> ScriptReply:
    """Start the task of an existing request."""
    return world.call("start", id="one", fence=fence, runner=runner)


ACTS["park_task", "parked"] = park
ACTS["park_task", "known"] = with_task(lambda world: park(world, key="k"))
ACTS["park_task", "conflict"] = with_task(lambda world: park(world, "other", key="k"))
ACTS["park_task", "exists"] = with_task(park)
ACTS["park_task", "stale_fence"] = lambda world: park(world, replaced=ABSENT)
ACTS["get_task", "found"] = with_task(lambda world: world.call("get_task", task="a"))
ACTS["cancel_task", "conflict"] = with_task(lambda world: (start_task(world), world.call("cancel_task", task="a"))[1])
ACTS["acknowledge_end", "conflict"] = with_task(lambda world: world.call("acknowledge_end", task="a", request=""))
ACTS["acknowledge_end", "heard"] = with_task(
    lambda world: (world.call("cancel_task", task="a"), world.call("acknowledge_end", task="a", request=""))[1]
)
ACTS["start", "alive"] = with_task(start_task)
ACTS["start", "already_started"] = with_task(lambda world: (start_task(world), start_task(world, "other"))[1])
ACTS["start", "stale_fence"] = with_task(lambda world: start_task(world, fence=2))
ACTS["cancel_task", "cancelled"] = lambda world: (
    park(world, due_ms=world.clock.now_ms() + 1000),
    world.call("cancel_task", task="a"),
)[1]


DECLARED = {(name, tag) for name, command in load_commands().items() if "master" not in command.args for tag in command.replies}


def test_every_declared_reply_is_brought_about() -> None:
    assert ACTS.keys() == DECLARED, "add a call for each reply to ACTS, here or in reply_calls.py"


@pytest.mark.parametrize(("command", "tag"), sorted(ACTS), ids=[f"{command}-{tag}" for command, tag in sorted(ACTS)])
def test_reply(world: World, command: str, tag: str) -> None:
    world.pool(gpu=2)
    world.group("g")
    world.group("h")
    world.group("below", parent="g")
    world.policy()
    reply = ACTS[command, tag](world)
    assert (reply.tag, tuple(reply.fields)) == (tag, load_commands()[command].replies[tag])
