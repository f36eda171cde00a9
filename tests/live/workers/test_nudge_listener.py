"""A listener sends a task for what was nudged: one, however often it was said and however many listen."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from redis.cluster import RedisCluster

from app.domain.errors import StoreUnavailable
from app.store.change_notifications import CLIENT_NAME
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.nudges import Nudges
from tests.support.backends import wait_until
from tests.support.servers import Servers
from workers.nudge_listener import NudgeListener

W = "team"
TOOK_S = 0.004

Listen = Callable[[Callable[[str], object]], NudgeListener]


@pytest.fixture(params=("embedded", "redis", "cluster"))
def client(request: pytest.FixtureRequest, servers: Servers) -> RedisClient:
    return servers.client(request.param)


@pytest.fixture
def listen(client: RedisClient) -> Iterator[Listen]:
    """Return a function that starts a listener for the time of the test."""
    with ExitStack() as stack:

        def listening(send: Callable[[str], object]) -> NudgeListener:
            before = len(ears(client))
            listener = NudgeListener(Nudges(client), send)
            listener.start()
            stack.callback(listener.stop)
            wait_until(lambda: len(ears(client)) > before, "it listens")
            return listener

        yield listening


def node(client: RedisClient) -> Any:
    """Return a client of the only node."""
    return client.get_redis_connection(client.get_default_node()) if isinstance(client, RedisCluster) else client  # type: ignore[no-untyped-call]


def ears(client: RedisClient) -> list[str]:
    """Return the connections that listen for nudges."""
    return [each["id"] for each in node(client).client_list() if each["name"] == CLIENT_NAME and each["psub"] == "1"]


def ask(client: RedisClient, workspace: str = W) -> None:
    """Send a nudge as a script does, with one waiter in the workspace."""
    client.zadd(key("waiting", workspace), {"waiter": 1})
    if client.set(key("nudge", workspace), "pending", nx=True, ex=5):
        node(client).publish(key("nudged", workspace), "")


def work(client: RedisClient) -> Callable[[str], None]:
    """Return a function that does the work of a task at once."""
    nudges = Nudges(client)

    def reconcile(workspace: str) -> None:
        if nudges.begin_reconcile(workspace, "t.1", 5) == "begun":
            nudges.finish_reconcile(workspace, "t.1", None, 5, TOOK_S, "nothing")

    return reconcile


def test_each_nudge_is_sent_by_one_listener(client: RedisClient, listen: Listen) -> None:
    sent: list[tuple[int, str]] = []
    for number in range(3):
        listen(lambda workspace, number=number: sent.append((number, workspace)))  # type: ignore[misc]
    names = [f"w{number}" for number in range(40)]
    for workspace in names:
        ask(client, workspace)
        ask(client, workspace)
    wait_until(lambda: len(sent) >= len(names), "all are sent")
    time.sleep(0.1)
    assert Counter(workspace for _, workspace in sent) == Counter(names)


def test_a_thousand_nudges_are_few_tasks_and_none_is_forgotten(client: RedisClient, listen: Listen) -> None:
    sent: list[float] = []
    reconcile = work(client)

    def send(workspace: str) -> None:
        sent.append(time.monotonic())
        reconcile(workspace)

    listen(send)
    listen(send)
    started_s = time.monotonic()
    for _ in range(1000):
        ask(client)
    wait_until(lambda: not client.exists(key("nudge", W)), "the last of them was looked after")
    took_s = time.monotonic() - started_s
    assert 1 <= len(sent) <= 2 + took_s / (5 * TOOK_S)
    assert sent[0] - started_s < 2


def test_it_listens_again_after_its_connection_broke(client: RedisClient, listen: Listen) -> None:
    sent: list[str] = []
    listen(sent.append)
    (first,) = ears(client)
    node(client).client_kill_filter(_id=first)
    wait_until(lambda: ears(client) not in ([], [first]), "it listens again")
    ask(client)
    wait_until(lambda: sent == [W], "it is sent")


def test_what_cannot_be_sent_is_left_and_the_next_is_not(
    client: RedisClient, listen: Listen, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.nudge_listener.RETRY_S", 0.01)
    sent: list[str] = []

    def send(workspace: str) -> None:
        if workspace == "first":
            raise OSError("no broker")
        if workspace == "second":
            raise StoreUnavailable("unreachable", "Redis is gone")
        sent.append(workspace)

    listen(send)
    for workspace in ("first", "second", W):
        ask(client, workspace)
        wait_until(lambda workspace=workspace: client.get(key("nudge", workspace)) == "sent", "it is claimed")  # type: ignore[misc]
    wait_until(lambda: sent == [W], "the third is sent")
    assert [record.getMessage() for record in caplog.records] == ["a nudge is left to the next tick: no broker"]


def test_it_ends_when_it_is_stopped(client: RedisClient, listen: Listen) -> None:
    before = set(threading.enumerate())
    listener = listen(print)
    assert {thread.name for thread in set(threading.enumerate()) - before} == {"nudges", "wakeups"}
    listener.stop()
    wait_until(lambda: set(threading.enumerate()) <= before, "its threads have ended")
    listener.stop()
