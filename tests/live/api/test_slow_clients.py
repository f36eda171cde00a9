"""Slow clients under gunicorn: cut off after their time, however they are slow, and never in the way of others for long."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.api.server import io_deadlines
from app.api.server.io_deadlines import CROWDED_SHARE
from app.store.connection import connect
from tests.live.api.async_clients import PREFIX, Crowd, Line, until
from tests.live.api.short_deadlines import FILES, WITHIN_S
from tests.support.gunicorn_service import HURRIED, SHORT_OF_FILES, Service, service

SOON_S = WITHIN_S + 3.5
"""The latest time at which a client is cut off: its deadline, one second between two checks, and reserve for a slow machine."""


@pytest.fixture(scope="module")
def hurried_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield an API of one process with short deadlines for its clients and a long one for Redis."""
    settings = {"api_processes": 1, "api_threads": THREADS, "redis_timeout_s": WITHIN_S + 10}
    with service(tmp_path_factory.mktemp("hurried"), HURRIED, **settings) as made:
        yield made


@pytest.fixture
def hurried(hurried_service: Service) -> Service:
    """Return that API, with an empty Redis and an empty log."""
    hurried_service.clear()
    return hurried_service


async def _end(line: Line) -> bytes:
    """Read until the other side closes the connection."""
    text = b""
    try:
        while piece := await line.reader.read(65536):
            text += piece
    except ConnectionError:
        pass
    return text


BODY = b'{"component": "t", "resources": {}}'
HEAD = b"POST /api/v1/requests HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BEGUN = {
    "half a request line": b"POST /api/v1/req",
    "half of the headers": HEAD,
    "no body": HEAD + b"Content-Length: 35\r\n\r\n",
    "half of a body": HEAD + b"Content-Length: 35\r\n\r\n" + BODY[:20],
    "half of a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n23\r\n" + BODY[:20],
    "half of the chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n23\r\n" + BODY + b"\r\n",
}


THREADS = CROWDED_SHARE * (len(BEGUN) + 1)
"""So many that the clients of one test, which all stop at the same time, do not count as many: these are cut off earlier."""


def test_a_client_that_stops_in_the_middle_is_cut_off(hurried: Service) -> None:
    async def cut_off(start: bytes) -> bytes:
        async with Line(hurried.port) as line:
            line.writer.write(start)
            return await asyncio.wait_for(_end(line), SOON_S)

    async def play() -> None:
        answers = await asyncio.gather(*map(cut_off, BEGUN.values()))
        wrong = {name: text for name, text in zip(BEGUN, answers, strict=True) if text and not text.startswith(b"HTTP/1.1 4")}
        assert wrong == {}
        assert (await Crowd(hurried.port).ask("GET", "/healthz")).status == 200

    asyncio.run(play())
    assert hurried.complaints() == []


def test_a_client_that_drips_is_cut_off(hurried: Service) -> None:
    async def play() -> None:
        async with Line(hurried.port) as line:
            end = asyncio.create_task(_end(line))
            line.writer.write(HEAD + b"X-Slowly: ")
            async with asyncio.timeout(SOON_S):
                while not end.done():
                    line.writer.write(b"a")
                    await asyncio.sleep(0.1)
            assert not end.result() or end.result().startswith(b"HTTP/1.1 4")

    asyncio.run(play())
    assert hurried.complaints() == []


def test_a_silent_client_holds_no_thread(hurried: Service) -> None:
    async def play() -> None:
        crowd = Crowd(hurried.port)
        lines = [Line(hurried.port) for _ in range(4 * THREADS)]
        for line in lines:
            await line.__aenter__()
        assert (await asyncio.wait_for(crowd.submit(0), 2))["status"] == "rejected"
        for line in lines[:5]:
            line.writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await asyncio.wait_for(line.answer(), 2)).status == 200
        ends = await asyncio.wait_for(asyncio.gather(*map(_end, lines)), 10)
        assert set(ends) == {b""}

    asyncio.run(play())
    assert hurried.complaints() == []


def test_more_slow_clients_than_threads_delay_others_only_briefly(hurried: Service) -> None:
    async def play() -> None:
        crowd = Crowd(hurried.port)
        lines = [Line(hurried.port) for _ in range(3 * THREADS)]
        for line in lines:
            await line.__aenter__()
            line.writer.write(BEGUN["half of a body"])
        async with asyncio.timeout(3 * SOON_S):
            assert (await crowd.submit(0))["status"] == "rejected"
        await asyncio.wait_for(asyncio.gather(*map(_end, lines)), 3 * SOON_S)
        for _ in range(5):
            assert (await asyncio.wait_for(crowd.submit(0), 2))["status"] == "rejected"

    asyncio.run(play())
    assert hurried.complaints() == []


def test_a_slow_client_within_its_deadline_is_served(hurried: Service) -> None:
    async def play() -> None:
        async with Line(hurried.port) as line:
            for piece in (HEAD, b"Content-Length: 35\r\n\r\n", BODY[:10], BODY[10:]):
                line.writer.write(piece)
                await asyncio.sleep(WITHIN_S / 6)
            assert (await line.answer()).status == 201

    asyncio.run(play())


