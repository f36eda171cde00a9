"""Behaviour that needs a real server: chunked bodies, a Redis that goes away and comes back, lines of the log, odd bytes."""

from __future__ import annotations

import re
import socket
from http.client import HTTPConnection

import pytest

from app.service.availability import GAP_S
from app.store.availability import AvailabilityStore
from app.store.connection import connect
from app.store.keys import OWN, key
from tests.support.backends import wait_until
from tests.support.gunicorn_api import Live, live_api
from tests.support.in_process_api import an_ask

SMALL = 2048


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Yield an API that accepts bodies of two thousand bytes."""
    with live_api(tmp_path_factory.mktemp("small"), max_body_bytes=SMALL) as api:
        yield api


def _chunked(body: bytes, size: int = 512) -> bytes:
    pieces = [body[first : first + size] for first in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def _head(port: int, *lines: str, path: str = "/api/v1/requests", verb: str = "POST") -> bytes:
    text = [f"{verb} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json", *lines, "", ""]
    return "\r\n".join(text).encode("latin-1")


def _padded(length: int) -> bytes:
    body = b'{"component": "team", "pad": ""}'
    return body[:-2] + b"x" * (length - len(body)) + body[-2:]


# ---- sizes


def test_a_body_that_is_too_large_is_refused_by_its_announced_length(small: Live) -> None:
    answer = small.send(_head(small.port, f"Content-Length: {SMALL + 1}"), _padded(SMALL + 1))
    assert answer.refused(413, "body_too_large")["detail"] == f"a body may have {SMALL} bytes"
    announced = small.send(_head(small.port, "Content-Length: 99999999999"))
    announced.refused(413, "body_too_large")


def test_a_body_that_is_too_large_is_refused_though_its_length_was_not_said(small: Live) -> None:
    head = _head(small.port, "Transfer-Encoding: chunked")
    assert small.send(head, _chunked(_padded(SMALL))).malformed() == {"pad": "is not a field here"}
    small.send(head, _chunked(_padded(SMALL + 1))).refused(413, "body_too_large")
    small.send(head, _chunked(_padded(100 * SMALL))).refused(413, "body_too_large")


def test_a_connection_serves_on_after_a_refused_body(small: Live) -> None:
    connection = HTTPConnection("127.0.0.1", small.port, timeout=20)
    for body, status in ((_padded(SMALL), 400), (b'{"component": "team"}', 201), (b"{", 400), (b'{"component": "team"}', 201)):
        connection.request("POST", "/api/v1/requests", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
    connection.close()


# ---- a Redis that goes and comes back


def test_while_redis_is_away_everything_says_when_to_come_again(live: Live) -> None:
    live.empty()
    try:
        live.kill_redis()
        for method, path, body in (
            ("GET", "/api/v1/pools", None),
            ("GET", "/api/v1/requests", None),
            ("POST", "/api/v1/requests", an_ask()),
            ("POST", "/api/v1/requests/batch", {"requests": [an_ask()]}),
            ("POST", "/api/v1/requests/some/heartbeat", {"fence": 1}),
            ("GET", "/api/v1/requests/some?wait_s=60", None),
            ("GET", "/api/v1/events", None),
            ("PUT", "/api/v1/declaration", {"pools": [{"name": "p", "capacity": {"gpu": 1}}]}),
            ("GET", "/readyz", None),
            ("GET", "/metrics", None),
        ):
            answer = live.ask(method, path, body)
            problem = answer.refused(503, "redis_unreachable")
            assert int(answer.headers["Retry-After"]) >= 1
            assert problem["detail"] == "Redis cannot be reached", "and not where it is"
        assert live.ask("GET", "/healthz").body == {"status": "ok"}, "the process itself lives"
        assert live.ask("GET", "/docs").status == 200
        wait_until(lambda: live.ask("POST", "/api/v1/requests", {}).status != 400, "what the API knew of tokens is out of date")
        live.ask("POST", "/api/v1/requests", {}).refused(503, "redis_unreachable")
    finally:
        live.start_redis()
    result = [line["message"] for line in live.lines() if line["level"] == "warning"]
    assert any("live.sock" in message for message in result), "the message names the place of the socket"
    wait_until(lambda: live.ask("GET", "/readyz").status == 200, "the API serves again, by itself")
    assert live.ask("POST", "/api/v1/pools", {"name": "gpus", "capacity": {"gpu": 1}}).status == 201, "and knows the scripts"
    live.empty()


def test_a_process_records_that_it_answers_also_after_redis_was_away(live: Live) -> None:
    live.kill_redis()
    live.start_redis()  # empty
    with connect(live.redis_url) as client:
        availability = AvailabilityStore(client)
        wait_until(lambda: availability.read_since_ms(GAP_S), "the process has recorded that it answers")
        since_ms = availability.read_since_ms(GAP_S)
        client.hset(key("availability", OWN), "last_ms", 1)  # as after an outage
        wait_until(lambda: client.hget(key("availability", OWN), "since_ms") != str(since_ms), "a new stretch has begun")
    live.empty()


# ---- the log, and bytes as they come


def test_a_request_is_one_line_of_json_in_the_log(live: Live) -> None:
    live.empty()
    secret = live.token("viewer")
    headers = {"X-Request-Id": "a-line-of-its-own", "Authorization": f"Bearer {secret}"}
    live.ask("GET", "/api/v1/pools/a%0A%7B%22level%22%3A%22error%22%7D", headers=headers).refused(400, "malformed")
    lines = [line for line in live.lines() if line.get("request_id") == "a-line-of-its-own"]
    live.empty()
    (line,) = lines
    assert isinstance(line.pop("ms"), float)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z", line.pop("at"))
    assert line == {
        "level": "info",
        "logger": "poolkeeper.access",
        "message": "GET /api/v1/pools/a%0A%7B%22level%22%3A%22error%22%7D 400",
        "request_id": "a-line-of-its-own",
        "route": "/pools/{pool}",
        "status": 400,
        "workspace": "default",
        "token": "viewer",
        "client": "127.0.0.1",
    }
    assert secret not in live.log.read_text("utf-8")


def test_a_quick_success_is_not_in_the_log(live: Live) -> None:
    live.empty()
    for name, path in (("quick", "/api/v1/pools"), ("failed", "/api/v1/pools/none")):
        live.ask("GET", path, headers={"X-Request-Id": name})
    wait_until(lambda: "failed" in {line.get("request_id") for line in live.lines()}, "the failure is in the log")
    assert "quick" not in {line.get("request_id") for line in live.lines()}


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/pools/a%2Fb",
        "/api/v1/pools/a%0D%0AX-Injected:%20yes",
        "/api/v1/pools/%00",
        "/api/v1/pools/%ff%fe",
        "/api/v1/pools/..",
        "/api/v1/requests/%ed%a0%80",
        "/api/v1//pools",
        "/api/v1/pools;x=y",
        "/" + "a" * 3000,
        "/docs/..%2f..%2f..%2fetc%2fpasswd",
    ],
)
def test_odd_paths(live: Live, path: str) -> None:
    answer = live.ask("GET", path)
    assert answer.status in (400, 404)
    answer.refused(answer.status, "malformed" if answer.status == 400 else "no_such_route")
    assert "X-Injected" not in answer.headers
    assert "Location" not in answer.headers


@pytest.mark.parametrize(
    "lines",
    [
        ("X-Request-Id: a\r\n X-Injected: yes", "Content-Length: 2"),
        ("X-Request-Id: a\x00b", "Content-Length: 2"),
        ("Content-Length: -1",),
        ("Content-Length: two",),
        ("Content-Length: 2", "Content-Length: 3"),
        ("Content-Length: 2", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: gzip",),
        ("A" * 10_000 + ": x",),
        ("Bad Name: x",),
    ],
)
def test_what_is_no_http_is_refused_and_nothing_of_it_comes_back(live: Live, lines: tuple[str, ...]) -> None:
    with socket.create_connection(("127.0.0.1", live.port), timeout=20) as line:
        line.sendall(_head(live.port, *lines) + b"{}")
        text = line.recv(65_536)
    assert re.match(rb"HTTP/1\.1 4\d\d ", text), text[:200]
    assert b"X-Injected" not in text
    assert b"Traceback" not in text


def test_a_request_without_tokens_has_to_name_this_machine_as_its_host(live: Live) -> None:
    live.empty()
    live.send(b"GET /api/v1/pools HTTP/1.0\r\n\r\n").refused(403, "foreign_host")
    assert live.send(b"GET /healthz HTTP/1.0\r\n\r\n").status == 200
    answer = live.send(b"GET /api/v1/pools HTTP/1.1\r\nHost: rebound.example\r\n\r\n")
    answer.refused(403, "foreign_host")


def test_counters_of_all_processes_are_on_one_page(live: Live) -> None:
    live.empty()
    before = _count(live)
    for _ in range(3):
        live.ask("GET", "/api/v1/pools/none")
    assert _count(live) == before + 3


def _count(live: Live) -> float:
    page = live.ask("GET", "/metrics").body
    rows = re.search(r'^poolkeeper_http_requests_total\{method="GET",route="/pools/\{pool\}",status="404"\} (\S+)$', page, re.M)
    return float(rows[1]) if rows else 0.0
