"""Preemption over HTTP: notices, answers and events; the choice of victims is tested elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.domain.plan_steps import Trigger
from app.service.long_poll import POLL_INTERVAL_S
from tests.support.backends import wait_until
from tests.support.in_process_api import Site

CLASS_5, CLASS_8 = ({"priority": 0, "preemption_class": each} for each in (5, 8))
GRACE_OVER, SAVED_BY = "2023-11-14T22:13:50.000Z", "2023-11-14T22:23:20.000Z"


def _contended(site: Site, settings: dict[str, Any] | None = None, **expected: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Create a holder of all units, and a waiter of a higher class."""
    site.pool(gpu=1, settings=settings or {})
    site.policy()
    return site.submit(**expected), site.submit(preemption_class=8)


def _path(request: dict[str, Any], verb: str) -> str:
    return f"/requests/{request['id']}/{verb}"


def _said(site: Site, request: dict[str, Any], state: str, **more: Any) -> dict[str, Any]:
    answer = site.post(_path(request, "checkpoint"), {"fence": request["fence"], "state": state, **more})
    assert answer.status == 200, answer
    body: dict[str, Any] = answer.body
    return body


def _now(site: Site, request: dict[str, Any], *fields: str) -> dict[str, Any]:
    body = site.get(f"/requests/{request['id']}").body
    return {field: body[field] for field in fields} if fields else body


# ---- being told


@pytest.mark.parametrize(
    ("checkpoint", "directive", "deadline"), [("none", "terminate", GRACE_OVER), ("manual", "checkpoint", SAVED_BY)]
)
def test_a_notice_has_its_directive_waiter_and_deadline(
    everywhere: Site, checkpoint: str, directive: str, deadline: str
) -> None:
    allocation, waits = _contended(everywhere, checkpoint=checkpoint, gpu=1)
    everywhere.preempt(waits["id"], allocation)
    sentence = f"preempted for request {waits['id']}, which ranks higher"
    result = {
        "status": "preempting",
        "directive": directive,
        "deadline": deadline,
        "preempted_by": waits["id"],
        "reason": {"code": "priority", "message": sentence, "pools": []},
    }
    assert _now(everywhere, allocation) == allocation | result
    beat = everywhere.post(_path(allocation, "heartbeat"), {"fence": allocation["fence"]}).body
    assert {field: beat[field] for field in ("status", "directive", "deadline")} == {
        "status": "preempting",
        "directive": directive,
        "deadline": deadline,
    }
    assert everywhere.get("/pools/gpus").body["held"] == {"gpu": 0}, "all of it is still to come"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Trigger.PRIORITY, "which ranks higher"),
        (Trigger.RECLAIM, "which fits into what its policy has reserved"),
        (Trigger.SENSITIVE, "which has preemption class 10"),
    ],
)
def test_each_reason_has_a_sentence(site: Site, reason: Trigger, words: str) -> None:
    allocation, waits = _contended(site)
    site.preempt(waits["id"], allocation, reason=reason)
    text = _now(site, allocation, "reason")["reason"]
    assert (text["code"], text["message"]) == (reason, f"preempted for request {waits['id']}, {words}")


def test_a_poll_that_knows_the_directive_answers_when_it_differs(site: Site) -> None:
    allocation, waits = _contended(site, checkpoint="auto")
    path = f"/requests/{allocation['id']}"
    current = {"wait_s": 0.05, "status": "allocated"}
    assert site.get(path, **current, directive="continue").body == allocation
    site.preempt(waits["id"], allocation)
    leaving = {"wait_s": 60, "status": "preempting"}
    assert site.get(path, **leaving, directive="continue").body["directive"] == "checkpoint"
    site.clock.advance(601)
    site.depart()
    assert site.get(path, **leaving, directive="checkpoint").body["directive"] == "terminate"
    assert site.get(path, **leaving | {"wait_s": 0.05}).body["directive"] == "terminate", "without a word it is no matter"
    assert site.get(path, directive="kill").malformed() == {"directive": "must be 'continue', 'checkpoint' or 'terminate'"}


def test_a_poll_is_woken_when_the_directive_changes(site: Site) -> None:
    allocation, waits = _contended(site, checkpoint="auto")
    path = f"/requests/{allocation['id']}"

    def woken(current: dict[str, str], act: Callable[[], object]) -> Any:
        with ThreadPoolExecutor(1) as polls:
            answer = polls.submit(site.get, path, wait_s=60, **current)
            wait_until(lambda: site.services.long_polls.slots.used()["poll"] == 1, "it waits")
            start = time.monotonic()
            act()
            body = answer.result(30).body["directive"]
        assert time.monotonic() - start < POLL_INTERVAL_S, "and not because it looked by itself"
        return body

    def time_is_up() -> None:
        site.clock.advance(601)
        site.depart()

    at_work = {"status": "allocated", "directive": "continue"}
    assert woken(at_work, lambda: site.preempt(waits["id"], allocation)) == "checkpoint"
    assert woken({"status": "preempting", "directive": "checkpoint"}, time_is_up) == "terminate"


