"""Many processes do everything at once on one real server: never one unit too many, and when they are done all is right."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import pytest

from app.store.connection import RedisClient
from tests.live.races import settled_invariants
from tests.live.races.processes import CONTEXT, TIMES, run_together
from tests.live.races.random_clients import ODDS, WORKSPACE, ClientMix, RandomClient, run_client
from tests.support.redis_snapshot import Snapshot
from tests.support.servers import Servers

PROCESSES = 8
START_MS = 1_700_000_000_000

MIXES = {
    "growing": ("redis", True, ClientMix(seed=1, operations=400 * TIMES, chunk=200)),
    "in small pieces": ("redis", True, ClientMix(seed=2, operations=300 * TIMES, chunk=2)),
    "shrinking": ("redis", True, ClientMix(seed=3, operations=300 * TIMES, chunk=7, shrinking=True)),
    "by the server's own time": ("embedded", False, ClientMix(seed=4, operations=150 * TIMES, chunk=200)),
}


def url_of(client: RedisClient) -> str:
    """Return the URL under which other processes find the same server."""
    return f"unix://{client.connection_pool.connection_kwargs['path']}"  # type: ignore[union-attr]


def set_up(client: RandomClient) -> None:
    """Create two pools with a group, shares, limits and holders; capacity is always short."""
    size = 24 if client.mix.shrinking else 6
    client.pool("p", gpu=size, licence=3, settings={"patience_s": 5})
    client.group("g", reserved={"gpu": 4})
    client.policy("a", reserved={"gpu": 2}, group="g")
    client.policy("b", priority=1, reserved={"gpu": 1}, group="g")
    client.policy("c", limit={"gpu": 3}, reserved={"licence": 1})
    client.pool("q", gpu=size, licence=3, settings={"patience_s": None})
    client.policy("a", "q", priority=1)
    client.policy("b", "q")
    client.policy("d", "q", reserved={"gpu": 2})


@pytest.mark.parametrize("name", MIXES)
def test_a_crowd_leaves_everything_right(name: str, servers: Servers) -> None:
    backend, shared, mix = MIXES[name]
    client = servers.client(backend)
    time: Any = CONTEXT.Value("q", START_MS) if shared else None
    random_client = RandomClient(url_of(client), PROCESSES, mix, time)
    set_up(random_client)
    done: Counter[str] = Counter()
    for result in run_together(run_client, [(url_of(client), number, mix, time) for number in range(PROCESSES)], 120 * TIMES):
        done.update(result)
    assert {verb for verb in (*ODDS, "a look when all was quiet") if not done[verb]} == set(), "no process did this"
    settled_invariants.check(client, random_client.ledger, WORKSPACE, lowered=True)
    drain(random_client)


def drain(client: RandomClient) -> None:
    """Release allocations until all waiters have been granted and nothing is in use."""
    for turn in count():
        holders = client.client.zrange(f"pk:{{{WORKSPACE}}}:leases", 0, -1)
        for name in holders:
            client.release(client.get(str(name)))
        settled_invariants.check(client.client, client.ledger, WORKSPACE, lowered=True, audited=turn % 5 == 0 or not holders)
        if not holders:
            break
    snapshot = Snapshot(client.client, WORKSPACE)
    assert snapshot.of_status("queued") == {}
    assert [account for account in snapshot.pools if snapshot.column(f"pool:{account}", "used")] == []
