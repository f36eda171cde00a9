"""Nudges through real workers: what is asked is done at once, by one, whoever is doubled, dead or away."""

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
def at(tmp_path: Path) -> Iterator[Place]:
    """A Redis of its own on a port."""
    require("redis")
    port = free_port()
    with serve(tmp_path, "--port", str(port)), ExitStack() as stack:
        url = f"redis://127.0.0.1:{port}/0"
        wait_until_ready(url)
        client = stack.enter_context(connect(url))
        yield stack.enter_context(place(client, url, tmp_path))


def ears(at: Place) -> int:
    """How many workers listen."""
    return sum(each["name"] == CLIENT_NAME and each["psub"] == "1" for each in at.client.client_list())


def start_workers(at: Place, count: int, **more: str) -> list[int]:
    """Workers that listen; their process ids."""
    before = ears(at)
    started = [at.start("worker", **more) for _ in range(count)]
    wait_until(lambda: ears(at) == before + count, "all of them listen")
    return [child.pid for child in started]


def ask(at: Place) -> None:
    """As a script does."""
    if at.client.set(key("nudge", W), "asked", nx=True, ex=5):
        at.client.publish(key("nudged", W), "")


def impatient(at: Place) -> Request:
    """Somebody who has waited too long, and whom nobody has looked at."""
    at.submit()
    waits = at.submit(resources={"gpu": 1})
    at.here.pools.update(W, "p", PoolUpdate.model_validate({"settings": {"patience_s": 0}}))
    time.sleep(0.01)
    at.client.delete(key("nudge", W))
    return waits


def counted(at: Place, name: str = "reconciles") -> int:
    return int(at.client.hget(key("counters", W), name) or 0)


def is_held_for(at: Place, request: Request) -> bool:
    return bool(at.client.hexists(key("pool_holds", W, "p"), request.id))


def test_a_nudge_is_followed_without_any_beat_and_the_broker_may_be_another_redis(at: Place, tmp_path: Path) -> None:
    waits, port = impatient(at), free_port()
    other = tmp_path / "broker"
    other.mkdir()
    with serve(other, "--port", str(port)):
        url = f"redis://127.0.0.1:{port}/0"
        wait_until_ready(url)
        start_workers(at, 2, POOLKEEPER_BROKER_URL=url)
        ask(at)
        wait_until(lambda: is_held_for(at, waits), "it is held for who has waited")
        assert not list(at.client.scan_iter(f"{KEY_PREFIX}*")), "nothing of Celery is beside the ledger"
        with connect(url) as broker:
            wait_until(lambda: not broker.hlen(f"{KEY_PREFIX}unacked"), "the task is acknowledged")
    assert counted(at) == 1


def test_many_nudges_are_few_reconciles_and_the_last_is_not_missed(at: Place) -> None:
    waits = impatient(at)
    start_workers(at, 2)
    begun = time.monotonic()
    while time.monotonic() - begun < 2 or not counted(at):
        ask(at)
        assert time.monotonic() - begun < 20, "they work"
    wait_until(lambda: is_held_for(at, waits), "it is held for who has waited")
    at.here.requests.cancel(W, waits.id)
    ask(at)
    last = at.submit(resources={"gpu": 1})
    wait_until(lambda: is_held_for(at, last), "its nudge was followed, though it came on top of another")
    wait_until(lambda: not at.client.exists(key("job_lock", W, "reconcile")), "the looks have ended")
    took_s = time.monotonic() - begun
    assert counted(at) <= took_s / 0.02 + 2
    assert counted(at, "reconcile_ms") / 1000 <= took_s / 4, "about a fifth of a core"


def test_a_worker_killed_at_work_keeps_nobody_waiting_longer_than_the_tick(at: Place) -> None:
    for number in range(100):  # so that a look takes a while
        at.here.pools.create(W, PoolSpec.model_validate({"name": f"p{number}", "capacity": {"gpu": 1}}))
    impatient(at)
    victim, survivor = start_workers(at, 2)
    at.start("beat", **SLOW | {"POOLKEEPER_RECONCILE_INTERVAL_S": "4"})
    wait_until(lambda: counted(at), "they work")
    os.killpg(survivor, signal.SIGSTOP)
    wait_until(lambda: stopped_at_work(at, victim), "it is caught at work")
    os.killpg(victim, signal.SIGKILL)
    killed, before = time.monotonic(), counted(at)
    os.killpg(survivor, signal.SIGCONT)
    wait_until(lambda: counted(at) > before, "the next one looks")
    assert time.monotonic() - killed < 4 + 2


def stopped_at_work(at: Place, group: int) -> bool:
    """Stops a worker, and lets it go on if it has no lease just now."""
    ask(at)
    if not at.client.exists(key("job_lock", W, "reconcile")):
        return False
    os.killpg(group, signal.SIGSTOP)
    if at.client.exists(key("job_lock", W, "reconcile")):
        return True
    os.killpg(group, signal.SIGCONT)
    return False


def test_without_a_beat_and_with_two_the_work_is_the_same(at: Place) -> None:
    waits = impatient(at)
    beats = [at.start("beat") for _ in range(2)]
    start_workers(at, 2)
    wait_until(lambda: is_held_for(at, waits), "it is held")
    beats[0].kill()
    before = counted(at)
    wait_until(lambda: counted(at) > before + 3, "the other beat goes on")
    beats[1].kill()
    wait_until(lambda: not at.client.llen(f"{KEY_PREFIX}poolkeeper"), "no tick is left")
    time.sleep(0.5)
    before = counted(at)
    ask(at)
    wait_until(lambda: counted(at) > before, "a nudge needs no beat")
    events = [(event.request, event.event) for event in at.here.requests.list_events(W, count=1000)]
    assert sorted(set(events)) == sorted(events), "nothing happened twice"


def test_a_poisoned_workspace_is_not_tried_at_every_nudge_and_stops_no_other(at: Place) -> None:
    waits = impatient(at)
    WorkspaceRegistry(at.client).add("poisoned")
    at.client.zadd(key("waiting", "poisoned"), {"somebody": 1})
    at.client.set(key("pools", "poisoned"), "no hash")
    start_workers(at, 1)
    begun = time.monotonic()
    while time.monotonic() - begun < 1:
        if at.client.set(key("nudge", "poisoned"), "asked", nx=True, ex=5):
            at.client.publish(key("nudged", "poisoned"), "")
    ask(at)
    wait_until(lambda: is_held_for(at, waits), "the other is reconciled")
    wait_until(lambda: "reconcile of workspace poisoned failed" in at.log("worker"), "it has failed")
    assert at.log("worker").count("reconcile of workspace poisoned failed") == 1


def test_who_can_only_be_served_by_taking_back_waits_for_no_tick(at: Place) -> None:
    at.here.pools.set_policy(W, "p", "boss", PolicySpec(priority=9))
    start_workers(at, 2)
    held = at.submit()
    waits = at.submit(component="boss")
    at.becomes(held, "preempting")  # and there is no beat at all
    at.here.requests.release(W, held.id, held.fence or 0)
    assert at.here.requests.get(W, waits.id).status == "allocated"
