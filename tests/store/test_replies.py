"""A test per declared reply of every command: each is brought about once, and none is left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.domain.declaration import DeclaredPool, declared
from app.domain.declaration_diff import Step
from app.domain.models import Request
from app.domain.specs import RequestAsk
from app.store import codec, declaration_codec
from app.store.keys import key
from app.store.lua_linker import load_commands
from app.store.scripts import Reply
from tests.world import World

Act = Callable[[World], Reply]
ACTS: dict[tuple[str, str], Act] = {}


def replies(command: str, tag: str) -> Callable[[Act], Act]:
    """Marks what brings a reply about; it is given a workspace with pool `p` (gpu 2), group `g` and policy `t` in it."""

    def note(act: Act) -> Act:
        ACTS[command, tag] = act
        return act

    return note


def simply(command: str, tag: str, **args: Any) -> None:
    """A reply that needs nothing but the call."""
    ACTS[command, tag] = lambda world: world.call(command, **args)


NOBODY, NOWHERE = "0" * 20, "nowhere"
NUMBERS: dict[str, Any] = {"op": "o", "reserved": "", "limit": "", "weight": 1, "settings": "[]"}
POLICY: dict[str, Any] = {"component": "x/y", "priority": 1, "profile": "batch", "group": "", **NUMBERS}
PAGE: dict[str, Any] = {"cursor": "0", "count": 10, "repair": False}

for command in ("counted", "last_event", "now", "pools", "token_list", "workspace_view"):
    simply(command, "found")
for command in ("history", "lanes_of"):
    simply(command, "found", pool="p")
for command in ("audit_accounts", "audit_holds"):
    simply(command, "audited", pool="p", repair=False)
    simply(command, "not_found", pool=NOWHERE, repair=False)
simply("advance", "advanced")
simply("active", "page", pool="p", after=0, count=10)
simply("active", "not_found", pool=NOWHERE, after=0, count=10)
simply("audit_index", "audited", kind="live", part="", **PAGE)
simply("audit_lanes", "audited", pool="p", **PAGE)
simply("audit_lanes", "not_found", pool=NOWHERE, **PAGE)
simply("audit_requests", "audited", after=-1, count=10, repair=False)
simply("cancel", "not_found", id=NOBODY)
simply("checkpoint", "not_found", op="o", id=NOBODY, fence=1, state="progress", seconds=0, reference=None, routine="")
simply("component_pools", "found", component="orchestrator/t")
simply("copied", "copied", after="0-0", most=10)
simply("copied", "moved", after="1-1", most=10)
simply("copied_ids", "found", most=10)
simply("copied_ids", "too_many", most=-1)
simply("copied_requests", "read", ids='["nobody"]')
simply("depart", "departed")
simply("drop", "not_found", id=NOBODY)
simply("events", "found", after="0", count=10)
simply("explain", "not_found", id=NOBODY)
simply("fetched", "found", ids='["nobody"]')
simply("group_delete", "deleted", op="o", pool="p", group="h")
simply("group_delete", "in_use", op="o", pool="p", group="g")
simply("group_delete", "not_found", op="o", pool="p", group=NOWHERE)
simply("group_set", "set", pool="p", group="new", parent="g", **NUMBERS)
simply("group_set", "refused", pool="p", group="new", parent="", **NUMBERS | {"reserved": "gpu=3"})
simply("group_set", "not_found", pool="p", group="new", parent=NOWHERE, **NUMBERS)
simply("heartbeat", "not_found", id=NOBODY, fence=1)
simply("hold_end", "stale", pool="p", owner=NOBODY)
simply("history", "not_found", pool=NOWHERE)
simply("newest", "found", count=10)
simply("lease_give_back", "given_back", task="audit", token="a")
simply("lease_take", "taken", task="audit", token="a", ttl_ms=1000)
simply("listed", "page", before=1, count=10, scan=10, wanted="{}")
simply("look", "not_found", id=NOBODY, poll=False)
simply("nudge_begin", "seen", token="a", ttl_ms=1000, why="missed")
simply("nudge_done", "done", token="a", next=None, ttl_ms=1000, took_ms=1, found="nothing")
simply("measured", "measured", pool="p")
simply("measured", "not_found", pool=NOWHERE)
simply("patience", "nobody", pool="p")


@replies("policy_delete", "unfinished")
def _while_its_queue_is_being_brought_in_line(world: World) -> Reply:
    world.policy("idle")
    world.submit(gpu=2)
    world.submit(gpu=1)
    world.call("pool_update", chunk=1, name="p", description="", capacity="", settings='{"discipline":"classes"}')
    return world.call("policy_delete", op="o", pool="p", component="orchestrator/idle")


simply("policy_delete", "deleted", op="o", pool="p", component="orchestrator/t")
simply("policy_delete", "not_found", op="o", pool="p", component="orchestrator/nobody")
simply("policy_set", "set", pool="p", **POLICY)
simply("policy_set", "refused", pool="p", **POLICY | {"limit": "tpu=1"})
simply("policy_set", "not_found", pool=NOWHERE, **POLICY)
simply("pool_create", "created", op="o", name="q", description="", capacity="gpu=1", settings="{}")
simply("pool_create", "exists", op="o", name="p", description="", capacity="gpu=1", settings="{}")
simply("pool_delete", "deleted", op="o", name="p")
simply("pool_delete", "not_found", op="o", name=NOWHERE)
simply("pool_update", "updated", name="p", description="", capacity="gpu=3", settings="{}")
simply("pool_update", "refused", name="p", description="", capacity="gpu=0", settings="{}")
simply("pool_update", "not_found", name=NOWHERE, description="", capacity="", settings="{}")
simply("pool_view", "found", name="p")
simply("pool_view", "not_found", name=NOWHERE)
simply("outbox_take", "taken", count=5, claim_ms=1, start_ms=1, tries=3, ids='["one","two"]')
simply("outbox_done", "done", sent='[["a","",1]]', start_ms=1)
simply("outbox_failed", "noted", tasks='["a"]', again_ms=1)
simply("outbox_view", "viewed")
simply("start", "not_found", id=NOBODY, fence=1, runner="w")
simply("task_look", "not_found", task="a")
simply("task_cancel", "not_found", task="a")
simply("task_heard", "not_found", task="a", request="")
simply("queued", "page", pool="p", after=-(2**53), count=10)
simply("queued", "not_found", pool=NOWHERE, after=-(2**53), count=10)
simply("run_times", "found", pool="p", components='["orchestrator/t"]')
simply("reprieve", "stale", pool="p", id=NOBODY, fence=1, owner=None)
simply("demand", "wanted", pool="p", after=0, count=10)
simply("demand", "not_found", pool=NOWHERE, after=0, count=10)
simply("publish", "stale", pool="p", rows="[]", watched="0", rules="0")
simply("snapshot", "not_found", pool=NOWHERE, most=10, anyway=False)
simply("sweep", "swept", retention_s=1)
simply("throttle", "allowed", token="t", per_s=1)
simply("sample", "sampled", pool="p", apart_ms=1, most=1, listed=9)
simply("sample", "not_found", pool=NOWHERE, apart_ms=1, most=1, listed=9)
ACTS["sample", "early"] = lambda world: [world.call("sample", pool="p", apart_ms=1, most=1, listed=9) for _ in range(2)][1]
simply("token_create", "created", digest="d", name="ci", record='{"id":"1","name":"ci"}', lasts_s="")
simply("token_find", "not_found", digest="d")
simply("token_revoke", "not_found", op="o", id_or_name="ci")
simply("workspace_set", "set", settings="{}")


@replies("nudge_begin", "idle")
def _(world: World) -> Reply:
    world.looked_at()
    return world.call("nudge_begin", token="a", ttl_ms=1000, why="tick")


@replies("nudge_claim", "unasked")
def _(world: World) -> Reply:
    world.looked_at()
    return world.call("nudge_claim")


@replies("snapshot", "quiet")
def _(world: World) -> Reply:
    world.looked_at()
    return world.call("snapshot", pool="p", most=10, anyway=False)


@replies("publish", "published")
def _(world: World) -> Reply:
    rows = json.dumps([["policy:orchestrator/t", ["fair:gpu", "1"], []]])
    return world.call("publish", pool="p", rows=rows, watched="1", rules=world.snapshot(anyway=True).version)


@replies("explain", "found")
def _(world: World) -> Reply:
    world.submit(gpu=2)
    return world.call("explain", id=world.submit(gpu=1).id)


def evict(world: World, *, over: bool) -> Reply:
    """Has the one who runs leave, whose pool was shrunk below what it uses, or was not."""
    held = world.submit(gpu=2)
    if over:
        world.resize(gpu=1)
    victims = json.dumps([[held.id, str(held.fence), "pool"]])
    return world.call("evict", pool="p", victims=victims, rules=world.snapshot(anyway=True).version)


@replies("cancel", "cancelled")
def _(world: World) -> Reply:
    world.submit(gpu=2)
    return world.call("cancel", id=world.submit(gpu=1).id)


@replies("cancel", "conflict")
def _(world: World) -> Reply:
    return world.call("cancel", id=world.submit(gpu=1).id)


ACTS["evict", "applied"] = lambda world: evict(world, over=True)
ACTS["evict", "stale"] = lambda world: evict(world, over=False)


def declare(world: World, **wanted: Any) -> Reply:
    """Has the pool be as it is but for what is wanted; with nothing wanted it goes."""
    before = declared(world.view())
    after = DeclaredPool.model_validate(before.model_dump() | wanted) if wanted else None
    return world.call("declare", op="o", changes=declaration_codec.encode([Step(before, after)]))


@replies("declare", "declared")
def _(world: World) -> Reply:
    return declare(world, capacity={"gpu": 3})


@replies("declare", "changed")
def _(world: World) -> Reply:
    new = DeclaredPool(name="p", capacity={"gpu": 1})
    return world.call("declare", op="o", changes=declaration_codec.encode([Step(None, new)]))


@replies("declare", "unfinished")
def _while_there_is_a_review(world: World) -> Reply:
    world.submit(gpu=2)
    world.submit(gpu=1)
    world.call("pool_update", chunk=1, name="p", description="", capacity="", settings='{"discipline":"classes"}')
    return declare(world)


@replies("declare", "in_use")
def _(world: World) -> Reply:
    world.submit(gpu=1)
    return declare(world)


@replies("declare", "refused")
def _(world: World) -> Reply:
    world.submit(gpu=1)
    return declare(world, capacity={"tpu": 1})


@replies("drop", "dropped")
def _(world: World) -> Reply:
    return world.call("drop", id=world.submit(gpu=1).id)


@replies("heartbeat", "alive")
def _(world: World) -> Reply:
    return world.call("heartbeat", id=world.submit(gpu=1).id, fence=1)


@replies("heartbeat", "stale_fence")
def _(world: World) -> Reply:
    return world.call("heartbeat", id=world.submit(gpu=1).id, fence=2)


@replies("lease_take", "held")
def _(world: World) -> Reply:
    world.call("lease_take", task="audit", token="a", ttl_ms=60_000)
    return world.call("lease_take", task="audit", token="b", ttl_ms=60_000)


@replies("look", "found")
def _(world: World) -> Reply:
    return world.call("look", id=world.submit(gpu=1).id, poll=True)


@replies("patience", "given")
def _(world: World) -> Reply:
    world.submit(gpu=1)
    world.submit(gpu=2)
    world.clock.advance(300)
    return world.call("patience", pool="p")


@replies("policy_delete", "in_use")
def _(world: World) -> Reply:
    world.submit(gpu=1)
    return world.call("policy_delete", op="o", pool="p", component="orchestrator/t")


@replies("pool_delete", "in_use")
def _(world: World) -> Reply:
    world.submit(gpu=1)
    return world.call("pool_delete", op="o", name="p")


@replies("release", "taken")
def _(world: World) -> Reply:
    held = [[world.submit(gpu=1).id, "1", "succeeded"], [world.submit(gpu=1).id, "1", "failed"], [NOBODY, "1", "failed"]]
    reply = world.call("release", held=json.dumps(held))
    assert [outcome[0] for outcome in reply.fields["outcomes"]] == ["released", "stale_fence", "not_found"]
    return reply


@replies("submit", "taken")
def _(world: World) -> Reply:
    one, other = (RequestAsk(component="t", resources={"gpu": gpu}) for gpu in (1, 2))
    sent = [("a", one, "k"), ("b", one, "k"), ("c", other, "k"), ("a", other, None)]
    asks = [codec.ask(*each) for each in sent]
    reply = world.call("submit", remember_s=60, asks=json.dumps(asks))
    assert [outcome[0] for outcome in reply.fields["outcomes"]] == ["taken_in", "known", "conflict", "taken"]
    return reply


# ---- taking back


def blocked(world: World) -> tuple[Request, Request]:
    """One who holds all there is, and one who waits and ranks higher."""
    return world.submit(gpu=2, checkpoint="auto"), world.submit(gpu=2, preemption_class=9)


def told(world: World) -> tuple[Request, Request]:
    """The same when the holder has been told to leave."""
    victim, waiter = blocked(world)
    assert world.stop(waiter, victim).applied
    return victim, waiter


def preempt(world: World, rules: str) -> Reply:
    victim, waiter = blocked(world)
    victims = json.dumps([[victim.id, "1", "priority"]])
    nothing = {"unused": "[]", "within": "[]", "borrowed": "[]", "uses": "[]"}
    return world.call("preempt", pool="p", waiter=waiter.id, victims=victims, rules=rules, **nothing)


@replies("preempt", "applied")
def _(world: World) -> Reply:
    return preempt(world, str(world.client.hget(key("pool", world.workspace, "p"), "rules")))


@replies("preempt", "stale")
def _(world: World) -> Reply:
    return preempt(world, "0")


@replies("reprieve", "applied")
def _(world: World) -> Reply:
    victim, waiter = told(world)
    world.cancel(waiter)
    return world.call("reprieve", pool="p", id=victim.id, fence=1, owner=None)


@replies("hold_end", "applied")
def _(world: World) -> Reply:
    victim, _ = world.submit(gpu=1), world.submit(gpu=1)
    waiter = world.submit(gpu=1, preemption_class=9)
    assert world.stop(waiter, victim).applied
    world.resize(gpu=1)
    return world.call("hold_end", pool="p", owner=waiter.id)


def checkpoint(world: World, request: Request, state: str, fence: int = 1) -> Reply:
    return world.call("checkpoint", op="o", id=request.id, fence=fence, state=state, seconds=1, reference="r", routine="")


@replies("checkpoint", "alive")
def _(world: World) -> Reply:
    return checkpoint(world, told(world)[0], "defer")


@replies("checkpoint", "left")
def _(world: World) -> Reply:
    return checkpoint(world, told(world)[0], "completed")


@replies("checkpoint", "not_leaving")
def _(world: World) -> Reply:
    return checkpoint(world, world.submit(gpu=1), "defer")


@replies("checkpoint", "stale_fence")
def _(world: World) -> Reply:
    return checkpoint(world, told(world)[0], "progress", 2)


@replies("snapshot", "found")
def _(world: World) -> Reply:
    told(world)
    return world.call("snapshot", pool="p", most=10, anyway=False)


@replies("snapshot", "unfinished")
def _(world: World) -> Reply:
    blocked(world)
    world.submit(gpu=1)
    world.call("pool_update", chunk=1, name="p", description="", capacity="", settings='{"discipline":"classes"}')
    return world.call("snapshot", pool="p", most=10, anyway=False)


@replies("nudge_begin", "begun")
def _(world: World) -> Reply:
    blocked(world)
    return world.call("nudge_begin", token="a", ttl_ms=60_000, why="tick")


@replies("nudge_begin", "held")
def _(world: World) -> Reply:
    blocked(world)
    world.call("nudge_begin", token="a", ttl_ms=60_000, why="tick")
    return world.call("nudge_begin", token="b", ttl_ms=60_000, why="nudge")


@replies("nudge_claim", "claimed")
def _(world: World) -> Reply:
    blocked(world)
    return world.call("nudge_claim")


@replies("nudge_done", "again")
def _(world: World) -> Reply:
    blocked(world)
    world.call("nudge_begin", token="a", ttl_ms=60_000, why="tick")
    return world.call("nudge_done", token="a", next="b", ttl_ms=60_000, took_ms=1, found="more")


def a_token(world: World, digest: str = "d") -> Reply:
    return world.call("token_create", digest=digest, name="ci", record='{"id":"1","name":"ci"}', lasts_s="")


@replies("token_create", "taken")
def _(world: World) -> Reply:
    a_token(world)
    return a_token(world, "e")


@replies("token_find", "found")
def _(world: World) -> Reply:
    a_token(world)
    return world.call("token_find", digest="d")


@replies("token_revoke", "revoked")
def _(world: World) -> Reply:
    a_token(world)
    return world.call("token_revoke", op="o", id_or_name="1")


@replies("throttle", "wait")
def _(world: World) -> Reply:
    world.call("throttle", token="t", per_s=1)
    return world.call("throttle", token="t", per_s=1)


def park(world: World, digest: str = "d", held: str = "", key: str = "", due_ms: int | None = None) -> Reply:
    """A task of one GPU."""
    fields = [*codec.ask("ask", RequestAsk(component="t", resources={"gpu": 1}), None)["fields"], "task", "a"]
    named = {"task": "a", "name": "x", "id": "one", "ask": json.dumps(fields), "message": "m", "most": 3, "due_ms": due_ms}
    return world.call("park", remember_s=60, key=key, digest=digest, held=held, fence=1, **named)


def parked(act: Callable[[World], Reply]) -> Act:
    """What is done when there is a task already."""

    def done(world: World) -> Reply:
        park(world, key="k")
        return act(world)

    return done


def start(world: World, runner: str = "w", fence: int = 1) -> Reply:
    """Its request is begun."""
    return world.call("start", id="one", fence=fence, runner=runner)


ACTS["park", "parked"] = park
ACTS["park", "known"] = parked(lambda world: park(world, key="k"))
ACTS["park", "conflict"] = parked(lambda world: park(world, "other", key="k"))
ACTS["park", "exists"] = parked(park)
ACTS["park", "stale_fence"] = lambda world: park(world, held=NOBODY)
ACTS["task_look", "found"] = parked(lambda world: world.call("task_look", task="a"))
ACTS["task_cancel", "conflict"] = parked(lambda world: (start(world), world.call("task_cancel", task="a"))[1])
ACTS["task_heard", "conflict"] = parked(lambda world: world.call("task_heard", task="a", request=""))
ACTS["task_heard", "heard"] = parked(
    lambda world: (world.call("task_cancel", task="a"), world.call("task_heard", task="a", request=""))[1]
)
ACTS["start", "alive"] = parked(start)
ACTS["start", "already_started"] = parked(lambda world: (start(world), start(world, "other"))[1])
ACTS["start", "stale_fence"] = parked(lambda world: start(world, fence=2))
ACTS["task_cancel", "cancelled"] = lambda world: (
    park(world, due_ms=world.clock.now_ms() + 1000),
    world.call("task_cancel", task="a"),
)[1]


DECLARED = {(command.name, tag) for command in load_commands().values() for tag in command.replies}


def test_every_declared_reply_is_brought_about() -> None:
    assert ACTS.keys() == DECLARED


@pytest.mark.parametrize(("command", "tag"), sorted(ACTS), ids=[f"{command}-{tag}" for command, tag in sorted(ACTS)])
def test_reply(world: World, command: str, tag: str) -> None:
    world.pool(gpu=2)
    world.group("g")
    world.group("h")
    world.group("below", parent="g")
    world.policy()
    reply = ACTS[command, tag](world)
    assert (reply.tag, tuple(reply.fields)) == (tag, load_commands()[command].replies[tag])
