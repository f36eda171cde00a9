"""A publisher on a real broker: what is sent is what was made, and whatever happens to the broker is known by its name."""

from __future__ import annotations

import base64
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from kombu import Connection, Queue

from app.celery_brokers import TaskBroker
from app.domain.setting_kinds import InvalidSetting
from app.domain.tasks import TaskEnd
from tests.live.workers.broker import BODY, QUEUE, Broker, a_broker, dispatch, document
from tests.support.backends import wait_until
from workers.broker_publisher import BrokerUnavailable, InvalidMessage, Message, MessageRejected, Publisher


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Yield a broker that answers."""
    with a_broker(tmp_path / "broker") as made:
        made.start()
        yield made


def publisher(url: str, **options: Any) -> Publisher:
    """Return a publisher, as a worker makes it from the file."""
    destination = TaskBroker("the file: w", url, options)
    return Publisher(destination.address({}), destination.location)


def received(broker: Broker, queue: str = "celery") -> Any:
    """Return the next message of a queue, as a consumer gets it."""
    with Connection(broker.url) as connection:
        return Queue(queue, channel=connection.default_channel).get(no_ack=True)


# ---- what is sent


def test_it_arrives_as_it_was_made(broker: Broker) -> None:
    publisher(broker.url).publish(
        Message.from_dispatch(dispatch(properties={"correlation_id": "a", "reply_to": "q", "priority": 0}))
    )
    message = received(broker)
    assert (message.body, message.content_type, message.content_encoding) == (BODY, "application/json", "utf-8")
    assert message.payload == [[1], {"a": "é"}, {"callbacks": None}]
    granted = message.headers.pop("poolkeeper")
    assert message.headers == document()["headers"]
    assert {name: message.properties[name] for name in ("correlation_id", "reply_to", "priority", "delivery_mode")} == {
        "correlation_id": "a",
        "reply_to": "q",
        "priority": 0,
        "delivery_mode": 2,
    }
    assert granted == {
        "request": "r-a",
        "fence": 7,
        "pool": "gpus",
        "resources": {"gpu": 1},
        "lease_s": 60,
        "resume": False,
        "checkpoint_reference": None,
        "tries": 1,
        "begun": False,
        "ended": None,
    }


def test_a_body_is_never_looked_into(broker: Broker) -> None:
    squeezed = zlib.compress(b"\x80\x04no pickle of anything")
    more: dict[str, Any] = {
        "body": base64.b64encode(squeezed).decode(),
        "content_type": "application/x-python-serialize",
        "content_encoding": "binary",
        "headers": {"compression": "application/x-gzip"},
    }
    publisher(broker.url).publish(Message.from_dispatch(dispatch(**more)))
    (raw,) = broker.arrived()
    assert base64.b64decode(raw["body"]) == squeezed
    assert raw["headers"]["compression"] == "application/x-gzip"


def test_a_priority_and_an_end_are_the_brokers_to_know(broker: Broker) -> None:
    properties = {"priority": 3, "expiration": 1.5, "delivery_mode": "transient"}
    publisher(broker.url).publish(Message.from_dispatch(dispatch(properties=properties)))
    (raw,) = broker.arrived("celery\x06\x163")
    header = {name: raw["properties"][name] for name in properties}
    assert header == {"priority": 3, "expiration": "1500", "delivery_mode": 1}


def test_of_what_will_never_run_its_worker_is_told_why(broker: Broker) -> None:
    ended = TaskEnd("rejected", "no_policy", "no pool has a policy for this component")
    publisher(broker.url).publish(Message.from_dispatch(dispatch(fence=None, ended=ended)))
    ((_, header),) = broker.list_deliveries()
    assert (header["fence"], header["ended"]) == (
        None,
        {"status": "rejected", "code": "no_policy", "message": "no pool has a policy for this component"},
    )


def test_a_route_of_its_own_is_made_before_anything_is_sent_on_it(broker: Broker) -> None:
    exchange = {"name": "jobs", "type": "topic", "durable": True, "delivery_mode": 2, "arguments": None}
    queue = {"name": "long", "exchange": exchange, "routing_key": "train.#", "no_declare": None, "exclusive": False}
    more: dict[str, Any] = {"exchange": "jobs", "exchange_type": "topic", "routing_key": "train.gpu", "queues": [queue]}
    publisher(broker.url).publish(Message.from_dispatch(dispatch(**more)))
    assert [task for task, _ in broker.list_deliveries("long")] == ["a"]


def test_queues_are_made_once_a_connection(broker: Broker) -> None:
    bound = "_kombu.binding.celery"
    sends = publisher(broker.url)
    sends.publish(Message.from_dispatch(dispatch()))
    assert broker.client.delete(bound) == 1
    sends.publish(Message.from_dispatch(dispatch()))
    assert not broker.client.exists(bound)
    sends.close()
    sends.publish(Message.from_dispatch(dispatch()))
    assert broker.client.exists(bound)
    assert len(broker.arrived()) == 3


@pytest.mark.parametrize("no", [{"no_declare": True}, {"exclusive": True}])
def test_a_queue_that_is_not_ours_to_make_is_not_made(broker: Broker, no: dict[str, bool]) -> None:
    publisher(broker.url).publish(Message.from_dispatch(dispatch(queues=[QUEUE | no])))
    assert len(broker.arrived()) == 1
    assert not broker.client.exists("_kombu.binding.celery")


def test_what_its_transport_is_told_counts(broker: Broker) -> None:
    publisher(broker.url, global_keyprefix="mine:").publish(Message.from_dispatch(dispatch()))
    assert len(broker.arrived("mine:celery")) == 1


def test_a_socket_is_a_broker_too(broker: Broker) -> None:
    for url in (f"redis+socket://:{broker.password}@{broker.socket}", f"unix://:{broker.password}@{broker.socket}"):
        publisher(url).publish(Message.from_dispatch(dispatch()))
    assert len(broker.arrived()) == 2


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({}, "body is required"),
        (document(body="no base64!"), "body "),
        (document(body=7), "body must be base64"),
        (document(routing_key=None), "routing_key must be a text"),
        (document(queues=[{}]), "queues.0.name is required"),
        (document(headers=[]), "headers must be an object"),
    ],
)
def test_what_is_no_message(message: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidMessage, match=f"^{error}"):
        Message.from_dispatch(dispatch(message=message or {"id": "a"}))


# ---- the broker


def test_it_is_sent_at_once_though_the_connection_has_died_meanwhile(broker: Broker) -> None:
    sends = publisher(broker.url)
    sends.publish(Message.from_dispatch(dispatch("a")))
    broker.client.client_kill_filter(_type="normal", skipme=True)
    sends.publish(Message.from_dispatch(dispatch("b")))
    broker.kill()
    broker.start()
    sends.publish(Message.from_dispatch(dispatch("c")))
    assert [task for task, _ in broker.list_deliveries()] == ["a", "b", "c"]


def test_a_broker_that_is_away_is_said_to_be_at_once(broker: Broker) -> None:
    sends = publisher(broker.url)
    sends.publish(Message.from_dispatch(dispatch("a")))
    broker.kill()
    for _ in range(3):
        started_s = time.monotonic()
        with pytest.raises(BrokerUnavailable, match="Connection refused"):
            sends.publish(Message.from_dispatch(dispatch("b")))
        assert time.monotonic() - started_s < 2
    broker.start()
    sends.publish(Message.from_dispatch(dispatch("b")))
    assert [task for task, _ in broker.list_deliveries()] == ["a", "b"]


def test_a_broker_that_says_nothing_is_given_up(broker: Broker) -> None:
    sends = publisher(broker.url, socket_timeout=0.3)
    sends.publish(Message.from_dispatch(dispatch("a")))
    with broker.frozen():
        for _ in range(2):
            with pytest.raises(BrokerUnavailable, match="Timeout"):
                sends.publish(Message.from_dispatch(dispatch("b")))
    sends.publish(Message.from_dispatch(dispatch("c")))
    assert [task for task, _ in broker.list_deliveries()][-1] == "c"


def test_a_message_half_on_its_way_when_the_broker_is_killed_is_not_sent(broker: Broker) -> None:
    sends, failed = publisher(broker.url), list[Exception]()
    sends.publish(Message.from_dispatch(dispatch("a")))
    large = Message.from_dispatch(dispatch("b", body=base64.b64encode(b"x" * 8_000_000).decode()))

    def send() -> None:
        try:
            sends.publish(large)
        except BrokerUnavailable as away:
            failed.append(away)

    thread = Thread(target=send)
    with broker.frozen():
        thread.start()
        wait_until(lambda: _is_writing(broker), "a part of it is on its way")
        broker.kill()
    thread.join(20)
    assert len(failed) == 1
    broker.start()
    assert [task for task, _ in broker.list_deliveries()] == ["a"]
    sends.publish(large)
    assert [task for task, _ in broker.list_deliveries()] == ["a", "b"]


def _is_writing(broker: Broker) -> bool:
    """True if bytes for the broker wait in the kernel, on either side."""
    here = f":{broker.port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any((here in row[1] or here in row[2]) and row[4] != "00000000:00000000" for row in rows)


def test_what_it_does_not_take_is_wrong_alone(broker: Broker) -> None:
    broker.client.set("celery", "no queue")
    sends = publisher(broker.url)
    with pytest.raises(MessageRejected, match="WRONGTYPE"):
        sends.publish(Message.from_dispatch(dispatch("a")))
    sends.publish(Message.from_dispatch(dispatch("b", routing_key="other", queues=[])))
    assert [task for task, _ in broker.list_deliveries("other")] == ["b"]


def test_a_refused_login_shows_no_password(broker: Broker) -> None:
    for url in (f"redis://:wr0ng@127.0.0.1:{broker.port}", f"redis://wr0ng:wr0ng@127.0.0.1:{broker.port}"):
        with pytest.raises(BrokerUnavailable) as away:
            publisher(url).publish(Message.from_dispatch(dispatch()))
        assert "wr0ng" not in str(away.value)


def test_what_kombu_does_not_know_is_no_broker() -> None:
    with pytest.raises(InvalidSetting, match=r"^the file: w: url: there is no transport carrier-pigeon, or"):
        publisher("carrier-pigeon://h")
