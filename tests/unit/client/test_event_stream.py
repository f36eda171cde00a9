"""Event streams: events are parsed as they arrive, and a broken stream resumes after the last one."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from urllib.parse import parse_qs, urlsplit

import pytest
from poolkeeper import Client, errors, event_stream

from tests.support.backends import wait_until
from tests.support.flaky_proxy import FlakyProxy
from tests.support.stub_server import StubServer, cut, hang, refuse, stream

Asking = Callable[..., Client]


def event(number: int) -> str:
    """Return an event as the server writes it."""
    return f'id: {number}-0\nevent: allocated\ndata: {{"id": "{number}-0"}}\n\n'


def ids(client: Client, count: int, **more: str) -> list[str]:
    """Return the ids of the next events."""
    return [each["id"] for each in islice(client.events(**more), count)]


def test_lines_become_events(make_client: Asking, stub: StubServer) -> None:
    stub.script(stream(": alive\n\n", 'data: {"id":\r\ndata: "a"}\r\n\r\n', "event: other\n\n", event(1), "unknown: x\nid\n\n"))
    assert ids(make_client(), 2) == ["a", "1-0"]


def test_filters_and_the_beginning_are_sent(make_client: Asking, stub: StubServer) -> None:
    stub.script(stream(event(8)))
    ids(make_client(token="secret"), 1, after="7-0", pool="gpus", component="team", request="r")
    [call] = stub.calls
    query = parse_qs(urlsplit(call.path).query)
    assert query == {"after": ["7-0"], "pool": ["gpus"], "component": ["team"], "request": ["r"]}
    assert (call.headers["last-event-id"], call.headers["accept"]) == ("7-0", "text/event-stream")
    assert call.headers["authorization"] == "Bearer secret"


def test_a_broken_stream_goes_on_after_the_last_whole_event(make_client: Asking, stub: StubServer, pauses: list[float]) -> None:
    half = "id: 3-0\nevent: released\ndata: {"
    stub.script(stream(event(1), event(2), half), refuse(503, "away", retry_after="4"), cut, stream(event(3)))
    assert ids(make_client(), 3) == ["1-0", "2-0", "3-0"]
    assert [call.headers.get("last-event-id") for call in stub.calls] == [None, "2-0", "2-0", "2-0"]
    assert pauses[1] >= 4


def test_an_id_alone_says_where_to_go_on(make_client: Asking, stub: StubServer, pauses: list[float]) -> None:
    stub.script(stream("retry: 2000\nid: 41-0\n\n", ": alive\n\n"), stream(event(42)))
    assert ids(make_client(), 1) == ["42-0"]
    assert stub.calls[1].headers["last-event-id"] == "41-0"
    assert 2 <= pauses[0] <= 2.1


def test_silence_counts_as_broken(make_client: Asking, stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "SILENCE_S", 0.2)
    stub.script(stream(event(1)), hang, stream(event(2)))
    assert ids(make_client(), 2) == ["1-0", "2-0"]


def test_the_first_connection_has_to_be_had(make_client: Asking, stub: StubServer, pauses: list[float]) -> None:
    stub.script(*[refuse(503, "away", "Redis is away")] * 99)
    with pytest.raises(errors.Unavailable, match="Redis is away"):
        ids(make_client(), 1)
    assert len(pauses) == 4


def test_a_later_one_is_waited_for(make_client: Asking, stub: StubServer) -> None:
    stub.script(stream(event(1)), *[refuse(503, "away")] * 30, stream(event(2)))
    assert ids(make_client(), 2) == ["1-0", "2-0"]


def test_a_refusal_is_raised(make_client: Asking, stub: StubServer) -> None:
    stub.script(stream(event(1)), refuse(401, "token_revoked"))
    with pytest.raises(errors.AccessDenied):
        ids(make_client(), 2)


def test_closing_it_ends_the_connection(make_client: Asking, stub: StubServer) -> None:
    stub.script(stream(event(1), event(2)))
    events = make_client().events()
    assert next(events)["id"] == "1-0"
    events.close()
    assert list(events) == []
    assert len(stub.calls) == 1


def test_the_real_server_tells_all_of_it_across_a_cut(proxy: FlakyProxy, proxied: Client) -> None:
    events = proxied.events(after="0", component="team")
    first = proxied.submit("team", gpu=2)
    lines = [next(events), next(events)]
    proxy.close()
    proxy.open()
    proxied.release(first.id, first.fence or 0)
    lines += [next(events)]
    assert [each["event"] for each in lines] == ["submitted", "allocated", "released"]
    assert {each["request"] for each in lines} == {first.id}


def test_a_stream_cut_before_its_first_event_misses_none(proxy: FlakyProxy, proxied: Client, client: Client) -> None:
    events = proxied.events()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(next, events)
        wait_until(lambda: re.search(rb"id: \S+\n\n", proxy.passed_bytes), "the stream has begun, with the id of where it is")
        proxy.close()
        meanwhile = client.submit("team", gpu=2)
        proxy.open()
        lines = [first.result(30), next(events)]
    events.close()
    assert [(each["event"], each["request"]) for each in lines] == [("submitted", meanwhile.id), ("allocated", meanwhile.id)]
