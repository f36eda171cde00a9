"""A copy of a workspace at one moment, on a throwaway Redis.

The copy has the same scripts and the same planner, and a clock that stands still. Nothing is written to the workspace itself.

Most of a workspace is its requests. They are read first, some at a time, so that other callers do not wait for long. The events
tell which requests changed meanwhile; these are read once more, in one script together with the rest.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Protocol, TypeAlias
from weakref import WeakSet, finalize

from redis.exceptions import RedisError

from app.domain.clock import Clock, ManualClock, RedisClock
from app.domain.dry_run import RUN_TIMEOUT_S, DryRunUnavailable
from app.domain.errors import RuleViolation, StoreUnavailable
from app.store.codec import FlatHash, to_mapping
from app.store.connection import RedisClient, StoreMisconfigured, connect
from app.store.embedded_redis import SOCKET_FILE, SOCKET_PATH_LIMIT, EmbeddedRedis
from app.store.keys import KEYS
from app.store.scripts import ScriptReply, Scripts, observe, translated_errors
from app.temporary_folders import TemporaryFolder, create_folder

log = logging.getLogger(__name__)

MAX_REQUESTS = 20_000
"""The most queued requests and allocations in a workspace that is copied. With more, few dry runs would end in time."""
WAIT_TIMEOUT_S = 2.0
"""The longest wait for other dry runs of this process."""
START_TIMEOUT_S = 4.0
"""The longest start of the server; mostly it takes a tenth of a second."""
WRITE_CHUNK = 2_000
"""Values that one command writes."""
READ_BATCH = 200
"""Requests that one script reads: a few milliseconds."""
MAX_CHANGES = 300
"""Events during the reading of the requests; after more, the reading starts anew."""
MAX_READS = 5
"""The most attempts to read the workspace."""
FOLDER_PURPOSE = "trial"
"""Part of the names of the servers' folders, in the directory for temporary files."""


class WorkspaceCopy(NamedTuple):
    """A copy of a workspace: its server, and its clock, which stands still."""

    client: RedisClient
    clock: ManualClock


class RedisProvider(Protocol):
    """A source of empty Redis servers."""

    def empty_redis(self) -> AbstractContextManager[RedisClient]:
        """Return a client of an empty server, for as long as the context. Raise DryRunUnavailable if there is none."""
        ...


