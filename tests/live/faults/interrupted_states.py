"""The state of the server between any two calls of a client: the state that a killed client leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.connection import ConnectionPool, UnixDomainSocketConnection

from app.store.connection import RedisClient
from app.store.master_id import track_master
from tests.support.recorded_world import KeyDump, dump_keys, restore_keys


@dataclass(frozen=True)
class InterruptedState:
    """All keys of the server before a call."""

    number: int
    """Of the act that the call belongs to."""
    now_ms: int
    """The time of the client; 0 if its time does not matter."""
    keys: tuple[KeyDump, ...]

    def restore(self, client: RedisClient) -> None:
        """Replace everything on the server by these keys."""
        client.flushall()
        restore_keys(client, self.keys)


class ObservedConnection(UnixDomainSocketConnection):
    """A connection that calls a function before each call of a script."""

    def __init__(self, before_script: Callable[[], object], **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._before_script = before_script

    def send_command(self, *args: Any, **kwargs: Any) -> None:
        """Send a command."""
        if args[0] in ("EVALSHA", "EVAL"):
            self._before_script()
        super().send_command(*args, **kwargs)  # type: ignore[no-untyped-call]


class StateRecorder:
    """A recorder of what the server holds before each call of a script by `client`."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        path = client.connection_pool.connection_kwargs["path"]  # type: ignore[union-attr]
        options = {"path": path, "before_script": self.record, "decode_responses": True, "protocol": 2}
        self.client = track_master(Redis(connection_pool=ConnectionPool(connection_class=ObservedConnection, **options)))
        self.states: list[InterruptedState] = []
        self._number = self._now_ms = 0

    def begin_act(self, number: int, now_ms: int = 0) -> None:
        """Set the act that the next calls belong to, and the time of the client."""
        self._number, self._now_ms = number, now_ms

    def record(self) -> None:
        """Record what the server holds now."""
        self.states.append(InterruptedState(self._number, self._now_ms, dump_keys(self._client)))
