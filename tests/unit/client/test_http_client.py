"""Calls of the HTTP client against a stub server: requests, the result of each answer, and retries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from poolkeeper import Client, config, errors

from tests.support.memory_network import MemoryNetwork
from tests.support.stub_server import StubServer, cut, cut_midway, hang, refuse, reply, reply_text

Asking = Callable[..., Client]

TROUBLE = {
    "503": refuse(503, "away"),
    "429": refuse(429, "slower"),
    "502": reply_text(502, b"bad"),
    "cut": cut,
    "cut midway": cut_midway,
}


class TestWhatIsSent:
    def test_a_call_has_its_token_and_workspace(self, make_client: Asking, stub: StubServer) -> None:
        make_client(token="secret", workspace="blue").call("GET", "/pools")
        [call] = stub.calls
        assert (call.method, call.path, call.body) == ("GET", "/api/v1/pools", None)
        assert call.headers["authorization"] == "Bearer secret"
        assert call.headers["poolkeeper-workspace"] == "blue"

    def test_without_a_token_none_is_sent(self, make_client: Asking, stub: StubServer) -> None:
        make_client().call("GET", "/pools")
        assert "authorization" not in stub.calls[0].headers
        assert stub.calls[0].headers["poolkeeper-workspace"] == "default"

    def test_a_body_is_json(self, make_client: Asking, stub: StubServer) -> None:
        make_client().call("PUT", "/x", body={"größe": [1, None, True]})
        assert stub.calls[0].body == {"größe": [1, None, True]}
        assert stub.calls[0].headers["content-type"] == "application/json"

    def test_of_a_query_none_is_left_out_and_lists_repeat(self, make_client: Asking, stub: StubServer) -> None:
        make_client().call("GET", "/x", query={"a": None, "b": True, "c": ["x:1", "y&z"], "d": 0, "e": []})
        assert stub.calls[0].path == "/api/v1/x?b=true&c=x%3A1&c=y%26z&d=0"

    def test_a_url_may_have_a_path(self, stub: StubServer) -> None:
        Client(stub.url + "/behind/proxy/").call("GET", "/pools")
        assert stub.calls[0].path == "/behind/proxy/api/v1/pools"

    @pytest.mark.parametrize("end", ["/", "/api/v1", "/api/v1/"])
    def test_what_every_call_begins_with_is_no_part_of_it(self, stub: StubServer, end: str) -> None:
        client = Client(stub.url + end)
        client.call("GET", "/pools")
        assert (stub.calls[0].path, client.url) == ("/api/v1/pools", stub.url)

    @pytest.mark.parametrize(
        ("url", "why"),
        [
            ("ftp://host", "http://host:port or https://host:port"),
            ("http://", "http://host:port"),
            ("http://h:port", "http://host:port"),
            ("http://h/?q=1", "http://host:port"),
            ("localhost:8080", "http:// or https:// is missing"),
            ("127.0.0.1:8080", "http:// or https:// is missing"),
            ("nonsense", "http:// or https:// is missing"),
            ("http://h/docs", "leave out /docs"),
            ("http://h/docs/", "leave out /docs"),
            ("http://h/proxy/readyz", "leave out /proxy/readyz"),
            ("http://h/api/v1/pools", "leave out /api/v1/pools"),
        ],
    )
    def test_what_is_no_url_of_a_server_is_said_at_once(self, url: str, why: str) -> None:
        with pytest.raises(errors.InvalidUrl, match="is not the URL of a server") as caught:
            Client(url)
        assert why in str(caught.value)

    def test_what_makes_something_gets_a_key(self, make_client: Asking, stub: StubServer) -> None:
        client = make_client()
        for path in ("/pools", "/requests", "/requests/batch"):
            client.call("POST", path, body={})
        client.call("POST", "/requests", body={}, headers={"idempotency-key": "mine"})
        keys = [call.headers["idempotency-key"] for call in stub.calls]
        assert len(set(keys)) == 4
        assert keys[3] == "mine"


class TestAnswers:
    def test_nothing_is_none(self, make_client: Asking, stub: StubServer) -> None:
        stub.script(reply(None, 204))
        assert make_client().call("DELETE", "/x") is None

    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (400, errors.BadRequest),
            (401, errors.AccessDenied),
            (403, errors.AccessDenied),
            (404, errors.NotFound),
            (409, errors.Conflict),
            (413, errors.ApiError),
            (422, errors.UnprocessableRequest),
            (500, errors.ApiError),
        ],
    )
    def test_a_refusal_says_all_the_server_said(
        self, make_client: Asking, stub: StubServer, status: int, kind: type[errors.ApiError]
    ) -> None:
        wrong = [{"field": "capacity", "reason": "is empty"}]
        stub.script(refuse(status, "a_code", "it cannot\nbe so", errors=wrong))
        with pytest.raises(errors.ApiError) as caught:
            make_client().call("GET", "/x")
        error = caught.value
        assert type(error) is kind
        assert (error.status, error.code, error.detail, error.errors) == (status, "a_code", "it cannot be so", wrong)
        assert str(error) == "it cannot be so"
        assert error.problem["title"] == "No"
        assert len(stub.calls) == 1

    def test_a_stale_fence_carries_its_directive(self, make_client: Asking, stub: StubServer) -> None:
        stub.script(refuse(409, "stale_fence", directive="kill", request_status="expired"))
        with pytest.raises(errors.StaleFence) as caught:
            make_client().call("POST", "/requests/r/heartbeat", body={"fence": 1})
        assert (caught.value.directive, caught.value.request_status) == ("kill", "expired")

    def test_a_server_that_is_not_poolkeeper_is_recognised(self, make_client: Asking, stub: StubServer) -> None:
        stub.script(reply_text(200, b"<html>hello"), reply_text(404, b"<html>no"))
        with pytest.raises(errors.PoolkeeperError, match="is no Poolkeeper: b'<html>hello'"):
            make_client().call("GET", "/x")
        with pytest.raises(errors.NotFound, match="404 Not Found"):
            make_client().call("GET", "/x")

    def test_a_redirect_is_an_error_that_names_the_url_to_use(self, make_client: Asking, stub: StubServer) -> None:
        stub.script(reply(None, 308, location="https://pools.example/api/v1/x"), reply(None, 302, location="/elsewhere"))
        with pytest.raises(errors.ApiError, match=r"redirects every call to https://pools\.example: use that as the URL"):
            make_client().call("GET", "/x")
        with pytest.raises(errors.ApiError, match="302 Found"):
            make_client().call("GET", "/x")

    def test_items_go_through_all_pages(self, make_client: Asking, stub: StubServer) -> None:
        pages = [([1, 2], "c/1"), ([], "c2"), ([3], None)]
        stub.script(*(reply({"items": [{"n": n} for n in rows], "next_cursor": cursor}) for rows, cursor in pages))
        rows = list(make_client().items("/requests", query={"component": "a"}, page=2))
        assert rows == [{"n": 1}, {"n": 2}, {"n": 3}]
        assert [call.path.partition("?")[2] for call in stub.calls] == [
            "component=a&limit=2",
            "component=a&limit=2&cursor=c%2F1",
            "component=a&limit=2&cursor=c2",
        ]


class TestAgain:
    @pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE)
    @pytest.mark.parametrize(
        ("method", "path"), [("GET", "/x"), ("PUT", "/x"), ("POST", "/requests"), ("POST", "/requests/r/release")]
    )
    def test_what_is_safe_twice_is_tried_again(
        self, make_client: Asking, stub: StubServer, pauses: list[float], trouble: Callable[..., None], method: str, path: str
    ) -> None:
        stub.script(trouble, trouble)
        assert make_client().call(method, path, body={"a": 1}) == {"path": f"/api/v1{path}"}
        assert [call.body for call in stub.calls] == [{"a": 1}] * 3
        assert len({calls.headers.get("idempotency-key") for calls in stub.calls}) == 1
        assert 0.05 <= pauses[0] <= 0.1 <= pauses[1] <= 0.2

    @pytest.mark.parametrize("name", ["503", "cut", "cut midway"])
    def test_what_may_have_been_done_and_is_not_safe_twice_is_not(
        self, make_client: Asking, stub: StubServer, name: str
    ) -> None:
        stub.script(TROUBLE[name])
        with pytest.raises(errors.Unavailable):
            make_client().call("POST", "/something/else", body={})
        assert len(stub.calls) == 1

    def test_what_was_surely_not_done_is(self, make_client: Asking, stub: StubServer) -> None:
        stub.script(refuse(429, "slower"))
        assert make_client().call("POST", "/something/else", body={}) == {"path": "/api/v1/something/else"}

    def test_the_pause_that_is_asked_for_is_kept(self, make_client: Asking, stub: StubServer, pauses: list[float]) -> None:
        stub.script(refuse(503, "away", retry_after="7"), refuse(429, "slower", retry_after="2"))
        make_client().call("GET", "/x")
        assert 7 <= pauses[0] <= 7.1
        assert 2 <= pauses[1] <= 2.2

    def test_a_pause_that_is_too_long_is_the_callers_business(
        self, make_client: Asking, stub: StubServer, pauses: list[float]
    ) -> None:
        stub.script(refuse(429, "slower", retry_after="3600"))
        with pytest.raises(errors.TooManyRequests) as caught:
            make_client().call("GET", "/x")
        assert caught.value.retry_after_s == 3600
        assert pauses == []

    def test_after_all_tries_it_is_raised(self, make_client: Asking, stub: StubServer, pauses: list[float]) -> None:
        stub.script(*[refuse(503, "away", "Redis is away")] * 9)
        with pytest.raises(errors.Unavailable, match="Redis is away") as caught:
            make_client(tries=3).call("GET", "/x")
        assert (len(stub.calls), len(pauses), caught.value.status) == (3, 2, 503)

    def test_pauses_do_not_grow_for_ever(self, make_client: Asking, stub: StubServer, pauses: list[float]) -> None:
        stub.script(*[refuse(503, "away")] * 30)
        make_client(tries=40).call("GET", "/x")
        assert max(pauses) <= 5

    def test_a_server_that_does_not_answer_in_time(self, make_client: Asking, stub: StubServer) -> None:
        stub.script(hang)
        assert make_client().call("GET", "/x", timeout_s=0.2) == {"path": "/api/v1/x"}
        stub.script(hang)
        with pytest.raises(errors.Unavailable, match=f"no answer from {stub.url}: timed out") as caught:
            make_client(tries=1, timeout_s=0.2).call("GET", "/x")
        assert caught.value.status == 0

    def test_no_server(self, network: MemoryNetwork, pauses: list[float]) -> None:
        url = "http://127.0.0.1:9"  # where nothing listens
        client = Client(url, tries=3, sleep=pauses.append)
        with pytest.raises(errors.Unavailable, match=f"^no answer from {url}: Connection refused$") as caught:
            client.call("POST", "/something/else", body={})
        assert (len(pauses), caught.value.repeated, caught.value.code) == (2, False, "unreachable")

    def test_no_server_at_the_default_address_names_the_variable(self, network: MemoryNetwork) -> None:
        message = f"^no answer from {config.URL}, the default of POOLKEEPER_URL: Connection refused$"
        with pytest.raises(errors.Unavailable, match=message):
            Client(config.URL, tries=1).call("GET", "/x")

    def test_a_deletion_that_had_been_done_is_done(self, make_client: Asking, stub: StubServer) -> None:
        stub.script(cut, refuse(404, "no_such_pool"))
        assert make_client().call("DELETE", "/pools/p") is None

    @pytest.mark.parametrize("before", [[], [refuse(429, "slower")]], ids=["at once", "after a pause"])
    def test_a_deletion_that_finds_nothing_is_refused(
        self, make_client: Asking, stub: StubServer, before: list[Callable[..., None]]
    ) -> None:
        stub.script(*before, refuse(404, "no_such_pool"))
        with pytest.raises(errors.NotFound):
            make_client().call("DELETE", "/pools/p")

    def test_a_refusal_after_a_lost_answer_says_so(self, make_client: Asking, stub: StubServer) -> None:
        stub.script(cut, refuse(409, "pool_exists"), refuse(429, "slower"), refuse(409, "pool_exists"))
        for repeated in (True, False):
            with pytest.raises(errors.Conflict) as caught:
                make_client().call("POST", "/pools", body={})
            assert caught.value.repeated is repeated

    @pytest.mark.parametrize(
        ("trouble", "lost"),
        [
            (cut, True), (cut_midway, True), (reply_text(502, b"bad"), True), (reply_text(503, b"<html>no server"), True),
            (refuse(503, "redis_unreachable"), False), (refuse(429, "slower"), False),
        ],
        ids=["cut", "cut midway", "502", "503 of a gateway", "503 of the server", "429"],
    )  # fmt: skip
    @pytest.mark.parametrize("last", [refuse(409, "pool_exists"), None], ids=["then refused", "to the end"])
    def test_only_an_answer_that_went_astray_is_lost(
        self, make_client: Asking, stub: StubServer, trouble: Callable[..., None], lost: bool, last: Callable[..., None] | None
    ) -> None:
        for method, path in (("POST", "/pools"), ("GET", "/pools"), ("POST", "/declaration/plan")):
            stub.script(trouble, last or trouble)
            with pytest.raises(errors.ApiError) as caught:
                make_client(tries=2).call(method, path)
            assert caught.value.answer_lost is (lost and path == "/pools" and method == "POST")

    def test_what_the_server_may_have_done_as_it_lost_its_redis_is_not_said_to_be_lost_and_yet_remembered(
        self, make_client: Asking, stub: StubServer
    ) -> None:
        stub.script(refuse(503, "redis_unreachable"), refuse(409, "pool_exists"))
        with pytest.raises(errors.Conflict) as caught:
            make_client().call("POST", "/pools", body={})
        assert (caught.value.repeated, caught.value.answer_lost) == (True, False)
        stub.script(refuse(503, "redis_unreachable"), refuse(404, "no_such_pool"))
        assert make_client().call("DELETE", "/pools/p") is None


class TestTokenReplacement:
    """A refused token is read again from its source."""

    REFUSED = staticmethod(refuse(401, "unknown_token"))

    @pytest.fixture
    def secret(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        secret = tmp_path / "token"
        secret.write_text("old")
        monkeypatch.setenv("POOLKEEPER_TOKEN_FILE", str(secret))
        return secret

    @staticmethod
    def tokens(stub: StubServer) -> list[str]:
        return [call.headers["authorization"].removeprefix("Bearer ") for call in stub.calls]

    def test_another_token_is_used_at_once(self, make_client: Asking, stub: StubServer, secret: Path) -> None:
        client = make_client(tries=1)
        secret.write_text("new")
        stub.script(self.REFUSED)
        client.call("POST", "/tasks/t/park", body={})
        client.call("GET", "/pools")
        assert self.tokens(stub) == ["old", "new", "new"]

    def test_every_client_of_several_finds_it(self, make_client: Asking, stub: StubServer, secret: Path) -> None:
        client = make_client(tries=1)
        clone = client.clone()
        secret.write_text("new")
        for each in (client, clone):
            stub.script(self.REFUSED)
            each.call("GET", "/pools")
        assert self.tokens(stub) == ["old", "new"] * 2

    def test_the_same_token_is_refused_once(self, make_client: Asking, stub: StubServer, secret: Path) -> None:
        client = make_client()
        stub.script(self.REFUSED)
        with pytest.raises(errors.AccessDenied):
            client.call("GET", "/pools")
        assert self.tokens(stub) == ["old"]

    def test_an_argument_is_not_replaced(self, make_client: Asking, stub: StubServer, secret: Path) -> None:
        client = make_client(token="given")
        stub.script(self.REFUSED)
        with pytest.raises(errors.AccessDenied):
            client.call("GET", "/pools")
        assert self.tokens(stub) == ["given"]

    def test_a_file_that_cannot_be_read_just_now_changes_nothing(
        self, make_client: Asking, stub: StubServer, secret: Path
    ) -> None:
        client = make_client()
        secret.unlink()
        stub.script(self.REFUSED)
        with pytest.raises(errors.AccessDenied):
            client.call("GET", "/pools")
        client.call("GET", "/pools")
        assert self.tokens(stub) == ["old", "old"]
