"""The calls and the results of a run when the service or the result store is away, or the task has a class of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import pytest
from celery import Celery
from celery.app.trace import build_tracer
from celery.exceptions import BackendStoreError, Reject, SoftTimeLimitExceeded
from kombu.utils.uuid import uuid
from poolkeeper import heartbeats
from poolkeeper.celery import PARKED, PoolTask, TaskNotGranted, allocation, fork_safety, publish_hook, result_backend
from poolkeeper.heartbeats import HeartbeatThread

from tests.support.backends import wait_until
from tests.support.memory_network import MemoryNetwork
from tests.support.stub_server import Action, StubHandler, StubServer, cut, refuse, reply

SENT = {"request": "r-1", "fence": 3, "lease_s": 60, "resources": {"gpu": 1}, "tries": 1, "ended": None}


def beat(status: str = "allocated", directive: str = "continue") -> Action:
    """Return an action that answers every call about the request."""
    return reply({"id": "r-1", "status": status, "directive": directive})


@pytest.fixture
def stub(network: MemoryNetwork) -> Iterator[StubServer]:
    """Yield the server of the service."""
    with StubServer(network=network) as server:
        server.script(*[beat()] * 50)
        yield server


def next_is(stub: StubServer, *acts: Action) -> None:
    """Set the actions of the server for the next calls."""
    stub.actions.extendleft(reversed(acts))


@pytest.fixture
def app(stub: StubServer) -> Iterator[Celery]:
    """Yield an app of its own."""
    made: Celery = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    made.conf.poolkeeper = {"url": stub.url, "tries": 1}
    yield made
    made.close()


class Ours(PoolTask[Any, Any]):
    """A task class with the default resources of this app."""

    component = "team"
    resources = {"gpu": 1}  # noqa: RUF012 - as it is written


def task(app: Celery, body: Callable[..., Any], base: type[Ours] = Ours, **options: Any) -> Any:
    """Return a task with this body."""
    decorate: Any = app.task
    return decorate(base=base, name="shop.work", bind=True, shared=False, **options)(body)


def run(task: Any, task_id: str = "", **headers: Any) -> Any:
    """Run the task as a worker does, and return its result."""
    named = task_id or uuid()
    delivery = {"exchange": "", "routing_key": "celery", "priority": 0}
    request = {"id": named, "args": (1,), "kwargs": {}, "is_eager": False, "delivery_info": delivery, "poolkeeper": SENT}
    return build_tracer(task.name, task, app=task.app)(named, [1], {}, request | headers)


def list_calls(stub: StubServer) -> list[str]:
    """Return the calls to the service: the route and the outcome."""
    return [" ".join([call.path.rpartition("/")[2], (call.body or {}).get("outcome", "")]).strip() for call in stub.calls]


@pytest.fixture
def store(app: Celery, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Exception], None]:
    """Return a function that makes the result store fail this often at the end of a task."""
    monkeypatch.setattr("poolkeeper.celery.result_backend.pause_s", lambda tries: 0.0)
    celerys = getattr(app.backend, "_store_result")  # noqa: B009 - its types do not know it

    def breaks(times: int, error: Exception) -> None:
        left = iter(range(times))

        def store_result(task_id: str, result: Any, state: str, *rest: Any, **more: Any) -> Any:
            if state in ("SUCCESS", "FAILURE", "RETRY") and next(left, None) is not None:
                raise error
            return celerys(task_id, result, state, *rest, **more)

        monkeypatch.setitem(vars(app.backend), "_store_result", store_result)

    return breaks


def gives(self: Ours, n: int) -> int:
    """Return its argument."""
    return n


def fails(self: Ours, n: int) -> int:
    """Fail."""
    raise ValueError("no luck")


def saves(self: Ours, n: int) -> int:
    """Report a checkpoint."""
    self.allocation.checkpoint_done("here")
    return n


@pytest.mark.parametrize(("body", "state", "outcome"), [(gives, "SUCCESS", "succeeded"), (fails, "FAILURE", "failed")])
def test_a_store_that_is_away_is_waited_for(
    app: Celery, stub: StubServer, store: Any, body: Any, state: str, outcome: str
) -> None:
    work, task_id = task(app, body), uuid()
    store(3, ConnectionError("away"))
    run(work, task_id)
    assert work.AsyncResult(task_id).state == state
    assert list_calls(stub) == ["start", f"release {outcome}"]


@pytest.mark.parametrize("body", [gives, fails])
def test_what_cannot_be_stored_comes_again(
    app: Celery, stub: StubServer, store: Any, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_hook, "RETRY_FOR_S", -1.0)
    monkeypatch.setattr(result_backend, "in_pool_child", lambda: True)
    work, task_id = task(app, body), uuid()
    store(1, ConnectionError("away"))
    with pytest.raises(Reject):
        run(work, task_id)
    assert work.AsyncResult(task_id).state == PARKED
    assert list_calls(stub) == ["start", "release lost"]


def test_in_a_thread_nothing_of_that_escapes(
    app: Celery, stub: StubServer, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_hook, "RETRY_FOR_S", -1.0)
    work, task_id = task(app, gives), uuid()
    store(2, ConnectionError("away"))
    run(work, task_id)
    assert list_calls(stub) == ["start", "release lost"]


def test_what_the_store_does_not_want_is_a_failure(app: Celery, stub: StubServer, store: Any) -> None:
    work, task_id = task(app, gives), uuid()
    store(1, ValueError("too large"))
    assert run(work, task_id).info.state == "FAILURE"
    assert list_calls(stub)[1:] != ["release lost"]


def test_what_is_too_large_for_the_store_is_not_tried_for_ever(app: Celery, stub: StubServer, store: Any) -> None:
    work, task_id = task(app, gives), uuid()
    store(1, BackendStoreError("value too large"))
    run(work, task_id)
    assert list_calls(stub)[1:] != ["release lost"]


def cut_twice(handler: StubHandler) -> None:
    """Cut the connection once more: the client replaces a connection that was in use before at once."""
    handler.stub.actions.appendleft(cut)
    handler.cut()


@pytest.mark.parametrize(
    "act",
    [cut_twice, refuse(401, "unauthorized"), refuse(429, "too_many", retry_after="1")],
    ids=["away", "not let in", "too many"],
)
def test_a_routine_save_that_cannot_be_told_ends_nothing(app: Celery, stub: StubServer, act: Action) -> None:
    next_is(stub, beat(), act)
    assert run(task(app, saves)).info is None
    assert list(dict.fromkeys(list_calls(stub))) == ["start", "checkpoint", "release succeeded"]


def test_a_victim_that_cannot_report_its_checkpoint_leaves(
    app: Celery, stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poolkeeper.celery.allocation.RETRY_FOR_S", 0.2)
    next_is(stub, beat("preempting", "checkpoint"), *[cut] * 40)
    work, task_id = task(app, saves), uuid()
    assert run(work, task_id).info.state == "IGNORED"
    assert work.AsyncResult(task_id).state == PARKED
    assert {"checkpoint", "release vacated"} < set(list_calls(stub))


def test_a_refusal_of_what_was_asked_for_is_raised(app: Celery, stub: StubServer) -> None:
    next_is(stub, beat("preempting", "checkpoint"), refuse(422, "invalid"))
    assert run(task(app, saves)).info.state == "FAILURE"


def test_a_run_interrupted_at_its_start_releases_its_units(
    app: Celery, stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeartbeatThread, "start", _too_late)
    assert run(task(app, gives)).info.state == "FAILURE"
    assert list_calls(stub) == ["start", "release failed"]


def _too_late(_: HeartbeatThread) -> None:
    raise SoftTimeLimitExceeded


class Around(Ours):
    """Does something before and around its tasks, and calls their function itself."""

    done: list[object]

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Note the allocation."""
        self.done.append(("before", self.allocation.fence))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.done.append(("around", self.allocation.fence))
        return self.run(*args, **kwargs)


