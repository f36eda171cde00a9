"""The watch for a change of the master, in the processes of a service with Sentinel or Cluster.

A replica may be promoted while the old master still answers for seconds, and its connections stay open. So a process

1. learns of the change: from a message `+switch-master` of any Sentinel, or from a look at the Sentinels or the topology each
   second; the answer with the highest configuration epoch counts until the same Sentinel gives another one
2. is in doubt: no script is sent, and callers get 503
3. stops the use of all connections, and discards replies that still arrive over them
4. deposes the old master if it still answers as a master under the id it had: every script that writes refuses it from then on
5. ends the doubt when the new server answers as a master
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from threading import Event, Lock, Thread
from typing import Any, Final, NamedTuple

import redis.exceptions as errors
from redis import Redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from app.domain.errors import StoreUnavailable
from app.store.connection import FollowingSentinel, RedisClient
from app.store.keys import OWN, WORKSPACES
from app.store.master_id import track_master, tracker_of
from app.store.scripts import Scripts

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Seconds between two looks."""
FRESH_S: Final = 5.0
"""The age in seconds up to which an answer of a Sentinel precedes older ones of the same epoch."""
ANSWER_S: Final = 0.5
"""Seconds that a server has to answer."""
DEPOSED_MS: Final = 60_000
"""Milliseconds that a server stays deposed: more than Sentinel takes to make it a replica."""
CHANNEL: Final = "+switch-master"
SLOTS: Final = 16_384

Address = tuple[str, int]
_FAILURES = (errors.RedisError, errors.RedisClusterException, StoreUnavailable, OSError)


class _Answer(NamedTuple):
    """The answer of a Sentinel about the master, with the time of the answer."""

    at_s: float
    epoch: int
    address: Address


def watch_master(client: RedisClient) -> MasterWatch | None:
    """Start and return the watch that this client needs; None if its URL names one server."""
    if isinstance(client, RedisCluster):
        return ClusterWatch(client).start()
    manager = getattr(client.connection_pool, "sentinel_manager", None)
    return SentinelWatch(client, manager).start() if isinstance(manager, FollowingSentinel) else None


def warn_without_replicas(server: Redis, address: Address) -> None:
    """Log a warning if a master accepts writes without replicas that take them."""
    try:
        least = server.config_get("min-replicas-to-write").get("min-replicas-to-write")
    except errors.RedisError as error:
        log.debug("%s:%d does not give its min-replicas-to-write: %s", *address, error)
        return
    if least == "0":
        log.warning(
            "min-replicas-to-write is 0 on %s:%d: after a change of the master, the old and the new master may grant the same "
            "units. Set it to 1 or more, and min-replicas-max-lag to a few seconds, on every server (config/redis.conf)",
            *address,
        )


