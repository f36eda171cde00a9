"""The shutdown of the API: calls under way are finished, held polls are answered, and a stream goes on with the next server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.live.api.async_clients import PREFIX, Crowd, Line, Stream, poll_path, until
from tests.support.gunicorn_service import Service, service

ENDS_WITHIN_S = 6.0
"""Well before gunicorn would lose patience and kill."""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Service]:
    """Yield an API of two processes with sixty seats each."""
    with service(tmp_path, api_processes=2, api_threads=80) as made:
        yield made


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_held_polls_are_answered_and_the_server_ends(made: Service, sign: signal.Signals) -> None:
    async def play() -> None:
        crowd = Crowd(made.port)
        await crowd.pool(gpu=1)
        await crowd.submit()
        waits = await crowd.submit()
        polls = [asyncio.create_task(crowd.poll(waits["id"])) for _ in range(40)]
        streams = [Stream(made.port) for _ in range(6)]
        listeners = [asyncio.create_task(stream.listen()) for stream in streams]
        async with Line(made.port) as idle, Line(made.port) as silent:
            assert (await idle.ask("GET", "/healthz")).status == 200
            await crowd.until_waiting(poll=40, stream=6)
            os.kill(made.pid, sign)
            if sign == signal.SIGTERM:
                answers = await asyncio.wait_for(asyncio.gather(*polls), ENDS_WITHIN_S)
                assert {(answer.status, answer.json["status"]) for answer in answers} == {(200, "queued")}
                await until(lambda: all(stream.ended == 1 for stream in streams), "each stream ends well", ENDS_WITHIN_S)
            assert await asyncio.to_thread(made.stops_within, ENDS_WITHIN_S)
            assert await asyncio.wait_for(silent.reader.read(), 1) == b""
        await _cancelled(*listeners, *polls)

    asyncio.run(play())
    assert made.complaints() == []


def test_what_is_under_way_is_finished(made: Service) -> None:
    async def play() -> None:
        async with Line(made.port) as first, Line(made.port) as second, Line(made.port) as other:
            body = b'{"component": "t", "resources": {}}'
            head = f"POST {PREFIX}/requests HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
            for line in (first, second):
                line.writer.write(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body[:10])
            assert (await other.ask("GET", "/healthz")).headers["connection"] == "keep-alive"
            made.tell_to_stop()
            while (await other.ask("GET", "/healthz")).headers["connection"] != "close":
                await asyncio.sleep(0.01)
            first.writer.write(body[10:])
            answer = await asyncio.wait_for(first.answer(), 2)
            assert (answer.status, answer.json["status"]) == (201, "rejected")
            assert await asyncio.to_thread(made.stops_within, ENDS_WITHIN_S), "the other one is not waited for for long"

    asyncio.run(play())
    assert made.complaints() == []


def test_a_stream_misses_nothing_while_the_server_is_another(made: Service) -> None:
    async def play() -> None:
        crowd = Crowd(made.port)
        await crowd.pool(gpu=2)
        streams = [Stream(made.port, after="0") for _ in range(5)]
        listeners = [asyncio.create_task(stream.listen()) for stream in streams]
        await crowd.until_waiting(stream=5)
        async with _load(made.port) as cycles:
            await until(lambda: len(cycles) >= 10, "work goes on")
            made.tell_to_stop()
            assert await asyncio.to_thread(made.stops_within, ENDS_WITHIN_S)
            await asyncio.to_thread(made.start)
            enough = len(cycles) + 10
            await until(lambda: len(cycles) >= enough, "work goes on")

        def every_stream_has_all() -> bool:
            events = [event.id for event in made.events()]  # a call of a cancelled client may still add some
            return (
                len(events) >= 3 * len(cycles) and [[event.id for event in stream.heard] for stream in streams] == [events] * 5
            )

        await until(every_stream_has_all, "every stream has each event once, in order")
        await _cancelled(*listeners)
        assert [(stream.begun, stream.ended) for stream in streams] == [(2, 1)] * 5

    asyncio.run(play())
    assert made.complaints() == []


@asynccontextmanager
async def _load(port: int) -> AsyncIterator[list[str]]:
    """Run three clients that submit, wait and release without end; yield the list of finished cycles."""
    done: list[str] = []
    clients = [asyncio.create_task(_cycles(Crowd(port), f"{number}", done)) for number in range(3)]
    yield done
    await _cancelled(*clients)


async def _cycles(crowd: Crowd, name: str, done: list[str]) -> None:
    for number in range(1_000_000):
        requests = {"component": "t", "resources": {"gpu": 1}}
        request = await _persistent(crowd, "POST", f"{PREFIX}/requests", requests, {"Idempotency-Key": f"{name}-{number}"})
        while request["status"] == "queued":
            request = await _persistent(crowd, "GET", poll_path(request["id"]))
        given_back = {"fence": request["fence"]}
        await _persistent(crowd, "POST", f"{PREFIX}/requests/{request['id']}/release", given_back)
        done.append(request["id"])


async def _persistent(crowd: Crowd, *requests: Any) -> Any:
    """Send a call until it is answered."""
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            answer = await crowd.ask(*requests)
            assert answer.status < 300, answer
            return answer.json
        await asyncio.sleep(0.05)


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
