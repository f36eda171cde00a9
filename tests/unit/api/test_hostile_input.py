"""Hostile input: the response is a refusal with a reason or a normal one, and never an internal error."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.api.routes import PREFIX, ROUTES
from tests.support.in_process_api import Said, Site, an_ask

WITH_BODY = [route for route in ROUTES if route.body_model]
ODD = settings(
    max_examples=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

BODIES = {
    "nothing": b"",
    "not UTF-8": b"\xff\xfe\x00{",
    "not UTF-8 in a text": b'{"component": "\xff"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"component": "a"}'.encode("utf-16"),
    "a lone surrogate": b'{"component": "\\ud800"}',
    "a lone surrogate as a key": b'{"\\udfff": 1}',
    "a null character": b'{"component": "a\\u0000"}',
    "deep lists": b"[" * 50_000,
    "deep objects": b'{"a":' * 50_000,
    "deep and whole": b"[" * 190 + b"]" * 190,
    "deep where anything goes": b'{"requests": [' + b"[" * 150 + b"]" * 150 + b"]}",
    "not a number": b'{"fence": NaN, "retries": NaN, "requests": [NaN]}',
    "infinite": b'{"fence": Infinity, "retries": -Infinity, "requests": [1e999, -1e999]}',
    "a huge number": b'{"fence": ' + b"9" * 4000 + b', "requests": [' + b"9" * 4000 + b"]}",
    "a hugest number": b'{"fence": ' + b"9" * 100_000 + b"}",
    "a huge exponent": b'{"fence": 1e400, "requests": [{"component": "a", "retries": 1e400}]}',
    "minus nothing": b'{"fence": -0, "priority": -0.0}',
    "the same key twice": b'{"component": "a", "component": "b", "name": "p", "name": "q", "fence": 1, "fence": 2}',
    "many keys": b"{" + b",".join(b'"k%d": 1' % number for number in range(5000)) + b"}",
    "long texts": json.dumps({"name": "n" * 100_000, "component": "c" * 100_000, "description": "d" * 100_000}).encode(),
    "a long key": json.dumps({"k" * 100_000: 1}).encode(),
    "two documents": b"{}{}",
    "a comment": b"{/* */}",
    "null": b"null",
    "every wrong type": b'{"name": 1, "capacity": [], "settings": "x", "pools": {}, "requests": "x", "labels": 1}',
}
PATHS = (
    "%00", "%0a", "%0d%0aX-Injected: 1", "a%2Fb", "..%2f..%2fetc", "%2e%2e", "%ff", "%ed%a0%80", "%F0%9F%92%A9", "x" * 5000,
    "a%20b", "{pool}", "%7Bws%7D", "a*b", "**", "*a", "a:b", "%25s", "pk:{default}:meta", "-", "_", ".", "%E2%80%AE",
)  # fmt: skip


def _is_no_bug(answer: Said) -> Said:
    assert answer.status < 500, answer
    if answer.status >= 400:
        answer.refused(answer.status, answer.body["code"])
    assert "X-Injected" not in answer.headers
    return answer


def _filled(path: str, part: str = "some") -> str:
    return PREFIX + re.sub(r"{\w+}", lambda _: part, path)


@pytest.mark.parametrize("body", BODIES)
def test_no_body_is_a_bug(site: Site, body: str) -> None:
    for route in WITH_BODY:
        _is_no_bug(site.ask(route.method, _filled(route.path), raw=BODIES[body], root=True))


@pytest.mark.parametrize("part", PATHS)
def test_no_path_is_a_bug(site: Site, part: str) -> None:
    for route in ROUTES:
        if route.path_names:
            answer = _is_no_bug(site.ask(route.method, _filled(route.path, part), {} if route.body_model else None, root=True))
            assert answer.status in (400, 404)
    assert site.state() == {}


@pytest.mark.parametrize(
    "query",
    ["limit=%ff", "cursor=%00", "limit=1&limit=2", "label=%ed%a0%80:x", "=", "&&&=&", "limit", "limit=1e3", "limit=٣",
     "a" * 5000, "status=queued%0a", "after=%00", "wait_s=1e-400", "wait_s=1e400", "prune=\x7f", "component=%00", "%00=1",
     "&".join(["label=a:1"] * 2000)],
)  # fmt: skip
def test_no_query_is_a_bug(site: Site, query: str) -> None:
    for route in ROUTES:
        if route.method == "GET":
            path = f"{_filled(route.path)}?{query}"
            _is_no_bug(site.ask("GET", path, headers={"Accept": "application/json"}, root=True))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Request-Id", "a\u0085b"),
        ("X-Request-Id", "x" * 10_000),
        ("Authorization", "Bearer " + "\xff" * 100),
        ("Authorization", "Bearer pk_" + "A" * 100_000),
        ("Authorization", "\x00"),
        ("Poolkeeper-Workspace", "_"),
        ("Poolkeeper-Workspace", "{default}"),
        ("Poolkeeper-Workspace", "\xe9"),
        ("Poolkeeper-Workspace", ""),
        ("Idempotency-Key", "\x00"),
        ("Last-Event-ID", "9" * 100),
        ("Last-Event-ID", "\u00b2"),
        ("Accept", "\xff"),
        ("Content-Type", "application/" + "a+" * 10_000 + "json"),
        ("Content-Type", "application/json; charset=\xff"),
        ("Content-Type", "application/json; charset=utf-7"),
        ("Host", "\xff"),
        ("Host", "[::1"),
        ("Host", "localhost:99999"),
        ("Forwarded", "for=127.0.0.1;host=evil"),
        ("X-Forwarded-Host", "evil"),
        ("X-HTTP-Method-Override", "DELETE"),
        ("Range", "bytes=0-1"),
        ("If-None-Match", "*"),
        ("Expect", "x"),
    ],
)
def test_no_header_is_a_bug(site: Site, name: str, value: str) -> None:
    site.pool()
    for method, path, body in (("GET", "/pools", None), ("POST", "/requests", an_ask()), ("PATCH", "/pools/gpus", {})):
        _is_no_bug(site.ask(method, path, body, headers={name: value}))
    if name == "Last-Event-ID":
        assert site.get("/events", headers={name: value, "Accept": "application/json"}).malformed().keys() == {name}
        assert site.get("/events", headers={name: value}).malformed() == {name: "is not the id of an event"}
    assert site.get("/pools/gpus").status == 200, "nothing was deleted"


def test_a_name_is_never_more_of_a_key_than_a_name(site: Site) -> None:
    for name in ("a}b", "{b}", "a:b", "a/b", "a b", "a\n", "é", "a\x00", ""):
        assert "name" in site.post("/pools", {"name": name, "capacity": {"gpu": 1}}).malformed()
        assert "component" in site.post("/requests", an_ask() | {"component": name}).malformed()
    assert site.state() == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(["gpu", "team", "gpus", "a", ""])
FIELDS = st.sampled_from(
    ["component", "resources", "settings", "labels", "capacity", "name", "fence", "outcome", "pools", "requests", "reserved",
     "limit", "group", "parent", "weight", "priority", "unmanaged", "description", "lease_s", "preemption_class"]
)  # fmt: skip
LIKELY = st.dictionaries(FIELDS, JSON | NAMES | st.dictionaries(NAMES, st.integers(-1, 9)) | st.integers(-1, 9), max_size=5)


@ODD
@given(
    body=st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | LIKELY.map(lambda value: json.dumps(value).encode())
)
def test_random_bodies(site: Site, body: bytes) -> None:
    for route in WITH_BODY:
        _is_no_bug(site.ask(route.method, _filled(route.path), raw=body, root=True))


@ODD
@given(
    name=st.sampled_from(["limit", "cursor", "status", "label", "component", "pool", "after", "view", "prune"]),
    value=st.text(max_size=30),
)
def test_random_queries(site: Site, name: str, value: str) -> None:
    for route in ROUTES:
        if route.method == "GET":
            query: dict[str, Any] = {name: value}
            _is_no_bug(site.ask("GET", _filled(route.path), root=True, headers={"Accept": "application/json"}, **query))
