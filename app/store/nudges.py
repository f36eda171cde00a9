"""Nudges: who leaves work for a decision behind says so, a worker hears it, and one of them looks at once.

A script that leaves such work asks (`lua/lib/nudges.lua`): it sets the key `nudge`, and says so on the channel `nudged` if the
key was not there. The key is

1. `asked` until one of those who listen claims it
2. `sent` until somebody begins to look, which deletes it: what is asked after that is for the next look
3. `missed` if who was sent found the lease taken: then the holder of the lease looks once more, for both
4. `hushed` when a look has failed: until the next tick nobody is sent

What is said and not heard, claimed and not sent, or sent and not done is no loss: the key lapses, and ticks come anyway.
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
"""Whose lease it is that keeps two from looking at one workspace."""


class Nudges:
    """What is asked, claimed and done about, in any workspace."""

    def __init__(self, client: RedisClient, clock: Clock | None = None) -> None:
        self._client, self._scripts, self._clock = client, Scripts(client), clock or RedisClock()

    def claim(self, workspace: str) -> float | None:
        """Be the one who sends a worker, after so many seconds; None if nobody is asked for, or another has claimed it."""
        reply = self._scripts.call("claim_nudge", workspace, now=self._clock.now_ms())
        return int(reply.fields["wait_ms"]) / 1000 if reply.tag == "claimed" else None

    def begin_pass(self, workspace: str, token: str, lease_s: float, why: PassTrigger = "tick") -> BeginOutcome:
        """Take the lease and begin to look, if there is anything to look at, and it has not been seen by others."""
        reply = self._scripts.call("begin_reconcile", workspace, token=token, ttl_ms=_ms(lease_s), why=why)
        return cast(BeginOutcome, reply.tag)

    def extend_lock(self, workspace: str, token: str, lease_s: float) -> bool:
        """Keep the lease while looking; False if another has it."""
        return (
            self._scripts.call("take_job_lock", workspace, task=RECONCILE_JOB, token=token, ttl_ms=_ms(lease_s)).tag == "taken"
        )

    def finish_pass(
        self, workspace: str, token: str, then: str | None, lease_s: float, took_s: float, result: PassResult
    ) -> bool:
        """The end of a look; True if the next one is to begin now, under the token `then`."""
        args = {"token": token, "next": then, "ttl_ms": _ms(lease_s), "took_ms": _ms(took_s), "found": result}
        return self._scripts.call("finish_reconcile", workspace, **args).tag == "again"

    def subscribe(self, quiet_s: float = QUIET_TIMEOUT_S) -> ChannelSubscription:
        """To hear who is nudged; the connection is made when the context begins."""
        return ChannelSubscription(self._client, key("nudged", "*"), quiet_s)


class ChannelSubscription:
    """Hears one channel of every workspace, for as long as the context; what is said while the connection is broken is not
    heard. The channel is given as its key in a workspace called `*`."""

    def __init__(self, client: RedisClient, channel: str, quiet_s: float) -> None:
        self._before, self._after = channel.split("*")
        self._wakeups = _ChannelRecorder(client, quiet_s)
        self._watch = ChangeWatch(self._wakeups, channel + "*")  # a pattern is known by its last sign

    def __enter__(self) -> ChannelSubscription:
        self._watch.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def wait(self, timeout_s: float) -> set[str]:
        """The workspaces nudged since the last wait, as soon as there are any; none when time is up, or all is closed."""
        self._watch.wait(timeout_s)
        heard = set()
        while self._wakeups.channels:
            channel = self._wakeups.channels.popleft()
            if channel.endswith(self._after):
                heard.add(channel.removeprefix(self._before).removesuffix(self._after))
        return heard

    def close(self) -> None:
        """Nothing is heard any more; who waits is woken."""
        self._wakeups.close()


class _ChannelRecorder(ChangeNotifications):
    """A subscription that also notes on which channel something was said, before it wakes anybody."""

    def __init__(self, client: RedisClient, quiet_s: float) -> None:
        super().__init__(client, quiet_s)
        self.channels: deque[str] = deque()

    def _hear(self, connection: ConnectionInterface) -> None:
        super()._read_message(cast(ConnectionInterface, _RecordingConnection(connection, self.channels)))


class _RecordingConnection:
    """A connection whose messages are noted as they are read."""

    def __init__(self, connection: ConnectionInterface, notes: deque[str]) -> None:
        self._connection, self._notes = connection, notes

    def read_response(self, **how: Any) -> Any:
        said = self._connection.read_response(**how)
        if said[0] == "pmessage":
            self._notes.append(said[2])
        return said


def _ms(seconds: float) -> int:
    return math.ceil(seconds * 1000)
