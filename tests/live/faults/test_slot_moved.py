"""A workspace's slot is moved to another node of a cluster: while it moves nothing is answered, and nothing is split in two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from app.domain.errors import StoreUnavailable
from app.domain.ledger_limits import FENCE_JUMP
from app.store.connection import connect
from app.store.embedded_redis import find_server
from tests.support.backends import free_port, require, serve, wait_until
from tests.support.world import World

Node = tuple[int, Redis]


def tell(node: Redis, *words: object) -> Any:
    """Run a command that the client has no method for."""
    return node.execute_command(*words)  # type: ignore[no-untyped-call]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    """Yield two nodes that know each other: the first has all slots but one."""
    require("cluster")
    with ExitStack() as stack:
        pair: list[Node] = []
        buses = [free_port(), free_port()]
        for name, bus in zip(("a", "b"), buses, strict=True):
            port = free_port()
            (tmp_path / name).mkdir()
            options = ("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-announce-ip", "127.0.0.1")
            stack.enter_context(serve(tmp_path / name, "--port", str(port), *options, server=find_server()))
            node = stack.enter_context(Redis("127.0.0.1", port, protocol=2, decode_responses=True))
            wait_until(node.ping, "the node answers")
            pair.append((port, node))
        (_, first), (second_port, second) = pair
        tell(first, "CLUSTER MEET", "127.0.0.1", second_port, buses[1])
        tell(first, "CLUSTER ADDSLOTSRANGE", 1, 16383)
        tell(second, "CLUSTER ADDSLOTS", 0)
        for _, node in pair:
            wait_until(partial(whole, node), "the cluster is whole")
        yield pair


def whole(node: Redis) -> bool:
    """True if the node knows the other one, and all slots are served."""
    info = node.cluster("INFO")
    return bool(info["cluster_state"] == "ok" and info["cluster_known_nodes"] == "2" and info["cluster_slots_ok"] == "16384")


def test_a_moving_slot_is_refused_and_never_split(nodes: list[Node]) -> None:
    (port, first), (other, second) = nodes
    with connect(f"redis+cluster://127.0.0.1:{port}", timeout_s=2) as client:
        world = World(client)
        world.pool(gpu=8)
        world.policy()
        allocation = world.submit(gpu=8)
        slot = tell(first, "CLUSTER KEYSLOT", "pk:{test}:meta")
        ids = [tell(node, "CLUSTER MYID") for _, node in nodes]
        tell(second, "CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
        tell(first, "CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
        for act in (lambda: world.submit(gpu=1), lambda: world.pool("q", gpu=1), lambda: world.release(allocation, fence=1)):
            with pytest.raises(StoreUnavailable):
                act()
        assert second.dbsize() == 0
        for name in first.keys("pk:{test}:*"):
            tell(first, "MIGRATE", "127.0.0.1", other, name, 0, 5000)
        for node in (second, first):
            tell(node, "CLUSTER SETSLOT", slot, "NODE", ids[1])
        waiting = world.submit(gpu=1)
        assert world.release(allocation, fence=1).status == "released"
        assert (world.get(waiting).status, (world.get(waiting).fence or 0) > FENCE_JUMP) == ("allocated", True)
