"""The page of requests: a search, tabs with counts, pages, and what a token for some components sees."""

from __future__ import annotations

import html
import re

import pytest

from app.dashboard import request_list
from app.domain.request_origin import short_id
from tests.unit.dashboard.page_client import Desk, words

HOSTILE = "<script>alert('x')</script>\"'&"


@pytest.fixture
def ids(desk: Desk) -> dict[str, str]:
    """Create a pool of 4 gpu: one request holds them, two wait, one was rejected, one was cancelled."""
    desk.pool(gpu=4)
    desk.policy("vision")
    desk.policy("research")
    asks = {
        "holds": desk.submit("vision", gpu=4, name="resnet", labels={"user": "ana", "host": "gpu-01"}),
        "first": desk.submit("research", gpu=1, labels={"command": "python train.py", "user": "bo"}),
        "second": desk.submit("vision", gpu=2),
        "rejected": desk.submit("vision", gpu=9),
        "cancelled": desk.submit("research", gpu=1),
    }
    desk.post(f"/requests/{asks['cancelled']['id']}/cancel")
    return {name: request["id"] for name, request in asks.items()}


def listed(page: str) -> list[str]:
    """Return the ids of the rows."""
    return re.findall(r'<tr id="r-(\w+)">', page)


def tabs(page: str) -> dict[str, str]:
    """Return name → number of each tab; the present one has a star."""
    found = re.findall(r'<a href="[^"]*"( aria-current="page")?>(\w+) <span class="count"[^>]*>([^<]*)</span>', page)
    return {name + ("*" if current else ""): number for current, name, number in found}


def test_a_row_says_what_where_and_whose(desk: Desk, ids: dict[str, str]) -> None:
    page = desk.visitor().get("/requests").get_data(as_text=True)
    assert listed(page) == [ids["second"], ids["first"], ids["holds"]]
    rows = {
        match[0]: " ".join(re.sub(r"<[^>]*>", " ", match[1]).split())
        for match in re.findall(r'<tr id="r-(\w+)">(.*?)</tr>', page, re.S)
    }
    assert rows[ids["holds"]].startswith(f"{short_id(ids['holds'])} resnet ana@gpu-01 vision 4 gpu allocated gpus ")
    first = f"{short_id(ids['first'])} python train.py bo research 1 gpu queued number 1 in gpus "
    assert rows[ids["first"]].startswith(first)
    assert f'title="{ids["first"]}"' in page
    assert f'href="/requests/{ids["first"]}"' in page
    assert '<a href="/requests" aria-current="page">Requests</a>' in page
    assert '<a href="/requests">Requests</a>' in desk.visitor().get("/").get_data(as_text=True)


def test_tabs_have_the_number_of_each_state(desk: Desk, ids: dict[str, str]) -> None:
    numbers = {"Live": "3", "Queued": "2", "Allocated": "1", "Preempting": "0", "Ended": "2", "All": "5"}
    expected = {"live": 3, "queued": 2, "allocated": 1, "preempting": 0, "ended": 2, "all": 5}
    for tab, count in expected.items():
        page = desk.visitor().get(f"/requests?state={tab}").get_data(as_text=True)
        assert len(listed(page)) == count
        name = tab.capitalize()
        assert tabs(page) == {(each + "*" if each == name else each): number for each, number in numbers.items()}
    desk.preempt(ids["first"], {"id": ids["holds"], "fence": desk.get(f"/requests/{ids['holds']}").body["fence"]})
    assert listed(desk.visitor().get("/requests?state=preempting").get_data(as_text=True)) == [ids["holds"]]


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("RESNET", ["holds"]),
        ("train.py", ["first"]),
        ("user=ana", ["holds"]),
        ("research", ["first"]),
        ("  gpu-01 ", ["holds"]),
        ("nothing", []),
    ],
)
def test_a_search_narrows_rows_and_tabs(desk: Desk, ids: dict[str, str], search: str, expected: list[str]) -> None:
    page = desk.visitor().http.get("/requests", query_string={"search": search}).get_data(as_text=True)
    assert listed(page) == [ids[name] for name in expected]
    assert tabs(page)["Live*"] == str(len(expected))
    assert f'value="{html.escape(search.strip())}"' in page
    assert 'href="/requests?state=ended&amp;search=' in page, "the tabs keep the search"


