"""Connections that say which master they lead to, on live servers: a new id, a new generation, doubt, replicas that confirm."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from app.domain.errors import StoreUnavailable
from app.domain.ledger_limits import FENCE_JUMP
from app.domain.models import Request
from app.domain.states import RequestState
from app.store.connection import connect
from app.store.keys import key
from app.store.master_id import tracker_of
from app.store.master_watch import warn_without_replicas, watch_master
from app.store.replica_barrier import ReplicaBarriers, Ticket
from tests.support import backends
from tests.support.backends import free_port, serve, wait_until, wait_until_ready
from tests.support.world import World

META = key("meta", "test")


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Yield the port of a Redis that lets a test change its replication id."""
    backends.require("redis")
    number = free_port()
    with serve(tmp_path, "--port", str(number), "--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0"):
        wait_until_ready(f"redis://127.0.0.1:{number}")
        yield number


@pytest.fixture
def plain(port: int) -> Iterator[Redis]:
    """Yield a client without the check of the master."""
    with Redis("127.0.0.1", port, decode_responses=True) as client:
        yield client


@pytest.fixture
def world(port: int) -> Iterator[World]:
    """Yield a workspace with a pool of forty units."""
    with connect(f"redis://127.0.0.1:{port}", timeout_s=2) as client:
        world = World(client)
        world.pool(gpu=40)
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


def confirms(master: Redis) -> bool:
    """True if a replica of the master confirms a new write. A replica that is online gets no write before its first
    confirmation, which takes up to a second. Meanwhile WAIT may count it for a write from before the replication began.
    """
    before = master.info("replication")["master_repl_offset"]
    master.publish("written", "")
    master.wait(1, 1000)
    return bool(master.info("replication").get("slave0", {}).get("offset", 0) > before)


@contextmanager
def replica_of(port: int, folder: Path) -> Iterator[Redis]:
    """Start a replica, and yield a client of it once it confirms what the master writes."""
    folder.mkdir()
    number = free_port()
    with (
        serve(folder, "--port", str(number), "--replicaof", "127.0.0.1", str(port)),
        Redis("127.0.0.1", port, decode_responses=True) as master,
        Redis("127.0.0.1", number, decode_responses=True) as replica,
    ):
        wait_until(lambda: confirms(master), "the replica confirms what the master writes", 30)
        yield replica


@pytest.fixture
def one_replica(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Require one replica to confirm each write that a reply shows."""
    world.submit(gpu=1)  # from now on the server knows the script
    monkeypatch.setattr(tracker_of(world.client), "replicas_acknowledge", 1)


@pytest.mark.usefixtures("one_replica")
def test_a_grant_counts_when_a_replica_has_confirmed_it(world: World, port: int, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as refusal:
            world.submit(gpu=1, key="k")
        assert refusal.value.reason == "not_acknowledged"
    with pytest.raises(StoreUnavailable):
        world.used()  # a reading call may tell of a grant, too
    with replica_of(port, tmp_path / "replica") as replica:
        answers: list[Request] = []

        def submit() -> bool:
            answers.append(world.submit(gpu=1, key="k"))  # a repeated call asks for the same request, by its key
            return True

        wait_until(submit, "the replica confirms the grant")
        granted = answers[0]
        assert granted.status == RequestState.ALLOCATED
        assert replica.hget(key("request", "test", granted.id), "status") == "allocated"


def submit_while_a_barrier_is_held(world: World, calls: int, monkeypatch: pytest.MonkeyPatch) -> list[Future[Request]]:
    """Submit one request, hold its barrier until all further calls have a part in the next barrier, and return all outcomes."""
    client: Any = world.client
    connection_class = client.connection_pool.connection_class
    run_barrier, join = connection_class._run_barrier, ReplicaBarriers.join
    tickets: list[Ticket] = []

    def hold_the_first(connection: Any) -> None:
        wait_until(lambda: len(tickets) == calls + 1, "every call waits for replicas")
        run_barrier(connection)

    def note(barriers: ReplicaBarriers) -> Ticket:
        tickets.append(join(barriers))
        return tickets[-1]

    monkeypatch.setattr(connection_class, "_run_barrier", hold_the_first)
    monkeypatch.setattr(ReplicaBarriers, "join", note)
    with ThreadPoolExecutor(calls + 1) as pool:
        outcomes = [pool.submit(world.submit, gpu=1)]
        wait_until(lambda: tickets, "the first call waits for replicas")
        outcomes += [pool.submit(world.submit, gpu=1) for _ in range(calls)]
    return outcomes


@pytest.mark.usefixtures("one_replica")
def test_calls_that_wait_for_replicas_together_share_a_barrier(
    world: World, plain: Redis, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replica_of(port, tmp_path / "replica") as replica:
        tracker_of(world.client).identify_again()  # the first replica gives the server another id
        world.submit(gpu=1)
        plain.config_resetstat()
        outcomes = submit_while_a_barrier_is_held(world, 20, monkeypatch)
        granted = [outcome.result().id for outcome in outcomes]
        counts: Any = plain.info("commandstats")
        assert counts["cmdstat_wait"]["calls"] == 2
        assert all(replica.hget(key("request", "test", request), "status") == "allocated" for request in granted)


@pytest.mark.usefixtures("one_replica")
def test_a_shared_barrier_without_replicas_refuses_every_call(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = submit_while_a_barrier_is_held(world, 5, monkeypatch)
    errors = [outcome.exception() for outcome in outcomes]
    assert {error.reason for error in errors if isinstance(error, StoreUnavailable)} == {"not_acknowledged"}
    assert len(errors) == 6


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
