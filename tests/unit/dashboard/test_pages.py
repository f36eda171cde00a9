"""The contents of pages, by the role of the visitor, and their security headers."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from app.dashboard.assets import ASSET_DIRECTORY, MEDIA_TYPES
from app.dashboard.page_context import LISTED_WORKSPACES
from app.dashboard.pages import TREE_ROWS
from app.dashboard.routes import PAGES, SIGN_IN_PAGES
from app.domain.plan_steps import Trigger
from app.domain.request_origin import short_id
from tests.support.fake_redis import new_fake
from tests.support.in_process_api import Site
from tests.unit.dashboard.page_client import Desk, words

HOSTILE = "<script>alert('x')</script>\"'&"


def in_use(desk: Desk) -> dict[str, str]:
    """Create a pool in which blue borrows units that are reserved for red, with holders and waiters."""
    desk.pool(gpu=8, mcpu=8000)
    desk.policy("red", reserved={"gpu": 4}, priority=5)
    desk.policy("blue", limit={"gpu": 7})
    big = desk.submit("blue", gpu=6, walltime_s=3600)
    red = desk.submit("red", gpu=1)
    waits = desk.submit("red", gpu=3)
    over = desk.submit("blue", gpu=2)
    return {"big": big["id"], "red": red["id"], "waits": waits["id"], "over": over["id"], "fence": big["fence"]}


def test_the_pools_with_bars_in_words(desk: Desk) -> None:
    in_use(desk)
    page = desk.visitor().get("/").get_data(as_text=True)
    assert "gpu: 7 of 8 used: 1 in share, 6 borrowed, 1 free" in page
    assert "<title>limit" not in page, "limits of policies are in the bars of the policies"
    assert 'class="part share" x="0.0%" y="3" width="12.5%"' in page
    assert 'class="part borrowed" x="12.5%" y="3" width="75.0%"' in page
    assert "2 waiting 2 running" in words(desk.visitor().get("/"))


def test_a_shrunk_pool_shows_where_its_capacity_ends(desk: Desk) -> None:
    in_use(desk)
    desk.patch("/pools/gpus", {"capacity": {"gpu": 6}})
    desk.policy("blue")
    desk.patch("/pools/gpus", {"capacity": {"gpu": 6}})
    page = desk.visitor().get("/").get_data(as_text=True)
    assert "<title>capacity 6</title>" in page
    assert "7 of 6 used: 1 in share, 5 borrowed, 1 over capacity, 0 free" in page
    assert '<strong class="excess">7</strong>' in page
    assert re.search(r'class="part over" x="85.714%" y="3" width="14.286%"', page)


def test_a_pool_page_lists_waiters_reasons_and_holders(desk: Desk) -> None:
    asks = in_use(desk)
    page = desk.visitor().get("/pools/gpus").get_data(as_text=True)
    row = re.search(rf'<tr id="q-{asks["over"]}">(.*?)</tr>', page, re.S)
    assert row
    result = " ".join(re.sub(r"<[^>]*>", " ", row[1]).split())
    assert result.startswith(f"2 {short_id(asks['over'])} blue 2 gpu")
    assert f'title="{asks["over"]}"' in row[1]
    assert "over its limit it needs 2 gpu, and policy orchestrator/blue uses 6 of the 7 that it may use at most" in result
    assert f'<tr id="r-{asks["big"]}">' in page
    assert re.search(r'data-label="Lease lapses"><time', page)


def test_the_tree_has_groups_with_what_is_below_them(desk: Desk) -> None:
    desk.pool(gpu=8)
    desk.put("/pools/gpus/groups/science", {"reserved": {"gpu": 4}})
    desk.put("/pools/gpus/groups/lab", {"parent": "science"})
    desk.policy("inner", group="lab", priority=1)
    desk.policy("outer", priority=9)
    page = desk.visitor().get("/pools/gpus").get_data(as_text=True)
    rows = re.findall(r'<tr id="(?:group|policy)-([^"]+)".*?class="(depth-\d)"', page, re.S)
    assert rows == [
        ("science", "depth-0"),
        ("lab", "depth-1"),
        ("orchestrator:inner", "depth-2"),
        ("orchestrator:outer", "depth-0"),
    ]


def test_a_tree_of_many_is_paged_to_its_end(desk: Desk) -> None:
    desk.pool(gpu=8)
    desk.put("/pools/gpus/groups/science", {})
    names = [f"team-{number:03}" for number in range(TREE_ROWS + 20)]
    for name in names:
        desk.policy(name, group="science" if name < "team-050" else None)
    first = desk.visitor().get("/pools/gpus").get_data(as_text=True)
    more = re.search(r'id="tree-next" href="([^"]+)"', first)
    assert more
    second = desk.visitor().get(html.unescape(more[1])).get_data(as_text=True)
    assert "tree-next" not in second
    pages = [re.findall(r'<tr id="policy-orchestrator:([^"]+)"', page) for page in (first, second)]
    assert (len(pages[0]), sorted([*pages[0], *pages[1]])) == (TREE_ROWS - 1, names)
    assert desk.visitor().get("/pools/gpus?tree=x").status_code == 400


def test_a_request_tells_all_that_explain_tells(desk: Desk) -> None:
    asks = in_use(desk)
    for name in ("big", "waits", "over"):
        body = desk.get(f"/requests/{asks[name]}/explain").body
        page = desk.visitor().text(f"/requests/{asks[name]}")
        assert body["sentence"].replace(asks[name], short_id(asks[name])) in page
        for pool in body["pools"]:
            for part in (pool["would_start_if"], f"number {pool['position']} of {pool['waiting']}"):
                assert part in page
            assert pool["preemption"]["reason"].lower() in page.lower()
            for candidate in pool["preemption"]["candidates"]:
                assert short_id(candidate["request"]) in page
                assert (candidate["why_not"] or "yes, by") in page
    events = [line["event"] for line in desk.get(f"/requests/{asks['big']}/events").items]
    story = desk.visitor().text(f"/requests/{asks['big']}").partition("Timeline")[2]
    assert [word for word in story.split() if word in events] == events[::-1]


def test_victims_and_their_waiters(desk: Desk) -> None:
    asks = in_use(desk)
    desk.preempt(asks["waits"], {"id": asks["big"], "fence": int(asks["fence"])}, reason=Trigger.RECLAIM)
    page = desk.visitor().text("/pools/gpus")
    assert "terminate 14 Nov 22:13:50" in page
    assert f"for {short_id(asks['waits'])} red 3 gpu" in page
    assert "waits for victims" in page
    events = desk.visitor().text("/events")
    assert "preempting" in events
    assert "reclaim" in events


def test_a_waiter_shows_when_it_was_last_asked_for(desk: Desk) -> None:
    desk.pool(gpu=1)
    desk.policy("team")
    holder, waiter = desk.submit(gpu=1), desk.submit(gpu=1)
    desk.clock.advance(40)
    assert "last polled 40 s ago" in desk.visitor().text("/pools/gpus")
    assert "Last polled 14 Nov 22:13:20 40 s ago" in desk.visitor().text(f"/requests/{waiter['id']}")
    assert "Last polled" not in desk.visitor().text(f"/requests/{holder['id']}")
    desk.get(f"/requests/{waiter['id']}")
    desk.clock.advance(5)
    assert "last polled 5 s ago" in desk.visitor().text("/pools/gpus")


def test_the_queue_is_paged_to_its_end(desk: Desk) -> None:
    desk.pool(gpu=1)
    desk.policy("team")
    desk.submit(gpu=1)
    asks = [{"component": "team", "resources": {"gpu": 1}} for _ in range(120)]
    body = [item["id"] for item in desk.post("/requests/batch", {"requests": asks}).body["items"]]
    visible: list[str] = []
    path: str | None = "/pools/gpus"
    while path:
        page = desk.visitor().get(path).get_data(as_text=True)
        visible += re.findall(r'<tr id="q-(\w+)">', page)
        more = re.search(r'id="queue-next" href="([^"]+)"', page)
        path = html.unescape(more[1]) if more else None
    assert visible == body
    for wrong in ("queue=nonsense", "queue=a:", "running=q:"):
        refused = desk.visitor().get(f"/pools/gpus?{wrong}")
        assert (refused.status_code, "is not one that was answered" in words(refused)) == (400, True), wrong


def test_a_part_is_what_changes_and_no_more(desk: Desk) -> None:
    in_use(desk)
    part = desk.visitor().get("/pools/gpus", {"HX-Request": "true"}).get_data(as_text=True)
    whole = desk.visitor().get("/pools/gpus").get_data(as_text=True)
    assert "<html" not in part
    assert "<h1>" in part
    assert " ".join(part.split()) in " ".join(whole.split())


def test_history_is_told_in_words_as_a_table_and_as_numbers(desk: Desk) -> None:
    in_use(desk)
    assert "Usage history" not in desk.visitor().text("/pools/gpus"), "nothing has been noted yet"
    for _ in range(3):
        desk.services.usage_history.record("default")
        desk.clock.advance(60)
    page = desk.visitor().text("/pools/gpus")
    assert "Of gpu, in the last 2 min: all policies together 7.0 on average and 7 at most; blue 6.0 on average" in page
    drawn = json.loads(desk.visitor().get("/pools/gpus/history?key=gpu").get_data())
    assert [(item["name"], item["values"]) for item in drawn["series"]] == [
        ("pool", [7, 7, 7, 7]),
        ("orchestrator/blue", [6, 6, 6, 6]),
        ("orchestrator/red", [1, 1, 1, 1]),
        ("capacity", [8, 8, 8, 8]),
    ]
    assert "Of mcpu" in desk.visitor().text("/pools/gpus?key=mcpu")
    assert "Of gpu" in desk.visitor().text("/pools/gpus?key=none")


# ---- the pages of each role


def test_a_viewer_neither_sees_controls_nor_may_use_them(desk: Desk) -> None:
    asks = in_use(desk)
    admin, viewer = desk.visitor(desk.token("admin")), desk.visitor(desk.token("viewer"))
    for path in ("/pools/gpus", f"/requests/{asks['waits']}", f"/requests/{asks['big']}"):
        assert 'class="button' in admin.get(path).get_data(as_text=True)
        assert 'class="button' not in viewer.get(path).get_data(as_text=True)
    form = re.findall(r'name="form" value="([^"]*)"', viewer.get("/").get_data(as_text=True))[0]
    for page in PAGES:
        if page.method == "POST":
            path = page.rule.replace("<request>", asks["waits"]).replace("<pool>", "gpus").replace("<kind>", "orchestrator")
            answer = viewer.http.post(path.replace("<component>", "blue"), data={"form": form, "shown": "x"})
            assert answer.status_code == 403, path
            assert "the role viewer may not" in words(answer)


def test_an_operator_ends_requests_resizes_and_edits_policies(desk: Desk) -> None:
    asks = in_use(desk)
    operator = desk.visitor(desk.token("operator"))
    page = operator.text("/pools/gpus")
    for control in ("Cancel…", "Drop…", "Resize…", "Edit…"):
        assert control in page
    deeds: dict[str, dict[str, str]] = {
        f"/requests/{asks['over']}/cancel": {},
        f"/requests/{asks['big']}/drop": {},
        "/pools/gpus/resize": {"capacity.gpu": "9"},
        "/pools/gpus/policies/orchestrator/blue": {"priority": "7"},
    }
    for path, fields in deeds.items():
        shown = operator.send(path, fields) if fields else operator.get(path)
        assert "What would happen" in words(shown), path
        assert operator.again(shown, path).status_code == 303, path
    ended = [desk.services.requests.get("default", asks[item]).status for item in ("over", "big")]
    assert [str(item) for item in ended] == ["cancelled", "released"]
    view = desk.services.pools.get("default", "gpus")
    assert (view.capacity["gpu"], view.policies["orchestrator/blue"].priority) == (9, 7)


def test_times_are_told_from_the_clock_that_leases_go_by(desk: Desk) -> None:
    in_use(desk)  # years ago by the clock of this machine
    page = desk.visitor().get("/pools/gpus").get_data(as_text=True)
    assert f'data-now="{desk.clock.now_ms()}"' in page
    result = re.findall(r'data-label="Lease lapses"><time[^>]*>[^<]*</time> <span[^>]*>([^<]*)<', page)
    assert result == ["in 1 min", "in 1 min"]


def test_a_requester_sees_its_own_and_what_the_api_shows_it(desk: Desk) -> None:
    asks = in_use(desk)
    visitor = desk.visitor(desk.token("requester", "blue"))
    page = visitor.text("/pools/gpus")
    assert short_id(asks["over"]) in page
    assert short_id(asks["big"]) in page
    assert short_id(asks["waits"]) not in page
    assert short_id(asks["red"]) not in page
    assert "1 request of this page is of a component that your token cannot see" in page
    assert "Drop…" not in page
    assert short_id(asks["waits"]) not in visitor.text("/events")
    assert short_id(asks["big"]) in visitor.text("/events")
    assert visitor.get(f"/requests/{asks['waits']}").status_code == 403
    assert visitor.get(f"/requests/{asks['waits']}/cancel").status_code == 403
    assert asks["waits"] not in visitor.get(f"/requests/{asks['over']}").get_data(as_text=True)


def test_a_requester_without_requests_among_the_newest_gets_a_note(desk: Desk) -> None:
    assert "There are no events yet." in desk.visitor().text("/events")
    in_use(desk)
    page = desk.visitor(desk.token("requester", "grey")).text("/events")
    assert "There are no events yet." not in page
    assert re.search(r"None of the last \d events is of a component that your token can see\.", page)


def test_a_requester_is_not_told_which_other_is_before_it(desk: Desk) -> None:
    desk.pool(gpu=4, settings={"queueing": "strict"})
    desk.policy("red", priority=5)
    desk.policy("blue")
    desk.submit("blue", gpu=2)
    first, waits = desk.submit("red", gpu=4)["id"], desk.submit("blue", gpu=1)["id"]
    token = desk.token("requester", "blue")
    visitor, operator = desk.visitor(token), desk.visitor(desk.token("operator"))
    for path in ("/pools/gpus", f"/requests/{waits}"):
        assert f"request {short_id(first)} is before it" in operator.text(path)
        page = visitor.text(path)
        assert "another request is before it" in page
        assert first not in visitor.get(path).get_data(as_text=True)
    body = desk.get(f"/requests/{waits}/explain", token=token).body
    assert first not in str(body)
    assert body["pools"][0]["would_start_if"] == "another request, the first in the line, is granted or leaves the queue"


def test_a_requester_may_cancel_its_own_and_learns_nothing_of_others_by_it(desk: Desk) -> None:
    asks = in_use(desk)
    visitor = desk.visitor(desk.token("requester", "blue"))
    path = f"/requests/{asks['over']}/cancel"
    page = visitor.text(path)
    assert "Only operators see the effect on other requests" in page
    assert visitor.send(path).status_code == 303
    assert desk.services.requests.get("default", asks["over"]).status == "cancelled"


def test_workspaces_are_those_of_the_token(desk: Desk) -> None:
    secret = desk.token("admin", workspaces=["alpha", "beta"])
    desk.post("/pools", {"name": "of-beta", "capacity": {"gpu": 1}}, token=secret, workspace="beta")
    visitor = desk.visitor(secret)
    assert "0 in workspace alpha" in visitor.text("/"), "the first of several"
    page = visitor.get("/?workspace=beta").get_data(as_text=True)
    assert re.findall(r"<option(?: selected)?>(\w+)</option>", page) == ["alpha", "beta"]
    assert "/pools/of-beta?workspace=beta" in page
    assert re.findall(r"<option selected>(\w+)</option>", page) == ["beta"]
    assert visitor.get("/?workspace=gamma").status_code == 403
    assert visitor.get("/?workspace=..").status_code == 400
    assert desk.visitor(desk.token("viewer", workspaces=["alpha"])).get("/").status_code == 200


@pytest.mark.parametrize("shown", ["default", "zeta"])
def test_the_workspace_of_the_page_is_selected_among_many(desk: Desk, shown: str) -> None:
    for name in (*(f"a-{number:03}" for number in range(LISTED_WORKSPACES + 5)), "zeta"):
        desk.services.workspaces.add(name)
    visitor = desk.visitor(desk.token("admin", workspaces=["*"]))
    page = visitor.get(f"/?workspace={shown}").get_data(as_text=True)
    options = re.findall(r"<option( selected)?>([\w-]+)</option>", page)
    assert [name for selected, name in options if selected] == [shown]
    assert len(options) == LISTED_WORKSPACES
    assert [name for _, name in options] == sorted(name for _, name in options)


# ---- what a browser is told


@pytest.mark.parametrize("path", ["/", "/pools/gpus", "/pools/nowhere", "/events", "/sign-in?next=/", "/pools/gpus/history"])
def test_every_page_keeps_to_a_strict_policy(desk: Desk, path: str) -> None:
    desk.pool()
    if "sign-in" in path:
        desk.token()
    answer = desk.visitor().get(path)
    rules = dict(rule.strip().split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split(";"))
    assert rules == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self'",
        "connect-src": "'self'",
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert answer.headers["Cache-Control"] == "no-store"
    text = answer.get_data(as_text=True)
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|hx-on|javascript:", text)
    assert not re.search(r'(?:src|href|action|from)="(?:https?:)?//', text), "nothing of another host"


def test_files_are_kept_for_good_by_names_that_tell_their_content(desk: Desk) -> None:
    requests = set(re.findall(r'(?:href|src)="(/assets/[^"]+)"', desk.visitor().get("/").get_data(as_text=True)))
    assert len(requests) == len([file for file in ASSET_DIRECTORY.iterdir() if file.suffix in MEDIA_TYPES])
    for path in requests:
        answer = desk.visitor().get(path)
        assert answer.status_code == 200
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.mimetype == MEDIA_TYPES[Path(path).suffix]
        assert desk.visitor().get(re.sub(r"\.\w{12}\.", ".000000000000.", path)).status_code == 404
    for name in ("htmx.min.js", "LICENSE.htmx", "..%2Fsite.py", "%2e%2e"):
        assert desk.visitor().get(f"/assets/{name}").status_code == 404


def test_what_came_with_others_has_its_licence_with_it() -> None:
    names = {file.name for file in ASSET_DIRECTORY.iterdir()}
    assert {"LICENSE.htmx", "LICENSE.uPlot"} <= names
    assert "MIT" in (ASSET_DIRECTORY / "LICENSE.uPlot").read_text()
    assert "Zero-Clause BSD" in (ASSET_DIRECTORY / "LICENSE.htmx").read_text()


def test_hostile_words_are_words(desk: Desk) -> None:
    desk.pool(gpu=1)
    desk.patch("/pools/gpus", {"description": HOSTILE})
    desk.policy("team")
    item = desk.submit(gpu=1, labels={"x": HOSTILE})
    desk.post(f"/requests/{item['id']}/checkpoint", {"fence": item["fence"], "state": "completed", "reference": HOSTILE})
    pages = ["/", "/pools/gpus", f"/requests/{item['id']}"]
    for path, headers in ((path, headers) for path in pages for headers in ({}, {"HX-Request": "true"})):
        text = desk.visitor().get(path, headers).get_data(as_text=True)
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&#34;&#39;&amp;" in text
    for path in ("/pools/%3Cscript%3E", "/requests/%3Cscript%3E", "/pools/a%0Ab", "/live?pool=%3Cscript%3E"):
        answer = desk.visitor().get(path)
        assert answer.status_code == 404
        assert "<script>" not in answer.get_data(as_text=True)
    for path, field in (("/pools/gpus/resize", "capacity.gpu"), ("/pools/gpus/policies/orchestrator/team", "limit.gpu")):
        text = desk.visitor().send(path, {field: HOSTILE}).get_data(as_text=True)
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&#34;&#39;&amp;" in text, "what was written stays, as words"


def test_requests_are_counted_and_logged_by_the_name_of_the_page(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.pool()
    secret = desk.token("viewer", name="looker")
    visitor = desk.visitor(secret)
    with caplog.at_level("INFO"):
        visitor.get("/pools/gpus")
        visitor.get("/pools/nowhere")
    lines = [(record.getMessage(), record.__dict__["route"], record.__dict__["token"]) for record in caplog.records]
    assert lines == [("GET /pools/nowhere 404", "dashboard /pools/<pool>", "looker")]
    assert secret not in caplog.text
    numbers = desk.get("/metrics", root=True, token=secret).body
    assert 'poolkeeper_http_requests_total{method="GET",route="dashboard /pools/<pool>",status="200"} 1.0' in numbers
    assert 'route="dashboard /pools/<pool>",status="404"} 1.0' in numbers
    current = {page.path for page in (*PAGES, *SIGN_IN_PAGES)}
    assert set(re.findall(r'route="(dashboard [^"]+)"', numbers)) <= current


def test_a_bug_is_a_page_and_not_a_trace(desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr(type(desk.services.pools), "list_names", broken)
    answer = desk.visitor().get("/")
    assert answer.status_code == 500
    assert "something went wrong here" in words(answer)
    assert "secret words" not in answer.get_data(as_text=True)
    assert "secret words" in caplog.text


def test_the_stream_says_that_something_has_changed(desk: Desk) -> None:
    desk.pool(gpu=1)
    answer = desk.visitor().http.get("/live?pool=gpus", buffered=False)
    assert answer.mimetype == "text/event-stream"
    text = iter(answer.response)
    assert next(text) == b"event: changed\ndata: now\n\n"
    desk.policy("team")
    assert next(text) == b"event: changed\ndata: now\n\n", "a policy makes no event, and is seen"
    desk.submit(gpu=1)
    assert next(text) == b"event: changed\ndata: now\n\n"
    assert desk.services.long_polls.slots.used()["dashboard"] == 1
    answer.close()
    assert desk.services.long_polls.slots.used()["dashboard"] == 0


def test_a_full_house_is_said_to_be_full(desk: Desk) -> None:
    desk.services.long_polls.slots.capacities["dashboard"] = 0
    answer = desk.visitor().get("/live")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


def test_the_stream_of_a_revoked_token_ends(desk: Desk) -> None:
    visitor = desk.visitor(desk.token("viewer", name="leaving"))
    desk.token("admin")
    response = iter(visitor.http.get("/live", buffered=False).response)
    next(response)
    desk.services.tokens.revoke("leaving")
    assert list(response) == []


def test_the_api_alone_has_no_first_page() -> None:
    Site(new_fake()).get("/", root=True).refused(404, "no_such_route")


def test_the_policies_of_a_template_stand_below_it(desk: Desk) -> None:
    desk.pool(gpu=8)
    desk.policy("user-*", limit={"gpu": 1}, priority=1)
    desk.policy("t", priority=5)
    desk.submit("user-bob", gpu=1)
    desk.submit("user-ana", gpu=1)
    page = desk.visitor().get("/pools/gpus").get_data(as_text=True)
    rows = re.findall(r'<tr id="policy-orchestrator:([^"]+)".*?class="(depth-\d)">(.*?)</th>', page, re.S)
    assert [(name, depth) for name, depth, _ in rows] == [
        ("t", "depth-0"),
        ("user-*", "depth-0"),
        ("user-ana", "depth-1"),
        ("user-bob", "depth-1"),
    ]
    assert [re.sub(r"<[^>]+>", "", cell) for _, _, cell in rows[1:3]] == ["user-* template, 2 instances", "user-ana of user-*"]
    assert page.count("Edit…") == 2
    template_row = page[page.index('<tr id="policy-orchestrator:user-*"') :].partition("</tr>")[0]
    text = " ".join(re.sub(r"<[^>]+>", " ", template_row).split())
    assert "gpu 2 / 8" in text, "the use of both"
    assert "1 gpu each 0" in text, "the limit is for each"
    changed = desk.visitor().get("/pools/gpus/policies/orchestrator/user-ana").get_data(as_text=True)
    assert "Policy of user-*" in changed


def test_a_change_of_a_template_is_tried_and_made(desk: Desk) -> None:
    desk.pool(gpu=8)
    desk.policy("user-*", limit={"gpu": 1})
    desk.submit("user-ana", gpu=1)
    waiter = desk.submit("user-ana", gpu=1)
    operator = desk.visitor(desk.token("operator"))
    path = "/pools/gpus/policies/orchestrator/user-*"
    shown = operator.send(path, {"limit.gpu": "2"})
    assert "What would happen" in words(shown)
    assert waiter["id"] in shown.get_data(as_text=True)
    assert operator.again(shown, path).status_code == 303
    assert desk.services.requests.get("default", waiter["id"]).status == "allocated"
