"""Nudges: a script that leaves work for the planner triggers a reconcile at once, without waiting for the next tick.

The script (`lua/lib/nudges.lua`) sets the key `nudge`, and publishes on the channel `nudged` if the key did not exist. The key
is

1. `pending` until a listener claims it
2. `sent` until a reconcile begins, which deletes it; a later nudge is for the next one
3. `missed` if the reconcile found the job lock taken; then the process with the lock reconciles once more
4. `suppressed` after a failed reconcile; until the next tick none is triggered

A nudge may be lost at any point: the key lapses, and ticks come anyway.
"""

from __future__ import annotations

import math
from collections import deque
from types import TracebackType
from typing import Any, Literal, cast

from redis.connection import ConnectionInterface

from app.domain.clock import Clock, RedisClock
from app.store.change_notifications import QUIET_TIMEOUT_S, ChangeNotifications, ChangeWatch
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.scripts import Scripts

BeginOutcome = Literal["begun", "idle", "held", "seen"]
PassTrigger = Literal["tick", "shares", "nudge", "missed"]
PassResult = Literal["nothing", "more", "failed"]

RECONCILE_JOB = "reconcile"
"""The job whose lock prevents two reconciles of one workspace at a time."""


class Nudges:
    """Claims of nudges, and the locked reconciles, in any workspace."""

    def __init__(self, client: RedisClient, clock: Clock | None = None) -> None:
        self._client, self._scripts, self._clock = client, Scripts(client), clock or RedisClock()

    def claim_nudge(self, workspace: str) -> float | None:
        """Claim the nudge; return the seconds to wait before the reconcile. None if there is no nudge, or another process has
        it."""
        reply = self._scripts.call("claim_nudge", workspace, now=self._clock.now_ms())
        return int(reply.fields["wait_ms"]) / 1000 if reply.tag == "claimed" else None

    def begin_reconcile(self, workspace: str, token: str, lock_s: float, why: PassTrigger = "tick") -> BeginOutcome:
        """Take the job lock for a reconcile, if there is work that no other reconcile has seen."""
        reply = self._scripts.call("begin_reconcile", workspace, token=token, ttl_ms=_ms(lock_s), why=why)
        return cast(BeginOutcome, reply.tag)

    def extend_lock(self, workspace: str, token: str, lock_s: float) -> bool:
        """Extend the job lock during a reconcile. Return False if another process has it."""
        return self._scripts.call("take_job_lock", workspace, job=RECONCILE_JOB, token=token, ttl_ms=_ms(lock_s)).tag == "taken"

    def finish_reconcile(
        self, workspace: str, token: str, then: str | None, lock_s: float, took_s: float, result: PassResult
    ) -> bool:
        """End a reconcile. Return True if the next one begins now, under the token `then`."""
        args = {"token": token, "next": then, "ttl_ms": _ms(lock_s), "took_ms": _ms(took_s), "found": result}
        return self._scripts.call("finish_reconcile", workspace, **args).tag == "again"

    def subscribe(self, quiet_s: float = QUIET_TIMEOUT_S) -> ChannelSubscription:
        """Return a subscription to the nudges of all workspaces; it connects when its context begins."""
        return ChannelSubscription(self._client, key("nudged", "*"), quiet_s)


class ChannelSubscription:
    """A subscription to one channel of every workspace, as long as its context lasts.

    Messages during a broken connection are lost. The channel is given as its key in a workspace called `*`.
    """

    def __init__(self, client: RedisClient, channel: str, quiet_s: float) -> None:
        self._before, self._after = channel.split("*")
        self._recorder = _ChannelRecorder(client, quiet_s)
        self._watch = ChangeWatch(self._recorder, channel + "*")  # the star at the end marks a pattern

    def __enter__(self) -> ChannelSubscription:
        self._watch.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def wait(self, timeout_s: float) -> set[str]:
        """Wait for messages. Return the workspaces with a message since the last wait; none on timeout or close."""
        self._watch.wait(timeout_s)
        workspaces = set()
        while self._recorder.channels:
            channel = self._recorder.channels.popleft()
            if channel.endswith(self._after):
                workspaces.add(channel.removeprefix(self._before).removesuffix(self._after))
        return workspaces

    def close(self) -> None:
        """End the subscription and wake its waits."""
        self._recorder.close()


class _ChannelRecorder(ChangeNotifications):
    """A subscription that also records the channel of each message, before it wakes a watch."""

    def __init__(self, client: RedisClient, quiet_s: float) -> None:
        super().__init__(client, quiet_s)
        self.channels: deque[str] = deque()

    def _read_message(self, connection: ConnectionInterface) -> None:
        super()._read_message(cast(ConnectionInterface, _RecordingConnection(connection, self.channels)))


class _RecordingConnection:
    """A connection that records its messages as they are read."""

    def __init__(self, connection: ConnectionInterface, channels: deque[str]) -> None:
        self._connection, self._channels = connection, channels

    def read_response(self, **options: Any) -> Any:
        message = self._connection.read_response(**options)
        if message[0] == "pmessage":
            self._channels.append(message[2])
        return message


def _ms(seconds: float) -> int:
    return math.ceil(seconds * 1000)
