"""Lists: every page to the end, every filter, and cursors that the service did not issue."""

from __future__ import annotations

from typing import Any

import pytest

from app.store import queries
from tests.support.in_process_api import Site, an_ask

FORGED = (
    "0",
    "-1",
    "00",
    "9" * 16,
    "9" * 17,
    "abc",
    "a:",
    "q:1",
    "q:1:",
    "a:x",
    "q:" + "9" * 17 + ":1",
    "1e3",
    "é",
    "",
    "x" * 81,
)


def _ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in rows]


def _submitted(site: Site, *asks: dict[str, Any]) -> list[str]:
    """Return the ids of requests that were submitted in this order."""
    return _ids(site.post("/requests/batch", {"requests": list(asks)}).items)


# ---- pages


@pytest.mark.parametrize("limit", [1, 3, 7, 1000])
def test_every_list_is_told_in_pages_and_loses_and_repeats_nothing(site: Site, limit: int) -> None:
    for number in range(7):
        site.pool(f"p{number}")
        site.policy("team", pool=f"p{number}", priority=number)
        site.policy(f"c{number}", pool="p0", priority=number + 10)
        site.put(f"/pools/p0/groups/g{number}", {})
    ids = _submitted(site, *[an_ask(gpu=8)] * 14)

    def result(path: str, field: str, **more: Any) -> list[str]:
        return [row[field] for page in site.every(path, limit, **more) for row in page]

    assert result("/pools", "name") == [f"p{number}" for number in range(7)]
    assert result("/pools/p0/policies", "component") == [f"c{number}" for number in reversed(range(7))] + ["team"]
    assert result("/pools/p0/groups", "name") == [f"g{number}" for number in range(7)]
    assert result("/components/team/policies", "pool") == [f"p{number}" for number in reversed(range(7))]
    assert result("/requests", "id") == ids[::-1]
    assert result("/pools/p0/requests", "id") == ids[7:]
    listed = result("/events", "request", headers={"Accept": "application/json"})
    assert sorted(set(listed)) == sorted(ids)
    assert result(f"/requests/{ids[0]}/events", "event") == ["submitted", "allocated"]
    assert len(listed) == 14 + 7


STORY = "/requests/some/events"
PAGED = (
    STORY,
    "/pools",
    "/pools/gpus/policies",
    "/pools/gpus/groups",
    "/pools/gpus/requests",
    "/components/team/policies",
    "/requests",
    "/events",
)


@pytest.mark.parametrize("path", PAGED)
def test_a_cursor_that_the_service_did_not_issue(site: Site, path: str) -> None:
    site.pool()
    if path == STORY:
        path = f"/requests/{site.submit()['id']}/events"
    current = {"/events": ("0", "00", "9" * 16), "/pools/gpus/requests": ("a:",)}.get(path, ())
    for cursor in FORGED:
        answer = site.get(path, cursor=cursor, headers={"Accept": "application/json"})
        if cursor in current:  # one that could have been
            assert answer.body == {"items": [], "next_cursor": None}
        else:
            assert answer.malformed().keys() == {"cursor"}


@pytest.mark.parametrize("path", PAGED)
@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("0", "must be at least 1"),
        ("1001", "must be at most 1000"),
        ("many", "must be a whole number"),
        ("", "must be a whole number"),
        ("9" * 5000, "must be a smaller number"),
    ],
)
def test_a_limit_that_cannot_be(site: Site, path: str, limit: str, reason: str) -> None:
    site.pool()
    assert site.get(path, limit=limit, headers={"Accept": "application/json"}).malformed() == {"limit": reason}


def test_a_page_that_holds_all_that_is_left_is_the_last(site: Site) -> None:
    for number in range(4):
        site.pool(f"p{number}")
    assert site.get("/pools", limit=4).body["next_cursor"] is None
    first = site.get("/pools", limit=2).body["next_cursor"]
    assert site.get("/pools", limit=2, cursor=first).body["next_cursor"] is None


def test_a_page_far_beyond_the_end_is_empty(site: Site) -> None:
    site.pool()
    assert site.get("/pools", cursor="1000").body == {"items": [], "next_cursor": None}
    assert site.get("/requests", cursor=str(2**53 - 1)).items == []
    assert site.get("/pools/gpus/requests", cursor="q:5:7").body == {"items": [], "next_cursor": None}


