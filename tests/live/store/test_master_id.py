"""Connections that say which master they lead to, on live servers: a new id, a new generation, doubt, replicas that confirm."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from app.domain.errors import StoreUnavailable
from app.domain.ledger_limits import FENCE_JUMP
from app.domain.states import RequestState
from app.store.connection import connect
from app.store.keys import key
from app.store.master_id import tracker_of
from app.store.master_watch import warn_without_replicas, watch_master
from tests.support import backends
from tests.support.backends import free_port, serve, wait_until, wait_until_ready
from tests.support.world import World

META = key("meta", "test")


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a Redis that lets its replication id be changed."""
    backends.require("redis")
    number = free_port()
    with serve(tmp_path, "--port", str(number), "--enable-debug-command", "yes"):
        wait_until_ready(f"redis://127.0.0.1:{number}")
        yield number


@pytest.fixture
def plain(port: int) -> Iterator[Redis]:
    """A client that knows nothing of masters."""
    with Redis("127.0.0.1", port, decode_responses=True) as client:
        yield client


@pytest.fixture
def world(port: int) -> Iterator[World]:
    """A workspace with a pool of four units."""
    with connect(f"redis://127.0.0.1:{port}", timeout_s=2) as client:
        world = World(client)
        world.pool(gpu=4)
        world.policy("t")
        yield world


def replication_id(plain: Redis) -> str:
    return str(plain.info("replication")["master_replid"])


def test_the_workspace_knows_the_server_by_its_replication_id(world: World, plain: Redis) -> None:
    assert world.submit(gpu=1).fence == 1
    assert plain.hget(META, "master") == replication_id(plain)


def test_an_id_that_changes_under_open_connections_raises_the_fence_once(world: World, plain: Redis, port: int) -> None:
    world.submit(gpu=1)
    untyped: Any = plain
    untyped.execute_command("DEBUG CHANGE-REPL-ID")
    with connect(f"redis://127.0.0.1:{port}", timeout_s=2) as other:
        adopting = World(other, world.workspace).submit(gpu=1)
    assert adopting.fence is not None
    assert adopting.fence > FENCE_JUMP
    assert world.submit(gpu=1).fence == adopting.fence + 1
    assert plain.hget(META, "master") == replication_id(plain)


def test_connections_of_an_earlier_generation_are_not_used_again(world: World, plain: Redis) -> None:
    def own() -> set[str]:
        return {row["id"] for row in plain.client_list() if "eval" in row["cmd"]}

    world.submit(gpu=1)
    before = own()
    tracker_of(world.client).begin_generation()
    world.submit(gpu=1)
    assert before
    assert not before & own()


def test_a_reply_of_an_earlier_generation_is_discarded_and_the_call_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.submit(gpu=1)  # from now on the server knows the script
    tracker, sent = tracker_of(world.client), []
    client: Any = world.client
    send = client.connection_pool.connection_class.send_packed_command

    def send_and_switch(self: Any, command: Any, check_health: bool = True) -> None:
        send(self, command, check_health)
        if b"EVALSHA" in b"".join(command):
            sent.append(self)
            if len(sent) == 1:
                tracker.begin_generation()

    monkeypatch.setattr(client.connection_pool.connection_class, "send_packed_command", send_and_switch)
    assert world.submit(gpu=1).status == RequestState.ALLOCATED
    assert len(sent) == 2
    assert world.used() == {"gpu": 2}


def test_nothing_is_sent_while_the_master_is_in_doubt(world: World) -> None:
    tracker_of(world.client).in_doubt = True
    before = world.state()
    with pytest.raises(StoreUnavailable) as refusal:
        world.submit(gpu=1)
    assert refusal.value.reason == "failing_over"
    assert world.state() == before
    tracker_of(world.client).in_doubt = False
    assert world.submit(gpu=1).status == RequestState.ALLOCATED


def test_a_grant_counts_when_a_replica_has_confirmed_it(world: World, port: int, tmp_path: Path) -> None:
    tracker_of(world.client).replicas_acknowledge = 1
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as refusal:
            world.submit(gpu=1, key="k")
        assert refusal.value.reason == "not_acknowledged"
    with pytest.raises(StoreUnavailable):
        world.used()  # a reading call may tell of a grant, too
    folder, number = tmp_path / "replica", free_port()
    folder.mkdir()
    with (
        serve(folder, "--port", str(number), "--replicaof", "127.0.0.1", str(port)),
        Redis("127.0.0.1", number, decode_responses=True) as replica,
    ):
        wait_until(lambda: replica.info("replication")["master_link_status"] == "up", "the replica follows")
        granted = world.submit(gpu=1, key="k")
        assert granted.status == RequestState.ALLOCATED
        assert replica.hget(key("request", "test", granted.id), "status") == "allocated"
    tracker_of(world.client).replicas_acknowledge = 0


def test_a_master_that_may_go_on_alone_is_warned_of(plain: Redis, port: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_without_replicas(plain, ("127.0.0.1", port))
    assert "min-replicas-to-write is 0" in caplog.text
    caplog.clear()
    plain.config_set("min-replicas-to-write", 1)
    warn_without_replicas(plain, ("127.0.0.1", port))
    assert caplog.text == ""


def test_a_server_of_its_own_is_not_watched(world: World) -> None:
    assert watch_master(world.client) is None


def test_a_doubt_that_begins_while_a_connection_is_made_anew_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = tracker_of(world.client)
    client: Any = world.client
    disconnect = client.connection_pool.connection_class.disconnect

    def disconnect_as_the_master_changes(self: Any, *args: Any, **kwargs: Any) -> None:
        tracker.in_doubt = True
        tracker.begin_generation()
        disconnect(self, *args, **kwargs)

    world.submit(gpu=1)
    before = world.state()
    tracker.begin_generation()
    monkeypatch.setattr(client.connection_pool.connection_class, "disconnect", disconnect_as_the_master_changes)
    with pytest.raises(StoreUnavailable) as refusal:
        world.submit(gpu=1)
    monkeypatch.undo()
    tracker.in_doubt = False
    assert refusal.value.reason == "failing_over"
    assert world.state() == before
