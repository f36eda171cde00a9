"""Clients that have their last answer and do not close the connection: no other client waits for them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest

from tests.support.backends import wait_until
from tests.support.gunicorn_api import Live

CLIENTS = 20
SOON_S = 1.5
LAST_REQUESTS = {
    "no HTTP": b"nonsense\r\n\r\n",
    "the last of a connection": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "broken chunks": b"POST /api/v1/requests HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
}
"""Requests after which the server closes the connection."""


@pytest.fixture
def clients(live: Live) -> Iterator[list[socket.socket]]:
    """Yield many connections that the client does not close."""
    live.empty()
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", live.port), timeout=20)) for _ in range(CLIENTS)]


def _longest(live: Live, seconds: float) -> float:
    """Return the longest that a request of another client takes, for so long."""
    longest, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic()
        assert live.ask("GET", "/healthz").status == 200
        longest = max(longest, time.monotonic() - start)
    return longest


@pytest.mark.parametrize("last", LAST_REQUESTS)
def test_the_last_response_of_a_connection_delays_no_other(live: Live, clients: list[socket.socket], last: str) -> None:
    for client in clients:
        client.sendall(LAST_REQUESTS[last])
    for client in clients:
        assert client.recv(65_536).startswith(b"HTTP/1.1 "), "each has its answer"
    assert _longest(live, 3) < SOON_S
    for client in clients:
        while client.recv(65_536):  # the rest of the answer, and the end of the connection
            pass


def test_unread_bodies_delay_no_other_connection(live: Live, clients: list[socket.socket]) -> None:
    for client in clients:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
    for client in clients:
        assert client.recv(65_536).startswith(b"HTTP/1.1 200")
    assert _longest(live, 3) < SOON_S
    for client in clients:
        wait_until(lambda client=client: client.recv(65_536) == b"", "it is cut off")  # type: ignore[misc]


def test_chunks_that_are_not_read_end_the_connection(live: Live, clients: list[socket.socket]) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    clients[0].sendall(head + b"1\r\na\r\n" * 100)
    start = time.monotonic()
    while clients[0].recv(65_536):
        pass
    assert time.monotonic() - start < SOON_S


def test_a_connection_serves_on_after_chunks_that_are_read(live: Live) -> None:
    connection = HTTPConnection("127.0.0.1", live.port, timeout=20)
    connection.connect()
    connection.auto_open = 0  # no other connection
    for _ in range(2):
        chunks = iter([b'{"component": ', b'"team"}'])
        connection.request("POST", "/api/v1/requests", chunks, {"Content-Type": "application/json"}, encode_chunked=True)
        with connection.getresponse() as answer:
            assert (answer.status, answer.getheader("Connection")) == (201, "keep-alive")
            answer.read()
    connection.close()


def test_an_answer_arrives_though_the_body_is_not_read(live: Live) -> None:
    body = b"x" * 2**20
    with socket.create_connection(("127.0.0.1", live.port), timeout=20) as client:
        head = b"POST /api/v1/requests HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
        client.sendall(head % len(body) + b"Connection: close\r\n\r\n")
        client.sendall(body[: 2**16])
        assert b"413" in client.recv(65_536)
