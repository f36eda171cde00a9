"""Connections that know their master: each script call carries the replication id of the server it is sent to.

A replication id (`master_replid`) names one history of writes: a promoted replica gets a new one. Every script call ends with
the placeholder MASTER_ID. The connection replaces it by the id of its server, which it reads from INFO before the first script
on each socket. A script that writes compares it with the id in the workspace's `meta`, and refuses if they differ
(`lua/workspaces/adopt.lua`).

With `replicas_acknowledge` a reply counts only if that many replicas have every write that the server had made before it, also
writes of other clients that the reply shows. Calls that wait for replicas share a barrier (`replica_barrier.py`).

A `MasterTracker` belongs to a client. It counts generations: a new one begins when the master may have changed. A connection of
an earlier generation is closed before it is used again. A reply over such a connection is discarded, and the call is repeated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary, WeakSet

import redis.exceptions as errors
from redis import Redis
from redis.cluster import RedisCluster
from redis.connection import Connection, ConnectionPool, SSLConnection

from app.store.keys import BARRIER, OWN, prefix
from app.store.replica_barrier import NotAcknowledged, ReplicaBarriers

UNREPLICATED_ID: Final = "0" * 40
"""The id of a server without replication: the fake of the tests."""
PROMOTED: Final = "-promoted"
"""The suffix of the id of a promoted replica: its data may lack writes of an earlier master."""
WAIT_SHARE: Final = 0.25
"""The part of a call's timeout that the call may wait for replicas."""
_OWN_PREFIX: Final = prefix(OWN)  # tokens and the like: a reply about them shows no grant


class _Placeholder(str):
    """The text that a connection replaces. A client without such connections sends it as it is."""

    __slots__ = ()


MASTER_ID: Final = _Placeholder(UNREPLICATED_ID)


class MasterInDoubt(errors.ConnectionError):
    """Another server may be the master now; no script is sent until the master is known."""


class MasterSubscriber(Protocol):
    """A part of a process with a connection of its own."""

    def reconnect(self) -> None:
        """Drop the connection and connect anew."""
        ...


class MasterTracker:
    """The knowledge of a client about its master: the generation of its connections, and the round of their identification."""

    def __init__(self, server_options: Mapping[str, Any] | None = None) -> None:
        self.generation = self.identification = 0
        self.in_doubt = False
        self.replicas_acknowledge = 0
        """The number of replicas that have to confirm the writes before a reply counts."""
        self.master_ids: dict[tuple[str, int], str] = {}
        """Server → its id when it last answered as a master."""
        self.subscribers: WeakSet[MasterSubscriber] = WeakSet()
        self.server_options = dict(server_options or {})
        """The options of a connection to any server: the user, TLS and so on."""
        self._barriers: dict[tuple[int, str], ReplicaBarriers] = {}

    def barriers(self, master_id: str) -> ReplicaBarriers:
        """Return the barriers of this process on a master; a forked process has its own."""
        return self._barriers.setdefault((os.getpid(), master_id), ReplicaBarriers())

    def begin_generation(self) -> None:
        """Begin a new generation: no connection made so far is used any more."""
        self.generation += 1
        for subscriber in list(self.subscribers):
            subscriber.reconnect()

    def identify_again(self) -> None:
        """Make every connection read the id of its server again: a server without replicas changes it after an hour."""
        self.identification += 1


_TRACKERS: WeakKeyDictionary[Redis | RedisCluster, MasterTracker] = WeakKeyDictionary()


def tracker_of(client: Redis | RedisCluster) -> MasterTracker:
    """Return the tracker of a client."""
    return _TRACKERS.setdefault(client, MasterTracker())


