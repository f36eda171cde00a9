"""A copy of a workspace at one moment, on a throwaway Redis.

The copy has the same scripts and the same planner, and a clock that stands still. Nothing is written to the workspace itself.

Only the facts are copied (`workspace_reader`). The scripts of the copy build the queues anew: each waiter enters them, its lane
is parked in the same place and with the same time, and the unfinished work judges the changes.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Protocol
from weakref import WeakSet, finalize

from redis.exceptions import RedisError

from app.domain.clock import Clock, ManualClock, RedisClock
from app.domain.dry_run import RUN_TIMEOUT_S, DryRunUnavailable
from app.domain.errors import StoreUnavailable
from app.domain.ledger_limits import LedgerLimits
from app.store.connection import RedisClient, StoreMisconfigured, connect
from app.store.embedded_redis import SOCKET_FILE, SOCKET_PATH_LIMIT, EmbeddedRedis
from app.store.ledger import Ledger
from app.store.scripts import Scripts, observe, translated_errors
from app.store.workspace_reader import KeyRow, WorkspaceReader, WorkspaceRows
from app.temporary_folders import TemporaryFolder, create_folder

log = logging.getLogger(__name__)

WAIT_TIMEOUT_S = 2.0
"""The longest wait for other dry runs of this process, in seconds."""
START_TIMEOUT_S = 4.0
"""The longest start of the server, in seconds; mostly it takes a tenth of a second."""
WRITE_CHUNK = 2_000
"""The most values that one command writes."""
ENTER_BATCH = 1_000
"""The most waiters that one script queues in a copy."""
FOLDER_PURPOSE = "trial"
"""Part of the names of the servers' folders, in the directory for temporary files."""


class WorkspaceCopy(NamedTuple):
    """A copy of a workspace: its server, and its clock, which stands still."""

    client: RedisClient
    clock: ManualClock


class RedisProvider(Protocol):
    """A source of empty Redis servers."""

    def empty_redis(self) -> AbstractContextManager[RedisClient]:
        """Return a client of an empty server, as long as the context lasts. Raise DryRunUnavailable if there is none."""
        ...


class ThrowawayRedis:
    """A Redis server of this process, started at the first dry run; one dry run at a time uses it.

    It ends with the process, and is emptied after each dry run. A forked process starts its own server.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._server: EmbeddedRedis | None = None
        self._client: RedisClient | None = None
        self._finalizer: finalize[[EmbeddedRedis, TemporaryFolder, int], ThrowawayRedis] | None = None
        _INSTANCES.add(self)

    @contextmanager
    def empty_redis(self) -> Iterator[RedisClient]:
        """Yield a client of the empty server, as long as the context lasts."""
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
            except RedisError as error:  # the server has died or hangs
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
            log.warning("no dry run is possible: %s", error)
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


class WorkspaceCopier:
    """The maker of copies of workspaces on a throwaway Redis."""

    def __init__(
        self,
        client: RedisClient,
        servers: RedisProvider,
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers, self._monotonic = servers, monotonic
        self._reader = WorkspaceReader(Scripts(client), clock or RedisClock())

    @contextmanager
    def copy(self, workspace: str, extra_request: str = "") -> Iterator[WorkspaceCopy]:
        """Copy the workspace as it is now, as long as the context lasts.

        After RUN_TIMEOUT_S, calls raise DryRunUnavailable. `extra_request` is copied even if it has ended.
        """
        until = self._monotonic() + WAIT_TIMEOUT_S + RUN_TIMEOUT_S
        with self._servers.empty_redis() as client:
            until = min(until, self._monotonic() + RUN_TIMEOUT_S)
            rows = self._reader.read(workspace, extra_request, lambda: self._time_limit(until))
            with _copy_errors():
                with translated_errors(client):
                    _write(client, rows.key_rows(workspace))
                observe(client, lambda _: self._time_limit(until))
                self._rebuild_queue(client, workspace, rows)
                yield WorkspaceCopy(client, ManualClock(rows.now_ms))

    def _rebuild_queue(self, client: RedisClient, workspace: str, rows: WorkspaceRows) -> None:
        """Queue the waiters of a copy, and finish the unfinished work that this causes."""
        scripts, waiters = Scripts(client), rows.waiters()
        for first in range(0, len(waiters), ENTER_BATCH):
            batch = waiters[first : first + ENTER_BATCH]
            lanes = {lane: rows.lanes[lane] for _, lane, _ in batch}
            scripts.call("rebuild_queue", workspace, waiters=json.dumps(batch), lanes=json.dumps(list(lanes.items())))
        scripts.call("unsettle_pools", workspace, rechecked=json.dumps(rows.rechecked_pools))
        ledger = Ledger(client, ManualClock(rows.now_ms), LedgerLimits(chunk=ENTER_BATCH))
        while ledger.resume_unfinished(workspace):
            pass

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


def _write(client: RedisClient, rows: Iterable[KeyRow]) -> None:
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