# ---- the requests of a workspace


def test_requests_are_found_by_what_is_known_of_them(everywhere: Site) -> None:
    everywhere.pool(gpu=1)
    for component in ("team", "step_operator/team", "other"):
        everywhere.policy(component)
    labels = [{"run": "1", "tier": "a"}, {"run": "2", "tier": "a"}, {}, {"run": "1"}]
    allocation, waits, typed, other = _submitted(
        everywhere,
        an_ask(labels=labels[0]),
        an_ask(labels=labels[1]),
        an_ask("step_operator/team", labels=labels[2]),
        an_ask("other", labels=labels[3]),
    )
    rejected = everywhere.submit("unmanaged")["id"]

    def rows(**query: Any) -> list[str]:
        return _ids(everywhere.get("/requests", **query).items)

    assert rows() == [rejected, other, typed, waits, allocation]
    assert rows(status="allocated") == [allocation]
    assert rows(status=["allocated", "rejected"]) == [rejected, allocation]
    assert rows(status="released") == []
    assert rows(component="team") == [typed, waits, allocation]
    assert rows(component="team", component_type="orchestrator") == [waits, allocation]
    assert rows(component_type="step_operator") == [typed]
    assert rows(pool="gpus") == [other, typed, waits, allocation]
    assert rows(pool="gpus", status="allocated") == [allocation]
    assert rows(pool="none") == []
    assert rows(label="run:1") == [other, allocation]
    assert rows(label=["run:1", "tier:a"]) == [allocation]
    assert rows(label=["run:1", "run:1"]) == [other, allocation]
    assert rows(label=["run:1", "run:2"]) == []
    assert rows(label="run:") == []
    assert rows(label="run:1", component="other", status="queued") == [other]
    row = everywhere.get("/requests", label="tier:a", status="allocated").items[0]
    assert row == everywhere.get(f"/requests/{allocation}").body


