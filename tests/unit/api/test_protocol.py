"""The common part of every route: methods, media types, sizes, the id of a call, and the line in the log."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from app.api.access_log import AccessLog
from app.api.app import HttpOptions
from app.api.routes import AT_ROOT, PREFIX, ROUTES
from app.logging_config import JsonFormatter, TextFormatter
from app.settings import Settings
from tests.support.fake_redis import new_fake
from tests.support.in_process_api import Site, an_ask

PATHS = sorted({PREFIX + route.path for route in ROUTES} | {route.path for route in AT_ROOT} | {f"{PREFIX}/openapi.json"})
VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FOO")
WITH_BODY = [route for route in ROUTES if route.body_model]


def _filled(path: str) -> str:
    return re.sub(r"{\w+}", "some", path)


# ---- verbs and paths


@pytest.mark.parametrize("path", [*PATHS, "/docs", "/docs/start.js"])
def test_a_verb_that_a_path_does_not_know_is_told_those_it_does(site: Site, path: str) -> None:
    current = {route.method for route in ROUTES if PREFIX + route.path == path} | {
        route.method for route in AT_ROOT if route.path == path
    }
    # a path may also be an instance of another: /requests/batch is one of /requests/{request}
    current |= {"GET", "DELETE"} if path.endswith("/requests/batch") else set()
    current |= {"GET"} if path.startswith("/docs") or path.endswith(".json") else set()
    current |= {"HEAD"} if "GET" in current else set()
    for verb in set(VERBS) - current:
        answer = site.ask(verb, _filled(path), root=True)
        assert answer.status == 405
        if verb != "HEAD":
            assert answer.refused(405, "method_not_allowed")["detail"] == "this route does not have this method"
        assert set(answer.headers["Allow"].split(", ")) == current


@pytest.mark.parametrize(
    "path",
    ["/api", "/api/v1", "/api/v2/pools", f"{PREFIX}/nothing", f"{PREFIX}/pools/", f"{PREFIX}//pools",
     f"{PREFIX}/pools/a%2Fb", f"{PREFIX}/requests/x/explode", f"{PREFIX}/pools/a/../b/c",
     "/healthz/", "/%00", "/%ff%fe", "/a%0d%0aX-Y: z"],
)  # fmt: skip
def test_there_is_no_such_route(site: Site, path: str) -> None:
    answer = site.get(path, root=True)
    assert answer.refused(404, "no_such_route")["detail"] == "there is no such route; /docs lists all routes"
    assert "Location" not in answer.headers


def test_a_head_is_a_get_without_its_body(site: Site) -> None:
    site.pool()
    for path in ("/pools", "/pools/gpus", "/whoami"):
        head = site.ask("HEAD", path)
        assert (head.status, head.body) == (200, "")
        assert head.headers["Content-Length"] == site.get(path).headers["Content-Length"]


def test_a_parameter_that_no_route_knows_is_refused(site: Site) -> None:
    site.pool()
    for route in (*ROUTES, *AT_ROOT):
        prefix = "" if route in AT_ROOT else PREFIX
        answer = site.ask(route.method, prefix + _filled(route.path), root=True, colour="red")
        assert answer.malformed() == {"colour": "is not a field here"}, route.name


# ---- bodies


@pytest.mark.parametrize("route", WITH_BODY, ids=lambda route: route.name)
def test_a_body_has_to_be_json_and_to_say_so(site: Site, route: Any) -> None:
    path = _filled(route.path)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", ""):
        site.ask(route.method, path, raw=b"{}", headers={"Content-Type": kind}).refused(415, "not_json")
    faults = site.ask(route.method, path, raw=b"{").malformed()
    assert list(faults) == [""]
    assert faults[""].startswith("is not JSON: ")
    assert site.ask(route.method, path, raw=b"[]").malformed() == {"": "must be an object"}
    assert site.ask(route.method, path, raw=b'{"colour": 1}').malformed()["colour"] == "is not a field here"
    if not route.is_body_optional:
        assert site.ask(route.method, path, raw=b"").malformed() == {"": "is empty, and has to be JSON"}
        site.ask(route.method, path).refused(415, "not_json")


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/vnd.poolkeeper+json"])
def test_kinds_of_json(site: Site, kind: str) -> None:
    assert site.post("/requests", an_ask(), headers={"Content-Type": kind}).status == 201


@pytest.mark.parametrize("route", WITH_BODY, ids=lambda route: route.name)
def test_a_body_may_have_so_many_bytes(route: Any) -> None:
    site = Site(new_fake(), choices=HttpOptions(max_body_bytes=2048))
    before = site.state()
    large = b'{"pad": "' + b"x" * 2048 + b'"}'
    refused = site.ask(route.method, _filled(route.path), raw=large).refused(413, "body_too_large")
    assert refused["detail"] == "a body may have 2048 bytes"
    assert site.state() == before
    exact = b'{"pad": "' + b"x" * (2048 - 11) + b'"}'
    assert len(exact) == 2048
    assert site.ask(route.method, _filled(route.path), raw=exact).malformed()["pad"] == "is not a field here"


# ---- the id of a request


@pytest.mark.parametrize("value", ["abc", "A-b_c.d:9", "x" * 64])
def test_an_id_that_is_given_is_said_again(site: Site, value: str) -> None:
    for path in ("/pools", "/pools/none", "/nothing"):
        assert site.get(path, headers={"X-Request-Id": value}).headers["X-Request-Id"] == value
    assert site.get("/pools/none", headers={"X-Request-Id": value}).refused(404, "no_such_pool")["request_id"] == value


@pytest.mark.parametrize("value", ["", "x" * 65, "a b", "a\tb", "<script>", "é", "a,b", '"'])
def test_an_id_that_cannot_be_one_is_replaced(site: Site, value: str) -> None:
    made = site.get("/pools", headers={"X-Request-Id": value}).headers["X-Request-Id"]
    assert re.fullmatch("[0-9a-f]{16}", made)


def test_ids_that_are_made_differ(site: Site) -> None:
    assert len({site.get("/pools").headers["X-Request-Id"] for _ in range(50)}) == 50


# ---- the line in the log


EVERY_REQUEST = AccessLog(slow_ms=0, sample_percent=0)


def _lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the lines of the access log."""
    return [json.loads(JsonFormatter().format(record)) for record in caplog.records if record.name == "poolkeeper.access"]