class MasterWatch:
    """The base class of watches: their threads, and the deposition of old masters."""

    def __init__(self, client: RedisClient) -> None:
        self._client, self._tracker = client, tracker_of(client)
        self._stopping, self._lock = Event(), Lock()
        self._deposing: dict[Address, tuple[str, float]] = {}
        self._checked: set[Address] = set()

    def start(self) -> MasterWatch:
        """Start the threads and return the watch; to be called after a fork."""
        for number, look in enumerate(self._looks()):
            Thread(target=self._run, args=(look,), name=f"master watch {number}", daemon=True).start()
        return self

    def stop(self) -> None:
        """End the threads soon."""
        self._stopping.set()

    def _looks(self) -> Iterable[Callable[[], None]]:
        """Return a function for each thread, which looks once and returns after a pause."""
        raise NotImplementedError

    def _run(self, look: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            try:
                look()
            except _FAILURES as error:
                log.debug("a look for the master failed: %s", error)
                self._stopping.wait(LOOK_S)
            except Exception:  # the thread has to go on: without it a change of the master goes unnoticed
                log.exception("a look for the master failed")
                self._stopping.wait(LOOK_S)

    def _server(self, address: Address) -> Redis:
        quick = {"socket_timeout": ANSWER_S, "socket_connect_timeout": ANSWER_S, "retry": Retry(NoBackoff(), 0)}
        return track_master(Redis(*address, **self._tracker.server_options | quick))

    def _replication(self, address: Address) -> tuple[str, str]:
        """Return the role and id of a server. At the first look at a master, also check its `min-replicas-to-write`."""
        with self._server(address) as server:
            connection: Any = server.connection_pool.get_connection()
            try:
                role, master_id = connection.read_replication()
            finally:
                server.connection_pool.release(connection)
            if role == "master" and address not in self._checked:
                self._checked.add(address)
                warn_without_replicas(server, address)
        return str(role), str(master_id)

    def _begin_doubt(self, old: Iterable[Address]) -> None:
        """Stop the use of all connections, and depose these masters."""
        self._tracker.in_doubt = True
        self._tracker.begin_generation()
        for address in old:
            if known_id := self._tracker.master_ids.pop(address, None):
                self._deposing[address] = (known_id, time.monotonic() + DEPOSED_MS / 1000)
        self._depose()

    def _depose(self) -> None:
        """Depose the old masters that answer. Try the others again for as long as they may come back as masters."""
        for address, (known_id, end_s) in list(self._deposing.items()):
            try:
                finished = self._depose_server(address, known_id)
            except _FAILURES as error:
                log.debug("%s:%d is not deposed: %s", *address, error)
                finished = time.monotonic() > end_s
            if finished:
                self._deposing.pop(address, None)

    def _depose_server(self, address: Address, known_id: str) -> bool:
        """Mark every workspace on an old master. Return True if the server is a replica by now, or has another id."""
        if self._replication(address) != ("master", known_id):
            return True
        with self._server(address) as server:
            scripts = Scripts(server)
            for workspace in (OWN, *self._workspaces(server)):
                self._depose_workspace(scripts, workspace, known_id)
        log.warning("%s:%d still answered as a master and is deposed", *address)
        return False  # the next look checks whether the server is a replica

    def _depose_workspace(self, scripts: Scripts, workspace: str, known_id: str) -> None:
        """Mark a workspace on an old master."""
        scripts.call("depose", workspace, now=None, id=known_id, lasts_ms=DEPOSED_MS)

    def _workspaces(self, server: Redis) -> list[str]:
        """Return the workspaces that a server may hold."""
        return sorted(str(name) for name in server.smembers(WORKSPACES))


def _precedence(answer: _Answer, now_s: float, followed: Address | None) -> tuple[int, bool, bool]:
    """Return the sort key of the last answer of a Sentinel. The answer with the highest key counts:

    1. the highest epoch, however old the answer is: a silent Sentinel may be the only one that knows the epoch
    2. a fresh answer before an older one
    3. the master that is followed before another one
    """
    return answer.epoch, answer.at_s > now_s - FRESH_S, answer.address == followed


class SentinelWatch(MasterWatch):
    """The watch of a master that Sentinels name."""

    def __init__(self, client: Redis, manager: FollowingSentinel) -> None:
        super().__init__(client)
        self._manager = manager
        self._service: str = client.connection_pool.service_name  # type: ignore[attr-defined]
        self._answers: dict[int, _Answer] = {}

    def _looks(self) -> Iterable[Callable[[], None]]:
        return [_SentinelLook(self, number, sentinel).look for number, sentinel in enumerate(self._manager.sentinels)]

    def _judge(self, number: int, answer: _Answer) -> None:
        """Follow the newest answer of the Sentinels."""
        with self._lock:
            self._answers[number] = answer
            before = self._manager.master_address
            newest = max(self._answers.values(), key=lambda last: _precedence(last, answer.at_s, before)).address
            if before and newest != before:
                log.warning("the master of %s is now %s:%d; it was %s:%d", self._service, *newest, *before)
                self._tracker.in_doubt = True
            self._manager.master_address = newest  # before the new generation, whose connections lead there
            if before and newest != before:
                self._begin_doubt([before])
            self._deposing.pop(newest, None)
            if self._deposing:
                self._depose()
            if self._tracker.in_doubt or newest not in self._checked:
                role, _ = self._replication(newest)
                self._tracker.in_doubt = self._tracker.in_doubt and role != "master"


class _SentinelLook:
    """The look at one Sentinel, with a subscription that ends its pause."""

    def __init__(self, watch: SentinelWatch, number: int, sentinel: Redis) -> None:
        self._watch, self._number, self._sentinel = watch, number, sentinel
        self._messages: Any = None

    def look(self) -> None:
        """Ask the Sentinel, judge its answer, and wait for a message or the next look."""
        try:
            if self._messages is None:
                self._messages = self._sentinel.pubsub()  # type: ignore[no-untyped-call]
                self._messages.subscribe(CHANNEL)
            sentinel: Any = self._sentinel
            state = sentinel.execute_command("SENTINEL MASTER", self._watch._service)
            address = sentinel.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", self._watch._service)
            if address:
                self._watch._judge(self._number, _Answer(time.monotonic(), int(state["config-epoch"]), address))
            until_s = time.monotonic() + LOOK_S
            while not self._watch._stopping.is_set() and (left_s := until_s - time.monotonic()) > 0:
                message = self._messages.get_message(timeout=left_s)
                if message and message["type"] == "message":
                    return
        except _FAILURES:
            if self._messages is not None:
                self._messages.close()
                self._messages = None
            raise


class ClusterWatch(MasterWatch):
    """The watch of the masters of a cluster."""

    def __init__(self, client: RedisCluster) -> None:
        super().__init__(client)
        self._cluster: Any = client
        self._owners: list[Address | None] = []
        self._names: list[str] = []

    def _looks(self) -> Iterable[Callable[[], None]]:
        return [self._look]

    def _look(self) -> None:
        owners = self._newest_owners()
        old = {before for before, now in zip(self._owners, owners, strict=False) if before and now and before != now}
        if old:
            log.warning("masters of the cluster were replaced: %s", ", ".join(f"{host}:{port}" for host, port in sorted(old)))
            self._begin_doubt(old)
        elif self._deposing:
            self._depose()
        self._owners = owners
        if not self._is_followed(owners):
            self._tracker.in_doubt = True
            self._cluster.nodes_manager.initialize(additional_startup_nodes_info=sorted({one for one in owners if one}))
        if self._tracker.in_doubt:
            self._tracker.in_doubt = not self._is_followed(owners)
        for address in {one for one in owners if one} - self._checked:
            self._replication(address)
        self._names = sorted(str(name) for name in self._cluster.smembers(WORKSPACES))
        self._stopping.wait(LOOK_S)

    def _is_followed(self, owners: list[Address | None]) -> bool:
        """True if the client sends the commands of every slot to its owner."""
        slots = self._cluster.nodes_manager.slots_cache
        return all(
            (slots[slot][0].host, slots[slot][0].port) == owner for slot, owner in enumerate(owners) if owner and slot in slots
        )

    def _newest_owners(self) -> list[Address | None]:
        """Return the owner of each slot: of all views of the nodes the one with the highest configuration epoch."""
        claims: set[tuple[int, int, int, Address]] = set()
        for node in self._cluster.get_nodes():
            try:
                with self._server((node.host, node.port)) as server:
                    claims |= _claims(server, node.host)
            except _FAILURES as error:
                log.debug("node %s says nothing of the slots: %s", node.name, error)
        owners: list[Address | None] = [None] * SLOTS
        for _, first, last, address in sorted(claims):
            owners[first : last + 1] = [address] * (last + 1 - first)
        return owners

    def _workspaces(self, server: Redis) -> list[str]:
        return self._names

    def _depose_workspace(self, scripts: Scripts, workspace: str, known_id: str) -> None:
        try:
            super()._depose_workspace(scripts, workspace, known_id)
        except StoreUnavailable as refusal:
            if refusal.reason != "unsuitable":  # otherwise the slot belongs to another node
                raise


def _claims(server: Redis, own_host: str) -> set[tuple[int, int, int, Address]]:
    """Return the owners of slots by the view of a node: epoch of the owner, first and last slot, owner."""
    nodes, slots = _raw_replies(server, "CLUSTER NODES", "CLUSTER SLOTS")
    epochs = {words[0]: int(words[6]) for words in map(str.split, nodes.splitlines())}
    return {
        (epochs.get(owner[2], 0), int(first), int(last), (str(owner[0] or own_host), int(owner[1])))
        for first, last, owner, *_ in slots
    }


def _raw_replies(server: Redis, *commands: str) -> list[Any]:
    """Return replies as the server sends them; the parsed replies of the library lack the epochs."""
    connection: Any = server.connection_pool.get_connection()
    try:
        replies = []
        for command in commands:
            connection.send_command(*command.split())
            replies.append(connection.read_response())
        return replies
    finally:
        server.connection_pool.release(connection)
