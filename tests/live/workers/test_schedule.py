"""Beat and workers as real processes on a real Redis: timed work is done even if processes are doubled, dead or away."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.bootstrap import Services, make_services
from app.cli.process_commands import ROOT, commands
from app.domain.models import Request
from app.domain.specs import PolicySpec, PoolSpec, PoolUpdate, RequestSpec
from app.settings import Settings
from app.store.celery_url import KEY_PREFIX
from app.store.child_process import ChildProcess
from app.store.connection import RedisClient, connect
from app.store.keys import key
from app.store.workspaces import WorkspaceRegistry
from tests.support.backends import free_port, require, serve, wait_until, wait_until_ready
from tests.support.forked_process import ForkedProcess
from tests.support.poolkeeperd import environment
from workers.schedule import MAX_WAITING_TICKS

W = "team"
QUEUE = f"{KEY_PREFIX}poolkeeper"


@dataclass
class Place:
    """A Redis, what is asked of it, and the processes started there."""

    url: str
    client: RedisClient
    here: Services
    folder: Path
    stack: ExitStack

    def start(self, name: str, **more: str) -> ChildProcess:
        """Start a beat or a worker, which ends with the test."""
        settings = {"POOLKEEPER_REDIS_URL": self.url, "POOLKEEPER_LOG_FORMAT": "text"}
        settings |= {f"POOLKEEPER_{name}_INTERVAL_S": "0.2" for name in ("CLEANUP", "RECONCILE")}
        environ = environment(self.folder, **settings | more)
        child = ForkedProcess(commands()[name], self.folder / f"{name}.log", env=environ, cwd=ROOT)
        self.stack.callback(child.stop, 0)
        return child

    def log(self, name: str) -> str:
        """Return the log of all processes of that name."""
        return (self.folder / f"{name}.log").read_text()

    def submit(self, **more: object) -> Request:
        """Submit a request for the only gpu of the pool."""
        ask = {"component": "t", "resources": {"gpu": 1}, "lease_s": None, "queue_ttl_s": None, **more}
        return self.here.requests.submit(W, RequestSpec.model_validate(ask))

    def becomes(self, request: Request, status: str, within_s: float = 20) -> None:
        """Wait until the request has the status."""
        wait_until(lambda: self.here.requests.get(W, request.id).status == status, f"{request.id} is {status}", within_s)

    def lapse(self) -> None:
        """Create an allocation whose lease has lapsed without a nudge, for the next scheduled run."""
        request = self.submit(lease_s=5)
        assert request.status == "allocated"
        self.client.zadd(key("leases", W), {request.id: 1})
        self.becomes(request, "expired")


@contextmanager
def place(client: RedisClient, url: str, folder: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        here = make_services(client, Settings())
        here.pools.create(W, PoolSpec.model_validate({"name": "p", "capacity": {"gpu": 1}, "settings": {"patience_s": 1}}))
        here.pools.set_policy(W, "p", "t", PolicySpec())
        yield Place(url, client, here, folder, stack)


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


def test_two_beats_and_two_workers_do_what_one_would(installation: Place) -> None:
    WorkspaceRegistry(installation.client).add("poisoned")
    installation.client.set(key("meta", "poisoned"), "no hash")
    for name in ("beat", "worker", "beat", "worker"):
        installation.start(name, POOLKEEPER_AUDIT_INTERVAL_S="1")
    allocation = installation.submit(lease_s=5)
    installation.client.zadd(key("leases", W), {allocation.id: 1})
    installation.becomes(allocation, "expired")
    wait_until(
        lambda: "cleanup of workspace poisoned failed" in installation.log("worker"), "the poisoned workspace has failed"
    )
    installation.lapse()  # so it stops no other

    # the hold is given to the first whose patience ended
    installation.submit()
    installation.here.pools.update(W, "p", PoolUpdate(capacity={"gpu": 3}))
    small, large = installation.submit(), installation.submit(resources={"gpu": 2})
    assert (small.status, large.status) == ("allocated", "queued")
    wait_until(lambda: installation.client.hexists(key("pool_holds", W, "p"), large.id), "the hold is given")

    # the audit looks, says what it finds and lets it be
    installation.client.hincrby(key("pool", W, "p"), "used:gpu", 5)
    wait_until(
        lambda: f"workspace {W} differs: account p pool used gpu: 7, should be 2" in installation.log("worker"), "it is audited"
    )
    assert installation.client.hget(key("pool", W, "p"), "used:gpu") == "7"
    installation.here.audit.run(W, repair=True)

    events = [(event.request, event.event) for event in installation.here.requests.list_events(W, count=1000)]
    assert sorted(set(events)) == sorted(events), "nothing happened twice"


def test_a_worker_that_is_killed_is_missed_only_until_the_next(installation: Place) -> None:
    installation.start("beat")
    worker = installation.start("worker")
    installation.lapse()
    worker.kill()
    assert installation.client.set(key("job_lock", W, "cleanup"), "of the dead", px=1500)
    installation.start("worker")
    started = installation.client.time()
    installation.lapse()
    assert installation.client.time()[0] - started[0] >= 1, "the lease of the dead was waited for"


def test_a_worker_and_beat_outlive_redis(installation: Place, tmp_path: Path) -> None:
    beat, worker = installation.start("beat"), installation.start("worker")
    installation.lapse()
    port = installation.url.rpartition(":")[2].partition("/")[0]
    installation.client.shutdown(nosave=True)
    wait_until(lambda: "Trying to re-establish" in installation.log("worker"), "the worker has noticed")
    with serve(tmp_path, "--port", port):
        wait_until_ready(installation.url)
        with place(installation.client, installation.url, installation.folder) as again:
            again.lapse()
        assert (beat.alive, worker.alive) == (True, True)
        for child in (beat, worker):
            os.kill(child.pid, signal.SIGTERM)
        assert all(child.wait_for_end(10) for child in (beat, worker))
        assert (beat.exit_code, worker.exit_code) == (0, 0)


def test_ticks_do_not_pile_up_without_workers(installation: Place) -> None:
    installation.start("beat", POOLKEEPER_CLEANUP_INTERVAL_S="0.1", POOLKEEPER_AUDIT_INTERVAL_S="1")
    wait_until(lambda: "is left out" in installation.log("beat"), "beat leaves a tick out")
    assert installation.client.llen(QUEUE) == MAX_WAITING_TICKS
    installation.start("worker")
    wait_until(lambda: installation.client.llen(QUEUE) < 5, "the worker has caught up")
    installation.lapse()
    assert {name for name in installation.client.scan_iter("*") if not name.startswith(("pk:", KEY_PREFIX))} == set()
