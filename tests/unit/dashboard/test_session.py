"""Sessions: signing in and out, cookies, forms of other sites, tokens that end, and loopback access without a token."""

from __future__ import annotations

import re

import pytest
from werkzeug.test import TestResponse

from tests.unit.dashboard.page_client import Desk, Visitor, words

ELSEWHERE, ACROSS = {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}
BACK = ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "/\tevil", ""]


def cookies(answer: TestResponse) -> dict[str, str]:
    """Return the attributes of each cookie that the response sets, by name."""
    return {text.partition("=")[0]: text.partition(";")[2] for text in answer.headers.getlist("Set-Cookie")}


def test_without_tokens_it_is_open_to_this_machine(desk: Desk) -> None:
    desk.pool()
    assert "gpus" in desk.visitor().text("/")
    assert desk.visitor().get("/sign-in").headers["Location"] == "/"


@pytest.mark.parametrize(
    "headers", [{"Host": "pool.example"}, {"X-Forwarded-For": "10.0.0.1"}, {"Via": "1.1 proxy"}, ACROSS, ELSEWHERE]
)
@pytest.mark.parametrize("path", ["/", "/live", "/sign-in"])
def test_without_tokens_only_loopback_is_served(desk: Desk, headers: dict[str, str], path: str) -> None:
    answer = desk.visitor().get(path, headers)
    assert answer.status_code == 403
    assert "only requests from and to localhost are served" in words(answer)


def test_with_tokens_one_is_asked_for_and_leads_to_where_one_wanted_to_go(desk: Desk) -> None:
    desk.pool()
    secret = desk.token("viewer")
    visitor = desk.visitor()
    sent = visitor.get("/pools/gpus?queue=q%3A1%3A2")
    assert (sent.status_code, sent.headers["Location"]) == (303, "/sign-in?next=%2Fpools%2Fgpus%3Fqueue%3Dq%253A1%253A2")
    signed = visitor.send("/sign-in", {"token": f" {secret} "}, page=sent.headers["Location"])
    assert (signed.status_code, signed.headers["Location"]) == (303, "/pools/gpus?queue=q%3A1%3A2")
    assert "gpus" in visitor.text("/")
    assert desk.visitor().get("/").status_code == 303, "and no other visitor"


@pytest.mark.parametrize("back", BACK)
def test_it_leads_nowhere_else(desk: Desk, back: str) -> None:
    secret = desk.token("viewer")
    signed = desk.visitor().send("/sign-in", {"token": secret, "next": back}, page="/sign-in")
    assert signed.headers["Location"] == "/"


def test_the_cookies_are_out_of_reach(desk: Desk) -> None:
    secret = desk.token("viewer")
    visitor = desk.visitor()
    plain = cookies(visitor.send("/sign-in", {"token": secret}, page="/sign-in"))
    assert plain == {"poolkeeper": " HttpOnly; Path=/; SameSite=Lax"}
    over_tls = Visitor(desk.app.test_client())
    page = over_tls.http.get("/sign-in", base_url="https://localhost")
    assert cookies(page) == {"__Host-poolkeeper-visit": " Secure; HttpOnly; Path=/; SameSite=Lax"}
    fields = dict(re.findall(r'name="(form|next)" value="([^"]*)"', page.get_data(as_text=True))) | {"token": secret}
    signed = over_tls.http.post("/sign-in", data=fields, base_url="https://localhost")
    assert cookies(signed) == {"__Host-poolkeeper": " Secure; HttpOnly; Path=/; SameSite=Lax"}
    assert over_tls.http.get("/", base_url="https://localhost").status_code == 200


@pytest.mark.parametrize("wrong", ["", "pk_" + "x" * 43, "x" * 5000, "pk_\x00", "'\"><script>"])
def test_what_is_no_token_is_refused_and_not_repeated(desk: Desk, wrong: str) -> None:
    desk.token("viewer")
    answer = desk.visitor().send("/sign-in", {"token": wrong}, page="/sign-in")
    assert answer.status_code == 403
    assert "unknown, expired or revoked" in words(answer)
    assert "poolkeeper" not in cookies(answer)
    assert not wrong or wrong not in answer.get_data(as_text=True)


def test_signing_out_forgets_the_token(desk: Desk) -> None:
    visitor = desk.visitor(desk.token("viewer"))
    assert visitor.send("/sign-out", page="/").headers["Location"] == "/sign-in"
    assert visitor.get("/").status_code == 303


def test_a_token_that_is_revoked_or_has_expired_ends_the_visit(desk: Desk) -> None:
    desk.token("admin")
    leaving = desk.visitor(desk.token("viewer", name="leaving"))
    short = desk.visitor(desk.token("viewer", name="short", expires_s=60))
    assert leaving.get("/").status_code == short.get("/").status_code == 200
    desk.services.tokens.revoke("leaving")
    assert leaving.get("/").status_code == 303
    part = leaving.get("/", {"HX-Request": "true"})
    assert (part.status_code, part.headers["HX-Redirect"]) == (401, "/sign-in?next=%2F"), "a script goes there"
    desk.clock.advance(61)
    desk.services.tokens._cache.clear()
    assert short.get("/").status_code == 303


