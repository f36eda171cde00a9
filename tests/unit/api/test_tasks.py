"""Tasks over HTTP: parked, looked at, given up, begun, lost, parked anew; and everything that is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from app.domain.tasks import MAX_MESSAGE_BYTES
from app.settings import Settings
from app.store.task_outbox import TaskStore
from tests.support.in_process_api import NOW, Said, Site, a_task

CLAIM_S, START_S, TRIES = 15, 60, 3


def _ready(site: Site, gpu: int = 1) -> None:
    site.pool(gpu=gpu)
    site.policy()


def _store(site: Site) -> TaskStore:
    """Return the store from which a worker dispatches."""
    return TaskStore(site.client, site.clock)


def _sent(site: Site) -> list[str]:
    """Dispatch the tasks that are due, and return them."""
    taken = _store(site).take_outbox("default", CLAIM_S, START_S, TRIES)
    _store(site).mark_dispatched("default", taken.dispatches, START_S)
    return [dispatch.task for dispatch in taken.dispatches]


def _begin(site: Site, task: dict[str, Any], runner: str = "w1") -> Said:
    request = task["request"]
    return site.post(f"/requests/{request['id']}/start", {"fence": request["fence"], "runner": runner})


def _in(site: Site, seconds: float) -> str:
    """Return the time this many seconds from now."""
    return datetime.fromtimestamp(site.clock.now_ms() / 1000 + seconds, UTC).isoformat()


# ---- its way


def test_a_task_is_parked_granted_sent_begun_and_over(everywhere: Site) -> None:
    site = everywhere
    _ready(site)
    first, second = site.park("first"), site.park("second")
    request = first.pop("request")
    assert first == {"task": "first", "name": "proj.train", "status": "granted", "not_before": None, "sent": 0, "lost": 0}
    assert (request["status"], request["task"], request["started_at"]) == ("allocated", "first", None)
    assert (request["lease_s"], request["lease_expires_at"]) == (60, None), "the lease does not run before the task begins"
    assert (second["status"], second["request"]["status"]) == ("parked", "queued")
    assert site.get(f"/requests/{second['request']['id']}").body["position"] == {"gpus": 1}
    assert _sent(site) == ["first"]
    assert [site.get("/tasks/first").body[field] for field in ("status", "sent")] == ["sent", 1]

    start = _begin(site, site.get("/tasks/first").body)
    assert (start.status, start.body) == (
        200,
        {
            "id": request["id"],
            "status": "allocated",
            "lease_expires_at": "2023-11-14T22:14:20.000Z",
            "directive": "continue",
            "deadline": None,
        },
    )
    current = site.get("/tasks/first").body
    assert (current["status"], current["request"]["started_at"]) == ("started", NOW)
    assert [line["event"] for line in site.get(f"/requests/{request['id']}/events").items][-1] == "started"

    site.post(f"/requests/{request['id']}/release", {"fence": request["fence"]})
    site.get("/tasks/first").refused(404, "no_such_task")
    assert site.get("/tasks/second").body["status"] == "granted"


def test_it_waits_for_its_time(everywhere: Site) -> None:
    site = everywhere
    _ready(site)
    delayed = site.park(not_before=_in(site, 100))
    assert (delayed["status"], delayed["request"], delayed["not_before"]) == ("delayed", None, "2023-11-14T22:15:00.000Z")
    assert _sent(site) == []
    site.clock.advance(100)
    assert _sent(site) == ["t1"]
    assert site.get("/tasks/t1").body["status"] == "sent"


@pytest.mark.parametrize(("value", "stored"), [({}, None), ({"queue_ttl_s": 30}, 30), ({"queue_ttl_s": None}, None)])
def test_a_task_does_not_go_stale_without_polls(site: Site, value: dict[str, Any], stored: int | None) -> None:
    _ready(site)
    assert site.park(**value)["request"]["queue_ttl_s"] == stored


def test_it_is_given_up_and_its_worker_told(everywhere: Site) -> None:
    site = everywhere
    _ready(site)
    site.submit()
    site.park("parked")
    site.park("delayed", not_before=_in(site, 100))
    assert site.post("/tasks/parked/cancel").body["request"]["status"] == "cancelled"
    assert site.post("/tasks/delayed/cancel").body["status"] == "ended"
    assert site.post("/tasks/parked/cancel").status == 200, "twice is once"
    taken = _store(site).take_outbox("default", CLAIM_S, START_S, TRIES).dispatches
    assert {(item.task, item.fence, item.end.status if item.end else None) for item in taken} == {
        ("parked", None, "cancelled"),
        ("delayed", None, "cancelled"),
    }
    _store(site).mark_dispatched("default", taken, START_S)
    for task in ("parked", "delayed"):
        current = site.get(f"/tasks/{task}").body
        assert current["status"] == "ended"
        result = {"request": current["request"] and current["request"]["id"]}
        site.post(f"/tasks/{task}/heard", {"request": "another"}).refused(409, "not_ended")
        assert site.post(f"/tasks/{task}/heard", result).status == 204
        site.post(f"/tasks/{task}/heard", result).refused(404, "no_such_task")
        site.get(f"/tasks/{task}").refused(404, "no_such_task")
        site.post(f"/tasks/{task}/cancel").refused(404, "no_such_task")


def test_what_has_begun_cannot_be_given_up_and_is_not_over(everywhere: Site) -> None:
    _ready(everywhere)
    task = everywhere.park()
    everywhere.post("/tasks/t1/heard", {}).refused(409, "not_ended")
    _begin(everywhere, task)
    everywhere.post("/tasks/t1/cancel").refused(409, "not_queued")
    everywhere.post("/tasks/t1/heard", {"request": task["request"]["id"]}).refused(409, "not_ended")


def test_what_was_granted_and_not_begun_can_be_given_up(everywhere: Site) -> None:
    _ready(everywhere)
    task = everywhere.park()
    assert everywhere.post("/tasks/t1/cancel").body["status"] == "ended"
    assert everywhere.get(f"/requests/{task['request']['id']}").body["status"] == "released"
    _begin(everywhere, task).refused(409, "stale_fence")


def test_what_no_pool_can_grant_ends_and_its_worker_is_told_why(everywhere: Site) -> None:
    _ready(everywhere)
    rejected = everywhere.park(gpu=2)
    assert (rejected["status"], rejected["request"]["status"]) == ("ended", "rejected")
    (result,) = _store(everywhere).take_outbox("default", CLAIM_S, START_S, TRIES).dispatches
    assert result.end
    assert (result.end.status, result.end.message) == ("rejected", "gpus: asks 2 of gpu; the pool has 1 in all")


# ---- the runner that begins it


def test_one_runner_begins_it_and_may_say_so_again(everywhere: Site) -> None:
    site = everywhere
    _ready(site)
    task = site.park()
    assert _begin(site, task).body == _begin(site, task).body
    _begin(site, task, "w2").refused(409, "already_started")
    request = task["request"]
    stale = site.post(f"/requests/{request['id']}/start", {"fence": 99, "runner": "w1"}).refused(409, "stale_fence")
    assert (stale["directive"], stale["request_status"]) == ("kill", "allocated")
    site.post(f"/requests/{request['id']}/release", {"fence": request["fence"]})
    _begin(site, task).refused(409, "stale_fence")
    site.post("/requests/none/start", {"fence": 1, "runner": "w1"}).refused(404, "no_such_request")


def test_only_a_task_is_lost_but_anything_is_begun(everywhere: Site) -> None:
    _ready(everywhere)
    allocation = everywhere.submit()
    begin = {"fence": allocation["fence"], "runner": "w"}
    assert everywhere.post(f"/requests/{allocation['id']}/start", begin).body["directive"] == "continue"
    everywhere.post(f"/requests/{allocation['id']}/start", begin | {"runner": "v"}).refused(409, "already_started")
    lost = {"fence": allocation["fence"], "outcome": "lost"}
    everywhere.post(f"/requests/{allocation['id']}/release", lost).refused(409, "no_task")


@pytest.mark.parametrize("runner", ["", "x" * 129, "a\nb", "Zoë", None, 1])
def test_invalid_runner_names(site: Site, runner: Any) -> None:
    assert list(site.post("/requests/some/start", {"fence": 1, "runner": runner}).malformed()) == ["runner"]


def test_whose_worker_is_lost_is_parked_again_at_its_place(everywhere: Site) -> None:
    site = everywhere
    _ready(site)
    task = site.park(redeliveries=1)
    behind = site.submit()
    for lost in (1, 2):
        assert _sent(site) == ["t1"]
        current = site.get("/tasks/t1").body
        _begin(site, current)
        allocation = current["request"]
        ended = site.post(f"/requests/{allocation['id']}/release", {"fence": allocation["fence"], "outcome": "lost"})
        assert (ended.body["status"], ended.body["reason"]["code"]) == ("expired", "worker_lost")
        assert site.get(f"/requests/{behind['id']}").body["status"] == "allocated", "no request waits for a lost runner"
        if lost == 1:
            _sent(site)
            again = site.get("/tasks/t1").body
            assert (again["status"], again["lost"]) == ("parked", 1)
            assert again["request"]["id"] != task["request"]["id"]
            assert again["request"]["submitted_at"] == task["request"]["submitted_at"]
            site.delete(f"/requests/{behind['id']}")
            behind = site.submit()
    (result,) = _store(site).take_outbox("default", CLAIM_S, START_S, TRIES).dispatches
    assert result.end
    assert (result.end.status, result.end.code) == ("expired", "worker_lost")


def test_a_retry_releases_its_units_in_the_same_step(everywhere: Site) -> None:
    site = everywhere
    _ready(site)
    task = site.park()
    allocation = task["request"]
    _begin(site, task)
    mine = {"request": allocation["id"], "fence": allocation["fence"]}
    again = site.park(not_before=_in(site, 10), instead_of=mine)
    assert (again["status"], site.get(f"/requests/{allocation['id']}").body["status"]) == ("delayed", "released")
    site.post("/tasks", a_task(instead_of=mine)).refused(409, "stale_fence")
    site.post("/tasks", a_task(instead_of={"request": "none", "fence": 1})).refused(409, "stale_fence")


# ---- doubles


def test_the_same_key_and_body_is_the_same_task_also_when_it_is_over(everywhere: Site) -> None:
    site = everywhere
    _ready(site)
    key = {"Idempotency-Key": "k"}
    first = site.post("/tasks", a_task(), headers=key)
    assert site.post("/tasks", a_task(), headers=key).body == first.body
    site.post("/tasks", a_task(name="other"), headers=key).refused(409, "idempotency_conflict")
    site.post("/tasks", a_task("other"), headers=key).refused(409, "idempotency_conflict")
    allocation = first.body["request"]
    site.post(f"/requests/{allocation['id']}/release", {"fence": allocation["fence"]})
    over = site.post("/tasks", a_task(), headers=key)
    assert (over.status, over.body["task"], over.body["status"]) == (201, "t1", "ended")


def test_a_task_that_is_not_over_is_there_once(everywhere: Site) -> None:
    _ready(everywhere)
    everywhere.park()
    everywhere.post("/tasks", a_task()).refused(409, "task_exists")


# ---- what is malformed or against the rules


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("task", "x" * 129),
        ("task", "a/b"),
        ("task", ""),
        ("name", ""),
        ("name", "x" * 256),
        ("message", "text"),
        ("message", None),
        ("message", []),
        ("not_before", "soon"),
        ("not_before", "2030-01-01T00:00:00"),
        ("not_before", 1893456000),
        ("not_before", "9999-12-31T23:59:59-12:00"),
        ("redeliveries", -2),
        ("redeliveries", 1001),
        ("redeliveries", 1.5),
        ("instead_of", {"request": "r", "fence": "1"}),
        ("instead_of", {"request": "r"}),
        ("request", {"component": "no name"}),
        ("surplus", 1),
    ],
)
def test_what_is_malformed(site: Site, field: str, value: Any) -> None:
    (wrong,) = site.post("/tasks", a_task() | {field: value}).malformed()
    assert wrong.partition(".")[0] == field


def test_a_message_has_a_bound(site: Site) -> None:
    _ready(site)
    room = MAX_MESSAGE_BYTES - len('{"x":""}')
    assert site.post("/tasks", a_task(message={"x": "y" * room})).status == 201
    more = site.post("/tasks", a_task("t2", message={"x": "y" * (room + 1)})).malformed()
    assert more == {"message": f"must be at most {MAX_MESSAGE_BYTES} bytes"}


def test_a_workspace_without_a_broker_takes_in_no_tasks(site: Site) -> None:
    before = site.state()
    assert "workspace elsewhere" in site.post("/tasks", a_task(), workspace="elsewhere").refused(422, "no_broker")["detail"]
    assert site.state() == before
    bare = Site(site.client, Settings())
    assert bare.post("/tasks", a_task()).status == 422
    bare.services.long_polls.close()


def test_a_task_has_a_longer_name_than_others(site: Site) -> None:
    _ready(site)
    name = "x" * 128
    site.park(name)
    assert site.get(f"/tasks/{name}").body["task"] == name
    site.get(f"/tasks/{name}x").refused(400, "malformed")
    site.get("/tasks/none").refused(404, "no_such_task")


# ---- permissions


def test_a_requester_parks_sees_and_gives_up_its_own_only(site: Site) -> None:
    _ready(site)
    site.policy("other")
    mine, theirs = site.token("requester", "team"), site.token("requester", "other")
    for task, more in (("granted", {}), ("parked", {}), ("delayed", {"not_before": _in(site, 100)})):
        assert site.post("/tasks", a_task(task, **more), token=mine).status == 201
        site.post("/tasks", a_task(f"{task}2", **more), token=theirs).refused(403, "other_component")
        site.get(f"/tasks/{task}", token=theirs).refused(403, "other_component")
        site.post(f"/tasks/{task}/cancel", token=theirs).refused(403, "other_component")
        assert site.get(f"/tasks/{task}", token=mine).status == 200
    allocation = site.get("/tasks/granted", token=mine).body["request"]
    began = {"fence": allocation["fence"], "runner": "w"}
    site.post(f"/requests/{allocation['id']}/start", began, token=theirs).refused(403, "other_component")
    assert site.post(f"/requests/{allocation['id']}/start", began, token=mine).status == 200
    for task in ("parked", "delayed"):
        assert site.post(f"/tasks/{task}/cancel", token=mine).status == 200


def test_a_retry_never_releases_units_of_another_component(site: Site) -> None:
    _ready(site)
    site.policy("other")
    allocation = site.park()["request"]
    theirs = {"request": allocation["id"], "fence": allocation["fence"]}
    before, secret = site.state(), site.token("requester", "other")
    site.post("/tasks", a_task(component="other", instead_of=theirs), token=secret).refused(403, "other_component")
    ended = {"request": "none", "fence": 1}
    site.post("/tasks", a_task(component="other", instead_of=ended), token=secret).refused(409, "stale_fence")
    assert before.items() <= site.state().items()


def test_a_key_never_shows_a_task_of_another_component(site: Site) -> None:
    _ready(site)
    site.policy("other")
    mine = site.token("requester", "team")
    key = {"Idempotency-Key": "k"}
    allocation = site.post("/tasks", a_task(), token=mine, headers=key).body["request"]
    site.post(f"/requests/{allocation['id']}/release", {"fence": allocation["fence"]}, token=mine)
    assert site.post("/tasks", a_task(), token=mine, headers=key).body["status"] == "ended"
    assert site.post("/tasks", a_task(component="other"), token=site.token("requester", "other")).status == 201
    site.post("/tasks", a_task(), token=mine, headers=key).refused(403, "other_component")


def test_class_10_needs_its_permission_here_too(site: Site) -> None:
    _ready(site)
    site.post("/tasks", a_task(preemption_class=10), token=site.token("operator")).refused(403, "not_permitted")
    assert site.post("/tasks", a_task(preemption_class=10), token=site.token("operator", sensitive=True)).status == 201
