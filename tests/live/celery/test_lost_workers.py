"""Processes that die, are killed for being late or revoked, and a service that is away: nothing is lost, nothing runs twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chord
from celery.exceptions import SoftTimeLimitExceeded, TaskRevokedError, TimeLimitExceeded
from poolkeeper.celery import TaskNotGranted
from redis import Redis

from app.store.child_process import ChildProcess
from tests.live.celery.conftest import Site, has_ended, state
from tests.live.celery.project import add, app, exits, late, note_error, patient, total, uncounted
from tests.support.backends import wait_until
from tests.support.flaky_proxy import FlakyProxy

IN_S = 30


def port(site: Site) -> int:
    """Return the port of the API."""
    return int(site.client.url.rpartition(":")[2])


pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture(scope="module")
def worker(site: Site) -> Iterator[ChildProcess]:
    """Yield a worker with a pool of processes."""
    with site.worker("-P", "prefork", "-c", "3") as child:
        yield child


@pytest.mark.parametrize("task", [patient, late], ids=["acknowledged early", "acknowledged late"])
def test_a_child_that_is_killed_has_its_task_run_again(site: Site, worker: ChildProcess, task: object) -> None:
    result = getattr(task, "apply_async")()  # noqa: B009
    began = site.wait_for_note(result, "began")[0].split()
    request = site.request(result)["id"]
    os.kill(int(began[-1]), signal.SIGKILL)
    again = site.wait_for_note(result, "began", 2)[-1].split()
    reason = site.client.request(request).reason
    assert reason, "it has ended"
    assert reason.code == "worker_lost", "its parent says so, and the lease has not to lapse"
    assert int(again[1]) > int(began[1])
    site.go(result)
    assert result.get(timeout=IN_S) == "done"
    assert len(site.notes(result, "began")) == 2


def test_a_part_that_dies_before_it_is_counted_is_counted_in_its_chord(site: Site, worker: ChildProcess) -> None:
    parts = [uncounted.s(20), add.s(1, 1)]
    assert chord(parts, total.s()).delay().get(timeout=IN_S) == 22


def test_a_worker_does_not_grow_with_what_it_has_done(site: Site, worker: ChildProcess) -> None:
    before = count_threads_and_files(worker.pid)
    assert len([add.delay(n, n).get(timeout=IN_S) for n in range(20)]) == 20
    threads, files = (now - then for now, then in zip(count_threads_and_files(worker.pid), before, strict=True))
    assert threads <= 3, "one for each child"
    assert files < 10


def count_threads_and_files(process: int) -> tuple[int, int]:
    """Return the number of threads and of files of a process."""
    here = Path(f"/proc/{process}")
    return len(list((here / "task").iterdir())), len(list((here / "fd").iterdir()))


def test_a_late_copy_of_a_message_takes_nothing_from_the_running_task(site: Site, worker: ChildProcess) -> None:
    result = patient.apply_async(queue="unserved", expires=3)
    with Redis.from_url(f"{site.redis_url}/1") as broker:
        wait_until(lambda: broker.llen("unserved"), "it is sent")
        message: Any = broker.rpop("unserved")
        broker.lpush("celery", message)
        site.wait_for_note(result, "began")
        request = site.request(result)["id"]
        wait_until(lambda: datetime.fromisoformat(expires(message)) < datetime.now(UTC), "it is too late to begin")
        broker.lpush("celery", message)
        site.wait_for_state(result, "REVOKED")
    assert site.used() == 1
    site.go(result)
    site.wait_for_note(result, "ended")
    wait_until(lambda: site.client.request(request).outcome == "succeeded", "its units are given back, and by itself")


def expires(message: str) -> str:
    """Return the time at which a message expires."""
    return str(json.loads(message)["headers"]["expires"])


def test_a_worker_that_is_killed_has_its_task_run_by_another(site: Site) -> None:
    doomed = site.start_worker("-P", "prefork", "-c", "1", queues="doomed")
    result = patient.apply_async(queue="doomed", lease_s=2)
    began = site.wait_for_note(result, "began")[0].split()
    doomed.kill()
    with site.worker("-P", "threads", "-c", "1", queues="doomed"):
        again = site.wait_for_note(result, "began", 2)[-1].split()
        assert int(again[1]) > int(began[1])
        site.go(result)
        assert result.get(timeout=IN_S) == "done"


def test_a_task_that_is_lost_too_often_has_failed(site: Site, worker: ChildProcess) -> None:
    result = exits.apply_async(redeliveries=1, link_error=note_error.s())
    with pytest.raises(TaskNotGranted) as why:
        result.get(timeout=IN_S)
    assert (why.value.status, why.value.code) == ("expired", "worker_lost")
    site.wait_for_note(result, "errback TaskNotGranted")


def test_revoked_while_it_runs_it_ends_and_stays_ended(site: Site, worker: ChildProcess) -> None:
    result = patient.delay()
    began = site.wait_for_note(result, "began")[0].split()
    request = site.request(result)["id"]
    result.revoke(terminate=True)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=IN_S)
    wait_until(lambda: site.client.request(request).outcome == "failed", "its units are given back")
    assert has_ended(int(began[-1]))
    assert len(site.notes(result, "began")) == 1


def test_a_task_revoked_at_the_workers_before_it_began_never_begins(site: Site, worker: ChildProcess) -> None:
    stranger: Celery = Celery("stranger", broker=app.conf.broker_url, set_as_current=False)
    result = patient.apply_async(queue="later")
    with Redis.from_url(f"{site.redis_url}/1") as broker:
        wait_until(lambda: broker.llen("later"), "it is sent")
    request = site.request(result)["id"]
    stranger.control.revoke(result.id, reply=True, limit=1, timeout=5)
    app.control.add_consumer("later", reply=True, limit=1, timeout=5)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=IN_S)
    app.control.cancel_consumer("later", reply=True, limit=1, timeout=5)
    wait_until(lambda: site.client.request(request).outcome == "failed", "its units are given back")
    assert not site.notes(result, "began")


@pytest.mark.parametrize(("limit", "error"), [("time_limit", TimeLimitExceeded), ("soft_time_limit", SoftTimeLimitExceeded)])
def test_a_task_over_its_time_limit_fails_once(site: Site, worker: ChildProcess, limit: str, error: type[Exception]) -> None:
    result = patient.apply_async(**{limit: 1})
    site.wait_for_note(result, "began")
    request = site.request(result)["id"]
    with pytest.raises(error):
        result.get(timeout=IN_S)
    wait_until(lambda: site.client.request(request).outcome == "failed", "its units are given back")
    assert len(site.notes(result, "began")) == 1


def test_a_service_that_is_away_stops_no_running_task(site: Site) -> None:
    with FlakyProxy(port(site)) as door, site.worker("-P", "prefork", "-c", "2", queues="behind", url=door.url):
        result = patient.apply_async(queue="behind", link=add.si(1, 1).set(queue="behind"))
        site.wait_for_note(result, "began")
        request = site.request(result)["id"]
        door.close()
        waits = add.apply_async((2, 2), queue="behind")
        site.go(result)
        site.wait_for_note(result, "ended")
        assert site.client.request(request).is_allocated
        door.open()
        assert (result.get(timeout=IN_S), waits.get(timeout=IN_S)) == ("done", 4)
        linked: Any = result.children
        assert linked[0].get(timeout=IN_S) == 2
        wait_until(lambda: site.client.request(request).outcome == "succeeded", "its units are given back")
    assert len(site.notes(result, "began")) == 1


def test_a_task_that_is_over_is_not_run_again_when_giving_back_failed(site: Site) -> None:
    with FlakyProxy(port(site)) as door:
        doomed = site.start_worker("-P", "prefork", "-c", "1", queues="unsaid", url=door.url)
        result = patient.apply_async(queue="unsaid", lease_s=2)
        site.wait_for_note(result, "began")
        door.close()
        site.go(result)
        assert result.get(timeout=IN_S) == "done"
        doomed.kill()
    with site.worker("-P", "prefork", "-c", "1", queues="unsaid"):
        wait_until(lambda: not site.knows(result), "it has been delivered again, and is over")
    assert len(site.notes(result, "began")) == 1
    assert state(result) == "SUCCESS"
