"""Tasks that will never run, and tasks that already have a result: their notices, and the number of them."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery
from kombu.utils.uuid import uuid
from poolkeeper.celery import TaskNotGranted

from tests.support.stub_server import StubServer, refuse, reply, reply_text
from tests.unit.celery.test_task import GONE, SENT, app, gives, list_calls, next_is, run, stands, stub, task

__all__ = ["app", "stub"]

REJECTED = {"status": "rejected", "code": "exceeds_capacity", "message": "too much"}
CANCELLED = {"status": "cancelled", "code": None, "message": "its request was cancelled"}


def errors(app: Celery, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the calls of errbacks."""
    called: list[object] = []
    monkeypatch.setitem(vars(app.backend), "_call_task_errbacks", lambda request, *_: called.append(request.id))
    return called


def test_that_it_will_never_run_is_told_and_then_acknowledged_once(
    app: Celery, stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, task_id, called = task(app, gives), uuid(), errors(app, monkeypatch)
    ends = {"poolkeeper": SENT | {"ended": REJECTED}, "errbacks": [work.si(1)]}
    next_is(stub, stands("ended"), reply_text(204, b""), GONE, GONE)
    assert run(work, task_id, **ends).info.state == "FAILURE"
    assert run(work, task_id, **ends).info.state == "IGNORED"
    assert (called, list_calls(stub)) == ([task_id], [task_id, "heard"] * 2)
    assert [call.body for call in stub.calls if call.body] == [{"request": "r-1"}] * 2
    with pytest.raises(TaskNotGranted, match="too much"):
        work.AsyncResult(task_id).get(timeout=20)


@pytest.mark.parametrize(
    ("status", "code", "sentence"),
    [
        ("rejected", "no_policy", "task {} does not run: why"),
        ("preempted", "preempted", "task {} has no preemption_retries left: why"),
        ("expired", "worker_lost", "task {} has no redeliveries left: why"),
    ],
)
def test_the_result_says_which_option_bounds_the_runs(
    app: Celery, stub: StubServer, status: str, code: str, sentence: str
) -> None:
    work, task_id = task(app, gives), uuid()
    next_is(stub, stands("ended"), reply_text(204, b""))
    run(work, task_id, poolkeeper=SENT | {"ended": {"status": status, "code": code, "message": "why"}})
    with pytest.raises(TaskNotGranted, match=f"^{sentence.format(task_id)}$"):
        work.AsyncResult(task_id).get(timeout=20)


def test_without_stored_results_the_first_worker_to_learn_it_reports_it(
    app: Celery, stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, task_id, called = task(app, gives, ignore_result=True), uuid(), errors(app, monkeypatch)
    ends = {"poolkeeper": SENT | {"ended": REJECTED}, "errbacks": [work.si(1)]}
    again = {**ends, "poolkeeper": ends["poolkeeper"] | {"tries": 2}}  # type: ignore[operator]
    next_is(stub, stands("ended"), reply_text(204, b""), GONE, GONE)
    assert run(work, task_id, **ends).info.state == "FAILURE"
    assert run(work, task_id, **again).info.state == "IGNORED"
    assert (called, list_calls(stub)) == ([task_id], [task_id, "heard"] * 2)


def test_the_first_notice_counts_even_if_the_task_is_no_longer_stored(
    app: Celery, stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, task_id, called = task(app, gives, ignore_result=True), uuid(), errors(app, monkeypatch)
    next_is(stub, GONE, GONE)
    assert run(work, task_id, poolkeeper=SENT | {"ended": REJECTED}, errbacks=[work.si(1)]).info.state == "FAILURE"
    assert called == [task_id]


@pytest.mark.parametrize(
    "task_fields",
    [{"status": "parked"}, {"status": "ended", "request": {"id": "r-2", "status": "queued"}}],
    ids=["alive", "another"],
)
def test_a_last_word_that_comes_late_is_not_said_of_another_task_of_that_name(
    app: Celery, stub: StubServer, task_fields: dict[str, Any]
) -> None:
    work, task_id = task(app, gives), uuid()
    next_is(stub, reply({"task": task_id, **task_fields}))
    assert run(work, task_id, poolkeeper=SENT | {"ended": REJECTED}).info.state == "IGNORED"
    assert (list_calls(stub), work.AsyncResult(task_id).state) == ([task_id], "PENDING")


def test_a_revoked_task_is_acknowledged_and_a_failure_of_that_is_ignored(
    app: Celery, stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poolkeeper.celery.task.ACKNOWLEDGE_FOR_S", 0.0)
    work, task_id = task(app, gives), uuid()
    work.backend.mark_as_revoked(task_id, "revoked")  # by the caller that cancelled it
    next_is(stub, stands("ended"), refuse(503, "unavailable"), stands("ended"))
    assert run(work, task_id, poolkeeper=SENT | {"ended": CANCELLED}).info.state == "IGNORED"
    assert run(work, task_id, poolkeeper=SENT | {"ended": CANCELLED, "tries": 2}).info.state == "IGNORED"
    assert (work.AsyncResult(task_id).state, list_calls(stub)) == ("REVOKED", [task_id, "heard"] * 2)


@pytest.mark.parametrize(
    ("incr", "sent", "ends"),
    [
        (False, SENT, ["start", "release succeeded"]),
        (False, SENT | {"ended": REJECTED}, ["one", "heard"]),
        (False, SENT | {"ended": CANCELLED, "tries": 2}, ["one", "heard"]),
        (True, SENT, ["start", "release succeeded"]),
    ],
    ids=["begun", "rejected", "revoked", "where parts are only counted"],
)
def test_what_has_a_result_is_counted_in_its_chord_once_more(
    app: Celery, stub: StubServer, monkeypatch: pytest.MonkeyPatch, incr: bool, sent: dict[str, Any], ends: list[str]
) -> None:
    work, task_id = task(app, gives), "one"
    work.backend.store_result(task_id, 41, "SUCCESS")
    counted: list[object] = []
    monkeypatch.setitem(vars(app.backend), "implements_incr", incr)
    if sent is not SENT:
        next_is(stub, stands("ended"))
    monkeypatch.setitem(
        vars(app.backend),
        "on_chord_part_return",
        lambda request, state, result, **_: counted.append((request.id, state, result)),
    )
    assert run(work, task_id, chord=work.si(1), group="g", poolkeeper=sent).info.state == "IGNORED"
    assert counted == ([] if incr else [(task_id, "SUCCESS", 41)])
    assert list_calls(stub) == ends