def test_an_id_is_searched_by_any_part(desk: Desk, ids: dict[str, str]) -> None:
    part = ids["rejected"][-7:]
    assert listed(desk.visitor().get(f"/requests?search={part}&state=all").get_data(as_text=True)) == [ids["rejected"]]
    nothing = desk.visitor().get(f"/requests?search={part}")
    assert "No live request has" in words(nothing)
    assert f'href="/requests?state=all&amp;search={part}"' in nothing.get_data(as_text=True)


def test_pages_lead_to_the_oldest(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_list, "PAGE_ROWS", 3)
    desk.pool(gpu=1)
    desk.policy("vision")
    made = [desk.submit("vision", gpu=1, name="a run")["id"] for _ in range(8)]
    url, rows = "/requests?search=run", list[str]()
    for number in range(3):
        page = desk.visitor().get(url).get_data(as_text=True)
        rows += listed(page)
        older = re.search(r'<a id="older" href="([^"]+)"', page)
        assert bool(older) == (number < 2)
        assert ('<a href="/requests?search=run">Newest</a>' in page) == (number > 0)
        url = html.unescape(older[1]) if older else ""
    assert rows == made[::-1]


def test_a_part_of_the_history_without_a_match_leads_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.pool(gpu=1)
    desk.policy("vision")
    rare = desk.submit("vision", gpu=1, name="rare")["id"]
    for _ in range(4):
        desk.submit("vision", gpu=1)
    for name, size in {"SCAN_SIZE": 2, "MAX_SCANS": 1, "MAX_COUNT_SCANS": 1}.items():
        monkeypatch.setattr(f"app.store.queries.{name}", size)
    page = desk.visitor().get("/requests?search=rare").get_data(as_text=True)
    assert "Older requests have not been searched yet." in page
    assert tabs(page)["Live*"] == "0+"
    for _ in range(2):
        older = re.search(r'<a id="older" href="([^"]+)"', page)
        assert older
        page = desk.visitor().get(html.unescape(older[1])).get_data(as_text=True)
    assert listed(page) == [rare]


def test_a_requester_sees_and_counts_its_own(desk: Desk, ids: dict[str, str]) -> None:
    visitor = desk.visitor(desk.token("requester", "research"))
    page = visitor.get("/requests?state=all").get_data(as_text=True)
    assert listed(page) == [ids["cancelled"], ids["first"]]
    assert tabs(page) == {"Live": "1", "Queued": "1", "Allocated": "0", "Preempting": "0", "Ended": "1", "All*": "2"}
    assert listed(visitor.get("/requests?state=all&search=resnet").get_data(as_text=True)) == []


def test_a_part_of_the_page_is_the_list_and_not_the_form(desk: Desk, ids: dict[str, str]) -> None:
    part = desk.visitor().get("/requests?search=ana", {"HX-Request": "true"}).get_data(as_text=True)
    assert listed(part) == [ids["holds"]]
    assert "<form" not in part, "what is being typed stays"


def test_another_workspace_is_kept_in_the_form_and_the_links(desk: Desk) -> None:
    visitor = desk.visitor(desk.token("viewer", workspaces=["default", "lab"]))
    page = visitor.get("/requests?workspace=lab").get_data(as_text=True)
    assert '<input type="hidden" name="workspace" value="lab">' in page
    assert 'href="/requests?state=queued&amp;workspace=lab"' in page


def test_hostile_words_are_words(desk: Desk) -> None:
    desk.pool(gpu=1)
    desk.policy("vision")
    desk.submit("vision", gpu=1, name=HOSTILE[:90], labels={"user": HOSTILE})
    for path in ("/requests", "/events"):
        answer = desk.visitor().http.get(path, query_string={"search": HOSTILE} if path == "/requests" else {"pool": HOSTILE})
        assert answer.status_code == 200
        assert "<script>alert" not in answer.get_data(as_text=True)


@pytest.mark.parametrize("query", ["state=waiting", "before=x", "before=0", "search=" + "x" * 101])
def test_a_malformed_query_is_refused(desk: Desk, query: str) -> None:
    assert desk.visitor().get(f"/requests?{query}").status_code == 400


def test_a_workspace_without_requests_says_how_to_make_one(desk: Desk) -> None:
    assert "No live request." in desk.visitor().text("/requests")
    assert "There are no requests yet. poolkeeper run and" in desk.visitor().text("/requests?state=all")
