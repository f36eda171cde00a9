"""Authentication: proxies, tokens that end while a stream is open, and streams with few events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from werkzeug.test import create_environ, run_wsgi_app

from app.api.app import HttpOptions
from app.api.handlers import events
from app.domain.clock import ManualClock
from tests.support.fake_redis import new_fake
from tests.support.in_process_api import Site, an_ask

PATH = "/api/v1/events"


@contextmanager
def stream(site: Site, token: str | None = None, **query: str) -> Iterator[Iterator[str]]:
    """Yield the parts of a stream as they are written."""
    headers = {"Authorization": f"Bearer {token}"} if token else None
    answer = site.app.test_client().get(PATH, headers=headers, query_string={"after": "0", **query}, buffered=False)
    assert answer.status_code == 200
    try:
        yield (piece.decode() if isinstance(piece, bytes) else str(piece) for piece in answer.response)
    finally:
        answer.close()


@pytest.mark.parametrize(
    "header", [{"X-Forwarded-For": "8.8.8.8"}, {"Forwarded": "for=8.8.8.8"}, {"Via": "1.1 proxy"}, {"X-Real-IP": "8.8.8.8"}]
)
def test_without_tokens_a_proxy_is_not_served_and_with_one_it_is(site: Site, header: dict[str, str]) -> None:
    site.get("/pools", headers=header).refused(403, "foreign_host")
    assert site.get("/pools", headers=header, token=site.token()).status == 200


def test_without_tokens_another_sites_page_is_not_served_even_what_it_only_reads(site: Site) -> None:
    site.get("/pools", headers={"Sec-Fetch-Site": "cross-site"}).refused(403, "foreign_host")
    assert site.get("/pools", headers={"Sec-Fetch-Site": "same-origin"}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "nonsense"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Host": "localhost.example"},
        {"Host": "[::1]example"},
        {"Host": "127.0.0.1.example:80"},
        {"Host": "localhost,example"},
        {"Host": "example@localhost"},
        {"Host": "localhost:80:80"},
        {"Host": ""},
        {"Host": "0.0.0.0"},
    ],
)
def test_without_tokens_a_request_from_or_to_another_place_is_not_served(site: Site, headers: dict[str, str]) -> None:
    site.get("/pools", headers=headers).refused(403, "foreign_host")
    site.post("/requests", an_ask(), headers=headers).refused(403, "foreign_host")
    assert site.get("/pools", headers=headers, token=site.token()).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://localhost"},
        {"Host": "127.0.0.1:8080", "Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"},
        {"Host": "LOCALHOST:8080", "Origin": "http://localhost:8080"},
        {"Host": "[::1]:8080", "Origin": "http://[::1]:8080"},
        {"Host": "127.0.0.2"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"},
    ],
)
def test_without_tokens_a_request_of_this_machine_is_served(site: Site, headers: dict[str, str]) -> None:
    assert site.get("/pools", headers=headers).status == 200


def test_without_tokens_a_request_without_a_host_is_not_served(site: Site) -> None:
    environ = create_environ("/api/v1/pools", "http://localhost")
    del environ["HTTP_HOST"]
    _, status, _ = run_wsgi_app(site.app, environ)
    assert status == "403 FORBIDDEN"


def test_a_stream_ends_with_its_token(site: Site) -> None:
    site.pool(), site.policy()
    token = site.token("viewer")
    with stream(site, token) as pieces:
        next(pieces)
        site.services.tokens.revoke("viewer-1")
        admin = site.token()
        site.ask("POST", "/requests", an_ask(), token=admin)
        assert list(pieces) == []


def test_a_stream_of_which_nothing_is_wanted_says_that_it_lives_and_how_far_it_is(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEEPALIVE_S", 0)
    site.pool(), site.policy()
    site.submit()
    with stream(site, request="another") as pieces:
        next(pieces)
        result = [next(pieces) for _ in range(2)]
    assert all(piece.startswith(": alive\nid: ") for piece in result)
    listed = site.get("/events", headers={"Accept": "application/json"}).items
    assert [piece.split("id: ")[1].strip() for piece in result] == [event["id"] for event in listed[:2]]


def test_a_token_for_one_workspace_needs_not_name_it(site: Site) -> None:
    assert site.get("/whoami", token=site.token(workspaces=["lab"])).body["workspace"] == "lab"
    assert site.get("/whoami", token=site.token(workspaces=["*"])).body["workspace"] == "default"
    both = site.token(workspaces=["lab", "default"])
    assert site.get("/whoami", token=both).body["workspace"] == "default"


def test_the_key_of_a_batch_is_no_key_of_a_single_ask(everywhere: Site) -> None:
    everywhere.pool(), everywhere.policy()
    single = everywhere.post("/requests", an_ask(), headers={"Idempotency-Key": "k/0"}).body
    batch = [everywhere.post("/requests/batch", {"requests": [an_ask()]}, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert batch[0].items[0]["id"] == batch[1].items[0]["id"] != single["id"]


def test_a_clock_that_was_set_back_makes_no_token_wait_for_it(site: Site) -> None:
    assert isinstance(site.clock, ManualClock)
    token = site.token(rate=1)
    assert site.get("/pools", token=token).status == 200
    site.get("/pools", token=token).refused(429, "too_many_requests")
    key, ahead_ms = next(str(name) for name in site.client.scan_iter("pk:{_}:rate:*")), site.clock.now_ms() + 3_600_000
    site.client.set(key, f"{ahead_ms + 1000} {ahead_ms}")
    site.get("/pools", token=token).refused(429, "too_many_requests")
    site.clock.advance(1)
    assert site.get("/pools", token=token).status == 200


def test_a_poll_that_is_throttled_keeps_its_request_in_the_queue(site: Site) -> None:
    site.pool(gpu=1)
    for team in ("team", "other"):
        site.policy(team)
    site.submit(lease_s=None)
    mine, foreign = (site.submit(team, queue_ttl_s=60)["id"] for team in ("team", "other"))
    token = site.token("requester", "team", rate=1)
    for _ in range(3):
        site.clock.advance(40)
        site.client.set(
            f"pk:{{_}}:rate:{site.services.tokens.list_tokens()[0].id}", f"{site.clock.now_ms() + 9000} {site.clock.now_ms()}"
        )
        for path in (f"/requests/{mine}", f"/requests/{foreign}", "/requests/unknown", "/pools"):
            site.get(path, token=token).refused(429, "too_many_requests")
        site.services.cleanup.run("default")
    statuses = [site.services.requests.get("default", request).status for request in (mine, foreign)]
    assert statuses == ["queued", "expired"]


def test_a_batch_counts_as_many_calls_as_it_has_asks(site: Site) -> None:
    assert isinstance(site.clock, ManualClock)
    token = site.token(rate=10)
    assert site.post("/requests/batch", {"requests": [an_ask()] * 30}, token=token).status == 201
    refused = site.get("/pools", token=token)
    refused.refused(429, "too_many_requests")
    assert refused.headers["Retry-After"] == "3"
    site.clock.advance(3)
    assert site.get("/pools", token=token).status == 200


def test_a_requester_has_limits_unless_its_token_says_otherwise(site: Site) -> None:
    site.pool(gpu=1), site.policy()
    site.post("/requests", an_ask(gpu=1))
    few = site.token("requester", "team", limits={"max_waiting": 1})
    assert site.post("/requests", an_ask(gpu=1), token=few).status == 201
    problem = site.post("/requests", an_ask(gpu=1), token=few).refused(429, "too_many_waiting")
    assert (problem["limit_name"], problem["limit"], problem["present"]) == ("max_waiting", 1, 1)
    assert problem["limit_of"].startswith("token/")
    items = site.post("/requests/batch", {"requests": [an_ask(gpu=1), {}]}, token=few).items
    assert [item["code"] for item in items] == ["too_many_waiting", "malformed"]
    asks = {"requests": [an_ask(gpu=1)] * 5}
    answers = site.post("/requests/batch", asks, token=site.token("requester", "team")).items
    assert [answer["status"] for answer in answers] == ["queued"] * 5


def test_where_a_token_is_required_no_call_is_served_without_one_even_while_there_is_none() -> None:
    site = Site(new_fake(), choices=HttpOptions(token_required=True))
    site.get("/pools").refused(401, "no_token")
    site.post("/requests", an_ask()).refused(401, "no_token")
