"""The acts that lead to each reply of the commands of a workspace copy."""

from __future__ import annotations

import json

from app.store.scripts import ScriptReply
from tests.support.reply_acts import ABSENT, allocation_and_waiter, register_call, replies
from tests.support.world import World

register_call("start_copy", "started", most=10)
register_call("start_copy", "too_many", most=-1)
register_call("list_live_ids", "found", kind="waiting", cursor="0", count=10)
register_call("copy_requests", "read", ids=json.dumps([ABSENT]))
register_call("copy_accounts", "read", pool="p", kind="policies", cursor="0", count=10)
register_call("copy_workspace", "moved", event="1-1", pools="[]", since=0, most=10)
register_call("unsettle_pools", "unsettled", rechecked='["p"]')


@replies("copy_workspace", "copied")
def _(world: World) -> ScriptReply:
    started = world.call("start_copy", most=10).fields
    return world.call("copy_workspace", event=started["event"], pools=json.dumps(started["pools"]), since=0, most=10)


@replies("rebuild_queue", "rebuilt")
def _(world: World) -> ScriptReply:
    _, waiter = allocation_and_waiter(world)
    ((*_, lane, deadline),) = world.call("copy_requests", ids=json.dumps([waiter.id])).fields["found"]
    return world.call("rebuild_queue", waiters=json.dumps([[waiter.id, lane, deadline]]), lanes=json.dumps([[lane, []]]))
