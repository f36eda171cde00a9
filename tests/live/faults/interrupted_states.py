"""What the server holds between any two calls of a story, which is what a client leaves that is killed there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.connection import ConnectionPool, UnixDomainSocketConnection

from app.store.connection import RedisClient


@dataclass(frozen=True)
class InterruptedState:
    """All keys of the server before a call, at which act of the story that was, and the time of the client."""

    number: int
    now_ms: int
    keys: tuple[tuple[str, int, bytes], ...]
    """Name, milliseconds to live (0: no end) and content as DUMP gives it."""

    def restore(self, client: RedisClient) -> None:
        """Put it back, in place of all there is."""
        pipeline = client.pipeline(transaction=False)
        pipeline.flushall()
        for name, ttl_ms, content in self.keys:
            pipeline.restore(name, ttl_ms, content)
        pipeline.execute()


class ObservedConnection(UnixDomainSocketConnection):
    """Calls a function before each call of a script."""

    def __init__(self, before_script: Callable[[], object], **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._before_script = before_script

    def send_command(self, *args: Any, **kwargs: Any) -> None:
        """Send a command."""
        if args[0] in ("EVALSHA", "EVAL"):
            self._before_script()
        super().send_command(*args, **kwargs)  # type: ignore[no-untyped-call]


class StateRecorder:
    """Records what the server holds before each call of the client it gives."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        path = client.connection_pool.connection_kwargs["path"]  # type: ignore[union-attr]
        options = {"path": path, "before_script": self.record, "decode_responses": True, "protocol": 2}
        self.client = Redis(connection_pool=ConnectionPool(connection_class=ObservedConnection, **options))
        self.states: list[InterruptedState] = []
        self._number = self._now_ms = 0

    def begin_act(self, number: int, now_ms: int = 0) -> None:
        """Note at which act of the story the next calls are."""
        self._number, self._now_ms = number, now_ms

    def record(self) -> None:
        """Record what the server holds now."""
        names: Any = self._client.keys("*")
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            pipeline.pttl(name)
            pipeline.dump(name)
        answers = pipeline.execute()
        keys = tuple((name, max(answers[2 * place], 0), answers[2 * place + 1]) for place, name in enumerate(names))
        self.states.append(InterruptedState(self._number, self._now_ms, keys))