def test_a_waiter_has_no_directive(site: Site) -> None:
    _, waits = _contended(site)
    assert (waits["directive"], waits["deadline"]) == (None, None)
    assert site.get(f"/requests/{waits['id']}", wait_s=1, status="queued", directive="continue").body == waits


# ---- leaving


def test_a_completed_checkpoint_vacates_and_the_request_resumes_from_it(everywhere: Site) -> None:
    allocation, waits = _contended(everywhere, checkpoint="manual")
    everywhere.preempt(waits["id"], allocation)
    everywhere.clock.advance(10)
    assert _said(everywhere, allocation, "started")["directive"] == "checkpoint"
    left = _said(everywhere, allocation, "completed", reference="s3://runs/é 42")
    assert left == {"id": allocation["id"], "status": "queued", "lease_expires_at": None, "directive": None, "deadline": None}
    assert _said(everywhere, allocation, "completed", reference="s3://runs/é 42")["status"] == "queued", "the same, said again"
    assert _now(everywhere, waits, "status", "pool") == {"status": "allocated", "pool": "gpus"}
    queued = _now(everywhere, allocation)
    assert queued["reason"]["code"] == "priority"
    assert queued["submitted_at"] == allocation["submitted_at"]
    shown = {field: queued[field] for field in ("preemptions", "resume", "checkpoint_reference", "directive", "fence", "pool")}
    assert shown == {
        "preemptions": 1,
        "resume": True,
        "checkpoint_reference": "s3://runs/é 42",
        "directive": None,
        "fence": None,
        "pool": None,
    }
    everywhere.post(_path(waits, "release"), {"fence": _now(everywhere, waits, "fence")["fence"]})
    again = _now(everywhere, allocation)
    expected = {"status": "allocated", "reason": None, "preempted_by": None, "preemptions": 1, "resume": True}
    assert {field: again[field] for field in expected} == expected
    assert again["fence"] > allocation["fence"]


def test_a_release_as_vacated_ends_the_preemption(everywhere: Site) -> None:
    allocation, waits = _contended(everywhere, retries=0)
    everywhere.preempt(waits["id"], allocation, reason=Trigger.RECLAIM)
    path, body = _path(allocation, "release"), {"fence": allocation["fence"], "outcome": "vacated"}
    left = everywhere.post(path, body)
    assert left.status == 200
    expected = {"status": "preempted", "preempted_by": waits["id"], "outcome": None, "preemptions": 1, "directive": None}
    assert {field: left.body[field] for field in expected} == expected
    assert left.body["reason"]["code"] == "reclaim"
    assert everywhere.post(path, body).body == left.body
    assert _now(everywhere, waits, "status") == {"status": "allocated"}


def test_a_victim_whose_work_ends_is_simply_released(site: Site) -> None:
    allocation, waits = _contended(site)
    site.preempt(waits["id"], allocation)
    done = site.post(_path(allocation, "release"), {"fence": allocation["fence"]}).body
    expected = {"status": "released", "outcome": "succeeded", "reason": None, "preempted_by": None, "directive": None}
    assert {field: done[field] for field in expected} == expected


def test_a_late_victim_is_forced_out_and_told_to_stop(everywhere: Site) -> None:
    allocation, waits = _contended(everywhere)
    everywhere.preempt(waits["id"], allocation)
    everywhere.clock.advance(31)
    everywhere.depart()
    assert _now(everywhere, waits, "status") == {"status": "allocated"}
    bodies: dict[str, dict[str, Any]] = {
        "heartbeat": {},
        "checkpoint": {"state": "completed"},
        "release": {"outcome": "vacated"},
    }
    for verb, body in bodies.items():
        refused = everywhere.post(_path(allocation, verb), {"fence": allocation["fence"], **body}).refused(409, "stale_fence")
        assert (refused["directive"], refused["request_status"]) == ("kill", "queued")


@pytest.mark.parametrize(
    ("verb", "text"), [("release", {"outcome": "vacated"}), ("checkpoint", {"state": "defer", "seconds": 1})]
)
def test_a_report_without_a_notice_is_refused(everywhere: Site, verb: str, text: dict[str, Any]) -> None:
    allocation, _ = _contended(everywhere, checkpoint="manual")
    refused = everywhere.post(_path(allocation, verb), {"fence": allocation["fence"], **text}).refused(409, "not_leaving")
    assert allocation["id"] in refused["detail"]
    assert "directive" not in refused
    assert _now(everywhere, allocation) == allocation


