"""A workspace in which every kind of change has something to do, and those changes; each can be made again after it failed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

from redis import Redis
from redis.connection import ConnectionPool, UnixDomainSocketConnection

from app.domain.errors import Refusal
from app.store.connection import RedisClient
from app.store.master_id import track_master
from tests.support.redis_snapshot import Snapshot
from tests.support.world import World, full_component

WORKSPACE: Final = "faults"
LEASE_S: Final = 10


def set_up(client: RedisClient, chunk: int = 200) -> World:
    """Create three requests that hold all units, and eight that wait in six lanes."""
    client.flushall()
    world = World(client, WORKSPACE, chunk)
    world.pool(gpu=3, licence=6)
    world.policy("t")
    world.policy("u", reserved={"licence": 2})
    world.pool("empty", gpu=1)
    world.policy("v", "empty")
    world.group("spare")
    world.submit("t", own_id="lapsing", gpu=1, lease_s=LEASE_S)
    world.submit("t", own_id="holding", gpu=1)
    world.submit("u", own_id="dropped", gpu=1)
    for each in range(8):
        world.submit("tu"[each % 2], own_id=f"waiting{each}", gpu=1, licence=1 + each // 3)
    return world


def submit_batch(world: World) -> Any:
    """Submit several requests in one call; the caller chooses ids and keys, so that it can repeat the call."""
    asks = [world.request_spec("tu"[each % 2], gpu=1 + each) for each in range(3)]
    return world.ledger.submit_all(WORKSPACE, [(f"new{each}", ask, f"key{each}") for each, ask in enumerate(asks)])


def clean_up_later(world: World) -> Any:
    """Run the cleanup some time later."""
    late = World(world.client, WORKSPACE)
    late.clock.advance(LEASE_S + 1)
    return late.ledger.clean_up(WORKSPACE).pruned_requests


CHANGES: Final[dict[str, Callable[[World], Any]]] = {
    "submit": lambda world: world.submit("t", key="once", own_id="single", gpu=1),
    "batch": submit_batch,
    "release": lambda world: world.ledger.release(WORKSPACE, "holding", 2),
    "cancel": lambda world: world.ledger.cancel(WORKSPACE, "waiting0"),
    "drop": lambda world: world.ledger.drop(WORKSPACE, "dropped"),
    "heartbeat": lambda world: world.ledger.heartbeat(WORKSPACE, "lapsing", 1),
    "grow": lambda world: world.update_pool(gpu=6),
    "rank anew": lambda world: world.policy("u", priority=5, reserved={"licence": 1}, limit={"licence": 3}),
    "shrink": lambda world: world.update_pool(licence=3),
    "lapse": clean_up_later,
    "create pool": lambda world: world.pool("another", gpu=1),
    "set group": lambda world: world.group("fresh", reserved={"gpu": 1}),
    "attach": lambda world: world.policy("t", "empty", priority=9),
    "delete policy": lambda world: world.ledger.delete_policy(WORKSPACE, "empty", full_component("v")),
    "delete group": lambda world: world.ledger.delete_group(WORKSPACE, "p", "spare"),
    "configure": lambda world: world.update_pool("empty", settings={"queueing": "strict"}),
    "delete pool": lambda world: world.ledger.delete_pool(WORKSPACE, "another"),
}
"""In this order a story, in which every change finds something to do."""

REPEATED_CODES: Final = {
    "create pool": "pool_exists",
    "delete policy": "no_such_policy",
    "delete group": "no_such_group",
    "delete pool": "no_such_pool",
}
"""The reply to a repeated call whose first call was carried out, by the name of the change."""


def repeat_change(world: World, name: str) -> Any:
    """Repeat a change whose outcome is unknown; it may have been made."""
    try:
        return CHANGES[name](world)
    except Refusal as no:
        if no.code != REPEATED_CODES.get(name):
            raise
        return None


def read_state(client: RedisClient) -> dict[str, Any]:
    """Return all data except the parts that differ from run to run: ids of events and of recorded operations, nudges, and the
    number of changes of the rules.
    """
    all_keys = Snapshot(client, WORKSPACE).keys
    keys = {
        key: value
        for key, value in all_keys.items()
        if key not in ("nudge", "lock:resume") and not key.startswith("operation:")
    }
    for key, value in keys.items():
        if key == "meta" or re.fullmatch(r"pool:[^:]+", key):
            keys[key] = {name: text for name, text in value.items() if name != "rules"}
        if key.startswith("request:"):
            events = {name: text.partition(" ")[2] for name, text in value.items() if re.fullmatch(r"e\d+", name)}
            keys[key] = value | events
    return keys | {"events": [event for _, event in keys.get("events", [])]}


# ---- a client that dies


class SelfKillingConnection(UnixDomainSocketConnection):
    """Kills its own process at the n-th call of a script: before it is sent, or after that, with the answer unread."""

    calls: ClassVar[int] = 0
    last: ClassVar[int] = 0
    sent: ClassVar[bool] = False

    def send_command(self, *args: Any, **kwargs: Any) -> None:
        """Send a command, or die instead of the last one."""
        script = args[0] in ("EVALSHA", "EVAL")
        SelfKillingConnection.calls += script
        dies = script and SelfKillingConnection.calls == SelfKillingConnection.last
        if dies and not SelfKillingConnection.sent:
            os.kill(os.getpid(), signal.SIGKILL)
        super().send_command(*args, **kwargs)  # type: ignore[no-untyped-call]
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)


def run_changes(path: str, diary: Path, last: int, sent: bool) -> None:
    """Run all changes in small parts, until they or the process end; the diary records the progress."""
    SelfKillingConnection.last, SelfKillingConnection.sent = last, sent
    pool = ConnectionPool(connection_class=SelfKillingConnection, path=path, decode_responses=True, protocol=2)
    world = World(track_master(Redis(connection_pool=pool)), WORKSPACE, chunk=1)
    for number, change in enumerate(CHANGES.values()):
        diary.write_text(str(number))
        change(world)
    diary.write_text(f"{len(CHANGES)} {SelfKillingConnection.calls}")