def test_every_request_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(new_fake(), choices=HttpOptions(access_log=EVERY_REQUEST))
    caplog.set_level(logging.INFO)
    site.pool()
    site.get("/pools/gpus", headers={"X-Request-Id": "my-id"}, workspace="other")
    site.get("/nothing")
    site.get("/healthz", root=True)
    site.get("/readyz", root=True)
    created, shown, nothing = _lines(caplog)
    assert created["message"] == "POST /api/v1/pools 201"
    assert isinstance(shown.pop("ms"), float)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", shown.pop("at"))
    assert shown == {
        "level": "info",
        "logger": "poolkeeper.access",
        "message": "GET /api/v1/pools/gpus 404",
        "request_id": "my-id",
        "route": "/pools/{pool}",
        "status": 404,
        "workspace": "other",
        "token": "anonymous",
        "client": "127.0.0.1",
    }
    assert (nothing["route"], nothing["status"], nothing["workspace"]) == ("none", 404, None)


def test_the_log_names_the_token_and_never_says_its_secret(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(new_fake(), choices=HttpOptions(access_log=EVERY_REQUEST))
    caplog.set_level(logging.DEBUG)
    secret = site.token("viewer", name="ci")
    site.get("/pools", token=secret)
    site.post("/pools", {}, token=secret)
    site.get(f"/pools/{secret}", token=secret)
    site.get("/pools", token=secret + "x")
    names = [line["token"] for line in _lines(caplog)]
    assert names == ["ci", "ci", "ci", "anonymous"]
    whole = "\n".join(JsonFormatter().format(record) + str(vars(record)) for record in caplog.records)
    assert "Bearer" not in whole
    assert secret not in whole.replace(f"/pools/{secret}", "", whole.count(f"/pools/{secret}"))


@pytest.mark.parametrize("path", ["/pools/a%0Ab", "/pools/a%0D%0Ab", "/a%0Ab", "/pools/%1b[31m", "/pools/%E2%80%A8x"])
def test_no_path_makes_a_second_line(site: Site, caplog: pytest.LogCaptureFixture, path: str) -> None:
    caplog.set_level(logging.INFO)
    site.get(path)
    (record,) = [record for record in caplog.records if record.name == "poolkeeper.access"]
    for line in (JsonFormatter().format(record), TextFormatter().format(record)):
        assert line.isprintable()


def test_headers_of_an_answer_are_made_of_nothing_that_was_sent(site: Site) -> None:
    sent = {"X-Request-Id": "evil", "Poolkeeper-Workspace": "evil-space", "Accept": "evil/kind", "Idempotency-Key": "evil-key"}
    answer = site.post("/requests", an_ask(), headers=sent)
    headers = {name: value for name, value in answer.headers.items() if "evil" in value}
    assert headers == {"X-Request-Id": "evil"}


def test_a_default_rate_is_for_tokens_without_their_own() -> None:
    site = Site(new_fake(), Settings(rate_per_s=1))
    slow, quick = site.token(), site.token(rate=0)
    assert [site.get("/pools", token=slow).status for _ in range(2)] == [200, 429]
    assert [site.get("/pools", token=quick).status for _ in range(5)] == [200] * 5


def test_a_body_of_one_byte_more_than_may_be_is_refused() -> None:
    site = Site(new_fake(), choices=HttpOptions(max_body_bytes=2048))
    body = b'{"pad": "' + b"x" * (2048 - 10) + b'"}'
    assert len(body) == 2049
    site.ask("POST", "/requests", raw=body).refused(413, "body_too_large")