def test_a_routine_checkpoint_is_noted(everywhere: Site) -> None:
    allocation, _ = _contended(everywhere)
    beat = _said(everywhere, allocation, "completed", reference="step 7")
    assert (beat["status"], beat["directive"], beat["deadline"]) == ("allocated", "continue", None)
    assert _now(everywhere, allocation) == allocation | {"checkpoint_reference": "step 7"}
    assert _said(everywhere, allocation, "failed")["status"] == "allocated"


def test_one_that_is_said_to_be_routine_does_not_end_anything(everywhere: Site) -> None:
    allocation, waits = _contended(everywhere, checkpoint="manual")
    everywhere.preempt(waits["id"], allocation)
    beat = _said(everywhere, allocation, "completed", reference="step 7", routine=True)
    assert (beat["status"], beat["directive"]) == ("preempting", "checkpoint")
    stored = {"checkpoint_reference": "step 7", "status": "preempting"}
    assert _now(everywhere, allocation, *stored) == stored
    path, body = _path(allocation, "checkpoint"), {"fence": allocation["fence"], "state": "progress", "routine": True}
    assert everywhere.post(path, body).malformed() == {"routine": "goes with completed"}


def test_it_is_put_off_as_far_as_the_pool_allows(everywhere: Site) -> None:
    allocation, waits = _contended(everywhere, settings={"max_deferral_s": 60}, checkpoint="auto")
    everywhere.preempt(waits["id"], allocation)
    assert _said(everywhere, allocation, "defer", seconds=30)["deadline"] == "2023-11-14T22:23:50.000Z"
    assert _said(everywhere, allocation, "defer", seconds=300)["deadline"] == "2023-11-14T22:24:20.000Z"
    assert _said(everywhere, allocation, "failed")["directive"] == "terminate"


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({}, {"fence": "is required", "state": "is required"}),
        ({"fence": 0, "state": "progress"}, {"fence": "must be at least 1"}),
        (
            {"fence": 1, "state": "done"},
            {"state": "must be 'started', 'progress', 'defer', 'completed' or 'failed'"},
        ),
        ({"fence": 1, "state": "defer"}, {"seconds": "is required with defer"}),
        ({"fence": 1, "state": "defer", "seconds": None}, {"seconds": "is required with defer"}),
        ({"fence": 1, "state": "defer", "seconds": 0}, {"seconds": "must be at least 1"}),
        ({"fence": 1, "state": "progress", "seconds": 5}, {"seconds": "goes with defer"}),
        ({"fence": 1, "state": "failed", "reference": "x"}, {"reference": "goes with completed"}),
        ({"fence": 1, "state": "completed", "reference": ""}, {"reference": "must have at least 1 character"}),
        ({"fence": 1, "state": "completed", "reference": "x" * 1025}, {"reference": "must have at most 1024 characters"}),
        ({"fence": 1, "state": "completed", "note": "x"}, {"note": "is not a field here"}),
    ],
)
def test_a_malformed_word_of_a_checkpoint(site: Site, body: dict[str, Any], faults: dict[str, str]) -> None:
    allocation, _ = _contended(site)
    assert site.post(_path(allocation, "checkpoint"), body).malformed() == faults


# ---- what is told of it


def test_both_sides_of_a_preemption_get_its_reason(everywhere: Site) -> None:
    allocation, waits = _contended(everywhere)
    everywhere.preempt(waits["id"], allocation)
    everywhere.post(_path(allocation, "release"), {"fence": allocation["fence"], "outcome": "vacated"})

    def result(request: dict[str, Any]) -> list[dict[str, Any]]:
        rows = everywhere.get(_path(request, "events")).items
        return [{field: row[field] for field in ("event", "reason", "by", "rank", "by_rank", "victims")} for row in rows]

    quiet: dict[str, Any] = {"reason": None, "by": None, "rank": None, "by_rank": None, "victims": []}
    victim = {"id": allocation["id"], "rank": CLASS_5}
    assert result(waits) == [
        {"event": "submitted", **quiet},
        {"event": "clearing", **quiet, "reason": "priority", "rank": CLASS_8, "victims": [victim]},
        {"event": "allocated", **quiet},
    ]
    because = quiet | {"reason": "priority", "by": waits["id"], "rank": CLASS_5, "by_rank": CLASS_8}
    assert result(allocation)[2:] == [{"event": "preempting", **because}, {"event": "preempted", **because}]


def test_events_say_the_same_as_the_story(everywhere: Site) -> None:
    allocation, waits = _contended(everywhere)
    everywhere.preempt(waits["id"], allocation)
    json = {"Accept": "application/json"}
    for request in (allocation, waits):
        story = everywhere.get(_path(request, "events")).items
        listed = everywhere.get("/events", headers=json, request=request["id"]).items
        assert [{field: row[field] for field in story[0]} for row in listed] == story
    note = everywhere.get("/events", headers=json, request=waits["id"]).items[-1]
    assert (note["event"], note["from"], note["to"]) == ("clearing", "queued", "queued")
