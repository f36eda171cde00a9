"""Events: a list of those there are, a stream of those that come, and what of them is wanted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.in_process_api import NOW, Site

JSON = {"Accept": "application/json"}
PATH = "/api/v1/events"


def _busy(site: Site) -> tuple[dict[str, Any], dict[str, Any]]:
    """Create a holder, and a waiter of another component."""
    site.pool(gpu=1)
    site.policy()
    site.policy("step_operator/other")
    return site.submit(), site.submit("step_operator/other")


def _events(site: Site, **query: Any) -> list[dict[str, Any]]:
    return site.get("/events", headers=JSON, **query).items


# ---- the list


def test_an_event_says_what_became_of_what(everywhere: Site) -> None:
    allocation, waits = _busy(everywhere)
    result = everywhere.get("/events", headers=JSON)
    assert (result.status, result.body["next_cursor"], result.kind) == (200, None, "application/json")
    event = {
        "request": allocation["id"],
        "at": NOW,
        "component": "team",
        "component_type": "orchestrator",
        "resources": {"gpu": 1, "step_run": 1},
        "pool": None,
        "fence": None,
        "reason": None,
        "by": None,
        "rank": None,
        "by_rank": None,
        "victims": [],
        "by_origin": None,
        "outcome": None,
        "exit_code": None,
        "owner": None,
        "title": None,
    }
    queued = event | {"event": "submitted", "from": None, "to": "queued"}
    granted = event | {"event": "allocated", "from": "queued", "to": "allocated", "pool": "gpus", "fence": 1}
    other = queued | {"request": waits["id"], "component": "other", "component_type": "step_operator"}
    assert [{name: row[name] for name in row if name != "id"} for row in result.items] == [queued, granted, other]


def test_the_list_goes_on_after_any_event_and_page(everywhere: Site) -> None:
    _busy(everywhere)
    ids = [row["id"] for row in _events(everywhere)]
    assert [row["id"] for row in _events(everywhere, after=ids[0])] == ids[1:]
    assert [row["id"] for row in _events(everywhere, after="0")] == ids
    assert _events(everywhere, after=ids[-1]) == []
    first = everywhere.get("/events", headers=JSON, limit=2).body
    assert [row["id"] for row in first["items"]] == ids[:2]
    for name in ("cursor", "after"):
        assert [row["id"] for row in _events(everywhere, limit=2, **{name: first["next_cursor"]})] == ids[2:]
    assert [row["id"] for row in _events(everywhere, after="0", cursor=first["next_cursor"])] == ids[2:]


def test_the_list_is_narrowed(site: Site) -> None:
    allocation, waits = _busy(site)
    site.pool("second")
    site.policy(pool="second")
    second = site.submit()
    assert {row["request"] for row in _events(site, component="team")} == {allocation["id"], second["id"]}
    assert {row["request"] for row in _events(site, component="other")} == {waits["id"]}
    assert [row["request"] for row in _events(site, pool="second")] == [second["id"]]
    assert [row["event"] for row in _events(site, request=allocation["id"])] == ["submitted", "allocated"]
    assert _events(site, request=allocation["id"], component="other") == []
    pages = site.every("/events", 1, headers=JSON, request=second["id"])
    assert [row["event"] for page in pages for row in page] == ["submitted", "allocated"]
    assert [] in pages, "what is left out is left out of its page"


@pytest.mark.parametrize("field", ["after", "cursor"])
@pytest.mark.parametrize("value", ["x", "-1", "1-", "1-2-3", "9" * 17, "1 ", "\u0661"])
def test_an_event_that_cannot_be(site: Site, field: str, value: str) -> None:
    assert site.get("/events", headers=JSON, **{field: value}).malformed().keys() == {field}


@pytest.mark.parametrize("field", ["pool", "component", "request"])
def test_what_cannot_be_a_name_is_no_filter(site: Site, field: str) -> None:
    assert site.get("/events", headers=JSON, **{field: "a/b"}).malformed().keys() == {field}


# ---- the stream


@contextmanager
def _stream(site: Site, headers: dict[str, str] | None = None, **query: Any) -> Iterator[Iterator[str]]:
    """Yield the parts of a stream, each up to its empty line."""
    answer = site.app.test_client().get(PATH, headers=headers, query_string=query, buffered=False)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Request-Id"]
    try:
        yield _parts(iter(answer.response))
    finally:
        answer.close()


def _parts(pieces: Iterator[Any]) -> Iterator[str]:
    left = ""
    for piece in pieces:
        left += piece.decode() if isinstance(piece, bytes) else piece
        while "\n\n" in left:
            part, left = left.split("\n\n", 1)
            yield part


def _event(part: str) -> dict[str, Any]:
    """Return the event of a part, and check that it has the three lines of the format."""
    names = [line.partition(": ")[0] for line in part.split("\n")]
    assert names == ["id", "event", "data"]
    fields = dict(line.split(": ", 1) for line in part.split("\n"))
    event: dict[str, Any] = json.loads(fields["data"])
    assert (fields["id"], fields["event"]) == (event["id"], event["event"])
    return event


def test_a_stream_tells_what_the_list_tells(everywhere: Site) -> None:
    _busy(everywhere)
    listed = _events(everywhere)
    with _stream(everywhere, after="0") as parts:
        assert next(parts) == "retry: 2000\nid: 0"
        assert [_event(next(parts)) for _ in listed] == listed


def test_a_stream_without_a_beginning_tells_what_comes(site: Site) -> None:
    allocation, waits = _busy(site)
    last = _events(site)[-1]["id"]
    with _stream(site) as parts:
        assert next(parts) == f"retry: 2000\nid: {last}"
        site.post(f"/requests/{allocation['id']}/release", {"fence": allocation["fence"]})
        assert [_event(next(parts))["event"] for _ in range(2)] == ["released", "allocated"]
    assert waits["id"] == _events(site)[-1]["request"]


def test_a_stream_goes_on_after_the_last_event_it_told(site: Site) -> None:
    _busy(site)
    first, *rest = _events(site)
    with _stream(site, {"Last-Event-ID": first["id"]}, after="0") as parts:
        next(parts)
        assert [_event(next(parts)) for _ in rest] == rest


def test_a_stream_is_narrowed(site: Site) -> None:
    allocation, waits = _busy(site)
    for query, expected in (({"component": "other"}, waits), ({"request": waits["id"]}, waits), ({"pool": "gpus"}, allocation)):
        with _stream(site, after="0", **query) as parts:
            next(parts)
            assert _event(next(parts))["request"] == expected["id"]


def test_a_seat_is_given_back_when_the_stream_is_closed(site: Site) -> None:
    for _ in range(3):
        with _stream(site, after="0") as parts:
            next(parts)
            assert site.services.long_polls.slots.used()["stream"] == 1
        assert site.services.long_polls.slots.used()["stream"] == 0


def test_a_head_takes_no_seat_for_longer_than_its_answer(site: Site) -> None:
    assert site.ask("HEAD", "/events").status == 200
    assert site.services.long_polls.slots.used()["stream"] == 0


def test_what_is_wrong_is_said_before_the_stream_begins(site: Site) -> None:
    assert site.get("/events", headers={"Last-Event-ID": "x"}).malformed() == {"Last-Event-ID": "is not the id of an event"}
    listing = {"Last-Event-ID": "x", "Accept": "application/json"}
    assert site.get("/events", headers=listing, cursor="0").malformed() == {"Last-Event-ID": "is not the id of an event"}
    assert site.get("/events", after="x").malformed().keys() == {"after"}


def test_a_full_house_says_when_to_come_again(site: Site) -> None:
    site.services.long_polls.slots.capacities["stream"] = 0
    refused = site.get("/events")
    refused.refused(503, "too_many_waiters")
    assert refused.headers["Retry-After"] == "1"
    assert site.get("/events", headers=JSON).status == 200


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/json", "application/json"),
        ("application/json, */*", "application/json"),
        ("text/event-stream", "text/event-stream; charset=utf-8"),
        ("text/event-stream, application/json", "text/event-stream; charset=utf-8"),
        ("*/*", "text/event-stream; charset=utf-8"),
    ],
)
def test_what_is_accepted_decides_between_list_and_stream(site: Site, accept: str, kind: str) -> None:
    answer = site.app.test_client().get(PATH, headers={"Accept": accept}, query_string={"after": "0"}, buffered=False)
    assert answer.headers["Content-Type"] == kind
    answer.close()
