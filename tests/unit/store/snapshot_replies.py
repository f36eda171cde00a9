"""The acts that lead to each reply of the commands of a snapshot."""

from __future__ import annotations

from typing import Any

from app.store.scripts import ScriptReply
from tests.support.reply_acts import NOWHERE, allocation_and_waiter, register_call, replies, victim_and_waiter
from tests.support.world import World

SNAPSHOT: dict[str, Any] = {"most": 10, "max_lanes": 9, "max_changes": 9, "force": False}
WHOLE: dict[str, Any] = {**SNAPSHOT, "anyway": False, "max_allocations": 9, "max_accounts": 9, "event": "", "number": ""}
PARTS: dict[str, Any] = {**SNAPSHOT, "anyway": True, "max_allocations": 0, "max_accounts": 0}

register_call("read_demand", "read", pool="p", after=0, count=10)
register_call("read_demand", "not_found", pool=NOWHERE, after=0, count=10)
register_call("read_snapshot", "not_found", pool=NOWHERE, **WHOLE)
register_call("read_snapshot", "lost", pool="p", **PARTS, event="1-1", number=0)
register_call("read_changes", "read", pool="p", event="0-0", number=0, most=9)
register_call("read_changes", "lost", pool="p", event="1-1", number=0, most=9)
register_call("read_changes", "not_found", pool=NOWHERE, event="0-0", number=0, most=9)
register_call("read_allocations", "read", pool="p", after="-inf", count=9)
register_call("read_accounts", "read", pool="p", kind="policy", cursor="0", count=9)
register_call("read_waiters", "read", pool="p", lanes="[]", lane_count=0, most=9)
register_call("read_waiters", "not_found", pool=NOWHERE, lanes="[]", lane_count=0, most=9)


@replies("read_snapshot", "quiet")
def _(world: World) -> ScriptReply:
    world.settle()
    return world.call("read_snapshot", pool="p", **WHOLE)


@replies("read_snapshot", "found")
def _(world: World) -> ScriptReply:
    victim_and_waiter(world)
    return world.call("read_snapshot", pool="p", **WHOLE)


@replies("read_snapshot", "large")
def _(world: World) -> ScriptReply:
    return world.call("read_snapshot", pool="p", **PARTS, event="", number="")


@replies("read_snapshot", "moved")
def _(world: World) -> ScriptReply:
    victim_and_waiter(world)
    return world.call("read_snapshot", pool="p", **PARTS | {"max_changes": 1}, event="0-0", number=0)


@replies("read_snapshot", "unfinished")
def _(world: World) -> ScriptReply:
    allocation_and_waiter(world)
    world.submit(gpu=1)
    world.call("update_pool", chunk=1, name="p", description="", capacity="", settings='{"discipline":"classes"}')
    return world.call("read_snapshot", pool="p", **WHOLE)