def test_the_cookie_of_the_last_token_does_not_lock_loopback_out(desk: Desk) -> None:
    visitor = desk.visitor(desk.token("viewer", name="last"))
    desk.services.tokens.revoke("last")
    assert visitor.get("/").headers["Location"] == "/sign-in?next=%2F"
    assert visitor.get("/sign-in").headers["Location"] == "/"
    assert visitor.get("/").status_code == 200


@pytest.mark.parametrize(
    "headers", [ELSEWHERE, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}, ACROSS, {"Sec-Fetch-Site": "none"}]
)
def test_a_form_on_a_page_of_others_does_nothing(desk: Desk, headers: dict[str, str]) -> None:
    secret = desk.token("admin")
    visitor = desk.visitor(secret)
    item = _waiting(desk, secret)
    answer = visitor.send(f"/requests/{item}/cancel", headers=headers)
    assert (answer.status_code, "is from another page" in words(answer)) == (403, True)
    assert desk.services.requests.get("default", item).status == "queued"


def test_a_form_needs_what_was_made_for_this_visit(desk: Desk) -> None:
    secret = desk.token("admin")
    item = _waiting(desk, secret)
    path = f"/requests/{item}/cancel"
    mine, other = desk.visitor(secret), desk.visitor(secret)
    foreign = re.findall(r'name="form" value="([^"]*)"', other.get(path).get_data(as_text=True))[-1]
    before = re.findall(r'name="form" value="([^"]*)"', desk.visitor().get("/sign-in").get_data(as_text=True))[-1]
    for form in ("", "x", "ü", foreign, before):
        assert mine.send(path, {"form": form}).status_code == 403, form
    assert mine.http.post(path).status_code == 403
    assert mine.send(path).status_code == 303


def test_nothing_is_changed_by_a_get(desk: Desk) -> None:
    secret = desk.token("admin")
    item = _waiting(desk, secret)
    visitor, before = desk.visitor(secret), desk.services.requests.get_last_event_id("default")
    for path in (f"/requests/{item}/cancel?shown=x", f"/requests/{item}/drop", "/pools/gpus/resize?capacity.gpu=9"):
        assert visitor.get(path).status_code == 200
    assert desk.services.requests.get_last_event_id("default") == before


def test_the_api_takes_no_cookie(desk: Desk) -> None:
    visitor = desk.visitor(desk.token("admin"))
    assert visitor.get("/api/v1/pools").status_code == 401


def test_too_many_requests_are_too_many_here_as_well(desk: Desk) -> None:
    visitor = desk.visitor(desk.token("viewer", rate=1))
    assert visitor.get("/").status_code == 200
    refused = visitor.get("/")
    assert (refused.status_code, "Retry-After" in refused.headers) == (429, True)


def _waiting(desk: Desk, secret: str) -> str:
    desk.post("/pools", {"name": "gpus", "capacity": {"gpu": 1}}, token=secret)
    desk.put("/pools/gpus/policies/team", {}, token=secret)
    ask = {"component": "team", "resources": {"gpu": 1}}
    desk.post("/requests", ask, token=secret)
    waiting: str = desk.post("/requests", ask, token=secret).body["id"]
    return waiting


def test_a_refused_permission_names_the_roles_that_may(desk: Desk) -> None:
    desk.post("/pools", {"name": "gpus", "capacity": {"gpu": 1}}, token=desk.token("admin"))
    page = desk.visitor(desk.token("viewer")).get("/pools/gpus/resize")
    assert page.status_code == 403
    text = page.get_data(as_text=True)
    assert "the role viewer may not change capacities and existing policies (permission adjust)" in text
    assert "use a token of the role operator or admin" in text


def test_a_token_for_a_pattern_sees_and_cancels_what_matches(desk: Desk) -> None:
    admin = desk.token("admin")
    desk.post("/pools", {"name": "gpus", "capacity": {"gpu": 1}}, token=admin)
    asks = {}
    for component in ("base", "user-1", "user-2", "other"):
        desk.put(f"/pools/gpus/policies/{component}", {}, token=admin)
        body = {"component": component, "resources": {"gpu": 1}}
        asks[component] = desk.post("/requests", body, token=admin).body["id"]
    visitor = desk.visitor(desk.token("requester", "user-*"))
    for component, request in asks.items():
        reached = component.startswith("user-")
        assert (visitor.get(f"/requests/{request}").status_code == 200) is reached
        assert (visitor.get(f"/requests/{request}/cancel").status_code == 200) is reached
    page = visitor.text("/pools/gpus")
    assert [component for component in ("user-1", "user-2") if component not in page] == []
