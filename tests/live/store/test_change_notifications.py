"""A watcher is notified at once, only of the requests that it watches, and misses no change between its read and its wait."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Queue
from typing import Any

import pytest
from redis.cluster import RedisCluster

from app.domain.models import Request
from app.store import change_notifications as module
from app.store.change_notifications import ChangeNotifications, ChangeWatch
from app.store.connection import RedisClient
from app.store.keys import key
from tests.support.backends import wait_until
from tests.support.servers import Servers
from tests.support.world import World

SERVERS = ("embedded", "redis", "cluster")
"""Not the fake: what is under test is a connection, and the fake has none."""
LONG_S = 20.0
"""For what must happen; a test that works waits a few milliseconds of it."""
SHORT_S = 0.2
"""For what must not happen."""


@pytest.fixture(params=SERVERS)
def client(request: pytest.FixtureRequest, servers: Servers) -> RedisClient:
    return servers.client(request.param)


@pytest.fixture
def world(client: RedisClient) -> World:
    world = World(client)
    world.pool(gpu=1)
    world.policy()
    return world


@pytest.fixture
def wakeups(client: RedisClient) -> Iterator[ChangeNotifications]:
    wakeups = ChangeNotifications(client)
    yield wakeups
    wakeups.close()


def channels(client: RedisClient) -> dict[str, int]:
    """Return the subscriptions of the server, by channel, and the number of patterns."""
    node: Any = client
    if isinstance(client, RedisCluster):
        node = client.get_redis_connection(client.get_default_node())  # type: ignore[no-untyped-call]
    names = node.execute_command("PUBSUB", "CHANNELS", "pk:*")
    counts = node.execute_command("PUBSUB", "NUMSUB", *names) if names else []
    subscribers = dict(counts) if counts and isinstance(counts[0], tuple) else dict(zip(counts[::2], counts[1::2], strict=True))
    return subscribers | {"patterns": node.execute_command("PUBSUB", "NUMPAT")}


def test_no_thread_and_no_connection_before_the_first_watch(client: RedisClient) -> None:
    before = set(threading.enumerate())
    wakeups = ChangeNotifications(client)
    watch = wakeups.watch("test", "r")
    assert (set(threading.enumerate()) - before, channels(client)) == (set(), {"patterns": 0})
    with watch, wakeups.watch("test", "other"):
        (thread,) = set(threading.enumerate()) - before
        assert channels(client) == {key("changed", "test", "r"): 1, key("changed", "test", "other"): 1, "patterns": 0}
    wakeups.close()
    wait_until(lambda: not thread.is_alive(), "the thread has ended")


def test_every_transition_is_said_on_the_channel_of_its_request(client: RedisClient, world: World) -> None:
    node: Any = client
    if isinstance(client, RedisCluster):
        node = client.get_redis_connection(client.get_default_node())  # type: ignore[no-untyped-call]
    with node.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.psubscribe("pk:*")
        pubsub.get_message(timeout=LONG_S)
        allocation, waits = world.submit(gpu=1), world.submit(gpu=1)
        world.release(allocation)
        world.drop(waits)
        messages = [pubsub.get_message(timeout=LONG_S) for _ in range(6)]
        assert pubsub.get_message(timeout=SHORT_S) is None
    of = {key("changed", "test", request.id): name for request, name in ((allocation, "held"), (waits, "waits"))}
    of[key("nudged", "test")] = "a worker"
    assert [(of[message["channel"]], message["data"]) for message in messages] == [
        ("held", "allocated"), ("waits", "queued"), ("a worker", ""),
        ("held", "released"), ("waits", "allocated"), ("waits", "released"),
    ]  # fmt: skip


def test_a_change_wakes_the_watchers_of_its_request_or_workspace_only(world: World, wakeups: ChangeNotifications) -> None:
    allocation, waits, other = (world.submit(gpu=1) for _ in range(3))
    with (
        wakeups.watch("test", waits.id) as mine,
        wakeups.watch("test", other.id) as other_watch,
        wakeups.watch("test") as whole,
        wakeups.watch("tes") as elsewhere,
    ):
        world.release(allocation)
        assert mine.wait(LONG_S)
        assert whole.wait(LONG_S)
        assert not other_watch.wait(SHORT_S)
        assert not elsewhere.wait(0)
        assert not mine.wait(SHORT_S), "one change wakes once"


def test_what_was_said_before_the_wait_is_not_lost(world: World, wakeups: ChangeNotifications) -> None:
    request = world.submit(gpu=1)
    with wakeups.watch("test", request.id) as watch, wakeups.watch("test") as whole:
        world.release(request)
        assert whole.wait(LONG_S)
        assert not whole.wait(0)
        assert watch.wait(0), "it came with what woke the other"


def test_watchers_of_one_request_share_its_subscription(
    client: RedisClient, world: World, wakeups: ChangeNotifications
) -> None:
    request = world.submit(gpu=1)
    channel = key("changed", "test", request.id)
    with wakeups.watch("test", request.id) as first:
        with wakeups.watch("test", request.id) as second:
            assert channels(client)[channel] == 1
        wait_until(lambda: channels(client)[channel] == 1, "one still watches")
        world.release(request)
        assert first.wait(LONG_S)
        assert not second.wait(0), "a closed watch hears nothing"
    wait_until(lambda: channels(client) == {"patterns": 0}, "no watch is left")


def test_a_closed_watch_is_forgotten(wakeups: ChangeNotifications, world: World) -> None:
    request = world.submit(gpu=1)

    def visit() -> weakref.ref[ChangeWatch]:
        with wakeups.watch("test", request.id) as watch, wakeups.watch("test"):
            return weakref.ref(watch)

    references = [visit() for _ in range(100)]
    gc.collect()
    assert [watch() for watch in references] == [None] * 100


def test_only_one_of_three_hundred_wakes(world: World, wakeups: ChangeNotifications) -> None:
    first, *waiting = [world.submit(gpu=1) for _ in range(301)]
    ready, woken = threading.Barrier(301), threading.Event()

    def watch(request: Request) -> bool:
        with wakeups.watch("test", request.id) as watch:
            ready.wait(LONG_S)
            if request is not waiting[0]:
                return watch.wait(1)
            is_changed = watch.wait(LONG_S)
            woken.set()
            return is_changed

    with ThreadPoolExecutor(300) as pool:
        answers = [pool.submit(watch, request) for request in waiting]
        ready.wait(LONG_S)
        world.release(first)
        assert woken.wait(SHORT_S), "it came while the others were still waiting"
        assert [answer.result(LONG_S) for answer in answers] == [True] + [False] * 299
    assert world.status(*waiting[:2]) == ["allocated", "queued"]


def test_a_change_at_any_moment_is_seen(client: RedisClient, world: World, wakeups: ChangeNotifications) -> None:
    """Watch, look, wait against a change that comes anywhere between; a wait that hears nothing fails the test."""

    def watcher(request: Request) -> str:
        with wakeups.watch("test", request.id) as watch:
            while (status := str(world.get(request).status)) == "queued":
                assert watch.wait(LONG_S), "a change was missed"
            return status

    def changer(request: Request, pause_s: float) -> None:
        time.sleep(pause_s)
        World(client).cancel(request)

    holder = world.submit(gpu=1)
    with ThreadPoolExecutor(8) as pool:
        for turn in range(100):
            request = world.submit(gpu=1)
            futures = [pool.submit(watcher, request) for _ in range(3)]
            change = pool.submit(changer, request, turn * 2e-5)
            assert [other.result(LONG_S) for other in futures] == ["cancelled"] * 3
            change.result(LONG_S)
    assert world.status(holder) == ["allocated"]


def test_channels_that_come_and_go_are_heard_when_it_counts(world: World, wakeups: ChangeNotifications) -> None:
    # Many threads begin and end watches of the same few requests, so that SUBSCRIBE and UNSUBSCRIBE overtake each other.
    world.update_pool(gpu=1000)
    requests = [world.submit(gpu=1) for _ in range(4)]
    stop = threading.Event()

    def visitor(number: int) -> None:
        while not stop.is_set():
            with wakeups.watch("test", requests[number % 4].id):
                pass

    with ThreadPoolExecutor(8) as pool:
        visitors = [pool.submit(visitor, number) for number in range(4)]
        for request in requests:
            for _ in range(50):
                with wakeups.watch("test", request.id):
                    pass
            with wakeups.watch("test", request.id) as watch:
                assert world.status(request) == ["allocated"]
                world.release(request)
                assert watch.wait(LONG_S)
        stop.set()
        for each in visitors:
            each.result(LONG_S)


def test_close_ends_every_watch(client: RedisClient) -> None:
    wakeups = ChangeNotifications(client)
    entered, answers = threading.Barrier(11), []

    def watch(number: int) -> None:
        with wakeups.watch("test", f"r{number}") as watch:
            entered.wait(LONG_S)
            answers.append((watch.wait(LONG_S), watch.wait(LONG_S), watch.closed))

    threads = [threading.Thread(target=watch, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    entered.wait(LONG_S)
    started_s = time.monotonic()
    wakeups.close()
    for thread in threads:
        thread.join(LONG_S)
    assert answers == [(True, True, True)] * 10
    with wakeups.watch("test", "late") as late:
        assert (late.wait(LONG_S), late.closed, wakeups.closing) == (True, True, True)
    assert time.monotonic() - started_s < LONG_S
    wait_until(lambda: channels(client) == {"patterns": 0}, "the connection is closed")


def test_a_redis_user_without_pubsub_rights_can_write(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SUBSCRIBE_TIMEOUT_S", LONG_S)
    client = servers.client("redis")
    allowed = key("changed", "heard", "r")
    client.acl_setuser(
        "mute", enabled=True, nopass=True, keys=["pk:*"], categories=["+@all"], reset_channels=True, channels=[allowed]
    )
    path = client.connection_pool.connection_kwargs["path"]  # type: ignore[union-attr]
    try:
        with type(client)(unix_socket_path=path, username="mute", password="", protocol=2, decode_responses=True) as mute:
            world = World(mute)
            world.pool(gpu=1)
            world.policy()
            request, wakeups = world.submit(gpu=1), ChangeNotifications(mute)
            with wakeups.watch("test", request.id) as watch, wakeups.watch("test") as whole:
                world.release(request)
                assert (watch.wait(SHORT_S), whole.wait(0), world.status(request)) == (False, False, ["released"])
                started_s = time.monotonic()
                with wakeups.watch("heard", "r") as change_watch:
                    assert time.monotonic() - started_s < LONG_S / 2, "a refusal is an answer, and the next answer is another's"
                    client.publish(allowed, "queued")
                    assert change_watch.wait(LONG_S)
            wakeups.close()
    finally:
        client.acl_deluser("mute")


# ---- moments that a server does not wait for


class Scripted:
    """A connection whose answers come when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, ...]] = []
        self._answers: Queue[list[str]] = Queue()
        self._next: list[list[str]] = []

    def answer(self, *words: str) -> None:
        self._answers.put([*words])

    def connect(self) -> None:
        pass

    def disconnect(self) -> None:
        pass

    def pack_commands(self, commands: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        return commands

    def send_packed_command(self, commands: list[tuple[str, ...]], check_health: bool) -> None:
        assert not check_health
        self.sent += commands

    def can_read(self, timeout: float) -> bool:
        try:
            self._next.append(self._answers.get(timeout=timeout))
        except Empty:
            return False
        return True

    def read_response(self, timeout: float, disconnect_on_error: bool) -> list[str]:
        assert not disconnect_on_error
        return self._next.pop()


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ChangeNotifications, Scripted]]:
    """Yield notifications that wait long for their subscriptions, on a scripted connection."""
    connection = Scripted()
    monkeypatch.setattr(ChangeNotifications, "_new_connection", lambda *_: connection)
    monkeypatch.setattr(module, "SUBSCRIBE_TIMEOUT_S", LONG_S)
    wakeups = ChangeNotifications(None)  # type: ignore[arg-type]
    yield wakeups, connection
    wakeups.close()
    connection.answer("pong", "")


