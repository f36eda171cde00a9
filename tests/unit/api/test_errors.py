"""The one table of what can go wrong: everything there is has its status, and what is in no table is a bug."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from werkzeug import exceptions as werkzeug

from app.api import errors
from app.api.routes import AT_ROOT, ROUTES
from app.domain import errors as domain
from app.domain.errors import (
    UNAVAILABLE_REASONS,
    Conflict,
    LimitReached,
    NotFound,
    Refusal,
    RefusedDeclaration,
    RuleViolation,
    StaleFence,
    StoreUnavailable,
)
from app.logging_config import JsonFormatter
from app.service.wait_slots import TokenShareUsed, TooManyWaiters
from tests.support.in_process_api import Site

MADE: dict[type[Exception], tuple[Exception, int, str]] = {  # each class: one of it, its status and code
    Refusal: (Refusal("no", "no"), 422, "no"),
    NotFound: (NotFound("pool", "gpus"), 404, "no_such_pool"),
    RuleViolation: (RuleViolation("circle", "a circle"), 422, "circle"),
    Conflict: (Conflict("in_use", "is in use"), 409, "in_use"),
    RefusedDeclaration: (RefusedDeclaration("in_use", "pool p is in use", "p", "pool"), 409, "in_use"),
    LimitReached: (LimitReached("workspace", "max_waiting", 1, 1), 429, "too_many_waiting"),
    StaleFence: (StaleFence("r", "expired", "lease_lapsed"), 409, "stale_fence"),
    TooManyWaiters: (TooManyWaiters("full"), 503, "too_many_waiters"),
    TokenShareUsed: (TokenShareUsed("used"), 429, "token_share_used"),
}


def _answer(error: Exception) -> errors.ProblemReply:
    reply = errors.problem_reply(error, "id")
    assert reply is not None
    return reply


@pytest.mark.parametrize("kind", MADE)
def test_every_refusal_has_its_status_and_code(kind: type[Exception]) -> None:
    error, status, code = MADE[kind]
    reply = _answer(error)
    assert (reply.status, reply.body.status, reply.body.code) == (status, status, code)
    assert (reply.body.detail, reply.body.request_id, reply.body.type) == (str(error), "id", "about:blank")
    passes_with_time = status in (429, 503) and kind is not LimitReached
    assert ("Retry-After" in reply.headers) == passes_with_time


def test_no_class_of_the_domain_is_forgotten() -> None:
    classes = {kind for kind in vars(domain).values() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert classes - {StoreUnavailable} == MADE.keys() - {TooManyWaiters, TokenShareUsed}
    assert all(any(issubclass(kind, current) for current, _ in errors.STATUSES) for kind in classes)


@pytest.mark.parametrize("code", domain._RULE_REFUSALS)
def test_every_rule_of_the_ledger_has_a_status(code: str) -> None:
    error = domain.rule_refusal(code, "policy:orchestrator/team", "gpu", "3", "2")
    expected = {RuleViolation: 422, Conflict: 409}[type(error)]
    assert (_answer(error).status, _answer(error).body.code) == (expected, code)
    assert "{" not in str(error)


@pytest.mark.parametrize("reason", UNAVAILABLE_REASONS)
def test_a_redis_that_is_away_is_503_whatever_the_reason(reason: str) -> None:
    reply = _answer(StoreUnavailable(reason, f"Redis {UNAVAILABLE_REASONS[reason]}"))
    assert (reply.status, reply.body.code) == (503, f"redis_{reason}")
    assert int(reply.headers["Retry-After"]) >= 1


def test_a_stale_holder_is_told_to_stop() -> None:
    body = json.loads(_answer(StaleFence("r", "expired", "lease_lapsed")).body.model_dump_json())
    assert (body["directive"], body["request_status"]) == ("kill", "expired")


@pytest.mark.parametrize("kind", werkzeug.default_exceptions.values())
def test_what_the_framework_refuses_is_a_problem_or_a_bug(kind: type[werkzeug.HTTPException]) -> None:
    error = kind()
    reply = errors.problem_reply(error, "id")
    status = error.code or 500
    if status >= 500:
        assert reply is None
    else:
        assert reply is not None
        assert (reply.status, reply.body.status) == (status, status)
        assert reply.body.detail


@pytest.mark.parametrize(
    "bug", [ValueError("secret"), KeyError("secret"), AssertionError(), RuntimeError("secret"), werkzeug.BadGateway()]
)
def test_a_bug_is_in_no_table(bug: Exception) -> None:
    assert errors.problem_reply(bug, "id") is None


# ---- as it is answered


@pytest.mark.parametrize(
    "bug", [ValueError("secret"), ZeroDivisionError("secret"), RecursionError("secret"), StopIteration("secret")]
)
def test_a_bug_is_answered_without_a_word_of_it_and_logged_with_its_trace(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, bug: Exception
) -> None:
    def broken(*_: Any) -> None:
        raise bug

    monkeypatch.setattr(type(site.services.pools), "list_names", broken)
    answer = site.get("/pools", headers={"X-Request-Id": "the-id"})
    problem = answer.refused(500, "internal_error")
    assert problem["detail"] == "something went wrong here; the log has it under the request id"
    assert "secret" not in str(answer)
    assert "Retry-After" not in answer.headers
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    line = json.loads(JsonFormatter().format(record))
    assert (line["message"], line["request_id"]) == ("GET /api/v1/pools failed", "the-id")
    assert f"{type(bug).__name__}: secret" in line["error"]


def test_a_bug_in_a_stream_ends_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("secret")

    monkeypatch.setattr(type(site.services.requests), "list_events", broken)
    site.get("/events", after="0").refused(500, "internal_error")


def test_no_answer_is_a_page_of_the_framework(site: Site) -> None:
    for path in ("/nothing", "/pools/none", "/pools?limit=0"):
        assert site.get(path).kind == "application/problem+json"


def test_a_problem_leaves_out_what_it_has_not(site: Site) -> None:
    assert site.get("/pools/none").body.keys() == {"type", "title", "status", "detail", "code", "request_id"}
    assert site.get("/pools", limit=0).body.keys() == {"type", "title", "status", "detail", "code", "request_id", "errors"}


def test_every_code_that_a_route_can_refuse_with_is_one_of_its_statuses() -> None:
    for route in (*ROUTES, *AT_ROOT):
        assert 400 in route.failure_statuses, "of a query parameter that it does not know"
        assert (503 in route.failure_statuses) == (route.path != "/healthz")
        assert {401, 403, 429} <= set(route.failure_statuses) or route.permission is None
        assert {413, 415} <= set(route.failure_statuses) or route.body_model is None
        assert 404 in route.failure_statuses or not route.path_names or not route.refuses_absent
        assert 500 not in route.failure_statuses