class ThrowawayRedis:
    """A Redis server of this process, started at the first dry run; one dry run at a time uses it.

    It ends with the process, and is emptied after each dry run. A forked process starts one of its own.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._server: EmbeddedRedis | None = None
        self._client: RedisClient | None = None
        self._finalizer: finalize[[EmbeddedRedis, TemporaryFolder, int], ThrowawayRedis] | None = None
        _INSTANCES.add(self)

    @contextmanager
    def empty_redis(self) -> Iterator[RedisClient]:
        """See the protocol."""
        lock = self._lock
        if not lock.acquire(timeout=WAIT_TIMEOUT_S):
            raise DryRunUnavailable("busy")
        try:
            client = self._empty_client()
            try:
                yield client
            except (RedisError, StoreUnavailable):
                self._stop()  # it may still be busy, and the next dry run would wait for it
                raise
            finally:
                self._flush()
        finally:
            lock.release()

    def _empty_client(self) -> RedisClient:
        for _ in range(2):
            try:
                (client := self._running_client()).flushall()
            except RedisError as error:  # it has died or hangs
                log.warning("the server for dry runs does not answer: %s", error)
                self._stop()
            else:
                return client
        raise DryRunUnavailable("lost")

    def _running_client(self) -> RedisClient:
        try:
            if self._server is None:
                folder = _new_folder()
                self._server = EmbeddedRedis(folder.path, durable=False, ready_within_s=START_TIMEOUT_S)
                self._finalizer = finalize(self, _stop_server, self._server, folder, os.getpid())
                self._client = connect(self._server.url, RUN_TIMEOUT_S)
            self._server.start()
            assert self._client is not None
        except (StoreMisconfigured, StoreUnavailable, OSError) as error:
            log.warning("nothing can be tried out: %s", error)
            self._stop()
            raise DryRunUnavailable("impossible") from error
        return self._client

    def _flush(self) -> None:
        if self._server is None or self._client is None:
            return
        try:
            self._client.flushall()
        except RedisError:
            self._stop()

    def _stop(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._finalizer is not None:
            self._finalizer()
        self._server = self._client = self._finalizer = None

    def _reset_after_fork(self) -> None:
        """Forget the lock and the server: a fork may use neither of its parent."""
        if self._finalizer is not None:
            self._finalizer.detach()
        self._lock = Lock()
        self._server = self._client = self._finalizer = None


_INSTANCES: WeakSet[ThrowawayRedis] = WeakSet()


def _reset_all_after_fork() -> None:
    for instance in list(_INSTANCES):
        instance._reset_after_fork()


os.register_at_fork(after_in_child=_reset_all_after_fork)


def _stop_server(server: EmbeddedRedis, folder: TemporaryFolder, owner: int) -> None:
    if owner == os.getpid():
        server.stop()
        folder.remove()


def _new_folder() -> TemporaryFolder:
    """Return a new folder whose path is short enough for a socket in it."""
    folder = create_folder(FOLDER_PURPOSE)
    if len(os.fsencode(folder.path / SOCKET_FILE)) <= SOCKET_PATH_LIMIT:
        return folder
    folder.remove()
    return create_folder(FOLDER_PURPOSE, Path("/tmp"))


KeyRow: TypeAlias = tuple[str, str, FlatHash]
"""A key, its type and its content."""


class _CopiedRequest(NamedTuple):
    """A request, and its entries in other keys; empty where it has none."""

    fields: dict[str, str]
    number: str
    waiting: str
    live: str
    lane_or_pool: str
    """The lane of a queued request, the pool of an allocation."""
    place: str
    walltime: str
    fence: str
    line: str
    end: str


class WorkspaceCopier:
    """Copies a workspace to a throwaway Redis."""

    def __init__(
        self,
        client: RedisClient,
        servers: RedisProvider,
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scripts, self._servers, self._monotonic = Scripts(client), servers, monotonic
        self._clock = clock or RedisClock()

    @contextmanager
    def copy(self, workspace: str, extra_request: str = "") -> Iterator[WorkspaceCopy]:
        """Copy the workspace as it is now, for as long as the context.

        After RUN_TIMEOUT_S calls raise DryRunUnavailable. `extra_request` is copied even if it has ended.
        """
        until = self._monotonic() + WAIT_TIMEOUT_S + RUN_TIMEOUT_S
        with self._servers.empty_redis() as client:
            until = min(until, self._monotonic() + RUN_TIMEOUT_S)
            now, rows = self._read(workspace, extra_request, until)
            with _copy_errors():
                with translated_errors(client):
                    _write(client, rows)
                observe(client, lambda _: self._time_limit(until))
                yield WorkspaceCopy(client, ManualClock(now))

    def _read(self, workspace: str, extra_request: str, until: float) -> tuple[int, list[KeyRow]]:
        for _ in range(MAX_READS):
            requests: dict[str, _CopiedRequest] = {}
            after, ids = self._list_ids(workspace)
            ids += [extra_request] if extra_request else []
            for first in range(0, len(ids), READ_BATCH):
                with self._time_limit(until):
                    batch = json.dumps(ids[first : first + READ_BATCH])
                    _add_requests(requests, self._scripts.call("copy_requests", workspace, ids=batch))
            reply = self._scripts.call("copy_workspace", workspace, now=self._clock.now_ms(), after=after, most=MAX_CHANGES)
            if reply.tag == "copied":
                for request in requests.values():
                    request.fields.pop(
                        "victim_hold_pool", None
                    )  # this may go without an event; who has a hold is read with the holds
                _add_requests(requests, reply)
                return int(reply.fields["now"]), [*reply.fields["rows"], *_key_rows(workspace, requests, extra_request)]
        raise DryRunUnavailable("busy")

    def _list_ids(self, workspace: str) -> tuple[str, list[str]]:
        reply = self._scripts.call("list_live_ids", workspace, most=MAX_REQUESTS)
        if reply.tag == "too_many":
            message = f"{reply.fields['live']} requests wait or hold units; things can be tried out with {MAX_REQUESTS} at most"
            raise RuleViolation("too_many_requests_live", message)
        return reply.fields["last"], reply.fields["ids"]

    @contextmanager
    def _time_limit(self, until: float) -> Iterator[None]:
        if self._monotonic() > until:
            raise DryRunUnavailable("late")
        yield


@contextmanager
def _copy_errors() -> Iterator[None]:
    """Raise an error of the throwaway server as DryRunUnavailable, because it is not an error of the ledger's Redis."""
    try:
        yield
    except DryRunUnavailable:
        raise
    except StoreUnavailable as error:
        log.warning("a dry run failed: %s", error)
        raise DryRunUnavailable("late" if error.reason in ("timeout", "busy") else "lost") from error
    except RedisError as error:
        log.warning("a dry run failed: %s", error)
        raise DryRunUnavailable("lost") from error


def _add_requests(requests: dict[str, _CopiedRequest], reply: ScriptReply) -> None:
    for request, flat, *rest in reply.fields["found"]:
        requests[request] = _CopiedRequest(to_mapping(flat), *rest)


def _key_rows(workspace: str, requests: Mapping[str, _CopiedRequest], extra_request: str) -> Iterator[KeyRow]:
    """Yield the keys of the queued requests and allocations, and of the extra request."""
    copied = {
        request: record for request, record in requests.items() if record.waiting or record.live or request == extra_request
    }
    yield from ((KEYS["request"].of(workspace, request), "hash", _flat(record.fields)) for request, record in copied.items())
    lists: dict[tuple[str, str], dict[str, str]] = {}
    for request, record in copied.items():
        whole = ("requests", "", record.number), ("waiting", "", record.waiting), ("leases", "", record.live)
        of_lane = ("lane", record.lane_or_pool, record.place), ("lane_walltimes", record.lane_or_pool, record.walltime)
        of_pool = (
            ("pool_allocations", record.lane_or_pool, record.fence),
            ("pool_allocation_records", record.lane_or_pool, record.line),
            ("pool_walltime_ends", record.lane_or_pool, record.end),
        )
        for name, part, text in (*whole, *of_lane, *of_pool):
            if text:
                lists.setdefault((name, part), {})[request] = text
    for (name, part), members in lists.items():
        key = KEYS[name]
        yield key.of(workspace, *([part] if key.parameters else [])), key.type, _flat(members)


def _flat(mapping: Mapping[str, str]) -> list[str]:
    return [word for pair in mapping.items() for word in pair]


def _write(client: RedisClient, rows: Sequence[KeyRow]) -> None:
    pipe = client.pipeline(transaction=False)
    for key, kind, flat in rows:
        for first in range(0, len(flat), WRITE_CHUNK):
            values = flat[first : first + WRITE_CHUNK]
            if kind == "set":
                pipe.sadd(key, *values)
            elif kind == "hash":
                pipe.execute_command("HSET", key, *values)
            else:
                members = [word for member, score in zip(values[::2], values[1::2], strict=True) for word in (score, member)]
                pipe.execute_command("ZADD", key, *members)
    pipe.execute()
