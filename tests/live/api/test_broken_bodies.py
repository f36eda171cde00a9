"""Bodies that break off or are no HTTP: the client is told so, and the log has no trace."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPResponse

import pytest

from tests.support.gunicorn_api import Live

BROKEN_CHUNKS = {
    "no size": b"zz\r\n{}\r\n0\r\n\r\n",
    "an empty size": b"\r\n{}\r\n0\r\n\r\n",
    "a negative size": b"-2\r\n{}\r\n0\r\n\r\n",
    "a size with an underscore": b"0_2\r\n{}\r\n0\r\n\r\n",
    "no line end after a chunk": b"2\r\n{}XX0\r\n\r\n",
    "a chunk longer than it says": b"1\r\n{}\r\n0\r\n\r\n",
    "a broken trailer": b"2\r\n{}\r\n0\r\nBad Trailer\r\n\r\n",
    "an endless size": b"0" * 20_000,
    "an endless trailer": b"2\r\n{}\r\n0\r\n" + b"A: b\r\n" * 150_000,
    "an endless extension": b"2;" + b"a" * 20_000,
}
BREAK_OFF = {
    "within a chunk": b"ff\r\n{",
    "within a size": b"f",
    "before the last chunk": b"2\r\n{}\r\n",
    "within the last chunk": b"2\r\n{}\r\n0\r\n",
}
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
TARGETS = [("/api/v1/requests", JSON), ("/api/v1/dry-run", JSON), ("/sign-in", FORM), ("/pools/gpus/resize", FORM)]


@pytest.fixture(scope="module")
def api(live: Live) -> Iterator[Live]:
    """Yield an API, and check at the end that its log has no error."""
    live.empty()
    before = len(live.lines())
    yield live
    assert [line for line in live.lines()[before:] if line["level"] in ("error", "critical")] == []


def _exchange(api: Live, head: tuple[str, ...], body: bytes, *, end: bool) -> bytes:
    """Return all that is answered; with `end` nothing more is sent, and the connection stays open to read."""
    lines = [*head, f"Host: 127.0.0.1:{api.port}", "", ""]
    with socket.create_connection(("127.0.0.1", api.port), timeout=20) as line:
        line.sendall("\r\n".join(lines).encode())
        with suppress(ConnectionError):
            line.sendall(body)
            if end:
                line.shutdown(socket.SHUT_WR)
        answer = HTTPResponse(line, method="POST")
        answer.begin()
        return b"%d %s" % (answer.status, answer.read())


@pytest.mark.parametrize(("path", "kind"), TARGETS)
@pytest.mark.parametrize("broken", BROKEN_CHUNKS)
def test_broken_chunks_are_malformed(api: Live, path: str, kind: str, broken: str) -> None:
    head = (f"POST {path} HTTP/1.1", f"Content-Type: {kind}", "Transfer-Encoding: chunked")
    answer = _exchange(api, head, BROKEN_CHUNKS[broken], end=False)
    assert answer.startswith(b"400 "), answer[:200]
    assert b"body" in answer


@pytest.mark.parametrize(("path", "kind"), TARGETS)
@pytest.mark.parametrize("broken", BREAK_OFF)
def test_chunks_that_break_off_are_malformed(api: Live, path: str, kind: str, broken: str) -> None:
    head = (f"POST {path} HTTP/1.1", f"Content-Type: {kind}", "Transfer-Encoding: chunked")
    assert _exchange(api, head, BREAK_OFF[broken], end=True).startswith(b"400 ")


@pytest.mark.parametrize(("path", "kind"), TARGETS)
def test_a_body_shorter_than_announced_is_malformed_even_if_it_is_whole_json(api: Live, path: str, kind: str) -> None:
    head = (f"POST {path} HTTP/1.1", f"Content-Type: {kind}", "Content-Length: 100")
    body = b'{"component": "team", "resources": {"gpu": 1}}'
    answer = _exchange(api, head, body, end=True)
    assert answer.startswith(b"400 "), answer[:200]
    assert api.ask("GET", "/api/v1/requests").items == []


@pytest.mark.parametrize(("path", "kind"), TARGETS)
def test_a_connection_that_is_reset_within_the_body_leaves_no_trace(api: Live, path: str, kind: str) -> None:
    for framing in ("Content-Length: 100", "Transfer-Encoding: chunked"):
        lines = (f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{api.port}", f"Content-Type: {kind}", framing, "", "")
        line = socket.create_connection(("127.0.0.1", api.port), timeout=20)
        line.sendall("\r\n".join(lines).encode() + b"ff\r\n{")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        line.close()
    assert api.ask("GET", "/healthz").status == 200
