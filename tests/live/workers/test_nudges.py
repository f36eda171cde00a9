"""Nudges through real workers: the work is done at once, by one worker, even if workers are doubled, dead or away."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.domain.models import Request
from app.domain.specs import PolicySpec, PoolSpec, PoolUpdate
from app.store.celery_url import KEY_PREFIX
from app.store.change_notifications import CLIENT_NAME
from app.store.connection import connect
from app.store.keys import key
from app.store.workspaces import WorkspaceRegistry
from tests.live.workers.test_schedule import Place, W, place
from tests.support.backends import free_port, require, serve, wait_until, wait_until_ready

SLOW = {f"POOLKEEPER_{name}_INTERVAL_S": "3600" for name in ("CLEANUP", "RECONCILE", "AUDIT")}
"""No tick comes while the test lasts."""


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Place]:
    """Yield a Redis of its own on a port."""
    require("redis")
    port = free_port()
    with serve(tmp_path, "--port", str(port)), ExitStack() as stack:
        url = f"redis://127.0.0.1:{port}/0"
        wait_until_ready(url)
        client = stack.enter_context(connect(url))
        yield stack.enter_context(place(client, url, tmp_path))


def listener_count(installation: Place) -> int:
    """Return the number of workers that listen."""
    return sum(each["name"] == CLIENT_NAME and each["psub"] == "1" for each in installation.client.client_list())


def start_workers(installation: Place, count: int, **more: str) -> list[int]:
    """Start workers and wait until they listen; return their process ids."""
    before = listener_count(installation)
    started = [installation.start("worker", **more) for _ in range(count)]
    wait_until(lambda: listener_count(installation) == before + count, "all of them listen")
    return [child.pid for child in started]


def ask(installation: Place) -> None:
    """Send a nudge as a script does."""
    if installation.client.set(key("nudge", W), "pending", nx=True, ex=5):
        installation.client.publish(key("nudged", W), "")


def impatient(installation: Place) -> Request:
    """Return a request that has waited longer than its patience without any reconciliation."""
    installation.submit()
    waits = installation.submit(resources={"gpu": 1})
    installation.here.pools.update(W, "p", PoolUpdate.model_validate({"settings": {"patience_s": 0}}))
    time.sleep(0.01)
    installation.client.delete(key("nudge", W))
    return waits


def counted(installation: Place, name: str = "reconciles") -> int:
    return int(installation.client.hget(key("counters", W), name) or 0)


def is_held_for(installation: Place, request: Request) -> bool:
    return bool(installation.client.hexists(key("pool_holds", W, "p"), request.id))


def test_a_nudge_is_followed_without_any_beat_and_the_broker_may_be_another_redis(installation: Place, tmp_path: Path) -> None:
    waits, port = impatient(installation), free_port()
    other = tmp_path / "broker"
    other.mkdir()
    with serve(other, "--port", str(port)):
        url = f"redis://127.0.0.1:{port}/0"
        wait_until_ready(url)
        start_workers(installation, 2, POOLKEEPER_BROKER_URL=url)
        ask(installation)
        wait_until(lambda: is_held_for(installation, waits), "it is held for the waiter")
        assert not list(installation.client.scan_iter(f"{KEY_PREFIX}*")), "nothing of Celery is beside the ledger"
        with connect(url) as broker:
            wait_until(lambda: not broker.hlen(f"{KEY_PREFIX}unacked"), "the task is acknowledged")
    assert counted(installation) == 1


def test_many_nudges_are_few_reconciles_and_the_last_is_not_missed(installation: Place) -> None:
    waits = impatient(installation)
    start_workers(installation, 2)
    started_s = time.monotonic()
    while time.monotonic() - started_s < 2 or not counted(installation):
        ask(installation)
        assert time.monotonic() - started_s < 20, "they work"
    wait_until(lambda: is_held_for(installation, waits), "it is held for the waiter")
    installation.here.requests.cancel(W, waits.id)
    ask(installation)
    last = installation.submit(resources={"gpu": 1})
    wait_until(lambda: is_held_for(installation, last), "its nudge was followed, though it came on top of another")
    wait_until(lambda: not installation.client.exists(key("job_lock", W, "reconcile")), "the looks have ended")
    took_s = time.monotonic() - started_s
    assert counted(installation) <= took_s / 0.02 + 2
    assert counted(installation, "reconcile_ms") / 1000 <= took_s / 4, "about a fifth of a core"


def test_a_worker_killed_at_work_delays_a_waiter_by_one_tick_at_most(installation: Place) -> None:
    for number in range(100):  # so that a look takes a while
        installation.here.pools.create(W, PoolSpec.model_validate({"name": f"p{number}", "capacity": {"gpu": 1}}))
    impatient(installation)
    victim, survivor = start_workers(installation, 2)
    installation.start("beat", **SLOW | {"POOLKEEPER_RECONCILE_INTERVAL_S": "4"})
    wait_until(lambda: counted(installation), "they work")
    os.killpg(survivor, signal.SIGSTOP)
    wait_until(lambda: stopped_at_work(installation, victim), "it is caught at work")
    os.killpg(victim, signal.SIGKILL)
    killed, before = time.monotonic(), counted(installation)
    os.killpg(survivor, signal.SIGCONT)
    wait_until(lambda: counted(installation) > before, "the next one looks")
    assert time.monotonic() - killed < 4 + 2


def stopped_at_work(installation: Place, group: int) -> bool:
    """Stop a worker that has the lease; let it go on if it has none."""
    ask(installation)
    if not installation.client.exists(key("job_lock", W, "reconcile")):
        return False
    os.killpg(group, signal.SIGSTOP)
    if installation.client.exists(key("job_lock", W, "reconcile")):
        return True
    os.killpg(group, signal.SIGCONT)
    return False


def test_without_a_beat_and_with_two_the_work_is_the_same(installation: Place) -> None:
    waits = impatient(installation)
    beats = [installation.start("beat") for _ in range(2)]
    start_workers(installation, 2)
    wait_until(lambda: is_held_for(installation, waits), "it is held")
    beats[0].kill()
    before = counted(installation)
    wait_until(lambda: counted(installation) > before + 3, "the other beat goes on")
    beats[1].kill()
    wait_until(lambda: not installation.client.llen(f"{KEY_PREFIX}poolkeeper"), "no tick is left")
    time.sleep(0.5)
    before = counted(installation)
    ask(installation)
    wait_until(lambda: counted(installation) > before, "a nudge needs no beat")
    events = [(event.request, event.event) for event in installation.here.requests.list_events(W, count=1000)]
    assert sorted(set(events)) == sorted(events), "nothing happened twice"


def test_a_poisoned_workspace_is_not_tried_at_every_nudge_and_stops_no_other(installation: Place) -> None:
    waits = impatient(installation)
    WorkspaceRegistry(installation.client).add("poisoned")
    installation.client.zadd(key("waiting", "poisoned"), {"waiter": 1})
    installation.client.set(key("pools", "poisoned"), "no hash")
    start_workers(installation, 1)
    started_s = time.monotonic()
    while time.monotonic() - started_s < 1:
        if installation.client.set(key("nudge", "poisoned"), "pending", nx=True, ex=5):
            installation.client.publish(key("nudged", "poisoned"), "")
    ask(installation)
    wait_until(lambda: is_held_for(installation, waits), "the other is reconciled")
    wait_until(lambda: "reconcile of workspace poisoned failed" in installation.log("worker"), "it has failed")
    assert installation.log("worker").count("reconcile of workspace poisoned failed") == 1


def test_a_waiter_that_needs_a_reclaim_waits_for_no_tick(installation: Place) -> None:
    installation.here.pools.set_policy(W, "p", "boss", PolicySpec(priority=9))
    start_workers(installation, 2)
    allocation = installation.submit()
    waits = installation.submit(component="boss")
    installation.becomes(allocation, "preempting")  # and there is no beat at all
    installation.here.requests.release(W, allocation.id, allocation.fence or 0)
    assert installation.here.requests.get(W, waits.id).status == "allocated"