class Further(Around):
    """Goes on to what its bases do."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.done.append("further")
        return PoolTask.__call__(self, *args, **kwargs)


def body(self: Around, n: int) -> int:
    """Call the task itself once."""
    self.done.append(("body", self.allocation.fence))
    return n if n == 0 else int(self(0))


def notes(self: Around, n: int) -> None:
    """Note that the task ran."""
    self.done.append("body")


def test_a_base_that_calls_the_function_itself_runs_under_the_allocation(app: Celery, stub: StubServer) -> None:
    work = task(app, notes, Around, done=[])
    run(work)
    assert work.done == [("before", 3), ("around", 3), "body"]
    assert list_calls(stub) == ["start", "release succeeded"]


def test_a_base_may_go_on_to_ours_and_a_task_call_itself(app: Celery, stub: StubServer) -> None:
    work = task(app, body, Further, done=[])
    run(work)
    assert work.done == [("before", 3), "further", ("body", 3), "further", ("body", 3)]
    assert list_calls(stub) == ["start", "release succeeded"]


@pytest.mark.parametrize("base", [Around, Further])
def test_what_is_not_run_has_no_before_and_no_around(app: Celery, stub: StubServer, base: type[Around]) -> None:
    work = task(app, body, base, done=[])
    next_is(stub, refuse(409, "already_started"))
    assert run(work).info.state == "IGNORED"
    ended = {"status": "rejected", "code": "exceeds_capacity", "message": "no"}
    assert run(work, poolkeeper=SENT | {"ended": ended}).info.state == "FAILURE"
    assert work.done == []


@pytest.mark.parametrize("base", [Around, Further])
def test_eagerly_and_directly_they_are_as_ever(app: Celery, stub: StubServer, base: type[Around]) -> None:
    work = task(app, body, base, done=[])
    assert (work.apply((0,)).get(), work(0)) == (0, 0)
    assert ("body", None) in work.done
    assert stub.calls == []


# ---- sending itself again, and others in its place


def sends_other(self: Ours, n: int) -> None:
    """Send another task with an explicit name."""
    self.app.send_task("shop.work", (n,), task_id="other")


GONE = refuse(404, "no_such_task")


def stands(status: str) -> Action:
    """Return an action that answers with the status of a task."""
    return reply({"task": "other", "status": status})


def test_what_has_the_name_of_one_that_is_about_to_end_is_parked_when_it_has(
    app: Celery, stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_hook, "RECHECK_S", 0.0)
    taken = refuse(409, "task_exists")
    next_is(
        stub,
        beat(),
        taken,
        stands("started"),
        taken,
        GONE,
        reply({"task": "other", "status": "parked"}, 201),
    )
    assert run(task(app, sends_other)).info is None
    assert list_calls(stub) == ["start", "tasks", "other", "tasks", "other", "tasks", "release succeeded"]
    assert len({call.headers["idempotency-key"] for call in stub.calls if call.path.endswith("/tasks")}) == 1


def test_what_ends_meanwhile_with_a_result_was_sent_before(app: Celery, stub: StubServer) -> None:
    def ends(handler: StubHandler) -> None:
        app.backend.store_result("other", 41, "SUCCESS")
        GONE(handler)

    next_is(stub, beat(), refuse(409, "task_exists"), ends)
    assert run(task(app, sends_other)).info is None
    assert list_calls(stub) == ["start", "tasks", "other", "release succeeded"]


@pytest.mark.parametrize("status", ["parked", "granted", "sent", "delayed"])
def test_what_was_sent_before_is_not_sent_again(app: Celery, stub: StubServer, status: str) -> None:
    next_is(stub, beat(), refuse(409, "task_exists"), stands(status))
    assert run(task(app, sends_other)).info is None
    assert list_calls(stub) == ["start", "tasks", "other", "release succeeded"]


def test_a_task_is_sent_before_a_run_that_outlasts_every_wait(
    app: Celery, stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_hook, "RETRY_FOR_S", 0.0)
    next_is(stub, beat(), refuse(409, "task_exists"), stands("started"))
    assert run(task(app, sends_other)).info is None
    assert list_calls(stub) == ["start", "tasks", "other", "release succeeded"]


def test_a_retry_after_lost_units_leaves_the_result_of_its_successor(app: Celery, stub: StubServer) -> None:
    def tries_again(self: Ours, n: int) -> None:
        self.backend.store_result(str(self.request.id), 41, "SUCCESS")  # as a run that has its units by now
        raise self.retry(countdown=0)

    next_is(stub, beat(), refuse(409, "stale_fence"), *[refuse(409, "stale_fence")] * 3)
    work, task_id = task(app, tries_again), uuid()
    assert run(work, task_id, poolkeeper=SENT | {"lease_s": 0}).info.state == "IGNORED"
    assert (work.AsyncResult(task_id).state, work.AsyncResult(task_id).result) == ("SUCCESS", 41)
    assert "tasks" not in list_calls(stub)


@pytest.mark.parametrize(("status", "code"), [(413, "body_too_large"), (400, "invalid_request"), (422, "no_broker")])
def test_a_try_that_cannot_be_parked_has_failed_and_is_not_begun_for_ever(
    app: Celery, stub: StubServer, status: int, code: str
) -> None:
    def tries_again(self: Ours, n: int) -> None:
        raise self.retry(countdown=0)

    next_is(stub, beat(), refuse(status, code, "too large"))
    work, task_id = task(app, tries_again), uuid()
    run(work, task_id)
    assert list_calls(stub) == ["start", "tasks", "release failed"]
    with pytest.raises(TaskNotGranted, match=r"cannot be parked again: .*too large") as why:
        work.AsyncResult(task_id).get(timeout=20)
    assert why.value.code == code


def test_of_two_that_fork_at_a_time_each_opens_what_it_has_shut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_safety, "MAX_FORK_DELAY_S", 0.01)
    door = fork_safety._ForkLock()
    door.acquire()

    def forks_too() -> None:
        door.acquire()
        door.release()

    other = Thread(target=forks_too)
    other.start()
    other.join(10)
    assert door.lock.locked()
    door.release()
    assert not door.lock.locked()


REFUSED = refuse(401, "unknown_token", "this token is expired")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Set the lease clock by a list of one number of seconds ahead; heartbeats are frequent."""
    ahead_s = [0.0]
    monkeypatch.setattr(heartbeats, "LONGEST_INTERVAL_S", 0.02)
    for module in (heartbeats, allocation):
        monkeypatch.setattr(module, "now_s", lambda: time.monotonic() + ahead_s[0])
    return ahead_s