def test_labels_may_hold_anything_but_a_line(site: Site) -> None:
    site.submit(labels={"note": "a:b:c é", "empty": ""})
    for label in ("note:a:b:c é", "empty:"):
        assert len(site.get("/requests", label=label).items) == 1
    assert site.get("/requests", label="note:a").items == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"status": "done"}, "status.0"),
        ({"status": ["queued", ""]}, "status.1"),
        ({"status": ["queued"] * 9}, "status"),
        ({"label": "run"}, "label.0"),
        ({"label": ":1"}, "label.0"),
        ({"label": "run:" + "x" * 256}, "label.0"),
        ({"label": ["run:1"] * 33}, "label"),
        ({"component": "a/b"}, "component"),
        ({"component_type": ""}, "component_type"),
        ({"pool": ["a", "b"]}, "pool"),
        ({"limit": [1, 1]}, "limit"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_filter_that_cannot_be(site: Site, query: dict[str, Any], field: str) -> None:
    assert site.get("/requests", **query).malformed().keys() == {field}


def test_rare_ones_among_many_are_found_by_following_the_cursor(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "SCAN_SIZE", 10)  # a page looks at 200
    rare, plain = an_ask(labels={"rare": "1"}), an_ask()
    first = _submitted(site, rare, *[plain] * 499)[0]
    last = _submitted(site, rare)[0]
    pages = [_ids(page) for page in site.every("/requests", 2, label="rare:1")]
    assert pages == [[last], [], [first]], "a page looks at a bounded number of requests, so one may be empty and not the last"


# ---- the requests of a pool


def test_the_queue_is_told_in_its_order_with_places_across_pages(everywhere: Site) -> None:
    everywhere.pool(gpu=2)
    everywhere.policy("owner", reserved={"gpu": 1})
    everywhere.policy("high", priority=9)
    everywhere.policy("low")
    first, second = everywhere.submit("low"), everywhere.submit("low")
    low, low_again, high, owner = (everywhere.submit(name)["id"] for name in ("low", "low", "high", "owner"))
    queue = [owner, high, low, low_again]
    for limit in (1, 2, 3, 1000):
        rows = [row for page in everywhere.every("/pools/gpus/requests", limit) for row in page]
        assert [(row["id"], row["position"]) for row in rows] == [(id_, {"gpus": n}) for n, id_ in enumerate(queue, start=1)]
        allocation = [row for page in everywhere.every("/pools/gpus/requests", limit, view="active") for row in page]
        assert allocation == [first, second]
        both = [row for page in everywhere.every("/pools/gpus/requests", limit, view="all") for row in page]
        assert both == allocation + rows
    rows = everywhere.get("/pools/gpus/requests").items
    assert rows == [everywhere.get(f"/requests/{id_}").body for id_ in queue]


def test_the_requests_of_no_pool(site: Site) -> None:
    for view in ("queued", "active", "all"):
        site.get("/pools/none/requests", view=view).refused(404, "no_such_pool")
    site.pool()
    assert site.get("/pools/gpus/requests", view="every").malformed() == {"view": "must be 'queued', 'active' or 'all'"}
    for view in ("queued", "active", "all"):
        assert site.every("/pools/gpus/requests", 10, view=view)[-1] == []


# ---- searches of requests


def test_requests_are_found_by_a_part_of_the_id_and_by_a_text(site: Site) -> None:
    site.pool()
    site.policy("team")
    named, other = _submitted(site, an_ask(name="ResNet 50", labels={"user": "ana"}), an_ask())
    assert _ids(site.get(f"/requests?id={named[-6:]}").items) == [named]
    assert _ids(site.get(f"/requests?id={other[:4]}").items) == [other, named]
    assert _ids(site.get("/requests?search=resnet+50").items) == [named]
    assert _ids(site.get("/requests?search=user%3Dana").items) == [named]
    assert _ids(site.get("/requests?search=user%3Dana&status=queued").items) == []


@pytest.mark.parametrize("query", ["id=abc", "id=" + "a" * 21, "id=ABCD", "id=a*cd", "search=", "search=" + "x" * 101])
def test_a_malformed_search_is_refused(site: Site, query: str) -> None:
    response = site.get(f"/requests?{query}")
    assert (response.status, response.body["code"]) == (400, "malformed")


def test_counts_are_of_every_state_and_of_the_components_of_the_token(site: Site) -> None:
    site.pool(gpu=2)
    site.policy("team")
    site.policy("other")
    _submitted(site, an_ask(gpu=2), an_ask(gpu=1), an_ask("other", gpu=1), an_ask(gpu=3))
    assert site.get("/requests").body["counts"] is None
    expected = {"queued": 2, "allocated": 1, "preempting": 0, "ended": 1, "exact": True}
    page = site.get("/requests?counts=true&status=queued&limit=1").body
    assert (page["counts"], len(page["items"])) == (expected, 1)
    of_other = site.get("/requests?counts=true&component=other").body["counts"]
    assert of_other == {**expected, "queued": 1, "allocated": 0, "ended": 0}
    (row,) = page["items"]
    by_id = site.get(f"/requests?counts=true&id={row['id']}").body["counts"]
    assert by_id == dict.fromkeys(expected, 0) | {"queued": 1, "exact": True}
    contradiction = site.get("/requests?counts=true&label=a:1&label=a:2").body
    assert contradiction["counts"] == dict.fromkeys(expected, 0) | {"exact": True}
    secret = site.token("requester", "team")
    own = site.get("/requests?counts=true", token=secret).body
    assert own["counts"] == {**expected, "queued": 1}
    assert {row["component"] for row in own["items"]} == {"team"}


def test_a_limited_token_gets_full_pages_of_its_own_requests(site: Site) -> None:
    site.pool()
    ids = _submitted(site, *[an_ask("team"), an_ask("other")] * 6)
    secret = site.token("requester", "team")
    page = site.get("/requests?limit=4", token=secret)
    assert _ids(page.items) == ids[10:2:-2]


def test_a_list_has_positions_if_they_are_wanted(site: Site) -> None:
    site.pool(gpu=1)
    site.policy("team")
    _submitted(site, *[an_ask(gpu=1)] * 3)
    assert [row["position"] for row in site.get("/requests?positions=true").items] == [{"gpus": 2}, {"gpus": 1}, {}]
    assert [row["position"] for row in site.get("/requests").items] == [{}, {}, {}]
