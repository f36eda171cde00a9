"""The page of events: filters, older pages, and what a token for some components sees."""

from __future__ import annotations

import html
import re
from urllib.parse import urlencode

import pytest
from poolkeeper.cli.request_details import EVENT_SENTENCES

from app.dashboard import event_list
from app.domain.event_names import EVENT_NAMES
from app.domain.request_origin import short_id
from tests.unit.dashboard.page_client import Desk, words


@pytest.fixture
def ids(desk: Desk) -> dict[str, str]:
    """Create two pools, and four requests of three components."""
    desk.pool(gpu=1)
    desk.pool("seats", seat=1)
    desk.policy("vision")
    desk.policy("research", pool="seats")
    desk.put("/pools/seats/policies/vision?component_type=step_operator", {})
    asks = {
        "gpu": desk.submit("vision", gpu=1, name="resnet", labels={"user": "ana", "host": "gpu-01"}),
        "waits": desk.submit("vision", gpu=1),
        "seat": desk.submit("research", seat=1),
        "step": desk.submit("vision", seat=1, component_type="step_operator"),
    }
    return {name: request["id"] for name, request in asks.items()}


def rows(page: str) -> list[tuple[str, str]]:
    """Return (event, short id) of each row."""
    return re.findall(r'<tr id="e-[^"]+">.*?<span class="chip (\w+)">.*?<a class="id"[^>]*>(\w+)</a>', page, re.S)


def shown(desk: Desk, **query: str) -> list[tuple[str, str]]:
    answer = desk.visitor().get(f"/events?{urlencode(query)}")
    assert answer.status_code == 200
    return rows(answer.get_data(as_text=True))


def test_without_a_filter_every_event_is_shown(desk: Desk, ids: dict[str, str]) -> None:
    assert shown(desk) == [
        ("submitted", short_id(ids["step"])),
        ("allocated", short_id(ids["seat"])),
        ("submitted", short_id(ids["seat"])),
        ("submitted", short_id(ids["waits"])),
        ("allocated", short_id(ids["gpu"])),
        ("submitted", short_id(ids["gpu"])),
    ]
    page = desk.visitor().get("/events").get_data(as_text=True)
    row = re.search(rf'<tr id="e-[^"]+">(?:(?!</tr>).)*{ids["gpu"]}.*?</tr>', page, re.S)
    assert row
    assert "resnet ana@gpu-01 vision 1 gpu gpus" in " ".join(re.sub(r"<[^>]*>", " ", row[0]).split())


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"pool": "seats"}, ["allocated seat"]),
        ({"component": "vision"}, ["submitted step", "submitted waits", "allocated gpu", "submitted gpu"]),
        ({"component": "step_operator/vision"}, ["submitted step"]),
        ({"component": "orchestrator/vision", "event": "allocated"}, ["allocated gpu"]),
        ({"event": "allocated"}, ["allocated seat", "allocated gpu"]),
        ({"event": "allocated", "pool": "gpus"}, ["allocated gpu"]),
        ({"event": "preempting"}, []),
        ({"pool": "nowhere"}, []),
    ],
)
def test_filters_narrow(desk: Desk, ids: dict[str, str], query: dict[str, str], expected: list[str]) -> None:
    short = {short_id(request): name for name, request in ids.items()}
    assert [f"{event} {short[request]}" for event, request in shown(desk, **query)] == expected


def test_a_request_is_named_by_its_beginning_or_end(desk: Desk, ids: dict[str, str]) -> None:
    for part in (ids["gpu"], ids["gpu"][-6:], ids["gpu"][-6:].upper()):
        assert shown(desk, request=part) == [("allocated", short_id(ids["gpu"])), ("submitted", short_id(ids["gpu"]))]
    assert len(shown(desk, request=ids["gpu"][:5])) == 6
    assert shown(desk, request=ids["gpu"][9:15]) == []


def test_the_form_says_what_is_filtered_and_offers_the_pools(desk: Desk, ids: dict[str, str]) -> None:
    page = desk.visitor().get("/events?event=allocated&pool=gpus").get_data(as_text=True)
    assert '<option value="allocated" selected>' in page
    assert '<input id="pool" name="pool" value="gpus"' in page
    assert '<option value="seats"></option>' in page
    assert '<a href="/events">Clear</a>' in page
    assert "Clear" not in desk.visitor().text("/events")
    part = desk.visitor().get("/events?event=allocated", {"HX-Request": "true"}).get_data(as_text=True)
    assert len(rows(part)) == 2
    assert "<form" not in part, "what is being typed stays"


def test_older_pages_lead_to_the_first_event_and_keep_the_filter(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_list, "PAGE_ROWS", 3)
    desk.pool(gpu=1)
    desk.policy("vision")
    made = [short_id(desk.submit("vision", gpu=1)["id"]) for _ in range(7)]
    for query, expected in (("", made[:0:-1] + [made[0]] * 2), ("?event=submitted", made[::-1])):
        url, found = f"/events{query}", list[str]()
        while url:
            page = desk.visitor().get(url).get_data(as_text=True)
            assert len(rows(page)) <= 3
            found += [request for _, request in rows(page)]
            older = re.search(r'<a id="older" href="([^"]+)"', page)
            assert ("Newest" in page) == ("before=" in url)
            url = html.unescape(older[1]) if older else ""
        assert found == expected


def test_a_page_that_ends_with_the_first_event_is_the_last(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_list, "PAGE_ROWS", 2)
    desk.pool(gpu=1)
    desk.policy("vision")
    desk.submit("vision", gpu=1)
    for query in ("", "?component=vision"):
        page = desk.visitor().get(f"/events{query}").get_data(as_text=True)
        assert len(rows(page)) == 2
        assert 'id="older"' not in page


def test_a_search_without_a_match_goes_on_page_by_page(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_list, "BATCH", 2)
    monkeypatch.setattr(event_list, "MAX_BATCHES", 2)
    desk.pool(gpu=1)
    desk.policy("vision")
    rare = desk.submit("vision", gpu=1)["id"]
    for _ in range(5):
        desk.submit("vision", gpu=1)
    answer = desk.visitor().get("/events?event=allocated")
    assert "None of the 4 events that were searched matches. There are older events." in words(answer)
    older = re.search(r'<a id="older" href="([^"]+)"', answer.get_data(as_text=True))
    assert older
    page = desk.visitor().get(html.unescape(older[1])).get_data(as_text=True)
    assert rows(page) == [("allocated", short_id(rare))]


def test_a_requester_sees_its_own_alone(desk: Desk, ids: dict[str, str]) -> None:
    visitor = desk.visitor(desk.token("requester", "research"))
    assert {request for _, request in rows(visitor.get("/events").get_data(as_text=True))} == {short_id(ids["seat"])}
    assert rows(visitor.get(f"/events?request={ids['gpu']}").get_data(as_text=True)) == []


@pytest.mark.parametrize("query", ["event=nothing", "before=x", "pool=" + "x" * 131, "request=" + "x" * 131])
def test_a_malformed_filter_is_refused(desk: Desk, query: str) -> None:
    assert desk.visitor().get(f"/events?{query}").status_code == 400


def test_every_event_has_a_name_and_a_sentence() -> None:
    assert set(EVENT_NAMES) == EVENT_SENTENCES.keys()
    assert len(EVENT_NAMES) == len(set(EVENT_NAMES))
