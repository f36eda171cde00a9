"""Being told of changes: one subscription a process, on which everybody waits who waits for a request or for events.

Scripts say every transition on a channel of its request (`changed` in `keys`). A process has one connection for all its
watchers and one thread that reads it. The thread alone connects and reads; others only write to it, under the lock: a
SUBSCRIBE when the first watcher of a channel comes, an UNSUBSCRIBE when the last one goes.

What is said while nobody listens is gone, so a watcher first watches, then looks, then waits, and looks again now and then:

- the subscription has been acknowledged when a watch begins, so that what comes after the look is heard. Answers come in the
  order of the questions, which is how an answer finds its own
- after a broken connection everything is subscribed again, and whoever watched meanwhile is woken when that is acknowledged
- a connection on which nothing is heard is asked for a sign of life, and given up if none comes
- with Redis away, or a user who may not subscribe, a watch begins all the same, and hears nothing
"""

from __future__ import annotations

import logging
import time
from collections import deque
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

log = logging.getLogger(__name__)

CLIENT_NAME = "poolkeeper-wakeups"
"""What the connection is called in the server's list of clients."""
QUIET_TIMEOUT_S = 7.0
"""How long nothing is heard before a sign of life is asked for, and then how long is waited for it."""
SUBSCRIBE_TIMEOUT_S = 1.0
"""How long a watch waits for its subscription, at most."""
READ_TIMEOUT_S = 0.2
"""How long the lock is held for the rest of something that has begun to arrive, at a time."""
STABLE_AFTER_S = 1.0
"""How long a connection has to last for the next one to be tried at once."""
RECONNECT_DELAYS_S = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Between tries to connect; the last one over and over."""


class ChangeWatch:
    """Somebody who waits, for as long as the context; nothing is heard before and after it."""

    def __init__(self, notifications: ChangeNotifications, topic: str) -> None:
        self.topic = topic
        self._notifications = notifications
        self._notified = Event()

    def __enter__(self) -> ChangeWatch:
        try:
            self._notifications._add_watch(self)
        except BaseException:  # an interrupted beginning has no end
            self._notifications._remove_watch(self)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._notifications._remove_watch(self)

    @property
    def closed(self) -> bool:
        """Whether nothing will be said any more, as the process is about to end."""
        return self._notifications.closing

    def wait(self, timeout_s: float) -> bool:
        """True as soon as something was said since the last wait, or all is closed; False when the time is up."""
        is_notified = self.closed or self._notified.wait(timeout_s)
        if is_notified:
            self._notified.clear()
        return is_notified or self.closed

    def notify(self) -> None:
        """Something was said."""
        self._notified.set()


@dataclass(eq=False, slots=True)
class _Subscription:
    """A channel or a pattern of channels, and who watches it. `again`: something may have been missed."""

    topic: str
    watches: set[ChangeWatch] = field(default_factory=set)
    acknowledged: Event = field(default_factory=Event)
    may_have_missed: bool = False

    def notify(self) -> None:
        for watch in self.watches:
            watch.notify()


class _SentCommand(NamedTuple):
    """What is sent, for whom if it is to subscribe, and when."""

    words: tuple[str, ...]
    subscription: _Subscription | None
    sent_at_s: float


class ChangeNotifications:
    """The one subscription of a process; it connects when the first watch begins, so that a process may fork before."""

    def __init__(self, client: RedisClient, quiet_s: float = QUIET_TIMEOUT_S) -> None:
        self._client, self._quiet_s = client, quiet_s
        self._lock = RLock()  # close may be called by a signal, between any two steps of a thread
        self._subscriptions: dict[str, _Subscription] = {}
        self._pending: deque[_SentCommand] = deque()
        self._connection: ConnectionInterface | None = None
        self._thread: Thread | None = None
        self._closing, self._closed = False, Event()
        self._is_refused = False

    def watch(self, workspace: str, request: str | None = None) -> ChangeWatch:
        """To be told of the changes of a request, or of every request of the workspace."""
        return ChangeWatch(self, key("changed", workspace, request or "*"))

    @property
    def closing(self) -> bool:
        """Whether it has been closed."""
        return self._closing

    def close(self) -> None:
        """Wake everybody for good, and have the thread end; waits for nobody, and a second time does nothing."""
        if self._closing:
            return
        self._closing = True
        self._closed.set()
        with self._lock:
            for subscription in self._subscriptions.values():
                subscription.acknowledged.set()
                subscription.notify()
            self._send(_command("PING"))  # its answer wakes the thread

    # for those who watch

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
        """Write to the connection, if there is one; if it breaks, the thread finds out by itself."""
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
            except Exception as error:  # whatever it is: without this thread nobody would hear anything any more
                failures = 1 if time.monotonic() - started_s > STABLE_AFTER_S else failures + 1
                log.log(logging.WARNING if failures == 1 else logging.DEBUG, "nothing is heard of changes: %s", error)

    def _run_connection(self, failures: int) -> None:
        """Connect, subscribe, and hear what is said until all is closed; what breaks on the way is raised."""
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
        """A connection of its own, such as those of the client are."""
        node: Any = self._client
        if isinstance(node, RedisCluster):  # any node will do: what is said to one is said by all
            default = node.get_default_node()  # type: ignore[no-untyped-call]
            nodes = [default, *(other for other in node.get_nodes() if other is not default)]  # type: ignore[no-untyped-call]
            node = node.get_redis_connection(nodes[failures % len(nodes)])
        pool = node.connection_pool
        timeouts = {"socket_timeout": self._quiet_s, "retry": Retry(NoBackoff(), 0), "health_check_interval": 0}
        protocol = {"decode_responses": True, "protocol": 2, "client_name": CLIENT_NAME}
        connection: ConnectionInterface = pool.connection_class(**pool.connection_kwargs | timeouts | protocol)
        return connection

    def _reset(self) -> None:
        """The connection is gone, and everything is to be subscribed again."""
        self._connection = None
        self._pending.clear()
        for subscription in self._subscriptions.values():
            subscription.may_have_missed = True
            if not self.closing:
                subscription.acknowledged.clear()

    def _read_message(self, connection: ConnectionInterface) -> None:
        """One thing that is said. Read under the lock, as a connection with TLS must not be read and written at once."""
        with self._lock:
            try:
                message = connection.read_response(timeout=READ_TIMEOUT_S, disconnect_on_error=False)
            except errors.TimeoutError:
                return  # the rest of it is still to come
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