class _MasterIdConnection:
    """A mixin for connection classes of the library: fills in MASTER_ID, and checks the generation around each script."""

    tracker: MasterTracker
    _generation = -1
    _identified_socket: object = None
    _identification = -1
    _master_id = ""
    _awaits_script = False
    _replicas = 0

    def send_command(self: Any, *args: Any, **kwargs: Any) -> None:
        """Send a command; a script gets the id of the server that it is sent to."""
        if args[-1] is not MASTER_ID:
            super().send_command(*args, **kwargs)  # type: ignore[misc]
            return
        tracker = self.tracker
        self._awaits_script = False
        if self._generation != tracker.generation:
            self.disconnect()
            self._generation = tracker.generation
        if self._sock is None:
            self.connect()
        self.check_health()  # before the id is read, because a health check may connect to another server
        if self._identified_socket is not self._sock or self._identification != tracker.identification:
            self._identify()
        if tracker.in_doubt or self._generation != tracker.generation:  # the master may have changed meanwhile
            self.disconnect()
            raise MasterInDoubt("another server may be the master now")
        self._awaits_script = True
        self._replicas = 0 if args[3] == _OWN_PREFIX else tracker.replicas_acknowledge
        self._barrier_key = args[3] + BARRIER
        super().send_command(*args[:-1], self._master_id, check_health=False)  # type: ignore[misc]

    def read_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Read a reply. The reply of a script counts only if the master is still the same."""
        if not self._awaits_script:
            return super().read_response(*args, **kwargs)  # type: ignore[misc]
        self._awaits_script = False
        reply = super().read_response(*args, **kwargs)  # type: ignore[misc]
        if self._replicas:
            barriers = self.tracker.barriers(self._master_id)
            barriers.wait(barriers.join(), self._run_barrier, self.socket_timeout)
        if self._generation != self.tracker.generation:
            self.disconnect()
            raise errors.ConnectionError("the master changed during the call")
        return reply

    def _run_barrier(self: Any) -> None:
        """Write the key of the barrier and wait for the replicas. Raise if too few confirm."""
        wait_ms = int(self.socket_timeout * 1000 * WAIT_SHARE)
        barrier = ("SET", self._barrier_key, self._master_id, "PX", wait_ms)
        self.send_packed_command(self.pack_commands([barrier, ("WAIT", self._replicas, wait_ms)]), check_health=False)
        replies: list[Any] = []
        for _ in range(2):
            try:
                replies.append(super().read_response())  # type: ignore[misc]
            except errors.ResponseError as error:
                replies.append(error)
        for reply in replies:
            if isinstance(reply, errors.ResponseError):  # the server may have become a replica meanwhile
                raise NotAcknowledged(str(reply))
        if replies[1] < self._replicas:
            raise NotAcknowledged(f"{replies[1]} of {self._replicas} replicas confirm it")

    def read_replication(self: Any) -> tuple[str, str]:
        """Return the role and the master id of the server."""
        self.send_command("INFO", "replication", check_health=False)
        return parse_replication(self.read_response())

    def _identify(self: Any) -> None:
        """Read the id of the server. Raise if it is a replica, which accepts no write and may get another id by a promotion."""
        identification = self.tracker.identification
        role, self._master_id = self.read_replication()
        if role != "master":
            self.disconnect()
            raise errors.ConnectionError("the server is a replica")
        self._identified_socket, self._identification = self._sock, identification
        if host := getattr(self, "host", None):
            self.tracker.master_ids[host, int(self.port)] = self._master_id


def parse_replication(text: str | bytes) -> tuple[str, str]:
    """Return the role and the master id of an answer to INFO replication."""
    lines = text.decode() if isinstance(text, bytes) else text
    fields = dict(line.split(":", 1) for line in lines.splitlines() if ":" in line)
    promoted = re.search(r"[^0]", fields.get("master_replid2", ""))
    return fields["role"], fields["master_replid"] + (PROMOTED if promoted else "")


def _connection_class(base: type[Any], tracker: MasterTracker) -> type[Any]:
    return type(f"MasterId{base.__name__}", (_MasterIdConnection, base), {"tracker": tracker})


def track_master(client: Redis, server_options: Mapping[str, Any] | None = None) -> Redis:
    """Make the connections of a new client carry the id of their master. Return the client."""
    tracker = _TRACKERS[client] = MasterTracker(server_options)
    pool: Any = client.connection_pool
    pool.connection_class = _connection_class(pool.connection_class, tracker)
    return client


def node_pool_class(tracker: MasterTracker, *, tls: bool) -> type[ConnectionPool]:
    """Return a class for the pools of a cluster's nodes, whose connections carry the id of their master."""
    connection_class = _connection_class(SSLConnection if tls else Connection, tracker)

    class NodePool(ConnectionPool):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options | {"connection_class": connection_class})

    return NodePool


def track_cluster(client: RedisCluster, tracker: MasterTracker) -> RedisCluster:
    """Give a cluster's client the tracker of its nodes. Return the client."""
    _TRACKERS[client] = tracker
    return client
