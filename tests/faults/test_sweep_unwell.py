"""Out of memory a server refuses heartbeats; then nothing may lapse for want of one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from app.store.connection import StoreUnavailable
from tests.backends import start
from tests.world import World


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Redis]:
    with start("redis", tmp_path) as started:
        assert isinstance(started, Redis)
        yield started


def test_nothing_lapses_while_heartbeats_are_refused(client: Redis) -> None:
    world = World(client)
    world.pool(gpu=1)
    world.policy()
    held = world.submit(gpu=1, lease_s=5)
    client.config_set("maxmemory", 1)
    world.clock.advance(60)
    with pytest.raises(StoreUnavailable, match="memory"):
        world.ledger.heartbeat("test", held.id, 1)
    with pytest.raises(StoreUnavailable):
        world.ledger.sweep("test")
    client.config_set("maxmemory", 0)
    assert world.status(held) == ["allocated"]
    world.ledger.heartbeat("test", held.id, 1)
    assert world.ledger.sweep("test").lapsed == 0
