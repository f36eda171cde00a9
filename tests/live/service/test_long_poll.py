"""Long polls and streams: they learn of a change at once, hold no seat longer than they must, and miss and repeat nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Any, cast

import pytest

from app.domain.errors import NotFound, StoreUnavailable
from app.domain.models import Event, Request
from app.domain.states import RequestState
from app.service import long_poll as module
from app.service.long_poll import LongPolls, PollResult
from app.service.requests import Requests
from app.service.wait_slots import SlotKind, TooManyWaiters, WaitSlots
from app.store.change_notifications import ChangeNotifications
from app.store.connection import RedisClient
from app.store.ledger import Ledger
from app.store.workspaces import WorkspaceRegistry
from tests.support.backends import wait_until
from tests.support.servers import Servers
from tests.support.world import World

LONG_S = 20.0
"""For what must happen; it is more than the time after which a waiter looks by itself."""
SOON_S = 2.0
"""A time in seconds, shorter than that interval: a poll that is answered sooner was woken."""


@pytest.fixture(params=("redis", "cluster"))
def client(request: pytest.FixtureRequest, servers: Servers) -> RedisClient:
    return servers.client(request.param)


@pytest.fixture
def world(client: RedisClient) -> World:
    world = World(client)
    world.pool(gpu=1)
    world.policy()
    return world


class CountingRequests(Requests):
    """Requests that count how often they are looked at, and can be away."""

    looks = 0
    away = False

    def poll(self, workspace: str, request: str) -> Request:
        self._look()
        return super().poll(workspace, request)

    def list_events(self, workspace: str, after: str = "0", count: int = 100) -> list[Event]:
        self._look()
        return super().list_events(workspace, after, count)

    def _look(self) -> None:
        self.looks += 1
        if self.away:
            raise StoreUnavailable("unreachable", "it is away")


@pytest.fixture
def requests(world: World) -> CountingRequests:
    return CountingRequests(world.ledger, WorkspaceRegistry(world.client))


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    """Yield threads in which polls wait."""
    with ThreadPoolExecutor(8) as threads:
        yield threads


@pytest.fixture
def waiting(client: RedisClient, requests: CountingRequests, aside: ThreadPoolExecutor) -> Iterator[LongPolls]:
    """Yield long polls that are closed before their threads are joined."""
    waiting = LongPolls(requests, ChangeNotifications(client), WaitSlots(polls=4, streams=2))
    yield waiting
    waiting.close()


class Polls:
    """Long polls in threads of their own."""

    def __init__(self, waiting: LongPolls, threads: ThreadPoolExecutor) -> None:
        self._waiting, self._threads = waiting, threads

    def begin(
        self,
        request: Request,
        wait_s: float = LONG_S,
        unlike: RequestState | None = None,
        is_disconnected: Callable[[], bool] = lambda: False,
    ) -> Future[PollResult]:
        """Start a poll, and return when it has taken its seat."""
        taken = self._waiting.slots.used()["poll"]
        poll = self._threads.submit(self._waiting.wait_for_change, "test", request.id, unlike, wait_s, is_disconnected)
        wait_until(lambda: self._waiting.slots.used()["poll"] > taken or poll.done(), "it waits")
        return poll


@pytest.fixture
def polls(waiting: LongPolls, aside: ThreadPoolExecutor) -> Polls:
    return Polls(waiting, aside)


# ---- the house


def test_a_seat_is_given_back() -> None:
    house = WaitSlots(polls=2, streams=1)
    with house.slot("poll") as first, house.slot("stream") as second, house.slot("poll") as third:
        assert (first, second, third, house.used()) == (True, True, False, {"poll": 1, "stream": 1, "dashboard": 0, "body": 0})
    with pytest.raises(ValueError, match="in between"), house.slot("poll"):
        raise ValueError("in between")
    assert (set(house.used().values()), house.refused()) == ({0}, {"poll": 1, "stream": 0, "dashboard": 0, "body": 0})


def test_streams_have_a_share_and_polls_the_rest() -> None:
    house = WaitSlots(polls=3, streams=1)
    kinds: tuple[SlotKind, ...] = ("stream", "stream", "poll", "poll")
    with ExitStack() as stack:
        assert [stack.enter_context(house.slot(kind)) for kind in kinds] == [True, False, True, True]
        with house.slot("poll") as none, house.slot("stream") as neither:
            assert (none, neither, house.refused()) == (False, False, {"poll": 1, "stream": 2, "dashboard": 0, "body": 0})


def test_never_more_sit_than_there_are_seats(aside: ThreadPoolExecutor) -> None:
    house, most = WaitSlots(polls=3, streams=3), []

    def visit(_: int) -> None:
        with house.slot("poll") as seated:
            most.append(house.used()["poll"] if seated else 0)

    list(aside.map(visit, range(2000)))
    assert max(most) <= 3
    assert (house.used()["poll"], house.refused()["poll"]) == (0, most.count(0))


# ---- long polls


def test_what_is_different_already_is_answered_at_once(world: World, waiting: LongPolls, requests: CountingRequests) -> None:
    allocation, waits = world.submit(gpu=1), world.submit(gpu=1)
    started_s = time.monotonic()
    assert waiting.wait_for_change("test", allocation.id, RequestState.QUEUED, LONG_S) == PollResult(world.get(allocation))
    assert waiting.wait_for_change("test", waits.id, None, 0) == PollResult(world.get(waits))
    assert (time.monotonic() - started_s < SOON_S, requests.looks) == (True, 2)
    assert waiting.slots.used()["poll"] == 0


@pytest.mark.parametrize("unlike", [None, RequestState.QUEUED])
def test_a_change_is_told_at_once(world: World, polls: Polls, requests: CountingRequests, unlike: RequestState | None) -> None:
    allocation, waits = world.submit(gpu=1), world.submit(gpu=1)
    poll = polls.begin(waits, unlike=unlike)
    world.release(allocation)
    assert poll.result(SOON_S).request.status == "allocated"
    assert requests.looks <= 4


def test_the_change_of_another_ends_no_wait(world: World, polls: Polls) -> None:
    allocation, other = world.submit(gpu=1), world.submit(gpu=1)
    poll = polls.begin(allocation, unlike=RequestState.ALLOCATED)
    world.cancel(other)
    with pytest.raises(TimeoutError):
        poll.result(0.2)
    world.release(allocation)
    assert poll.result(SOON_S).request.status == "released"


def test_time_is_up(world: World, waiting: LongPolls, requests: CountingRequests) -> None:
    _, waits = world.submit(gpu=1), world.submit(gpu=1)
    started_s = time.monotonic()
    result = waiting.wait_for_change("test", waits.id, None, 0.5)
    took_s = time.monotonic() - started_s
    assert (result, 0.5 <= took_s < SOON_S) == (PollResult(world.get(waits)), True)
    assert requests.looks == 3, "before it waits, when it listens and at the end: Redis is not polled"
    assert waiting.slots.used()["poll"] == 0


def test_a_full_house_answers_at_once(world: World, waiting: LongPolls, polls: Polls) -> None:
    allocation, waits = world.submit(gpu=1), world.submit(gpu=1)
    seated = [polls.begin(waits) for _ in range(4)]
    started_s = time.monotonic()
    assert waiting.wait_for_change("test", waits.id, None, LONG_S) == PollResult(world.get(waits), no_slot=True)
    assert (time.monotonic() - started_s < SOON_S, waiting.slots.refused()["poll"]) == (True, 1)
    world.release(allocation)
    assert [poll.result(SOON_S).request.status for poll in seated] == ["allocated"] * 4
    assert waiting.slots.used()["poll"] == 0


def test_a_client_that_has_gone_frees_its_seat_and_keeps_nothing_fresh(
    world: World, waiting: LongPolls, polls: Polls, requests: CountingRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DISCONNECT_CHECK_S", 0.05)
    _, waits = world.submit(gpu=1), world.submit(gpu=1, queue_ttl_s=60)
    there = threading.Event()
    there.set()
    poll = polls.begin(waits, is_disconnected=lambda: not there.is_set())
    wait_until(lambda: requests.looks == 2, "it listens")
    there.clear()
    assert poll.result(SOON_S).request.status == "queued"
    assert (requests.looks, waiting.slots.used()["poll"]) == (2, 0)


def test_a_polled_request_does_not_go_stale(client: RedisClient, world: World) -> None:
    ledger = Ledger(client)
    now = LongPolls(Requests(ledger, WorkspaceRegistry(client)), ChangeNotifications(client), WaitSlots(2, 1))
    ledger.submit("test", world.request_spec(gpu=1))
    waits, forgotten = (ledger.submit("test", world.request_spec(gpu=1, queue_ttl_s=1)) for _ in range(2))
    with ThreadPoolExecutor(1) as threads:
        poll = threads.submit(now.wait_for_change, "test", waits.id, None, 3.0)
        while not poll.done():
            ledger.clean_up("test")
            time.sleep(0.05)
    assert poll.result().request.status == "queued"
    assert ledger.get_request("test", forgotten.id).status == "expired"
    now.close()


def test_a_change_without_a_notification_is_seen_later(world: World, polls: Polls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_INTERVAL_S", 0.1)
    monkeypatch.setattr(ChangeNotifications, "_read_message", lambda *_: time.sleep(0.05))
    allocation, waits = world.submit(gpu=1), world.submit(gpu=1)
    poll = polls.begin(waits)
    world.release(allocation)
    assert poll.result(LONG_S).request.status == "allocated"


def test_the_end_of_the_process_ends_every_poll(world: World, waiting: LongPolls, polls: Polls) -> None:
    _, waits = world.submit(gpu=1), world.submit(gpu=1)
    started_s = [polls.begin(waits) for _ in range(3)]
    waiting.close()
    assert [poll.result(SOON_S).request.status for poll in started_s] == ["queued"] * 3
    assert waiting.wait_for_change("test", waits.id, None, LONG_S).request.status == "queued"
    assert waiting.slots.used()["poll"] == 0


def test_what_is_wrong_with_a_poll_is_said(world: World, waiting: LongPolls, polls: Polls, requests: CountingRequests) -> None:
    _, waits = world.submit(gpu=1), world.submit(gpu=1, queue_ttl_s=1)
    with pytest.raises(NotFound):
        waiting.wait_for_change("test", "missing", None, LONG_S)
    with pytest.raises(ValueError, match="is no name"):
        waiting.wait_for_change("a b", waits.id, None, LONG_S)
    poll = polls.begin(waits)
    requests.away = True
    with pytest.raises(StoreUnavailable):
        poll.result(SOON_S)
    assert waiting.slots.used()["poll"] == 0


# ---- streams


class Stream:
    """A stream that is read in a thread of its own, with what came out of it."""

    def __init__(self, events: Generator[Event | None], threads: ThreadPoolExecutor) -> None:
        self.came: list[Event | None] = []
        self._events = events
        self.end = threads.submit(self._read)

    def _read(self) -> None:
        for event in self._events:
            self.came.append(event)

    def has(self, events: list[Event]) -> bool:
        """True if all of these events have arrived; fail if they arrive in another order."""
        assert self.events == events[: len(self.events)]
        return len(self.events) == len(events)

    @property
    def events(self) -> list[Event]:
        return [event for event in self.came if event]


def test_a_stream_begins_where_it_is_told_to(world: World, waiting: LongPolls) -> None:
    world.submit(gpu=1)
    last = world.ledger.get_last_event_id("test")
    world.submit(gpu=1)
    whole = world.events()
    for after, expected in (("0", whole), (last, whole[2:]), (whole[0].id, whole[1:])):
        stream = waiting.stream_events("test", after)
        assert list(islice(stream, len(expected) + 1)) == [None, *expected]
        stream.close()
    assert (last, world.ledger.get_last_event_id("elsewhere")) == (whole[1].id, "0-0")
    assert waiting.slots.used()["stream"] == 0


def test_events_are_told_as_they_come(world: World, waiting: LongPolls, aside: ThreadPoolExecutor) -> None:
    stream = Stream(waiting.stream_events("test", world.ledger.get_last_event_id("test")), aside)
    wait_until(lambda: stream.came == [None], "it has begun")
    for _ in range(3):
        world.submit(gpu=2)
        whole = world.events()
        wait_until(partial(stream.has, whole), "they are told", SOON_S)


def test_nothing_is_lost_or_repeated_or_out_of_order(
    client: RedisClient, world: World, waiting: LongPolls, aside: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PAGE_ROWS", 7)
    world.update_pool(gpu=1000)
    streams = [Stream(waiting.stream_events("test", "0"), aside) for _ in range(2)]

    def busy(_: int) -> None:
        own = World(client)
        for _ in range(25):
            own.release(own.submit(gpu=1))

    list(aside.map(busy, range(3)))
    whole = world.events()
    assert len(whole) == 3 * 25 * 3
    for stream in streams:
        wait_until(partial(stream.has, whole), "all is told")


def test_a_quiet_stream_gives_signs_of_life_and_asks_seldom(
    world: World, waiting: LongPolls, aside: ThreadPoolExecutor, requests: CountingRequests
) -> None:
    stream = Stream(waiting.stream_events("test", "0", keepalive_s=0.2), aside)
    started_s = time.monotonic()
    wait_until(lambda: len(stream.came) == 4, "it lives")
    assert (stream.came, 0.5 < time.monotonic() - started_s < SOON_S, requests.looks <= 5) == ([None] * 4, True, True)


def test_a_stream_outlives_a_redis_that_is_away(
    world: World, waiting: LongPolls, aside: ThreadPoolExecutor, requests: CountingRequests
) -> None:
    stream = Stream(waiting.stream_events("test", "0", keepalive_s=0.1), aside)
    wait_until(lambda: stream.came, "it has begun")
    requests.away = True
    world.submit(gpu=1)
    signs = len(stream.came)
    wait_until(lambda: len(stream.came) >= signs + 3, "it gives signs of life")
    assert stream.events == []
    requests.away = False
    wait_until(lambda: stream.events == world.events(), "what came meanwhile is told", SOON_S)
    assert not stream.end.done()


def test_what_is_wrong_with_a_stream_is_said_in_place_of_its_begin(waiting: LongPolls, requests: CountingRequests) -> None:
    requests.away = True
    with pytest.raises(StoreUnavailable):
        next(waiting.stream_events("test", "0"))
    requests.away = False
    for workspace, after, message in (("a b", "0", "is no name"), ("a*", "0", "is no name"), ("test", "x", "event's id")):
        with pytest.raises(ValueError, match=message):
            next(waiting.stream_events(workspace, after))
    assert waiting.slots.used()["stream"] == 0


def test_streams_have_their_seats_for_as_long_as_they_are_open(waiting: LongPolls) -> None:
    first, second = (waiting.stream_events("test", "0") for _ in range(2))
    assert (next(first), next(second), waiting.slots.used()["stream"]) == (None, None, 2)
    with pytest.raises(TooManyWaiters):
        next(waiting.stream_events("test", "0"))
    first.close()
    third = waiting.stream_events("test", "0")
    assert (next(third), waiting.slots.refused()["stream"]) == (None, 1)
    del second
    third.close()
    assert waiting.slots.used()["stream"] == 0


def test_the_end_of_the_process_ends_every_stream(world: World, waiting: LongPolls, aside: ThreadPoolExecutor) -> None:
    streams = [Stream(waiting.stream_events("test", "0"), aside) for _ in range(2)]
    wait_until(lambda: all(stream.came for stream in streams), "they have begun")
    waiting.close()
    for stream in streams:
        cast(Future[Any], stream.end).result(SOON_S)
    assert waiting.slots.used()["stream"] == 0
