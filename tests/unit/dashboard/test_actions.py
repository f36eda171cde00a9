"""Changes from a page: previewed first, done as previewed, and refused if the preview is stale."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.domain.request_origin import short_id
from tests.unit.dashboard.page_client import Desk, words

FORM = "/pools/gpus/policies/orchestrator/blue"


@pytest.fixture
def ids(desk: Desk) -> dict[str, str]:
    """Fill the pool with requests of blue, and queue one of red and one of blue."""
    desk.pool(gpu=4)
    desk.policy("red", priority=5)
    desk.policy("blue", limit={"gpu": 4})
    holds = desk.submit("blue", gpu=4)
    return {"holds": holds["id"], "red": desk.submit("red", gpu=2)["id"], "blue": desk.submit("blue", gpu=2)["id"]}


def status(desk: Desk, request: str) -> str:
    return str(desk.services.requests.get("default", request).status)


def test_cancelling_shows_and_then_does_it(desk: Desk, ids: dict[str, str]) -> None:
    visitor = desk.visitor()
    path = f"/requests/{ids['blue']}/cancel"
    assert "No other request would be granted, preempted or rejected." in visitor.text(path)
    done = visitor.send(path)
    assert (done.status_code, done.headers["Location"]) == (303, f"/requests/{ids['blue']}?done=cancelled")
    assert status(desk, ids["blue"]) == "cancelled"
    assert "The request was cancelled and has left the queue." in visitor.text(done.headers["Location"])
    again = visitor.get(path)
    assert (again.status_code, "does not wait any more" in words(again)) == (409, True)


def test_dropping_a_holder_previews_the_next_grants(desk: Desk, ids: dict[str, str]) -> None:
    visitor = desk.visitor()
    path = f"/requests/{ids['holds']}/drop"
    page = visitor.text(path)
    assert f"2 would be granted: {short_id(ids['red'])} red 2 gpu {short_id(ids['blue'])} blue 2 gpu" in page
    assert status(desk, ids["holds"]) == "allocated"
    assert visitor.send(path).status_code == 303
    assert [status(desk, item) for item in ids.values()] == ["released", "allocated", "allocated"]
    assert visitor.get(path).status_code == 409


@pytest.mark.parametrize("verb", ["drop", "cancel"])
def test_the_page_says_whose_request_it_is(desk: Desk, ids: dict[str, str], verb: str) -> None:
    labels = {"user": "ana", "host": "gpu-01", "command": "python <train>.py"}
    body = {"component": "blue", "resources": {"gpu": 1}, "labels": labels}
    request = desk.post("/requests", body).body["id"]
    page = desk.visitor().text(f"/requests/{request}/{verb}")
    assert "blue, queued: 1 gpu name: python <train>.py owner: ana@gpu-01 it leaves the queue" in page
    named = desk.post("/requests", {**body, "name": "nightly"}).body["id"]
    assert "name: nightly owner: ana@gpu-01" in desk.visitor().text(f"/requests/{named}/{verb}")
    assert "owner" not in desk.visitor().text(f"/requests/{ids['blue']}/{verb}")


def confirm_button(page: str) -> str:
    """Return the class of the button that confirms."""
    (kind,) = re.findall(r'<button class="(\w+)" id="confirm">', page)
    return str(kind)


def test_the_confirm_button_is_red_only_where_work_is_stopped(desk: Desk, ids: dict[str, str]) -> None:
    visitor = desk.visitor()
    assert confirm_button(visitor.get(f"/requests/{ids['holds']}/drop").get_data(as_text=True)) == "danger"
    for path in (f"/requests/{ids['blue']}/drop", f"/requests/{ids['blue']}/cancel"):
        assert confirm_button(visitor.get(path).get_data(as_text=True)) == "main", path
    resized = visitor.send("/pools/gpus/resize", {"capacity.gpu": "8"}).get_data(as_text=True)
    assert confirm_button(resized) == "main"
    desk.policy("blue", limit={"gpu": 4}, priority=9)
    preempts = visitor.send(FORM, {"priority": "0"}).get_data(as_text=True)
    assert "would have to leave" in preempts
    assert confirm_button(preempts) == "danger"


def test_what_is_not_as_shown_any_more_is_not_done(desk: Desk, ids: dict[str, str]) -> None:
    visitor = desk.visitor()
    path = f"/requests/{ids['blue']}/drop"
    shown = re.findall(r'name="shown" value="([^"]*)"', visitor.get(path).get_data(as_text=True))[0]
    desk.delete(f"/requests/{ids['holds']}")  # so that it runs, and a drop would take something away
    refused = visitor.send(path, {"shown": shown})
    assert refused.status_code == 409
    assert "nothing was done. This is what would happen now" in words(refused)
    assert status(desk, ids["blue"]) == "allocated"
    assert visitor.again(refused, path).status_code == 303
    assert status(desk, ids["blue"]) == "released"


def test_a_deed_that_was_never_shown_is_not_done(desk: Desk, ids: dict[str, str]) -> None:
    visitor = desk.visitor()
    path = f"/requests/{ids['blue']}/cancel"
    form = re.findall(r'name="form" value="([^"]*)"', visitor.get(path).get_data(as_text=True))[0]
    assert visitor.http.post(path, data={"form": form}).status_code == 200, "it is shown"
    assert visitor.http.post(path, data={"form": form, "shown": "0" * 64}).status_code == 409
    assert status(desk, ids["blue"]) == "queued"


def test_resizing_previews_the_grants_and_then_applies(desk: Desk, ids: dict[str, str]) -> None:
    visitor = desk.visitor()
    path = "/pools/gpus/resize"
    shown = visitor.send(path, {"capacity.gpu": "6"})
    assert "capacity gpu: 4 -> 6" in words(shown)
    assert f"1 would be granted: {short_id(ids['red'])}" in words(shown)
    assert desk.get("/pools/gpus").body["capacity"] == {"gpu": 4}
    assert visitor.again(shown, path).status_code == 303
    assert desk.get("/pools/gpus").body["capacity"] == {"gpu": 6}
    assert status(desk, ids["red"]) == "allocated"


def test_a_size_below_the_use_says_whose_it_is_and_what_becomes_of_it(desk: Desk) -> None:
    desk.pool(gpu=4, settings={"over_limit": "evict"})
    desk.policy("red")
    desk.submit("red", gpu=1, labels={"user": "ana"})
    newest = desk.submit("red", gpu=3, labels={"user": "bob", "host": "gpu-02"})["id"]
    answer = desk.visitor().send("/pools/gpus/resize", {"capacity.gpu": "2"})
    page = words(answer)
    use = "pool gpus: 4 gpu in use, 2 more than its capacity of 2: red 4 (bob@gpu-02, ana)."
    assert f"{use} With over_limit=evict, 1 request is preempted after 30 s. Preempted: {short_id(newest)} red 3 gpu" in page
    assert confirm_button(answer.get_data(as_text=True)) == "danger"
    assert "No other request would be" not in page


@pytest.mark.parametrize(
    ("units", "fault"),
    [
        ("4", "nothing would change"),
        ("x", "has to be a whole number"),
        ("-1", "has to be a whole number"),
        ("٣", "has to be a whole number"),
        ("9" * 17, "has to be a whole number"),
        ("9" * 16, "must be"),
        ("2", "reserves or is limited to 4 of gpu; the pool would have 2"),
        ("0", "4 of gpu are held"),
    ],
)
def test_a_size_that_cannot_be_is_said_to_be_none(desk: Desk, ids: dict[str, str], units: str, fault: str) -> None:
    answer = desk.visitor().send("/pools/gpus/resize", {"capacity.gpu": units})
    assert answer.status_code == 422
    assert fault in words(answer)
    assert f'value="{units}"' in answer.get_data(as_text=True), "what was written stays"
    assert desk.get("/pools/gpus").body["capacity"] == {"gpu": 4}


def test_a_policy_is_edited_and_what_the_form_does_not_show_stays(desk: Desk, ids: dict[str, str]) -> None:
    desk.policy("blue", limit={"gpu": 4}, settings={"over_limit": "evict"}, profile="training")
    visitor = desk.visitor()
    shown = visitor.send(FORM, {"priority": "9", "limit.gpu": "", "reserved.gpu": "1"})
    page = words(shown)
    for line in ("priority: 0 -> 9", "reserved gpu: none -> 1", "limit gpu: 4 -> as the pool"):
        assert line in page
    assert visitor.again(shown, FORM).status_code == 303
    body = desk.get("/pools/gpus/policies/blue").body
    assert (body["priority"], body["reserved"], body["limit"], body["profile"]) == (9, {"gpu": 1}, {}, "training")
    assert body["settings"] == {"over_limit": "evict"}


def test_a_policy_that_others_changed_meanwhile_is_shown_again(desk: Desk, ids: dict[str, str]) -> None:
    visitor = desk.visitor()
    shown = visitor.send(FORM, {"priority": "9"})
    desk.policy("blue", limit={"gpu": 3})
    refused = visitor.again(shown, FORM)
    assert refused.status_code == 409
    assert "limit gpu: 3 -> 4" in words(refused), "it would undo what the other did"
    assert desk.get("/pools/gpus/policies/blue").body["limit"] == {"gpu": 3}


def test_what_changes_while_it_is_tried_out_is_shown_again(
    desk: Desk, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = desk.visitor()
    shown = visitor.send(FORM, {"priority": "9"})
    kind = type(desk.services.dry_run)
    tried = kind.set_policy

    def slowly(*value: Any) -> Any:
        rows = tried(*value)
        desk.policy("blue", limit={"gpu": 3})
        return rows

    monkeypatch.setattr(kind, "set_policy", slowly)
    refused = visitor.again(shown, FORM)
    assert (refused.status_code, "nothing was done" in words(refused)) == (409, True)
    body = desk.get("/pools/gpus/policies/blue").body
    assert (body["limit"], body["priority"]) == ({"gpu": 3}, 0), "what the other did is not undone"


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({}, "nothing would change"),
        ({"priority": "99999"}, "priority must be at most 9999"),
        ({"profile": "royal"}, "profile must be"),
        ({"group": "nowhere"}, "there is no group nowhere"),
        ({"reserved.gpu": "5"}, "reserves 5 of gpu, more than its limit of 4"),
        ({"limit.gpu": "9"}, "limits gpu to 9; the pool has 4"),
    ],
)
def test_a_policy_that_cannot_be_is_said_to_be_none(
    desk: Desk, ids: dict[str, str], fields: dict[str, str], fault: str
) -> None:
    answer = desk.visitor().send(FORM, fields)
    assert answer.status_code == 422
    assert fault in words(answer)


def test_what_is_not_there_is_not_found(desk: Desk, ids: dict[str, str]) -> None:
    for path in ("/pools/none/resize", "/pools/gpus/policies/orchestrator/none", "/requests/none/cancel"):
        assert desk.visitor().get(path).status_code == 404, path
