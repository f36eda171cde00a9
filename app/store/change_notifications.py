"""Notifications of changed requests: one subscription a process, shared by every long poll and event stream.

Scripts publish every transition on a channel of its request (`changed` in `keys`). A process has one connection for all its
watches and one thread that reads it. The thread alone connects and reads. Other threads only write, under the lock: a SUBSCRIBE
for the first watch of a channel, an UNSUBSCRIBE after the last one.

Redis does not keep messages. So a caller first opens a watch, then reads the request, then waits, and reads again now and then:

- A watch begins when its subscription is acknowledged, so that no later message is missed. Replies come in the order of the
  commands, so each reply belongs to the oldest pending command.
- After a broken connection every channel is subscribed again. The acknowledgement wakes the watches that may have missed a
  message.
- A silent connection is sent a PING, and is closed if no reply comes.
- If another server may be the master, the connection is dropped at once.
- If Redis is unavailable, or the user may not subscribe, a watch begins all the same, and gets no message.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, RLock, Thread
from types import TracebackType
from typing import Any, NamedTuple

import redis.exceptions as errors
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.connection import ConnectionInterface
from redis.retry import Retry

from app.store.connection import RedisClient
from app.store.keys import key
from app.store.master_id import tracker_of

log = logging.getLogger(__name__)

CLIENT_NAME = "poolkeeper-wakeups"
"""The name of the connection in CLIENT LIST."""
QUIET_TIMEOUT_S = 7.0
"""Seconds of silence after which a PING is sent, and then the seconds allowed for its reply."""
SUBSCRIBE_TIMEOUT_S = 1.0
"""The longest wait of a new watch for its subscription, in seconds."""
READ_TIMEOUT_S = 0.2
"""The longest time in seconds that the lock is held for the rest of a message that has begun to arrive."""
STABLE_AFTER_S = 1.0
"""The age in seconds from which a broken connection is replaced at once."""
RECONNECT_DELAYS_S = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The pauses in seconds between attempts to connect; the last one repeats."""


class ChangeWatch:
    """A watch of one channel, as long as its context lasts."""

    def __init__(self, notifications: ChangeNotifications, topic: str) -> None:
        self.topic = topic
        self._notifications = notifications
        self._notified = Event()

    def __enter__(self) -> ChangeWatch:
        try:
            self._notifications._add_watch(self)
        except BaseException:  # __exit__ is not called after an interrupted __enter__
            self._notifications._remove_watch(self)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._notifications._remove_watch(self)

    @property
    def closed(self) -> bool:
        """True if the notifications are closed, because the process is about to end."""
        return self._notifications.closing

    def wait(self, timeout_s: float) -> bool:
        """Wait for a message since the last wait. Return True if one came, or if the notifications are closed; False on
        timeout."""
        is_notified = self.closed or self._notified.wait(timeout_s)
        if is_notified:
            self._notified.clear()
        return is_notified or self.closed

    def notify(self) -> None:
        """Wake the wait."""
        self._notified.set()


@dataclass(eq=False, slots=True)
class _Subscription:
    """A channel, or a pattern of channels, and its watches. `may_have_missed`: the connection broke meanwhile."""

    topic: str
    watches: set[ChangeWatch] = field(default_factory=set)
    acknowledged: Event = field(default_factory=Event)
    may_have_missed: bool = False

    def notify(self) -> None:
        for watch in self.watches:
            watch.notify()


class _SentCommand(NamedTuple):
    """A command without a reply so far, its subscription if it is a SUBSCRIBE, and when it was sent."""

    words: tuple[str, ...]
    subscription: _Subscription | None
    sent_at_s: float


