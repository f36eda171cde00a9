"""Long polls under gunicorn: held calls, a full server, clients that have gone, and a Redis that goes away and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.api.async_clients import PREFIX, Answer, Crowd, Line, Stream, poll_path, until
from tests.support.gunicorn_service import Service, service

SOON_S = 3.0
"""A time shorter than the interval at which a waiting call checks by itself: a call that is answered sooner was woken."""


@pytest.fixture(scope="module")
def large_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield the API with its default settings."""
    with service(tmp_path_factory.mktemp("large")) as made:
        yield made


@pytest.fixture(scope="module")
def small_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield an API of two processes with twelve seats each, two of them for streams."""
    with service(tmp_path_factory.mktemp("small"), api_processes=2, api_threads=16) as made:
        yield made


@pytest.fixture
def large(large_service: Service) -> Service:
    """Return the default API, with an empty Redis and an empty log."""
    return _cleared(large_service)


@pytest.fixture
def small(small_service: Service) -> Service:
    """Return the small API, with an empty Redis and an empty log."""
    return _cleared(small_service)


def _cleared(made: Service) -> Service:
    asyncio.run(Crowd(made.port).until_waiting(poll=0, stream=0))  # no client of an earlier test is left
    made.clear()
    return made


async def _queue(crowd: Crowd, waiters: int, units: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the request that holds all units of the pool, and those that wait for one unit each, in order."""
    await crowd.pool(gpu=units)
    allocation = await crowd.submit(units)
    async with Line(crowd.port) as line:
        requests = {"requests": [{"component": "t", "resources": {"gpu": 1}}] * waiters}
        return allocation, (await line.ask("POST", f"{PREFIX}/requests/batch", requests)).json["items"]


async def _meanwhile(crowd: Crowd, times: int = 20) -> float:
    """Submit and release requests and call the health endpoints; return the longest time that a call took."""
    longest = 0.0
    for _ in range(times):
        for path in ("/healthz", "/readyz"):
            start = time.monotonic()
            assert (await crowd.ask("GET", path)).status == 200
            longest = max(longest, time.monotonic() - start)
        start = time.monotonic()
        await crowd.submit(0)
        longest = max(longest, time.monotonic() - start)
    return longest


def test_all_processes_tell_the_same_numbers(large: Service) -> None:
    here = {"Poolkeeper-Workspace": "numbers"}
    of = '{workspace="numbers",pool="p"}'

    async def go() -> None:
        crowd = Crowd(large.port)
        await crowd.ask("POST", f"{PREFIX}/pools", {"name": "p", "capacity": {"gpu": 40}}, here)
        await crowd.ask("PUT", f"{PREFIX}/pools/p/policies/t", {}, here)
        before = await _told(crowd)
        requests = {"component": "t", "resources": {"gpu": 1}}
        for _ in range(41):  # each on a connection of its own, so that both processes have some
            assert (await crowd.ask("POST", f"{PREFIX}/requests", requests, here)).status == 201
        pages = [await _told(crowd) for _ in range(6)]
        names = ("grant_latency_seconds_count", 'script_duration_seconds_count{script="submit"}')
        assert [[page[name] - before.get(name, 0) for name in names] for page in pages] == [[40, 41]] * 6
        assert [[page[f"{name}{of}"] for name in ("wait_seconds_count", "pool_queue_length")] for page in pages] == [
            [40, 1]
        ] * 6

    asyncio.run(go())


async def _told(crowd: Crowd) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in (await crowd.ask("GET", "/metrics")).text.splitlines() if line[:1] != "#")
    return {name.removeprefix("poolkeeper_"): float(value) for name, _, value in lines}


@pytest.mark.slow
def test_five_hundred_wait_at_the_same_time(large: Service, record_property: Any) -> None:
    async def play() -> None:
        crowd = Crowd(large.port)
        allocation, waiters = await _queue(crowd, 500)
        polls = [asyncio.create_task(crowd.poll(waiter["id"])) for waiter in waiters]
        await crowd.until_waiting(poll=500)
        memory_mb = large.resident_mb()
        record_property("resident_mb", round(memory_mb))
        assert memory_mb < 600
        assert await _meanwhile(crowd) < SOON_S
        assert not any(poll.done() for poll in polls)
        for waiter, poll in zip(waiters[:20], polls, strict=False):
            await crowd.release(allocation)
            allocation = (await asyncio.wait_for(poll, SOON_S)).json
            assert (allocation["id"], allocation["status"]) == (waiter["id"], "allocated")
        assert [poll.done() for poll in polls] == [True] * 20 + [False] * 480
        answer = await crowd.ask("PATCH", f"{PREFIX}/pools/p", {"capacity": {"gpu": 500}})
        assert answer.status == 200
        answers = await asyncio.wait_for(asyncio.gather(*polls), 20)
        assert {answer.json["status"] for answer in answers} == {"allocated"}
        assert [answer.json["id"] for answer in answers] == [waiter["id"] for waiter in waiters]
        assert not any("retry-after" in answer.headers for answer in answers)
        await crowd.until_waiting(poll=0)

    asyncio.run(play())
    assert large.complaints() == []