@pytest.mark.parametrize("refusal", [REFUSED, refuse(403, "other_component", "not you")], ids=["401", "403"])
def test_a_task_ends_when_its_lease_does(
    app: Celery,
    stub: StubServer,
    clock: list[float],
    caplog: pytest.LogCaptureFixture,
    refusal: Any,
) -> None:
    is_lost = []

    def works(self: Ours, n: int) -> None:
        wait_until(lambda: any("heartbeats are refused" in record.message for record in caplog.records), "it is reported")
        is_lost.append(self.allocation.lost)
        clock[0] = 60.0
        for _ in range(500):  # until it is interrupted
            Event().wait(0.01)

    stub.actions.clear()
    next_is(stub, beat(), *[refusal] * 999)
    work = task(app, works)
    assert run(work, "t-1").info.state == "IGNORED"
    assert is_lost == [False]
    assert list_calls(stub)[-1] == "release lost"
    [report] = [record.message for record in caplog.records if "heartbeats are refused" in record.message]
    assert report.startswith("task t-1: ")
    assert report.endswith("; the lease ends in 1m")


def test_a_task_goes_on_when_its_heartbeats_are_accepted_again(
    app: Celery,
    stub: StubServer,
    clock: list[float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def works(self: Ours, n: int) -> int:
        wait_until(lambda: any("accepts heartbeats again" in record.message for record in caplog.records), "it is reported")
        clock[0] = 30.0
        return n

    stub.actions.clear()
    next_is(stub, beat(), *[REFUSED] * 3, *[beat()] * 999)
    assert run(task(app, works)).info is None
    assert list_calls(stub)[-1] == "release succeeded"
