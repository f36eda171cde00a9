"""Tasks that have to leave, in processes and in threads: asked first, then told, then made to; and they come back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.result import AsyncResult
from poolkeeper.celery import TaskNotGranted
from poolkeeper.models import Request

from tests.live.celery.conftest import GPUS, Site, has_ended
from tests.live.celery.project import deaf, patient, stubborn
from tests.support.backends import wait_until

IN_S = 30

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture(scope="module", params=["prefork", "threads"])
def pool(request: pytest.FixtureRequest, site: Site) -> Iterator[str]:
    """Yield a worker of each pool type in turn."""
    with site.worker("-P", request.param, "-c", "2"):
        yield request.param


@contextmanager
def owner_comes(site: Site, gpu: int = 1) -> Iterator[Request]:
    """Submit a request of the owner, and check that it is granted by the end of the context."""
    wants = site.client.submit("owner", gpu=gpu, preemption_class=9)
    try:
        yield wants
    finally:
        request = site.client.wait(wants.id, IN_S)
        site.client.release(request.id, request.fence or 0)


def comes_back(site: Site, result: AsyncResult[Any], began: list[str]) -> str:
    """Wait for the second run, return its first note, and let it end."""
    again = site.wait_for_note(result, "began", len(began) + 1)[-1]
    assert int(again.split()[1]) > int(began[-1].split()[1])
    site.go(result)
    assert result.get(timeout=IN_S) == "done"
    return again


def test_asked_to_leave_it_saves_its_work_and_goes_on_from_there(site: Site, pool: str) -> None:
    result = patient.apply_async(lease_s=4, resources={"gpu": GPUS}, checkpoint="manual")
    began = site.wait_for_note(result, "began")
    with owner_comes(site) as wants:
        request = site.client.wait(wants.id, IN_S)
        assert request.is_allocated
        site.wait_for_state(result, "PARKED")
        assert site.request(result)["preemptions"] == 1
    assert " True saved-" in comes_back(site, result, began)
    assert len(site.notes(result, "ended")) == 1


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"], indirect=True)  # a process, a thread, the worker itself
def test_a_task_that_cannot_save_its_work_is_told_to_end(site: Site, pool: str) -> None:
    result = deaf.apply_async(lease_s=4, resources={"gpu": GPUS})
    began = site.wait_for_note(result, "began")
    with owner_comes(site) as wants:
        query = time.monotonic()
        assert site.client.wait(wants.id, IN_S).is_allocated
        took_s = time.monotonic() - query
        site.wait_for_state(result, "PARKED")
    assert took_s < 8, "after the next heartbeat, and not when the grace is over"
    if pool == "prefork":
        assert site.notes(result, "terminated")[0].endswith(" terminate")
    comes_back(site, result, began)


@pytest.fixture
def short_grace(site: Site) -> Iterator[None]:
    """Set a grace of three seconds instead of the pool's own."""
    grace_s = site.client.pool("gpus").settings["grace_s"]
    site.client.update_pool("gpus", settings={"grace_s": 3})
    yield
    site.client.update_pool("gpus", settings={"grace_s": grace_s})


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("pool", ["prefork"], indirect=True)  # a thread cannot be killed
def test_a_task_that_does_not_leave_is_killed(site: Site, pool: str) -> None:
    result = stubborn.apply_async(lease_s=4, resources={"gpu": GPUS})
    began = site.wait_for_note(result, "began")
    with owner_comes(site):
        wait_until(lambda: has_ended(int(began[-1].split()[-1])), "its process is gone")
        site.wait_for_state(result, "PARKED")
    comes_back(site, result, began)


def test_a_task_that_began_before_its_expiry_may_return_after_it(site: Site, pool: str) -> None:
    expires = datetime.now(UTC) + timedelta(seconds=8)
    ask: dict[str, Any] = {"lease_s": 3, "resources": {"gpu": GPUS // 2}, "expires": expires}
    results = [patient.apply_async(checkpoint="manual", **ask), deaf.apply_async(checkpoint="none", **ask)]
    began = [site.wait_for_note(result, "began") for result in results]
    with owner_comes(site, GPUS):
        for result in results:
            site.wait_for_state(result, "PARKED")
        wait_until(lambda: datetime.now(UTC) > expires, "it would be too late")
    for result, first in zip(results, began, strict=True):
        comes_back(site, result, first)


def test_a_task_that_left_too_often_has_failed(site: Site, pool: str) -> None:
    result = patient.apply_async(lease_s=4, resources={"gpu": GPUS}, checkpoint="manual", preemption_retries=0)
    site.wait_for_note(result, "began")
    with owner_comes(site):
        pass
    with pytest.raises(TaskNotGranted) as why:
        result.get(timeout=IN_S)
    assert why.value.status == "preempted"


def test_a_task_goes_on_if_it_may_stay_after_all(site: Site, pool: str) -> None:
    result = patient.apply_async(kwargs={"leave": False}, lease_s=4, resources={"gpu": GPUS}, checkpoint="manual")
    site.wait_for_note(result, "began")
    wants = site.client.submit("owner", gpu=1, preemption_class=9)
    wait_until(lambda: site.request(result)["status"] == "preempting", "it has to leave")
    site.go(result)
    assert result.get(timeout=IN_S) == "done", "it had time enough to end"
    request = site.client.wait(wants.id, IN_S)
    site.client.release(request.id, request.fence or 0)
    assert len(site.notes(result, "began")) == 1