def test_a_poll_without_a_seat_gets_the_present_state_at_once(small: Service) -> None:
    async def play() -> None:
        crowd = Crowd(small.port)
        allocation, waiters = await _queue(crowd, 120)
        polls, away = await _full_house(crowd, waiters, seats=24)
        result = [(answer.status, answer.json["status"], answer.headers["retry-after"]) for answer in away]
        assert (len(result) > 0, set(result)) == (True, {(200, "queued", "1")})
        assert await _meanwhile(crowd) < SOON_S
        streams = [await _refused_stream(crowd) for _ in range(10)]
        assert streams == [(503, "too_many_waiters", "1")] * 10
        beat = await crowd.ask("POST", f"{PREFIX}/requests/{allocation['id']}/heartbeat", {"fence": allocation["fence"]})
        assert (beat.status, beat.json["directive"]) == (200, "continue")
        await crowd.ask("PATCH", f"{PREFIX}/pools/p", {"capacity": {"gpu": 121}})
        answers = await asyncio.wait_for(asyncio.gather(*polls), SOON_S)
        assert [answer.json["status"] for answer in answers] == ["allocated"] * 24

    asyncio.run(play())
    assert small.complaints() == []


async def _full_house(
    crowd: Crowd, waiters: list[dict[str, Any]], seats: int
) -> tuple[list[asyncio.Task[Answer]], list[Answer]]:
    """Poll until every seat is taken and five polls are refused; return the held polls and the refusals."""
    polls: list[asyncio.Task[Answer]] = []
    for waiter in waiters:
        polls.append(asyncio.create_task(crowd.poll(waiter["id"])))
        away = [poll.result() for poll in polls if poll.done()]
        if len(away) >= 5 and (await crowd.waiting()).get("poll") == seats:
            break
    await crowd.until_waiting(poll=seats)
    await until(lambda: sum(not poll.done() for poll in polls) == seats, "all others are answered")
    return [poll for poll in polls if not poll.done()], [poll.result() for poll in polls if poll.done()]


async def _refused_stream(crowd: Crowd) -> tuple[int, str, str]:
    answer = await crowd.ask("GET", f"{PREFIX}/events")
    return answer.status, answer.json["code"], answer.headers["retry-after"]


def test_connections_are_shared_among_the_processes(small: Service) -> None:
    async def play() -> None:
        before = [_sockets(pid) for pid in small.workers()]
        lines = [Line(small.port) for _ in range(40)]
        for line in lines:
            await line.__aenter__()
            assert (await line.ask("GET", "/healthz")).status == 200
        more = [_sockets(pid) - had for pid, had in zip(small.workers(), before, strict=True)]
        assert min(more) >= 10, more
        for line in lines:
            line.hang_up()

    asyncio.run(play())


def _sockets(pid: int) -> int:
    return sum("socket:" in _target(entry) for entry in Path(f"/proc/{pid}/fd").iterdir())


def _target(entry: Path) -> str:
    try:
        return os.readlink(entry)
    except FileNotFoundError:  # closed just now
        return ""


def test_streams_have_their_share_of_the_seats(small: Service) -> None:
    async def play() -> None:
        crowd = Crowd(small.port)
        lines = [Line(small.port) for _ in range(20)]
        for line in lines:
            await line.__aenter__()
            await line.send("GET", f"{PREFIX}/events")
        heads = [await line.head() for line in lines]
        assert sorted(status for status, _ in heads) == [200] * 4 + [503] * 16
        assert {headers["retry-after"] for status, headers in heads if status == 503} == {"1"}
        allocation, (waiter,) = await _queue(crowd, 1)
        poll = asyncio.create_task(crowd.poll(waiter["id"]))
        await crowd.until_waiting(poll=1, stream=4)
        await crowd.release(allocation)
        assert (await asyncio.wait_for(poll, SOON_S)).json["status"] == "allocated"
        for line in lines:
            await line.__aexit__()
        await crowd.until_waiting(stream=0)

    asyncio.run(play())
    assert small.complaints() == []


def test_ten_times_as_many_polls_as_seats_are_all_answered(small: Service) -> None:
    async def play() -> list[Answer]:
        crowd = Crowd(small.port)
        allocation, waiters = await _queue(crowd, 240)
        answers: list[Answer] = []
        hammers = [asyncio.create_task(_hammer(small.port, waiter["id"], answers)) for waiter in waiters]
        longest = 0.0
        for _ in range(3):
            start = time.monotonic()
            await crowd.release(await crowd.submit(0))
            allocation = await _handed_on(crowd, allocation)
            longest = max(longest, time.monotonic() - start)
        for hammer in hammers:
            hammer.cancel()
        await asyncio.gather(*hammers, return_exceptions=True)
        assert longest < 5
        await crowd.until_waiting(poll=0)
        return answers

    answers = asyncio.run(play())
    assert {answer.status for answer in answers} == {200}
    assert any(answer.headers.get("retry-after") for answer in answers), "the house was full"
    assert sum(answer.json["status"] == "allocated" for answer in answers) >= 1
    assert small.complaints() == []


