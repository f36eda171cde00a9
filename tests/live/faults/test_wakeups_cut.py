"""The subscription breaks, falls silent, or loses its server: a watcher gets the changes of the meantime, and later ones."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from socket import socket
from typing import Any

import pytest

from app.store.change_notifications import CLIENT_NAME, ChangeNotifications
from app.store.connection import RedisClient, connect
from app.store.keys import key
from tests.live.faults.proxy import CuttingProxy, connect_to
from tests.live.faults.test_slot_moved import Node, nodes, tell
from tests.support.backends import free_port, serve, short_folder, wait_until
from tests.support.servers import Servers
from tests.support.world import World

__all__ = ["nodes"]

LONG_S = 20.0
QUIET_S = 0.2


@contextmanager
def listening(client: RedisClient, quiet_s: float = QUIET_S) -> Iterator[ChangeNotifications]:
    """Yield notifications that detect a silence soon, and check that their thread ends."""
    before = set(threading.enumerate())
    wakeups = ChangeNotifications(client, quiet_s)
    try:
        yield wakeups
    finally:
        wakeups.close()
        own = [thread for thread in set(threading.enumerate()) - before if thread.name == "wakeups"]
        wait_until(lambda: not any(thread.is_alive() for thread in own), "the thread has ended")


def subscribers(client: RedisClient) -> list[int]:
    """Return the numbers of the server's connections that subscribe."""
    return [
        int(connection["id"])
        for connection in client.client_list()
        if connection["name"] == CLIENT_NAME and (connection["sub"] != "0" or connection["psub"] != "0")
    ]


def busy(client: RedisClient) -> World:
    """Create a workspace with one request that holds all units."""
    world = World(client)
    world.pool(gpu=1)
    world.policy()
    return world