def test_a_long_poll_is_not_taken_for_a_slow_client(hurried: Service) -> None:
    async def play() -> None:
        crowd = Crowd(hurried.port)
        await crowd.pool(gpu=1)
        await crowd.submit()
        waits = await crowd.submit()
        assert (await crowd.poll(waits["id"], wait_s=WITHIN_S + 1.5)).json["status"] == "queued"

    asyncio.run(play())


@pytest.mark.slow
def test_a_client_that_reads_nothing_of_a_stream_is_cut_off(hurried: Service) -> None:
    async def play() -> None:
        crowd = Crowd(hurried.port)
        stuck = [_taking_nothing(hurried.port) for _ in range(2)]
        await crowd.until_waiting(stream=2)
        async with Line(hurried.port) as line:
            requests = {"requests": [{"component": "t", "labels": {"much": "x" * 200}}] * 1000}
            for _ in range(12):
                assert (await line.ask("POST", f"{PREFIX}/requests/batch", requests)).status == 201
        await crowd.until_waiting(stream=0, within_s=20)
        for sock in stuck:
            sock.close()

    asyncio.run(play())
    assert hurried.complaints() == []


def _taking_nothing(port: int) -> socket.socket:
    """Open a stream whose client reads nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    sock.sendall(f"GET {PREFIX}/events?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return sock


def test_more_connections_than_files_can_be_open(tmp_path: Path) -> None:
    async def play(made: Service) -> None:
        crowd, worker = Crowd(made.port), made.workers()
        lines = [Line(made.port) for _ in range(FILES)]
        for line in lines:
            await line.__aenter__()
        await until(made.complaints, "it cannot take in another")
        for line in lines:
            line.hang_up()
        assert (await crowd.submit(0))["status"] == "rejected"
        assert made.workers() == worker, "it has lived through it"

    with service(tmp_path, SHORT_OF_FILES, api_processes=1, api_threads=THREADS) as made:
        asyncio.run(play(made))
        assert {line["message"] for line in made.complaints()} == {"no connection can be accepted: Too many open files"}


# ---- the clients that are cut off


@pytest.fixture
def connections() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Yield six connections: the first is read for six seconds, the next for five, and so on."""
    pairs = [socket.socketpair() for _ in range(6)]
    yield pairs
    for pair in pairs:
        for sock in pair:
            io_deadlines.finish(sock.fileno())
            sock.close()


@pytest.mark.parametrize(
    ("within_s", "crowded", "left"),
    [
        (10, 6, 6),
        (10, 4, 4),  # two too many
        (10, 0, 1),  # but no client that has just connected
        (3.5, 6, 4),
        (3.5, 2, 2),
        (0.2, 6, 1),
    ],
)
def test_the_slowest_go_first(
    connections: list[tuple[socket.socket, socket.socket]],
    monkeypatch: pytest.MonkeyPatch,
    within_s: float,
    crowded: int,
    left: int,
) -> None:
    start = time.monotonic()
    for number, (ours, _) in enumerate(connections):
        monkeypatch.setattr(time, "monotonic", lambda number=number: start + number)
        io_deadlines.start_reading(ours.fileno())
    monkeypatch.setattr(time, "monotonic", lambda: start + 5.1)
    ended = io_deadlines.shut_overdue(within_s, crowded)
    for number, (_, theirs) in enumerate(connections):
        theirs.setblocking(False)
        if number < 6 - left:
            assert theirs.recv(1) == b""
        else:
            with pytest.raises(BlockingIOError):
                theirs.recv(1)
    assert ended == 6 - left


def test_the_deadline_of_a_response_grows_with_its_length(
    connections: list[tuple[socket.socket, socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = time.monotonic()
    for ours, _ in connections:
        io_deadlines.start_writing(ours.fileno(), 10 * io_deadlines.BYTES_PER_S)
    monkeypatch.setattr(time, "monotonic", lambda: start + io_deadlines.READ_WITHIN_S + 9)
    assert io_deadlines.shut_overdue(io_deadlines.READ_WITHIN_S, 0) == 0
    monkeypatch.setattr(time, "monotonic", lambda: start + io_deadlines.READ_WITHIN_S + 12)
    assert io_deadlines.shut_overdue(io_deadlines.READ_WITHIN_S, 0) == len(connections)


def test_a_slow_redis_cuts_off_no_client(hurried: Service) -> None:
    async def play() -> list[int]:
        lines = [await Line(hurried.port).__aenter__() for _ in range(THREADS - 4)]
        with connect(hurried.redis.url) as client:
            client.client_pause(int(WITHIN_S * 1000) + 1500)
        asks = [line.ask("POST", f"{PREFIX}/requests", {"component": "t", "resources": {"gpu": 1}}) for line in lines]
        answers = await asyncio.gather(*asks)
        for line in lines:
            await line.__aexit__(None, None, None)
        return [answer.status for answer in answers]

    assert set(asyncio.run(play())) == {201}