async def _hammer(port: int, request: str, answers: list[Answer]) -> None:
    """Poll again at once, whatever Retry-After says, until the request is granted."""
    async with Line(port) as line:
        while True:
            answers.append(await line.ask("GET", poll_path(request, wait_s=20)))
            if answers[-1].json["status"] != "queued":
                return


async def _handed_on(crowd: Crowd, allocation: dict[str, Any]) -> dict[str, Any]:
    """Release the units, and return the request that gets them."""
    await crowd.release(allocation)
    (holder,) = (await crowd.ask("GET", f"{PREFIX}/pools/p/requests?view=active")).json["items"]
    return dict(holder)


def test_a_closed_connection_frees_its_seat(small: Service) -> None:
    async def play() -> None:
        crowd = Crowd(small.port)
        await crowd.pool(gpu=1)
        await crowd.submit()
        stale, fresh = [await crowd.submit(queue_ttl_s=4) for _ in range(2)]
        lines = [Line(small.port) for _ in range(12)]
        for number, line in enumerate(lines):
            await line.__aenter__()
            await line.send("GET", f"{PREFIX}/events" if number < 2 else poll_path(stale["id"]))
        stored = asyncio.create_task(crowd.poll(fresh["id"], wait_s=60))
        await crowd.until_waiting(poll=11, stream=2)
        for number, line in enumerate(lines):
            line.hang_up() if number % 2 else line.writer.close()
        await crowd.until_waiting(within_s=6, poll=1, stream=0)

        def expired() -> bool:
            small.sweep()
            return any(event.event == "expired" and event.request == stale["id"] for event in small.events())

        await until(expired, "the request that is polled no more is stale", within_s=10)
        assert not stored.done()
        stored.cancel()
        assert (await crowd.ask("GET", f"{PREFIX}/requests/{fresh['id']}")).json["status"] == "queued"

    asyncio.run(play())
    assert small.complaints() == []


@pytest.mark.slow
def test_redis_is_killed_and_comes_back(tmp_path: Path) -> None:
    with service(tmp_path, api_processes=2, api_threads=240) as made:  # of its own, as Redis has to load its data quickly
        asyncio.run(_redis_comes_back(made))
        assert {line["level"] for line in made.complaints()} == {"warning"}


async def _redis_comes_back(made: Service) -> None:
    crowd = Crowd(made.port)
    allocation, waiters = await _queue(crowd, 100)
    polls = [asyncio.create_task(crowd.poll(waiter["id"])) for waiter in waiters]
    streams = [Stream(made.port, after="0") for _ in range(4)]
    listeners = [asyncio.create_task(stream.listen()) for stream in streams]
    await crowd.until_waiting(poll=100, stream=4)
    made.kill_redis()
    made.redis.start()
    await crowd.release(allocation)
    first = await asyncio.wait_for(polls.pop(0), 10)
    if first.status == 200:  # it need not have noticed
        assert (first.json["status"], first.json["id"]) == ("allocated", waiters[0]["id"])
    allocation = (await crowd.ask("GET", f"{PREFIX}/requests/{waiters[0]['id']}")).json
    made.kill_redis()
    away = await crowd.ask("POST", f"{PREFIX}/requests", {"component": "t"})
    assert (away.status, away.json["code"], away.headers["retry-after"]) == (503, "redis_unreachable", "1")
    assert (await crowd.ask("GET", "/healthz")).status == 200
    assert (await crowd.ask("GET", "/readyz")).status == 503
    answers = await asyncio.wait_for(asyncio.gather(*polls), 15)
    assert {(answer.status, answer.json["code"]) for answer in answers} == {(503, "redis_unreachable")}
    made.redis.start()
    again = asyncio.create_task(crowd.poll(waiters[1]["id"]))
    await crowd.until_waiting(poll=1, stream=4)
    await crowd.release(allocation)
    assert (await asyncio.wait_for(again, SOON_S)).json["status"] == "allocated"
    whole = [event.id for event in made.events()]
    await until(lambda: all(len(stream.heard) >= len(whole) for stream in streams), "the streams go on")
    for listener in listeners:
        listener.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)
    assert [[event.id for event in stream.heard] for stream in streams] == [whole] * 4
    assert [stream.begun for stream in streams] == [1] * 4, "none of them had to come back"


def test_a_process_is_killed_and_another_takes_its_place(small: Service) -> None:
    async def play() -> None:
        crowd = Crowd(small.port)
        allocation, waiters = await _queue(crowd, 10)
        polls = [asyncio.create_task(_persistent(crowd, waiter["id"])) for waiter in waiters]
        await crowd.until_waiting(poll=10)
        before = small.workers()
        for pid in before[:1]:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: len(small.workers()) == 2 and small.workers() != before, "there are two again")
        await crowd.until_waiting(poll=10)
        for poll in polls:
            await crowd.release(allocation)
            allocation = (await asyncio.wait_for(poll, SOON_S)).json

    asyncio.run(play())


async def _persistent(crowd: Crowd, request: str) -> Answer:
    """Poll again whenever the connection breaks."""
    while True:
        try:
            return await crowd.poll(request)
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.sleep(0.1)
