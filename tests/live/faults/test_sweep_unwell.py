"""Out of memory a server refuses heartbeats; then nothing may lapse for want of one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from redis import Redis

from app.domain.errors import StoreUnavailable
from app.domain.specs import RequestSpec
from app.domain.tasks import TaskSpec
from app.store.task_outbox import TaskStore
from tests.support.backends import start
from tests.support.world import World


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Redis]:
    with start("redis", tmp_path) as started:
        assert isinstance(started, Redis)
        yield started


def test_nothing_lapses_while_heartbeats_are_refused(client: Redis) -> None:
    world = World(client)
    world.pool(gpu=1)
    world.policy()
    allocation = world.submit(gpu=1, lease_s=5)
    client.config_set("maxmemory", 1)
    world.clock.advance(60)
    with pytest.raises(StoreUnavailable, match="memory"):
        world.ledger.heartbeat("test", allocation.id, 1)
    with pytest.raises(StoreUnavailable):
        world.ledger.clean_up("test")
    client.config_set("maxmemory", 0)
    assert world.status(allocation) == ["allocated"]
    world.ledger.heartbeat("test", allocation.id, 1)
    assert world.ledger.clean_up("test").expired_leases == 0


def test_no_task_is_reclaimed_while_no_worker_can_begin_it(client: Redis) -> None:
    world = World(client)
    world.pool(gpu=1)
    world.policy()
    store, later = TaskStore(client, world.clock), datetime.fromtimestamp(world.clock.now_ms() / 1000 + 5, UTC)
    for name, due in (("sent", None), ("later", later)):
        store.park_task("test", TaskSpec(task=name, name="x", request=RequestSpec(component="t"), message={}, not_before=due))
    (sent,) = store.take_outbox("test", 30, 60, 1).dispatches
    store.mark_dispatched("test", [sent], 60)
    client.config_set("maxmemory", 1)
    world.clock.advance(60)
    with pytest.raises(StoreUnavailable, match="memory"):
        store.start_task("test", str(sent.request), 1, "w")
    with pytest.raises(StoreUnavailable):
        store.take_outbox("test", 30, 60, 1)
    client.config_set("maxmemory", 0)
    assert store.start_task("test", str(sent.request), 1, "w").status == "allocated"