def test_a_killed_connection_is_made_again_and_wakes_every_watch(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    client = servers.client("redis")
    world = busy(client)
    allocation, waits = world.submit(gpu=1), world.submit(gpu=1)
    with listening(client, 7) as wakeups, caplog.at_level(logging.WARNING):
        with (
            wakeups.watch("test", allocation.id) as first_watch,
            wakeups.watch("test", waits.id) as two,
            wakeups.watch("test") as whole,
        ):
            (before,) = subscribers(client)
            client.client_kill_filter(_id=str(before))
            assert (first_watch.wait(LONG_S), two.wait(LONG_S), whole.wait(LONG_S)) == (True, True, True)
            (after,) = subscribers(client)
            assert after != before
            assert not any(watch.wait(0.1) for watch in (first_watch, two, whole)), "once is enough"
            world.release(allocation)
            assert (first_watch.wait(LONG_S), two.wait(LONG_S), whole.wait(LONG_S)) == (True, True, True)
            assert world.status(allocation, waits) == ["released", "allocated"]
        assert [record.name for record in caplog.records] == ["app.store.change_notifications"], "and one line says so"


def test_killed_over_and_over_no_change_is_missed(servers: Servers) -> None:
    client = servers.client("redis")
    world, stop = busy(client), threading.Event()
    world.submit(gpu=1)

    def killer() -> None:
        while not stop.wait(0.01):
            for connection in subscribers(client):
                client.client_kill_filter(_id=str(connection))

    def watcher(request: Any, states: list[str]) -> None:
        with wakeups.watch("test", request.id) as watch:
            while (status := str(world.get(request).status)) == "queued" and watch.wait(LONG_S):
                pass
            states.append(status)

    killing = threading.Thread(target=killer)
    killing.start()
    try:
        with listening(client, 7) as wakeups:
            for _ in range(40):
                waits, states = world.submit(gpu=1), list[str]()
                watching = threading.Thread(target=watcher, args=(waits, states))
                watching.start()
                world.cancel(waits)
                watching.join(LONG_S)
                assert states == ["cancelled"]
    finally:
        stop.set()
        killing.join()


def test_a_server_that_was_away_is_found_again(tmp_path: Path) -> None:
    with short_folder(tmp_path) as place:
        path = str(place / "here.sock")
        options = ("--port", "0", "--unixsocket", path)
        with connect(f"unix://{path}", timeout_s=1) as client, listening(client) as wakeups:
            with serve(tmp_path, *options):
                wait_until(client.ping, "the server answers")
                early = wakeups.watch("test", "r")
                with early:
                    assert subscribers(client)
            started_s = time.monotonic()
            with early, wakeups.watch("test") as late:
                assert 1 <= time.monotonic() - started_s < 5, "a watch begins without a server, too"
                assert (early.wait(0), late.wait(0.3)) == (False, False)
                with serve(tmp_path, *options):
                    assert (early.wait(LONG_S), late.wait(LONG_S)) == (True, True)
                    world = busy(client)
                    world.submit(gpu=1, own_id="r")
                    assert (early.wait(LONG_S), late.wait(LONG_S)) == (True, True)
                    assert world.get("r").status == "allocated"


class Silent(CuttingProxy):
    """A way that can fall silent: the connections there are stay open and pass nothing on any more, and new ones work."""

    epoch = 0

    def _pass_on(self, client: socket) -> None:
        epoch = self.epoch
        with client, connect_to(self.upstream) as server:
            while True:
                for side, other in ((client, server), (server, client)):
                    if side in select([client, server], [], [])[0]:
                        if not (data := side.recv(1 << 16)):
                            return
                        if epoch == self.epoch:
                            other.sendall(data)


def test_a_connection_that_fell_silent_is_given_up(servers: Servers, tmp_path: Path) -> None:
    direct = servers.client("redis")
    world = busy(direct)
    allocation = world.submit(gpu=1)
    upstream = direct.connection_pool.connection_kwargs["path"]  # type: ignore[union-attr]
    with short_folder(tmp_path) as folder:
        way = Silent(folder, upstream)
        with way, connect(way.url) as client, listening(client) as wakeups, wakeups.watch("test", allocation.id) as watch:
            time.sleep(QUIET_S * 4)
            assert len(subscribers(direct)) == 1, "a quiet connection that answers is kept"
            assert not watch.wait(0)
            way.epoch += 1
            world.release(allocation)
            assert watch.wait(LONG_S), "it is woken when it is heard again what happens"
            assert world.status(allocation) == ["released"]


def test_a_server_that_stands_still_is_heard_again_when_it_goes_on(tmp_path: Path) -> None:
    with short_folder(tmp_path) as place:
        path = str(place / "still.sock")
        with (
            serve(tmp_path, "--port", "0", "--unixsocket", path) as server,
            connect(f"unix://{path}", timeout_s=1) as client,
            listening(client) as wakeups,
        ):
            wait_until(client.ping, "the server answers")
            world = busy(client)
            allocation = world.submit(gpu=1)
            with wakeups.watch("test", allocation.id) as watch:
                os.kill(server.pid, signal.SIGSTOP)
                try:
                    assert not watch.wait(QUIET_S * 5), "no watcher is sent to a server that stands still"
                    assert not wakeups.closing
                finally:
                    os.kill(server.pid, signal.SIGCONT)
                assert watch.wait(LONG_S)
                while watch.wait(QUIET_S * 3):
                    pass
                world.release(allocation)
                assert watch.wait(LONG_S)


def test_it_closes_while_the_server_is_away(tmp_path: Path) -> None:
    with (
        connect(f"redis://127.0.0.1:{free_port()}", timeout_s=1) as client,
        listening(client) as wakeups,
        wakeups.watch("test", "r") as watch,
    ):
        assert not watch.wait(0)
        started_s = time.monotonic()
        wakeups.close()
        assert (watch.wait(LONG_S), time.monotonic() - started_s < LONG_S / 2) == (True, True)


def test_in_a_cluster_another_node_will_do(nodes: list[Node]) -> None:
    (port, first), (other, second) = nodes
    tell(second, "CONFIG SET", "cluster-require-full-coverage", "no")
    channel = key("changed", "test", "r")
    with (
        connect(f"redis+cluster://127.0.0.1:{port},127.0.0.1:{other}", timeout_s=2) as client,
        listening(client) as wakeups,
        wakeups.watch("test", "r") as watch,
    ):
        for node in (first, second):
            node.publish(channel, "queued")
            assert watch.wait(LONG_S), "what is said to one is said by all"
        listener, stays = (first, second) if subscribers(first) else (second, first)
        listener.shutdown(nosave=True)
        assert watch.wait(LONG_S), "it is with the other"
        stays.publish(channel, "allocated")
        assert watch.wait(LONG_S)
