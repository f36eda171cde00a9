"""The hook that parks a called task: it captures all that Celery would have published, and nothing reaches the broker."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery, Signature, chain, chord, group, signals
from celery.app.trace import build_tracer
from celery.beat import Scheduler
from celery.exceptions import ImproperlyConfigured
from kombu import Exchange, Producer, Queue
from kombu.compression import decompress
from kombu.exceptions import EncodeError, OperationalError
from kombu.serialization import loads
from kombu.utils.uuid import uuid
from poolkeeper.celery import PARKED, NotParked, PoolTask, TaskNotGranted, install, publish_hook
from poolkeeper.celery.message import task_key
from poolkeeper.errors import AccessDenied, Conflict, PoolkeeperError

from tests.support import no_broker
from tests.support.memory_network import MemoryNetwork
from tests.support.stub_server import Action, StubServer, cut, refuse, reply

PARKS = reply({"task": "t-1", "status": "parked", "id": "r-1"}, 201)
NO_BROKER = no_broker.URL


@pytest.fixture
def stub(network: MemoryNetwork) -> Iterator[StubServer]:
    """Yield the server that receives parked tasks."""
    with StubServer(network=network) as server:
        server.script(*[PARKS] * 20)
        yield server


def next_is(stub: StubServer, *acts: Action) -> None:
    """Set the actions of the server for the next calls."""
    stub.actions.extendleft(reversed(acts))


@pytest.fixture
def app(stub: StubServer) -> Iterator[Celery]:
    """Yield an app whose broker does not exist."""
    made = Celery("shop", broker=NO_BROKER, backend="cache+memory://", set_as_current=False)
    made.conf.update(
        poolkeeper={"url": stub.url},
        accept_content=["json", "pickle", "yaml"],
        task_publish_retry=False,
        broker_transport_options={"max_retries": 1, "interval_start": 0, "interval_step": 0},
        broker_connection_timeout=1,
        task_queues=[
            Queue("celery"),
            Queue("metrics", Exchange("metrics", type="topic"), routing_key="metrics.#", max_priority=9),
        ],
    )
    yield made
    made.close()


@pytest.fixture
def task_id() -> str:
    """Return a new id: the results of all apps here are stored together."""
    return uuid()


def nothing() -> None:
    """Do nothing."""


@pytest.fixture
def train(app: Celery) -> Any:
    """Return a task that asks for one gpu."""

    @app.task(base=PoolTask, name="shop.train", component="team", resources={"gpu": 1}, checkpoint="auto", shared=False)
    def train(n: int) -> int:
        return n

    return train


def body(text: dict[str, Any]) -> Any:
    """Return the body as a worker reads it."""
    message = text["message"]
    data = base64.b64decode(message["body"])
    if packed := message["headers"].get("compression"):
        data = decompress(data, packed)
    return loads(data, message["content_type"], message["content_encoding"], accept=[message["content_type"]])


def test_a_call_parks_the_task_under_its_id_and_publishes_nothing(stub: StubServer, train: Any) -> None:
    result = train.delay(7)
    assert result.state == PARKED
    (call,) = stub.calls
    assert (call.method, call.path) == ("POST", "/api/v1/tasks")
    assert call.headers["idempotency-key"]
    assert call.body["task"] == call.body["message"]["id"] == result.id
    assert (call.body["name"], call.body["not_before"]) == ("shop.train", None)
    expected = {"component": "team", "resources": {"gpu": 1}, "checkpoint": "auto", "labels": {"task": "shop.train"}}
    assert call.body["request"] == expected
    assert body(call.body)[:2] == [[7], {}]
    message = call.body["message"]
    assert (message["exchange"], message["routing_key"], [q["name"] for q in message["queues"]]) == ("", "celery", ["celery"])
    assert message["properties"]["correlation_id"] == result.id
    assert message["properties"]["delivery_mode"] == 2


@pytest.mark.parametrize("serializer", ["json", "yaml", "pickle"])
@pytest.mark.parametrize("compression", [None, "gzip", "bzip2"])
def test_serializer_and_compression_are_the_callers(
    stub: StubServer, train: Any, serializer: str, compression: str | None
) -> None:
    train.apply_async((5,), serializer=serializer, compression=compression)
    assert list(body(stub.calls[0].body)[0]) == [5]


def test_a_call_may_ask_for_something_else(stub: StubServer, train: Any) -> None:
    train.apply_async(
        (1,), resources={"gpu": 2}, lease_s=0, labels={"run": "7"}, preemption_retries=9, redeliveries=0, preemptible=False
    )
    message = stub.calls[0].body
    assert message["request"] == {
        "component": "team",
        "resources": {"gpu": 2},
        "checkpoint": "auto",
        "lease_s": None,
        "retries": 9,
        "preemptible": False,
        "labels": {"task": "shop.train", "run": "7"},
    }
    assert message["redeliveries"] == 0
    assert not {"resources", "lease_s", "labels"} & message["message"]["properties"].keys()


def test_times_are_the_services_business_and_the_end_is_told_to_both(stub: StubServer, train: Any) -> None:
    train.apply_async((1,), countdown=60, expires=100)
    message = stub.calls[0].body
    due = datetime.fromisoformat(message["not_before"])
    assert timedelta(seconds=55) < due - datetime.now(UTC) < timedelta(seconds=61)
    assert 38 <= message["request"]["queue_ttl_s"] <= 41
    assert message["message"]["headers"]["eta"] is None
    assert datetime.fromisoformat(message["message"]["headers"]["expires"]) > due
    assert "expiration" not in message["message"]["properties"]


def test_a_time_without_a_zone_is_in_the_apps_own(stub: StubServer, app: Celery, train: Any) -> None:
    app.conf.update(timezone="Asia/Tokyo")
    train.apply_async((1,), eta=datetime(2030, 1, 1, 9, 0))  # noqa: DTZ001 - that is the point
    worker_reads = datetime(2030, 1, 1, 9, 0, tzinfo=UTC)  # Celery takes it for UTC, whatever the zone
    assert datetime.fromisoformat(stub.calls[0].body["not_before"]) == worker_reads


def test_routes_queues_and_priorities_are_celerys(stub: StubServer, app: Celery, train: Any) -> None:
    app.conf.task_routes = {"shop.train": {"queue": "metrics", "routing_key": "metrics.gpu"}}
    train.apply_async((1,), priority=4)
    message = stub.calls[0].body["message"]
    assert (message["exchange"], message["exchange_type"], message["routing_key"]) == ("metrics", "topic", "metrics.gpu")
    assert message["properties"]["priority"] == 4
    (queue,) = message["queues"]
    assert (queue["name"], queue["routing_key"], queue["exchange"]["type"]) == ("metrics", "metrics.#", "topic")
    assert queue["max_priority"] == 9
    train.apply_async((1,), queue="elsewhere")
    assert stub.calls[1].body["message"]["routing_key"] == "elsewhere"


def test_what_rabbitmq_would_delay_is_published_without_delay_when_its_time_has_come(stub: StubServer, train: Any) -> None:
    delayed = Exchange("celery_delayed_27", type="topic")
    train.apply_async((1,), countdown=60, exchange=delayed, routing_key=".".join("0" * 22 + "111100") + ".metrics.gpu")
    message = stub.calls[0].body["message"]
    assert (message["exchange"], message["exchange_type"]) == ("celery_delayed_27", "topic")
    assert message["routing_key"] == ".".join("0" * 28) + ".metrics.gpu"


def names(stub: StubServer) -> list[str]:
    """Return the names of the parked tasks."""
    return [call.body["message"]["headers"]["task"] for call in stub.calls]


@pytest.mark.parametrize(
    "call",
    [
        lambda app, train: app.send_task("shop.train", (1,)),
        lambda app, train: train.s(1).set(priority=1).apply_async(),
        lambda app, train: Signature("shop.train", args=(1,), app=app).delay(),
        lambda app, train: chain(train.s(1), train.s()).delay(),
        lambda app, train: group(train.s(1)).delay(),
    ],
    ids=["by name", "signature", "signature by name", "chain", "group"],
)
def test_every_way_to_call_it_is_caught(stub: StubServer, app: Celery, train: Any, call: Callable[[Celery, Any], Any]) -> None:
    install(app)
    call(app, train)
    assert names(stub) == ["shop.train"]


def test_an_entry_of_beat_is_caught_and_may_say_what_it_asks_for(stub: StubServer, app: Celery, train: Any) -> None:
    app.conf.beat_schedule = {
        "nightly": {"task": "shop.train", "schedule": 1, "args": (1,), "options": {"resources": {"gpu": 4}}}
    }
    app.finalize()
    beat = Scheduler(app, schedule={}, lazy=True)
    beat.merge_inplace(app.conf.beat_schedule)
    beat.apply_async(beat.schedule["nightly"], advance=False)
    assert [call.body["request"]["resources"] for call in stub.calls] == [{"gpu": 4}]


def run(task: Any, task_id: str, **headers: Any) -> Any:
    """Run the task as a worker does, and return its result."""
    delivery = {"exchange": "", "routing_key": "celery", "priority": 0}
    request = {"id": task_id, "args": (1,), "kwargs": {}, "is_eager": False, "delivery_info": delivery, **headers}
    return build_tracer(task.name, task, app=task.app)(task_id, [1], {}, request).info


def test_what_a_worker_cannot_park_goes_back_into_its_queue(
    app: Celery, train: Any, task_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_hook, "RETRY_FOR_S", 0.0)
    app.conf.update(broker_url="memory://", poolkeeper={"url": "http://127.0.0.1:1", "tries": 1})
    assert run(train, task_id).state == "IGNORED"
    with app.connection_for_read() as broker, broker.SimpleQueue("celery") as queue:
        again = queue.get(timeout=20)
    assert (again.headers["id"], list(again.payload[0])) == (task_id, [1])
    assert datetime.fromisoformat(again.headers["eta"]) > datetime.now(UTC) + timedelta(seconds=20)
    assert "poolkeeper" not in again.headers


@pytest.mark.parametrize("code", ["stale_fence", "already_started"])
def test_a_worker_that_may_not_run_a_message_drops_it_and_writes_nothing(
    stub: StubServer, train: Any, task_id: str, code: str
) -> None:
    next_is(stub, refuse(409, code))
    sent = {"request": "r-1", "fence": 3, "lease_s": 60, "resources": {"gpu": 1}, "tries": 1, "ended": None}
    assert run(train, task_id, poolkeeper=sent).state == "IGNORED"
    (query,) = stub.calls
    assert (query.path, query.body["fence"]) == ("/api/v1/requests/r-1/start", 3)
    assert train.AsyncResult(task_id).state == "PENDING"


def test_each_of_a_group_may_ask_for_its_own(stub: StubServer, train: Any) -> None:
    group(train.s(n).set(resources={"gpu": n}) for n in (1, 2, 3)).delay()
    assert [call.body["request"]["resources"]["gpu"] for call in stub.calls] == [1, 2, 3]


def test_a_chord_and_a_chain_go_with_the_message(stub: StubServer, train: Any) -> None:
    chord([train.s(1), train.s(2)], train.si(9)).delay()
    assert [body(call.body)[2]["chord"]["task"] for call in stub.calls] == ["shop.train"] * 2
    stub.calls.clear()
    chain(train.s(1), train.si(2), train.si(3)).delay()
    assert len(body(stub.calls[0].body)[2]["chain"]) == 2


def test_other_tasks_go_to_the_broker_as_ever(stub: StubServer, app: Celery, train: Any) -> None:
    plain = app.task(name="shop.plain", shared=False)(nothing)
    with pytest.raises(plain.OperationalError):
        plain.delay()
    with pytest.raises(plain.OperationalError):
        app.send_task("foreign.task")
    assert stub.calls == []


def test_what_a_call_asks_goes_with_a_message_of_a_task_that_is_not_known_here(
    stub: StubServer, app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(app)
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(Producer, "publish", lambda *_, **options: sent.append(options))
    app.send_task("foreign.task", resources={"gpu": 2}, component="other", headers={"x": 1})
    app.send_task("foreign.task")
    (first, second) = sent
    assert first["headers"] | {"x": 1, "poolkeeper_ask": {"resources": {"gpu": 2}, "component": "other"}} == first["headers"]
    assert "poolkeeper_ask" not in second["headers"]
    assert not {"resources", "component"} & first.keys()
    assert stub.calls == []


def test_a_task_sent_by_name_is_caught_before_anything_looked_at_the_app(stub: StubServer) -> None:
    app = Celery("late", broker=NO_BROKER, set_as_current=False)

    @app.task(base=PoolTask, name="late.train", component="team", resources={}, shared=False)
    def train() -> None: ...

    app.conf.poolkeeper = {"url": stub.url}
    assert install(app) is install(app)
    app.send_task("late.train")
    assert names(stub) == ["late.train"]


def test_the_signals_of_sending_are_given_and_a_receiver_may_add_a_header(stub: StubServer, train: Any) -> None:
    values: list[str] = []

    def before(headers: dict[str, Any], **_: object) -> None:
        headers["trace"] = "t-1"
        values.append("before")

    def after(**_: object) -> None:
        values.append("after")

    signals.before_task_publish.connect(before)
    signals.after_task_publish.connect(after)
    train.delay(1)
    assert values == ["before", "after"]
    assert stub.calls[0].body["message"]["headers"]["trace"] == "t-1"


def test_a_refusal_is_raised_to_the_caller_and_leaves_no_state(stub: StubServer, train: Any, task_id: str) -> None:
    next_is(stub, refuse(403, "forbidden"))
    with pytest.raises(AccessDenied):
        train.apply_async((1,), task_id=task_id)
    assert train.AsyncResult(task_id).state == "PENDING"


def test_a_task_of_that_id_keeps_its_state(stub: StubServer, train: Any, task_id: str) -> None:
    train.apply_async((1,), task_id=task_id)
    next_is(stub, refuse(409, "task_exists"))
    with pytest.raises(Conflict):
        train.apply_async((1,), task_id=task_id)
    assert train.AsyncResult(task_id).state == PARKED


def test_a_new_life_under_an_old_id_begins_without_the_old_result(stub: StubServer, train: Any, task_id: str) -> None:
    train.backend.store_result(task_id, 5, "SUCCESS")
    assert train.apply_async((1,), task_id=task_id).state == PARKED


def test_a_lost_answer_is_asked_for_again_under_the_same_key(stub: StubServer, train: Any) -> None:
    next_is(stub, cut)
    train.delay(1)
    first, second = stub.calls
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.body == second.body


def test_what_may_be_parked_keeps_its_state(stub: StubServer, app: Celery, train: Any, task_id: str) -> None:
    app.conf.poolkeeper = {"url": stub.url, "tries": 1}
    next_is(stub, cut)
    with pytest.raises(NotParked) as lost:
        train.apply_async((1,), task_id=task_id)
    assert lost.value.answer_lost
    assert train.AsyncResult(task_id).state == PARKED


def test_a_service_that_is_away_is_as_a_broker_that_is_away(app: Celery, train: Any, task_id: str) -> None:
    app.conf.poolkeeper = {"url": "http://127.0.0.1:1", "tries": 1}
    with pytest.raises(NotParked) as away:
        train.apply_async((1,), task_id=task_id)
    assert isinstance(away.value, train.OperationalError)
    assert isinstance(away.value, PoolkeeperError)
    assert pickle.loads(pickle.dumps(away.value)).code == away.value.code
    assert train.AsyncResult(task_id).state == "PENDING"


def test_a_header_that_is_no_json_is_an_error_of_encoding(stub: StubServer, train: Any, task_id: str) -> None:
    with pytest.raises(EncodeError, match="JSON"):
        train.apply_async((1,), headers={"what": object()}, task_id=task_id)
    assert stub.calls == []
    assert train.AsyncResult(task_id).state == "PENDING"


def test_ignored_results_get_no_state(stub: StubServer, train: Any) -> None:
    result = train.apply_async((1,), ignore_result=True)
    assert train.backend.get_state(result.id) == "PENDING"


def test_the_component_is_required(app: Celery) -> None:
    with pytest.raises(ImproperlyConfigured, match="component"):
        app.task(base=PoolTask, name="shop.nobodys", resources={}, shared=False)(nothing).delay()


def test_what_is_needed_has_to_be_said(app: Celery) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"shop\.mistyped has no resources"):
        app.task(base=PoolTask, name="shop.mistyped", component="team", resource={"gpu": 1}, shared=False)(nothing).delay()


def test_where_the_service_is_has_to_be_said_rightly(app: Celery, train: Any) -> None:
    app.conf.poolkeeper = {"urll": "http://127.0.0.1:1"}
    with pytest.raises(ImproperlyConfigured, match="'urll'; its keys are url, token, workspace, "):
        train.delay(1)


def test_a_base_of_ones_own_may_say_it(stub: StubServer, app: Celery) -> None:
    class Team(PoolTask[Any, Any]):
        component = "team"
        resources = {"gpu": 4}  # noqa: RUF012 - as it is written

    app.task(base=Team, name="shop.big", shared=False)(nothing).delay()
    assert stub.calls[0].body["request"]["resources"] == {"gpu": 4}


def test_protocol_1_has_no_room_for_what_is_needed(app: Celery, train: Any) -> None:
    app.conf.task_protocol = 1
    with pytest.raises(ImproperlyConfigured, match="protocol"):
        train.delay(1)


def test_called_directly_or_eagerly_it_holds_nothing_and_is_never_asked_to_leave(stub: StubServer, app: Celery) -> None:
    @app.task(base=PoolTask, name="shop.looks", component="team", resources={}, bind=True, shared=False)
    def looks(self: PoolTask[Any, Any]) -> tuple[Any, ...]:
        request = self.allocation
        request.checkpoint_done("kept")
        request.progress()
        request.defer(5)
        request.checkpoint_failed()
        return (
            request.request,
            request.fence,
            request.pool,
            dict(request.resources),
            request.directive,
            request.should_checkpoint(),
            request.lost,
        )

    holds: Any = (None, None, None, {}, "continue", False, False)
    assert looks() == holds
    assert looks.apply().get() == holds
    app.conf.task_always_eager = True
    assert tuple(looks.delay().get()) == holds
    assert tuple(looks.apply_async(resources={"gpu": 2}).get()) == holds
    assert stub.calls == []


def test_a_revoke_of_what_is_parked_is_a_cancel_and_no_worker_hears_of_it(stub: StubServer, app: Celery, train: Any) -> None:
    several: Any = group(train.s(1), train.s(2)).delay()
    first, second = several
    stub.calls.clear()
    first.revoke()
    app.control.revoke([second.id], reply=True)
    assert [call.path for call in stub.calls] == [f"/api/v1/tasks/{each.id}/cancel" for each in (first, second)]
    assert (first.state, second.state) == ("REVOKED", "REVOKED")


def test_a_revoke_of_what_is_not_parked_is_broadcast(stub: StubServer, app: Celery, train: Any, task_id: str) -> None:
    next_is(stub, refuse(409, "not_queued"), refuse(404, "not_found"), refuse(503, "unavailable", retry_after="0"))
    app.conf.poolkeeper = {"url": stub.url, "tries": 1}
    for _ in range(3):
        with pytest.raises(OperationalError, match="refused"):
            app.control.revoke(task_id)
    assert train.AsyncResult(task_id).state == "PENDING"


def test_an_id_that_is_no_name_has_one(stub: StubServer, train: Any) -> None:
    assert task_key("a-1.b_c") == "a-1.b_c"
    train.apply_async((1,), task_id="reports/2026 Q1")
    message = stub.calls[0].body
    assert message["message"]["id"] == "reports/2026 Q1"
    assert message["task"] == task_key("reports/2026 Q1") != task_key("reports/2026 Q2")


def test_why_it_was_not_granted_survives_pickle_and_json(train: Any, task_id: str) -> None:
    error = TaskNotGranted("no pool has a policy for this component", "rejected", "no_policy")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.status, again.code) == (str(error), "rejected", "no_policy")
    train.backend.store_result(task_id, error, "FAILURE")
    document = train.AsyncResult(task_id).result
    assert isinstance(document, TaskNotGranted)
    assert (str(document), document.code) == (str(error), "no_policy")
