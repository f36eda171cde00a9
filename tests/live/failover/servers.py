"""A master with a replica under a Sentinel, and a cluster of three masters and a replica, on the loopback address."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from redis import Redis
from redis.crc import key_slot

from app.store.child_process import ChildProcess
from app.store.embedded_redis import find_server
from app.store.keys import key
from tests.live.failover.holders import WORKSPACE
from tests.support.backends import free_port, running, serve, wait_until

SERVICE: Final = "main"
PROTECTED: Final = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "5")
"""As config/redis.conf has it."""


@cache
def _server() -> Path:
    """Return the program, looked for once."""
    return find_server("path")


@dataclass
class Server:
    """A Redis process."""

    folder: Path
    options: tuple[str, ...]
    stack: ExitStack
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.start()

    def start(self, *more: str) -> None:
        """Start the process, also once more."""
        options = ("--port", str(self.port), "--repl-diskless-sync-delay", "0", *self.options, *more)
        self.process: ChildProcess = self.stack.enter_context(serve(self.folder, *options, server=_server()))
        self.client = self.stack.enter_context(Redis("127.0.0.1", self.port, decode_responses=True, socket_timeout=2))
        wait_until(self.client.ping, "the server answers")

    def send(self, sign: signal.Signals) -> None:
        """Send a signal to the process."""
        os.kill(self.process.pid, sign)

    def replication(self) -> dict[str, Any]:
        """Return the server's fields of INFO replication."""
        return dict(self.client.info("replication"))

    def follow(self, master: Server) -> None:
        """Become a replica of the master, unless it is one."""
        if self.replication()["role"] == "master":
            self.client.execute_command("REPLICAOF", "127.0.0.1", master.port)


@dataclass
class Topology:
    """Two servers, of which one is the master, and the Sentinel or cluster that names the master."""

    url: str
    master: Server
    replica: Server
    sentinel: Any = None

    def wait_for_switch(self) -> None:
        """Return when the replica is the master, for all."""
        wait_until(lambda: self.replica.replication()["role"] == "master", "the replica is promoted", 40)
        if self.sentinel:
            wait_until(
                lambda: int(self.sentinel.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", SERVICE)[1]) == self.replica.port,
                "the Sentinel names the new master",
                40,
            )


def _wait_for_link(master: Server, replica: Server) -> None:
    wait_until(lambda: replica.replication().get("master_link_status") == "up", "the replica follows")
    wait_until(lambda: master.replication().get("slave0", {}).get("state") == "online", "the master has its replica")


@contextmanager
def sentinel_topology(folder: Path, *options: str) -> Iterator[Topology]:
    """Yield a master and a replica under one Sentinel."""
    with ExitStack() as stack:
        master = Server(folder / "one", options, stack)
        replica = Server(folder / "two", options, stack)
        replica.follow(master)
        _wait_for_link(master, replica)
        port, config = free_port(), folder / "sentinel.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\nsentinel monitor {SERVICE} 127.0.0.1 {master.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} 1500\nsentinel failover-timeout {SERVICE} 10000\n"
        )
        stack.enter_context(running([_server(), config, "--sentinel"], folder / "sentinel.log"))
        sentinel = stack.enter_context(Redis("127.0.0.1", port, decode_responses=True))
        wait_until(
            lambda: int(sentinel.execute_command("SENTINEL MASTER", SERVICE)["num-slaves"]) == 1, "the Sentinel knows both"
        )
        yield Topology(f"redis+sentinel://127.0.0.1:{port}/{SERVICE}", master, replica, sentinel)


@contextmanager
def cluster_topology(folder: Path, *options: str) -> Iterator[Topology]:
    """Yield three masters; the one with the slot of the workspace has a replica."""
    clustered = (*options, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-announce-ip", "127.0.0.1")
    with ExitStack() as stack:
        nodes = [
            Server(folder / f"node{number}", (*clustered, "--cluster-port", str(free_port())), stack) for number in range(4)
        ]
        master, second, third, replica = nodes
        slot = key_slot(key("meta", WORKSPACE).encode())
        others = [number for number in range(16384) if number != slot]
        master.client.execute_command("CLUSTER ADDSLOTS", slot, *others[:16000])
        second.client.execute_command("CLUSTER ADDSLOTS", *others[16000:16200])
        third.client.execute_command("CLUSTER ADDSLOTS", *others[16200:])
        for number, node in enumerate(nodes, 1):
            if node is not replica:
                node.client.execute_command("CLUSTER SET-CONFIG-EPOCH", number)
        for node in nodes[1:]:
            bus = master.options[master.options.index("--cluster-port") + 1]
            node.client.execute_command("CLUSTER MEET", "127.0.0.1", master.port, bus)
        name = master.client.execute_command("CLUSTER MYID")
        wait_until(lambda: name in str(replica.client.execute_command("CLUSTER NODES")), "the replica knows the master")
        wait_until(lambda: replica.client.execute_command("CLUSTER REPLICATE", name), "the replica is told its master")
        _wait_for_link(master, replica)
        for node in nodes:
            wait_until(lambda node=node: node.client.cluster("INFO")["cluster_state"] == "ok", "the cluster is whole")  # type: ignore[misc]
            wait_until(lambda node=node: len(node.client.cluster("NODES")) == 4, "all nodes know each other")  # type: ignore[misc]
        yield Topology(f"redis+cluster://127.0.0.1:{second.port},127.0.0.1:{third.port}", master, replica)