class ChangeNotifications:
    """The one subscriber of a process. It connects when the first watch begins, so that a process may fork before."""

    def __init__(self, client: RedisClient, quiet_s: float = QUIET_TIMEOUT_S) -> None:
        self._client, self._quiet_s = client, quiet_s
        self._lock = RLock()  # reentrant: a signal may call close between any two steps of a thread
        self._subscriptions: dict[str, _Subscription] = {}
        self._pending: deque[_SentCommand] = deque()
        self._connection: ConnectionInterface | None = None
        self._thread: Thread | None = None
        self._closing, self._closed = False, Event()
        self._is_refused = False

    def watch(self, workspace: str, request: str | None = None) -> ChangeWatch:
        """Return a watch of a request, or of every request of the workspace."""
        return ChangeWatch(self, key("changed", workspace, request or "*"))

    @property
    def closing(self) -> bool:
        """True if `close` was called."""
        return self._closing

    def close(self) -> None:
        """Wake every watch for good and end the thread. Does not block; a second call does nothing."""
        if self._closing:
            return
        self._closing = True
        self._closed.set()
        with self._lock:
            for subscription in self._subscriptions.values():
                subscription.acknowledged.set()
                subscription.notify()
            self._send(_command("PING"))  # the reply wakes the thread

    def reconnect(self) -> None:
        """Drop the connection, because another server may be the master now. The thread connects anew."""
        with self._lock:
            sock: socket.socket | None = getattr(self._connection, "_sock", None)
            if sock:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)  # wakes the thread, which reads an end

    # for watches

    def _add_watch(self, watch: ChangeWatch) -> None:
        with self._lock:
            if self.closing:
                return
            subscription = self._subscriptions.get(watch.topic)
            if subscription is None:
                subscription = self._subscriptions[watch.topic] = _Subscription(watch.topic)
                self._send(_subscribe(subscription))
            subscription.watches.add(watch)
            if self._thread is None:
                thread = Thread(target=self._run, name="wakeups", daemon=True)
                thread.start()
                self._thread = thread
        if not subscription.acknowledged.wait(SUBSCRIBE_TIMEOUT_S):
            subscription.may_have_missed = True

    def _remove_watch(self, watch: ChangeWatch) -> None:
        with self._lock:
            subscription = self._subscriptions.get(watch.topic)
            if subscription is None:
                return
            subscription.watches.discard(watch)
            if not subscription.watches:
                del self._subscriptions[watch.topic]
                self._send(_command(_channel_command("UNSUBSCRIBE", watch.topic), watch.topic))

    def _send(self, *questions: _SentCommand) -> None:
        """Write to the connection, if there is one. If it is broken, the thread notices by itself."""
        if self._connection is None or not questions:
            return
        self._pending.extend(questions)
        try:
            words = self._connection.pack_commands([question.words for question in questions])  # type: ignore[no-untyped-call]
            self._connection.send_packed_command(words, check_health=False)  # type: ignore[no-untyped-call]
        except (errors.RedisError, OSError):
            self._connection = None

    # the thread

    def _run(self) -> None:
        failures = 0
        while not self._closed.wait(RECONNECT_DELAYS_S[min(failures, len(RECONNECT_DELAYS_S) - 1)]):
            started_s = time.monotonic()
            try:
                self._run_connection(failures)
            except Exception as error:  # any error: without this thread no notification would arrive any more
                failures = 1 if time.monotonic() - started_s > STABLE_AFTER_S else failures + 1
                log.log(logging.WARNING if failures == 1 else logging.DEBUG, "nothing is heard of changes: %s", error)

    def _run_connection(self, failures: int) -> None:
        """Connect, subscribe and read messages until `close`. Raise any error of the connection."""
        connection = self._new_connection(failures)
        try:
            connection.connect()  # type: ignore[no-untyped-call]
            with self._lock:
                self._connection = connection
                self._send(*map(_subscribe, self._subscriptions.values()))
            while not self.closing:
                if connection.can_read(self._quiet_s):
                    self._read_message(connection)
                else:
                    self._ping()
        finally:
            with self._lock:
                self._reset()
            connection.disconnect()  # type: ignore[no-untyped-call]

    def _new_connection(self, failures: int) -> ConnectionInterface:
        """Return a new connection with the options of the client's pool."""
        tracker_of(self._client).subscribers.add(self)
        node: Any = self._client
        if isinstance(node, RedisCluster):  # any node will do: a message published on one is sent by all
            default = node.get_default_node()  # type: ignore[no-untyped-call]
            nodes = [default, *(other for other in node.get_nodes() if other is not default)]  # type: ignore[no-untyped-call]
            node = node.get_redis_connection(nodes[failures % len(nodes)])
        pool = node.connection_pool
        timeouts = {"socket_timeout": self._quiet_s, "retry": Retry(NoBackoff(), 0), "health_check_interval": 0}
        protocol = {"decode_responses": True, "protocol": 2, "client_name": CLIENT_NAME}
        connection: ConnectionInterface = pool.connection_class(**pool.connection_kwargs | timeouts | protocol)
        return connection

    def _reset(self) -> None:
        """Forget the connection; every channel has to be subscribed again."""
        self._connection = None
        self._pending.clear()
        for subscription in self._subscriptions.values():
            subscription.may_have_missed = True
            if not self.closing:
                subscription.acknowledged.clear()

    def _read_message(self, connection: ConnectionInterface) -> None:
        """Read one message. Under the lock, because a TLS connection must not be read and written at once."""
        with self._lock:
            try:
                message = connection.read_response(timeout=READ_TIMEOUT_S, disconnect_on_error=False)
            except errors.TimeoutError:
                return  # the rest of the message is still to come
            except errors.ResponseError as error:
                log.log(logging.DEBUG if self._is_refused else logging.WARNING, "nothing is heard of changes: %s", error)
                self._is_refused, message = True, ["refused"]
            if message[0] not in ("message", "pmessage"):
                self._acknowledge(self._pending.popleft().subscription)
            elif subscription := self._subscriptions.get(message[1]):
                subscription.notify()

    def _acknowledge(self, subscription: _Subscription | None) -> None:
        if subscription:
            subscription.acknowledged.set()
            if subscription.may_have_missed:
                subscription.may_have_missed = False
                subscription.notify()

    def _ping(self) -> None:
        with self._lock:
            if self._connection is None or (self._pending and self._pending[0].sent_at_s <= time.monotonic() - self._quiet_s):
                raise errors.ConnectionError("the connection has gone silent")
            if not self._pending:
                self._send(_command("PING"))


def _command(*words: str, subscription: _Subscription | None = None) -> _SentCommand:
    return _SentCommand(words, subscription, time.monotonic())


def _subscribe(subscription: _Subscription) -> _SentCommand:
    return _command(_channel_command("SUBSCRIBE", subscription.topic), subscription.topic, subscription=subscription)


def _channel_command(word: str, topic: str) -> str:
    return f"P{word}" if topic.endswith("*") else word
