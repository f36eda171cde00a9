"""Events: read as they come, and taken up again after the last one whatever happens to the connection."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from urllib.parse import parse_qs, urlsplit

import pytest
from poolkeeper import Client, errors, event_stream

from tests.support.backends import wait_until
from tests.support.flaky_proxy import Door
from tests.support.stub_server import StandIn, cuts, hangs, refuses, streams

Asking = Callable[..., Client]


def event(number: int) -> str:
    """An event as the server writes it."""
    return f'id: {number}-0\nevent: allocated\ndata: {{"id": "{number}-0"}}\n\n'


def ids(client: Client, count: int, **more: str) -> list[str]:
    """The ids of the next events."""
    return [each["id"] for each in islice(client.events(**more), count)]


def test_lines_become_events(asking: Asking, standin: StandIn) -> None:
    standin.script(
        streams(": alive\n\n", 'data: {"id":\r\ndata: "a"}\r\n\r\n', "event: other\n\n", event(1), "unknown: x\nid\n\n")
    )
    assert ids(asking(), 2) == ["a", "1-0"]


def test_filters_and_the_beginning_are_sent(asking: Asking, standin: StandIn) -> None:
    standin.script(streams(event(8)))
    ids(asking(token="secret"), 1, after="7-0", pool="gpus", component="team", request="r")
    [heard] = standin.heard
    query = parse_qs(urlsplit(heard.path).query)
    assert query == {"after": ["7-0"], "pool": ["gpus"], "component": ["team"], "request": ["r"]}
    assert (heard.headers["last-event-id"], heard.headers["accept"]) == ("7-0", "text/event-stream")
    assert heard.headers["authorization"] == "Bearer secret"


def test_a_broken_stream_goes_on_after_the_last_whole_event(asking: Asking, standin: StandIn, slept: list[float]) -> None:
    half = "id: 3-0\nevent: released\ndata: {"
    standin.script(streams(event(1), event(2), half), refuses(503, "away", retry_after="4"), cuts, streams(event(3)))
    assert ids(asking(), 3) == ["1-0", "2-0", "3-0"]
    assert [heard.headers.get("last-event-id") for heard in standin.heard] == [None, "2-0", "2-0", "2-0"]
    assert slept[1] >= 4


def test_an_id_alone_says_where_to_go_on(asking: Asking, standin: StandIn, slept: list[float]) -> None:
    standin.script(streams("retry: 2000\nid: 41-0\n\n", ": alive\n\n"), streams(event(42)))
    assert ids(asking(), 1) == ["42-0"]
    assert standin.heard[1].headers["last-event-id"] == "41-0"
    assert 2 <= slept[0] <= 2.1


def test_silence_counts_as_broken(asking: Asking, standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "SILENCE_S", 0.2)
    standin.script(streams(event(1)), hangs, streams(event(2)))
    assert ids(asking(), 2) == ["1-0", "2-0"]


def test_the_first_connection_has_to_be_had(asking: Asking, standin: StandIn, slept: list[float]) -> None:
    standin.script(*[refuses(503, "away", "Redis is away")] * 99)
    with pytest.raises(errors.Unavailable, match="Redis is away"):
        ids(asking(), 1)
    assert len(slept) == 4


def test_a_later_one_is_waited_for(asking: Asking, standin: StandIn) -> None:
    standin.script(streams(event(1)), *[refuses(503, "away")] * 30, streams(event(2)))
    assert ids(asking(), 2) == ["1-0", "2-0"]


def test_a_refusal_is_raised(asking: Asking, standin: StandIn) -> None:
    standin.script(streams(event(1)), refuses(401, "token_revoked"))
    with pytest.raises(errors.AccessDenied):
        ids(asking(), 2)


def test_closing_it_ends_the_connection(asking: Asking, standin: StandIn) -> None:
    standin.script(streams(event(1), event(2)))
    events = asking().events()
    assert next(events)["id"] == "1-0"
    events.close()
    assert list(events) == []
    assert len(standin.heard) == 1


def test_the_real_server_tells_all_of_it_across_a_cut(door: Door, behind: Client) -> None:
    events = behind.events(after="0", component="team")
    first = behind.submit("team", gpu=2)
    told = [next(events), next(events)]
    door.close()
    door.open()
    behind.release(first.id, first.fence or 0)
    told += [next(events)]
    assert [each["event"] for each in told] == ["submitted", "allocated", "released"]
    assert {each["request"] for each in told} == {first.id}


def test_who_is_cut_off_before_the_first_event_misses_none(door: Door, behind: Client, client: Client) -> None:
    events = behind.events()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(next, events)
        wait_until(lambda: re.search(rb"id: \S+\n\n", door.passed), "the stream has begun, with the id of where it is")
        door.close()
        meanwhile = client.submit("team", gpu=2)
        door.open()
        told = [first.result(30), next(events)]
    events.close()
    assert [(each["event"], each["request"]) for each in told] == [("submitted", meanwhile.id), ("allocated", meanwhile.id)]
