"""Tasks by the Python client, on the API as it is served."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from poolkeeper import Client
from poolkeeper.errors import ApiError, Conflict, NotFound, StaleFence
from poolkeeper.models import Task

from tests.support.gunicorn_api import Live
from tests.support.in_process_api import a_task


@pytest.fixture
def client(live: Live) -> Iterator[Client]:
    """Yield a client of a workspace with one gpu."""
    live.empty()
    with Client(live.url) as made:
        made.create_pool("gpus", {"gpu": 1})
        made.set_policy("gpus", "team")
        yield made
    live.empty()


def test_a_task_goes_its_way(client: Client) -> None:
    first, second = (client.park(a_task(name)) for name in ("first", "second"))
    assert (first.task, first.name, first.status, first.sent, first.lost) == ("first", "proj.train", "granted", 0, 0)
    assert first.request
    assert (first.request.task, first.request.started_at, first.request.lease_expires_at) == ("first", None, None)
    assert (second.status, client.task("second").status) == ("parked", "parked")

    fence = first.request.fence or 0
    beat = client.start(first.request.id, fence, "w1")
    assert beat.lease_expires_at is not None
    assert client.start(first.request.id, fence, "w1").is_allocated
    assert client.task("first").status == "started"
    assert client.request(first.request.id).started_at is not None
    with pytest.raises(Conflict) as taken:
        client.start(first.request.id, fence, "w2")
    assert taken.value.code == "already_started"
    with pytest.raises(StaleFence):
        client.start(first.request.id, fence + 1, "w1")

    assert client.cancel_task("second").status == "ended"
    assert client.release(first.request.id, fence, "lost").status == "expired"
    assert client.task("first").status == "ended", "until a worker looks after it"


def test_it_may_be_said_twice(client: Client) -> None:
    parked = client.park(a_task(), "my-key")
    assert isinstance(parked, Task)
    assert client.park(a_task(), "my-key") == parked
    with pytest.raises(Conflict) as other:
        client.park(a_task())
    assert other.value.code == "task_exists"
    with pytest.raises(NotFound):
        client.task("none")


def test_it_waits_for_its_time(client: Client) -> None:
    delayed = client.park(a_task(not_before="2030-01-01T00:00:00+01:00"))
    assert (delayed.status, delayed.request) == ("delayed", None)
    assert delayed.not_before
    assert delayed.not_before.isoformat() == "2029-12-31T23:00:00+00:00"


def test_where_there_is_no_broker_there_are_no_tasks(live: Live) -> None:
    with Client(live.url, workspace="elsewhere") as client, pytest.raises(ApiError) as no:
        client.park(a_task())
    assert (no.value.status, no.value.code) == (422, "no_broker")