def test_the_answer_to_another_question_begins_no_watch(
    scripted: tuple[ChangeNotifications, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    wakeups, connection = scripted
    monkeypatch.setattr(module, "SUBSCRIBE_TIMEOUT_S", 0)
    with wakeups.watch("w", "r"):
        wait_until(lambda: len(connection.sent) == 1, "it has asked")
    monkeypatch.setattr(module, "SUBSCRIBE_TIMEOUT_S", LONG_S)
    channel, watch_started = key("changed", "w", "r"), threading.Event()

    def watch() -> None:
        with wakeups.watch("w", "r"):
            watch_started.set()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(watch)
        wait_until(lambda: len(connection.sent) == 3, "it has asked again")
        for word, begins in (("subscribe", False), ("unsubscribe", False), ("subscribe", True)):
            connection.answer(word, channel, "1")
            assert watch_started.wait(LONG_S if begins else SHORT_S) == begins
    assert [words[0] for words in connection.sent[:3]] == ["SUBSCRIBE", "UNSUBSCRIBE", "SUBSCRIBE"]


def test_a_watch_without_its_subscription_is_woken_when_it_arrives(
    scripted: tuple[ChangeNotifications, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    wakeups, connection = scripted
    monkeypatch.setattr(module, "SUBSCRIBE_TIMEOUT_S", 0)
    with wakeups.watch("w") as watch:
        assert not watch.wait(SHORT_S)
        connection.answer("psubscribe", watch.topic, "1")
        assert watch.wait(LONG_S), "it may have looked before, and missed something"


def test_a_watch_interrupted_at_its_start_is_forgotten(
    scripted: tuple[ChangeNotifications, Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    wakeups, connection = scripted
    with ThreadPoolExecutor(1) as pool:
        pool.submit(wakeups.watch("w", "other").__enter__)
        wait_until(lambda: connection.sent, "it has asked")
        wakeups._subscriptions[key("changed", "w", "r")] = own = module._Subscription(key("changed", "w", "r"))
        own.acknowledged = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            wakeups.watch("w", "r").__enter__()
        connection.answer("subscribe", key("changed", "w", "other"), "1")
    assert own.watches == set()
    assert [words[0] for words in connection.sent] == ["SUBSCRIBE", "UNSUBSCRIBE"]


def test_close_is_not_kept_waiting_by_a_subscription(scripted: tuple[ChangeNotifications, Scripted]) -> None:
    wakeups, connection = scripted
    with ThreadPoolExecutor(1) as pool:
        beginning = pool.submit(wakeups.watch("w", "r").__enter__)
        wait_until(lambda: connection.sent, "it has asked")
        started_s = time.monotonic()
        wakeups.close()
        assert (beginning.result(LONG_S).wait(LONG_S), time.monotonic() - started_s < LONG_S / 2) == (True, True)


def test_what_is_said_just_as_the_time_is_up_is_for_the_next_wait(scripted: tuple[ChangeNotifications, Scripted]) -> None:
    class JustAfter(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            is_notified = super().wait(timeout)
            self.set()
            return is_notified

    watch = scripted[0].watch("w", "r")
    watch._notified = JustAfter()
    assert (watch.wait(0), watch.wait(0)) == (False, True)
