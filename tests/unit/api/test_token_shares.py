"""The share of a process that one token may hold, so that other tokens are served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from werkzeug.test import TestResponse

from app.api import request_body
from app.api.request_body import large_body_turn
from app.settings import Settings
from tests.support.fake_redis import new_fake
from tests.support.in_process_api import BROKERS, Site, an_ask

THREADS = 64
"""Of which streams have 8, long polls and streams 48; a token has a quarter of each."""
TOKEN_STREAMS, TOKEN_POLLS = 2, 12


@pytest.fixture
def small_site() -> Iterator[Site]:
    """Yield an API of few threads."""
    site = Site(new_fake(), Settings(brokers=BROKERS, api_threads=THREADS))
    yield site
    site.services.long_polls.close()


@contextmanager
def streams(site: Site, number: int, secret: str | None) -> Iterator[list[TestResponse]]:
    """Open this many streams with one token; yield the responses, with the accepted streams still open."""
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    with ExitStack() as stack:
        answers = [site.app.test_client().get("/api/v1/events", headers=headers, buffered=False) for _ in range(number)]
        for answer in answers:
            stack.callback(answer.close)
        yield answers


def test_a_token_holds_a_quarter_of_the_streams_and_others_find_theirs(small_site: Site) -> None:
    first, second = small_site.token("viewer"), small_site.token("viewer", workspaces=["other"])
    with streams(small_site, TOKEN_STREAMS + 1, first) as own, streams(small_site, TOKEN_STREAMS, second) as others:
        assert [answer.status_code for answer in own] == [200] * TOKEN_STREAMS + [429]
        assert [answer.status_code for answer in others] == [200] * TOKEN_STREAMS
        refused = small_site.get("/events", token=first)
        assert refused.headers["Retry-After"] == "1"
        detail = "this token holds 2 of the 2 event streams that a token may hold in a process"
        assert refused.refused(429, "token_share_used")["detail"] == detail
    with streams(small_site, 1, first) as own:
        assert own[0].status_code == 200


def test_a_token_holds_a_quarter_of_the_long_polls_and_is_answered_at_once_beyond(small_site: Site) -> None:
    small_site.pool(), small_site.policy()
    small_site.submit(gpu=8)
    waits = small_site.submit()["id"]
    token = small_site.token()
    (record,) = small_site.services.tokens.list_tokens()
    slots = small_site.services.long_polls.slots
    with ExitStack() as stack:
        held = [stack.enter_context(slots.slot("poll", record.id)) for _ in range(TOKEN_POLLS)]
        assert all(held)
        answer = small_site.get(f"/requests/{waits}", wait_s=60, token=token)
        assert (answer.status, answer.body["status"], answer.headers["Retry-After"]) == (200, "queued", "1")
    other = small_site.get(f"/requests/{waits}", wait_s=0.01, token=token)
    assert "Retry-After" not in other.headers


def test_without_tokens_all_callers_share_all_streams(small_site: Site) -> None:
    with streams(small_site, THREADS // 8 + 1, None) as answers:
        assert [answer.status_code for answer in answers] == [200] * (THREADS // 8) + [503]


def test_the_share_is_a_setting() -> None:
    site = Site(new_fake(), Settings(brokers=BROKERS, api_threads=THREADS, token_share_percent=100))
    with streams(site, THREADS // 8 + 1, site.token("viewer")) as answers:
        assert [answer.status_code for answer in answers] == [200] * (THREADS // 8) + [429]
    site.services.long_polls.close()


LARGE = {"requests": [{"component": "team", "labels": {"pad": "x" * 255}}] * 300}
"""A body of more than 64 KiB."""


def test_a_token_has_a_quarter_of_the_large_bodies_and_small_ones_do_not_count(small_site: Site) -> None:
    first, second = small_site.token(name="first"), small_site.token(name="second")
    holder = next(record.id for record in small_site.services.tokens.list_tokens() if record.name == "first")
    slots = small_site.services.long_polls.slots
    with slots.slot("body", holder):
        refused = small_site.post("/requests/batch", LARGE, token=first)
        assert refused.headers["Retry-After"] == "1"
        detail = "this token holds 1 of the 1 large bodies that a token may hold in a process"
        assert refused.refused(429, "token_share_used")["detail"] == detail
        assert small_site.post("/requests/batch", LARGE, token=second).status == 201
        assert small_site.post("/requests/batch", {"requests": [an_ask()]}, token=first).status == 201
        small_site.post("/requests", an_ask(labels={"pad": "x" * 2**17}), token=first).refused(413, "body_too_large")
    assert small_site.post("/requests/batch", LARGE, token=first).status == 201
    assert set(slots.used().values()) == {0}


def test_no_more_large_bodies_are_served_than_a_process_has_slots_for(small_site: Site) -> None:
    slots = small_site.services.long_polls.slots
    with ExitStack() as stack:
        while stack.enter_context(slots.slot("body")):
            pass
        refused = small_site.post("/requests/batch", LARGE)
        assert refused.headers["Retry-After"] == "1"
        refused.refused(503, "too_many_waiters")


def test_a_refused_large_body_gives_its_slot_back(small_site: Site) -> None:
    slots = small_site.services.long_polls.slots
    for raw in (b"{" + b" " * 2**17, b"[" * 2**17, b'{"requests": [' + b"1," * 2**16 + b"1]}", b" " * 2**23):
        assert small_site.ask("POST", "/requests/batch", raw=raw).status in (400, 413)
    assert slots.used()["body"] == 0
    assert slots.refused()["body"] == 0


def test_four_large_bodies_are_served_at_a_time(small_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "TURN_WITHIN_S", 0)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(large_body_turn())
        assert small_site.post("/requests/batch", LARGE).status == 201
        stack.enter_context(large_body_turn())
        refused = small_site.post("/requests/batch", LARGE)
        assert refused.headers["Retry-After"] == "1"
        refused.refused(503, "too_many_waiters")
        assert small_site.post("/requests/batch", {"requests": [an_ask()]}).status == 201
    assert small_site.post("/requests/batch", LARGE).status == 201


def test_a_token_has_one_dry_run_at_a_time_and_others_theirs(small_site: Site) -> None:
    small_site.pool()
    first, second = small_site.token("viewer", name="first"), small_site.token("viewer", name="second")
    holder = next(record.id for record in small_site.services.tokens.list_tokens() if record.name == "first")
    body = {"pool": {"name": "gpus", "capacity": {"gpu": 1}}}
    with small_site.services.dry_run_shares.turn(holder):
        refused = small_site.post("/dry-run", body, token=first)
        assert refused.headers["Retry-After"] == "1"
        assert refused.refused(429, "token_share_used")["detail"] == "a dry run of this token is under way"
        assert small_site.post("/dry-run", body, token=second).status == 200
    assert small_site.post("/dry-run", body, token=first).status == 200
