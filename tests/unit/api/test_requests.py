"""Requests: asked, waited for, held and given back, each answer in full and each refusal with its code."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.in_process_api import NOW, Site, an_ask

ASKED = {
    "component": "team",
    "component_type": "orchestrator",
    "reason": None,
    "resources": {"gpu": 1, "step_run": 1},
    "preemptible": True,
    "preemption_class": 5,
    "checkpoint": "none",
    "checkpoint_minutes": None,
    "walltime_s": None,
    "retries": 3,
    "lease_s": 60,
    "queue_ttl_s": 600,
    "preemptions": 0,
    "name": None,
    "resume": False,
    "checkpoint_reference": None,
    "submitted_at": NOW,
    "granted_at": None,
    "ended_at": None,
    "outcome": None,
    "exit_code": None,
    "pool": None,
    "fence": None,
    "lease_expires_at": None,
    "directive": None,
    "deadline": None,
    "position": {},
    "preempted_by": None,
    "labels": {},
    "pools": None,
    "task": None,
    "started_at": None,
    "polled_at": None,
}
"""The other fields of a new request of 1 gpu."""
LATER = "2023-11-14T22:14:00.000Z"
"""40 s after NOW."""
HELD = {"status": "allocated", "granted_at": NOW, "pool": "gpus", "fence": 1, "directive": "continue"}


def _ready(site: Site, gpu: int = 1) -> None:
    site.pool(gpu=gpu)
    site.policy()


# ---- submit


def test_a_request_is_allocated(everywhere: Site) -> None:
    _ready(everywhere)
    answer = everywhere.post("/requests", an_ask())
    lease = {"lease_expires_at": "2023-11-14T22:14:20.000Z"}
    assert (answer.status, answer.body) == (201, ASKED | HELD | lease | {"id": answer.body["id"], "waits": None})
    assert everywhere.get(f"/requests/{answer.body['id']}").body | {"waits": None} == answer.body


def test_a_request_is_queued_with_its_place(everywhere: Site) -> None:
    _ready(everywhere)
    everywhere.submit()
    everywhere.submit()
    answer = everywhere.post("/requests", an_ask())
    expected = {"id": answer.body["id"], "status": "queued", "position": {"gpus": 2}, "polled_at": NOW}
    waits = answer.body["waits"]
    assert (answer.status, answer.body) == (201, ASKED | expected | {"waits": waits})
    assert everywhere.get(f"/requests/{answer.body['id']}").body | {"waits": waits} == answer.body


def test_each_view_of_a_waiter_says_when_it_was_polled_last(everywhere: Site) -> None:
    _ready(everywhere)
    everywhere.submit()
    waiter = everywhere.submit(queue_ttl_s=60)["id"]
    everywhere.clock.advance(40)
    batch = everywhere.post("/requests/batch", {"requests": [an_ask(queue_ttl_s=60)]}).items
    assert [row["polled_at"] for row in everywhere.get("/requests").items] == [LATER, NOW, None]
    assert batch[0]["polled_at"] == LATER
    queue = everywhere.get("/pools/gpus/requests", view="queued").items
    assert [row["polled_at"] for row in queue] == [NOW, LATER]
    polls = [everywhere.get(f"/requests/{waiter}").body["polled_at"] for _ in range(2)]
    assert polls == [NOW, LATER], "a call is a poll itself, and tells the one before"
    for ttl in ({"queue_ttl_s": None}, {"component": "unmanaged"}):
        assert everywhere.submit(**ttl)["polled_at"] is None


def test_a_request_is_rejected_and_each_pool_says_why(everywhere: Site) -> None:
    _ready(everywhere, gpu=2)
    answer = everywhere.post("/requests", an_ask(gpu=3))
    message = "gpus: asks 3 of gpu; the pool has 2 in all"
    text = {
        "pool": "gpus",
        "code": "exceeds_capacity",
        "message": message,
        "key": "gpu",
        "asked": 3,
        "bound": 2,
        "account": "pool",
    }
    reason = {"code": "exceeds_capacity", "message": message, "pools": [text]}
    expected = {"id": answer.body["id"], "status": "rejected", "reason": reason, "ended_at": NOW}
    assert (answer.status, answer.body) == (201, ASKED | {"resources": {"gpu": 3, "step_run": 1}, "waits": None} | expected)


def test_every_field_of_an_ask_is_taken_and_said_again(everywhere: Site) -> None:
    _ready(everywhere)
    fields: dict[str, Any] = {
        "component": "team",
        "component_type": "orchestrator",
        "name": "nightly training, Zoë",
        "pools": ["gpus", "other"],
        "preemption_class": 10,
        "checkpoint": "auto",
        "checkpoint_minutes": 5,
        "walltime_s": 3600,
        "retries": -1,
        "lease_s": None,
        "queue_ttl_s": None,
        "labels": {"run": "nightly #42", "team/owner": "Zoë"},
    }
    typed = {"gpu_count": 1, "cpu_count": 0.29, "memory": "16GiB", "pool_resources": {"step_run": 7}}
    answer = everywhere.post("/requests", fields | {"resources": {"gpu": 4}, "settings": typed})
    resources = {"gpu": 1, "mcpu": 290, "memory_mb": 17180, "step_run": 1}
    assert answer.body == ASKED | HELD | fields | {"id": answer.body["id"], "resources": resources, "waits": None}


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({}, {"component": "is required"}),
        (an_ask(gpu=0), {"resources.gpu": "must be at least 1"}),
        (an_ask(gpu=True), {"resources.gpu": "must be a whole number"}),
        (an_ask(preemption_class=11), {"preemption_class": "must be at most 10"}),
        (an_ask(preemption_class=-1), {"preemption_class": "must be at least 0"}),
        (an_ask(checkpoint="often"), {"checkpoint": "must be 'none', 'manual' or 'auto'"}),
        (an_ask(retries=-2, lease_s=0), {"retries": "must be at least -1", "lease_s": "must be at least 1"}),
        (an_ask(labels={"a b": "x"}),
         {"labels.a b": "must be 1 to 63 of A-Z a-z 0-9 _ . / - and begin with a letter or digit"}),
        (an_ask(labels={"a": 1}), {"labels.a": "must be a text"}),
        (an_ask(settings={"cpu_count": -1}), {"settings.cpu_count": "must be at least 0"}),
        (an_ask() | {"own_id": "x"}, {"own_id": "is not a field here"}),
        (an_ask() | {"preemptible": "yes"}, {"preemptible": "must be true or false"}),
        ("text", {"": "must be an object"}),
    ],
)  # fmt: skip
def test_a_malformed_ask_is_told_every_fault(site: Site, body: Any, faults: dict[str, str]) -> None:
    _ready(site)
    assert site.post("/requests", body).malformed() == faults
    assert site.get("/requests").items == []


def test_memory_that_cannot_be_read_is_malformed(site: Site) -> None:
    assert site.post("/requests", an_ask(settings={"memory": "much"})).malformed().keys() == {"settings.memory"}


def test_the_same_key_and_body_give_the_same_request(everywhere: Site) -> None:
    _ready(everywhere, gpu=8)
    key = {"Idempotency-Key": "night 42"}
    first = everywhere.post("/requests", an_ask(gpu=2), headers=key)
    again = everywhere.post("/requests", an_ask(gpu=2, retries=3), headers=key)
    assert (again.status, again.body) == (201, first.body)
    assert everywhere.get("/pools/gpus").body["used"] == {"gpu": 2}
    refused = everywhere.post("/requests", an_ask(gpu=1), headers=key).refused(409, "idempotency_conflict")
    assert first.body["id"] not in refused["detail"], "it may belong to another requester"
    assert everywhere.post("/requests", an_ask(gpu=1), headers={"Idempotency-Key": "43"}).body["id"] != first.body["id"]
    everywhere.pool(gpu=1, pool="other")
    assert everywhere.post("/requests", an_ask(gpu=1), headers=key, workspace="another").body["status"] == "rejected"


@pytest.mark.parametrize("key", ["", "k" * 256, "caf\u00e9", "tab\there"])
def test_a_key_that_is_none(site: Site, key: str) -> None:
    reason = "must be 1 to 255 printable ASCII characters"
    for path, body in (("/requests", an_ask()), ("/pools", {"name": "p", "capacity": {"gpu": 1}})):
        assert site.post(path, body, headers={"Idempotency-Key": key}).malformed() == {"Idempotency-Key": reason}
    batch = site.post("/requests/batch", {"requests": [an_ask()]}, headers={"Idempotency-Key": key}).malformed()
    assert batch == {"Idempotency-Key": reason.replace("255", "240")}
    assert site.get("/requests").items == []


# ---- batch


def test_a_batch_answers_each_in_its_place(everywhere: Site) -> None:
    _ready(everywhere, gpu=2)
    wrong = an_ask() | {"colour": "red"}
    answer = everywhere.post("/requests/batch", {"requests": [an_ask(), wrong, an_ask(gpu=2), an_ask(gpu=3), 7, an_ask()]})
    assert answer.status == 201
    granted, malformed, queued, rejected, number, last = answer.items
    assert answer.body.keys() == {"items"}
    assert granted == ASKED | HELD | {"id": granted["id"], "lease_expires_at": "2023-11-14T22:14:20.000Z"}
    assert malformed["status"] == 400
    assert malformed["code"] == "malformed"
    assert malformed["errors"] == [{"field": "colour", "reason": "is not a field here"}]
    assert [queued["status"], rejected["status"], last["status"]] == ["queued", "rejected", "allocated"]
    assert number["errors"] == [{"field": "", "reason": "must be an object"}]
    assert len(everywhere.get("/requests").items) == 4


def test_a_batch_of_a_thousand_and_not_one_more(site: Site) -> None:
    _ready(site, gpu=10)
    answer = site.post("/requests/batch", {"requests": [an_ask()] * 1000})
    assert answer.status == 201
    assert [item["status"] for item in answer.items] == ["allocated"] * 10 + ["queued"] * 990
    assert len({item["id"] for item in answer.items}) == 1000
    too_many = site.post("/requests/batch", {"requests": [an_ask()] * 1001}).malformed()
    assert too_many == {"requests": "must have at most 1000 entries"}
    assert site.post("/requests/batch", {"requests": []}).malformed() == {"requests": "must have at least 1 entry"}
    assert site.post("/requests/batch", {"requests": {}}).malformed() == {"requests": "must be a list"}
    assert site.get("/pools/gpus").body["queue_length"] == 990


def test_a_batch_may_be_repeated_and_conflicts_in_its_place(everywhere: Site) -> None:
    _ready(everywhere, gpu=8)
    key = {"Idempotency-Key": "b"}
    asks = [an_ask(gpu=1), an_ask(gpu=2)]
    first = everywhere.post("/requests/batch", {"requests": asks}, headers=key).items
    assert everywhere.post("/requests/batch", {"requests": asks}, headers=key).items == first
    same, other = everywhere.post("/requests/batch", {"requests": [an_ask(gpu=1), an_ask(gpu=3)]}, headers=key).items
    assert same == first[0]
    assert (other["status"], other["code"]) == (409, "idempotency_conflict")
    assert everywhere.get("/pools/gpus").body["used"] == {"gpu": 3}


def test_class_ten_without_the_permission_is_refused_in_its_place(site: Site) -> None:
    _ready(site, gpu=8)
    plain, sensitive = site.token("operator"), site.token("operator", sensitive=True)
    asks = {"requests": [an_ask(), an_ask(preemption_class=10), an_ask("unmanaged")]}
    ok, refused, rejected = site.post("/requests/batch", asks, token=plain).items
    assert (ok["status"], rejected["status"]) == ("allocated", "rejected")
    assert (refused["status"], refused["code"]) == (403, "not_permitted")
    site.post("/requests", an_ask(preemption_class=10), token=plain).refused(403, "not_permitted")
    assert site.post("/requests", an_ask(preemption_class=10), token=sensitive).body["status"] == "allocated"
    answers = site.post("/requests/batch", asks, token=sensitive).items
    assert [answer["status"] for answer in answers] == ["allocated", "allocated", "rejected"]


# ---- hold and give back


def test_a_heartbeat_prolongs_the_lease(everywhere: Site) -> None:
    _ready(everywhere)
    allocation = everywhere.submit()
    everywhere.clock.advance(30)
    beat = everywhere.post(f"/requests/{allocation['id']}/heartbeat", {"fence": allocation["fence"]})
    assert beat.status == 200
    assert beat.body == {
        "id": allocation["id"],
        "status": "allocated",
        "lease_expires_at": "2023-11-14T22:14:50.000Z",
        "directive": "continue",
        "deadline": None,
    }


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_a_release_ends_it_and_grants_the_next(everywhere: Site, outcome: str) -> None:
    _ready(everywhere)
    allocation, waits = everywhere.submit(), everywhere.submit()
    everywhere.clock.advance(1.5)
    path, body = f"/requests/{allocation['id']}/release", {"fence": allocation["fence"], "outcome": outcome}
    cancelled = everywhere.post(path, body)
    ended = {"status": "released", "ended_at": "2023-11-14T22:13:21.500Z", "outcome": outcome}
    expected = allocation | ended | {"directive": None, "lease_expires_at": None}
    assert (cancelled.status, cancelled.body) == (200, expected)
    assert everywhere.post(path, body).body == cancelled.body
    assert everywhere.get(f"/requests/{waits['id']}").body["status"] == "allocated"


def test_a_stale_fence_is_told_to_stop(everywhere: Site) -> None:
    _ready(everywhere)
    allocation, waits = everywhere.submit(), everywhere.submit()
    for request, fence, status in ((allocation, allocation["fence"] + 1, "allocated"), (waits, 1, "queued")):
        for verb in ("heartbeat", "release"):
            refused = everywhere.post(f"/requests/{request['id']}/{verb}", {"fence": fence}).refused(409, "stale_fence")
            assert (refused["directive"], refused["request_status"]) == ("kill", status)
            assert request["id"] in refused["detail"]
    assert everywhere.get(f"/requests/{allocation['id']}").body == allocation


def test_a_lapsed_holder_learns_it(site: Site) -> None:
    _ready(site)
    allocation = site.submit(lease_s=10)
    site.clock.advance(11)
    site.services.cleanup.run("default")
    refused = site.post(f"/requests/{allocation['id']}/heartbeat", {"fence": allocation["fence"]}).refused(409, "stale_fence")
    assert (refused["directive"], refused["request_status"]) == ("kill", "expired")
    shown = site.get(f"/requests/{allocation['id']}").body
    assert shown["reason"] == {"code": "lease_lapsed", "message": "no heartbeat came before the lease lapsed", "pools": []}


@pytest.mark.parametrize("fence", [0, -1, 2**53, 1.0, "1", None, True])
def test_a_fence_that_is_none(site: Site, fence: Any) -> None:
    _ready(site)
    allocation = site.submit()
    for verb in ("heartbeat", "release"):
        assert site.post(f"/requests/{allocation['id']}/{verb}", {"fence": fence}).malformed().keys() == {"fence"}
        assert site.post(f"/requests/{allocation['id']}/{verb}", {}).malformed() == {"fence": "is required"}


def test_an_outcome_that_is_none(site: Site) -> None:
    wrong = site.post("/requests/some/release", {"fence": 1, "outcome": "left"}).malformed()
    assert wrong == {"outcome": "must be 'succeeded', 'failed', 'vacated' or 'lost'"}


@pytest.mark.parametrize("body", [None, {}])
def test_a_waiter_leaves_and_a_holder_cannot_cancel(everywhere: Site, body: Any) -> None:
    _ready(everywhere)
    allocation, waits = everywhere.submit(), everywhere.submit()
    left = everywhere.post(f"/requests/{waits['id']}/cancel", body)
    assert (left.status, left.body) == (
        200,
        waits | {"status": "cancelled", "ended_at": NOW, "position": {}, "polled_at": None},
    )
    assert everywhere.post(f"/requests/{waits['id']}/cancel", body).body == left.body
    refused = everywhere.post(f"/requests/{allocation['id']}/cancel", body).refused(409, "not_queued")
    assert refused["detail"] == f"{allocation['id']} is allocated, and only a queued request can be cancelled"


def test_a_cancel_with_something_to_say_is_malformed(site: Site) -> None:
    assert site.post("/requests/some/cancel", {"fence": 1}).malformed() == {"fence": "is not a field here"}
    site.post("/requests/some/cancel", raw=b"{}", headers={"Content-Type": "text/plain"}).refused(415, "not_json")


def test_an_operator_drops_whatever_its_state(everywhere: Site) -> None:
    _ready(everywhere)
    allocation, waits, last = (everywhere.submit() for _ in range(3))
    reason = {"code": "dropped", "message": "an operator dropped it", "pools": []}
    cancelled = everywhere.delete(f"/requests/{waits['id']}")
    ended = {"ended_at": NOW, "reason": reason, "position": {}, "polled_at": None}
    assert (cancelled.status, cancelled.body) == (200, waits | ended | {"status": "cancelled"})
    cancelled = everywhere.delete(f"/requests/{allocation['id']}")
    assert cancelled.body == allocation | ended | {"status": "released", "directive": None, "lease_expires_at": None}
    assert everywhere.delete(f"/requests/{allocation['id']}").body == cancelled.body
    assert everywhere.get(f"/requests/{last['id']}").body["status"] == "allocated"


def test_what_is_not_there(site: Site) -> None:
    calls: list[tuple[str, str, Any]] = [("GET", "", None), ("DELETE", "", None), ("GET", "/events", None)]
    calls += [("POST", "/cancel", {}), *(("POST", f"/{verb}", {"fence": 1}) for verb in ("heartbeat", "release"))]
    calls += [("POST", "/checkpoint", {"fence": 1, "state": "progress"})]
    for method, verb, body in calls:
        refused = site.ask(method, f"/requests/none{verb}", body).refused(404, "no_such_request")
        assert refused["detail"] == "there is no request none"
        assert site.ask(method, f"/requests/n%0Aone{verb}", body).malformed().keys() == {"request"}
        assert site.ask(method, f"/requests/{'n' * 64}{verb}", body).malformed().keys() == {"request"}


# ---- the story, and short polls


def test_the_story_of_a_request(everywhere: Site) -> None:
    _ready(everywhere)
    allocation, waits = everywhere.submit(), everywhere.submit()
    everywhere.clock.advance(2)
    everywhere.post(f"/requests/{allocation['id']}/release", {"fence": allocation["fence"]})
    everywhere.delete(f"/requests/{waits['id']}")
    result = everywhere.get(f"/requests/{waits['id']}/events")
    assert result.status == 200
    assert result.body["next_cursor"] is None
    later = "2023-11-14T22:13:22.000Z"
    rows = [{key: row[key] for key in row if key != "id"} for row in result.items]
    quiet: dict[str, Any] = {"reason": None, "by": None, "rank": None, "by_rank": None, "victims": [], "by_origin": None}
    quiet |= {"outcome": None, "exit_code": None}
    assert rows == [
        quiet | {"event": "submitted", "at": NOW, "pool": None},
        quiet | {"event": "allocated", "at": later, "pool": "gpus"},
        quiet | {"event": "released", "at": later, "pool": "gpus", "reason": "dropped"},
    ]
    listed = everywhere.get("/events", headers={"Accept": "application/json"}, request=waits["id"]).items
    assert [row["id"] for row in result.items] == [row["id"] for row in listed]


def test_a_poll_that_knows_no_better_waits_and_one_that_does_not(site: Site) -> None:
    _ready(site)
    allocation, waits = site.submit(), site.submit()
    path = f"/requests/{waits['id']}"
    assert site.get(path, wait_s=0.05).body["status"] == "queued"
    assert site.get(path, wait_s=60, status="allocated").body["status"] == "queued"
    site.post(f"/requests/{allocation['id']}/release", {"fence": allocation["fence"]})
    assert site.get(path, wait_s=60, status="queued").body["status"] == "allocated"


def test_a_poll_that_finds_no_seat_answers_at_once_and_says_when_to_ask_again(site: Site) -> None:
    _ready(site)
    site.submit()
    waits = site.submit()
    assert "Retry-After" not in site.get(f"/requests/{waits['id']}", wait_s=0.01).headers
    site.services.long_polls.slots.capacities["poll"] = 0
    answer = site.get(f"/requests/{waits['id']}", wait_s=60)
    assert (answer.status, answer.body) == (200, waits)
    assert answer.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"wait_s": -1}, "wait_s"),
        ({"wait_s": 61}, "wait_s"),
        ({"wait_s": "nan"}, "wait_s"),
        ({"wait_s": "long"}, "wait_s"),
        ({"status": "done"}, "status"),
        ({"forever": "yes"}, "forever"),
    ],
)
def test_a_poll_that_cannot_be(site: Site, query: dict[str, Any], field: str) -> None:
    _ready(site)
    allocation = site.submit()
    assert site.get(f"/requests/{allocation['id']}", **query).malformed().keys() == {field}


def test_the_key_of_a_batch_leaves_room_for_a_number(site: Site) -> None:
    site.pool(), site.policy()
    body = {"requests": [an_ask()]}
    assert site.post("/requests/batch", body, headers={"Idempotency-Key": "k" * 240}).status == 201
    assert "Idempotency-Key" in site.post("/requests/batch", body, headers={"Idempotency-Key": "k" * 241}).malformed()
