"""The calls of the adversary, of its workers, and of a client of another workspace."""

from __future__ import annotations

import logging
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

from redis import Redis

from app.bootstrap import Services, make_services
from app.domain.dry_run import DryRunUnavailable
from app.domain.errors import Conflict, Refusal, StoreUnavailable
from app.domain.models import Request
from app.domain.pool_setting_models import PoolSettings
from app.domain.request_filter import RequestFilter
from app.domain.specs import PolicySpec, PoolSpec, PoolUpdate, RequestSpec
from app.settings import Settings
from app.store.connection import connect
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore
from app.store.snapshot_reader import UnfinishedWork
from bench.unlimited import NO_LIMITS

WORKSPACE, ELSEWHERE = "adversary", "elsewhere"
COMPONENTS = 10
BATCH = 1_000
RELEASES, RELEASES_S = 300, 5
GRANTS = 1_000
"""The approximate number of waiters that fit into the pool."""
PAGES = 20
RATE_PER_S = 200
BURST_S, REST_S = 0.004, 0.004
"""A process of the control computes for BURST_S and rests for REST_S, in turn."""
MAX_ROUND_S = 15
"""The time after which no further call of a round begins."""
TICK_S = 2.0
"""The least time between two cleanups, and two samples of the usage, of a worker."""
PAUSES_PER_PASS = 5
"""The ratio of the pause of a worker to the time of its pass; the gap between two nudges has the same ratio."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pool, and the number of different shapes that wait in it."""

    shapes: int
    keys: int = 1
    discipline: str = "reserved"

    @property
    def label(self) -> str:
        """Return the name of the case in the output."""
        keys = "one key that varies" if self.keys == 1 else f"{self.keys} keys that vary"
        return f"{self.shapes:,} shapes, {keys}, {self.discipline}"

    @property
    def max_s(self) -> int:
        """Return the seconds after which the case is cut off."""
        return 40 if self.shapes <= 10_000 else 60

    @property
    def capacity(self) -> dict[str, int]:
        """Return the capacity of the pool: half of all shapes fit at a time, but not many more than `GRANTS`."""
        units = min(self.shapes * GRANTS // 2, self.shapes * (self.shapes + 1) // 4)
        return {f"unit{number}": units for number in range(self.keys)}

    def shape(self, number: int) -> dict[str, int]:
        """Return the amounts of one request. The larger the amount of the first key, the smaller that of the second."""
        amounts = {"unit0": number + 1, "unit1": self.shapes - number}
        return {key: amounts[key] for key in self.capacity}


class Adversary:
    """A client with the rights of an administrator of its workspace."""

    def __init__(self, client: Redis, case: Case, tell: Callable[[str], None]) -> None:
        self._left_out, self._begin = 0, tell
        self._case, self._random = case, random.Random(1)
        self._services, self._ledger = make_services(client, Settings(), in_background=True), Ledger(client)
        self._plan_store = PlanStore(client)
        self._running: deque[tuple[str, int]] = deque()
        self._waiting: list[str] = []

    def count_left_out(self) -> int:
        """Return the number of calls that were left out for lack of time."""
        return self._left_out

    def fill(self) -> None:
        """Take the whole pool, and queue all shapes behind it in a random order."""
        self._begin("submit")
        self._services.pools.update_workspace(WORKSPACE, NO_LIMITS)
        settings = PoolSettings.model_validate({"discipline": self._case.discipline})
        self._services.pools.create(WORKSPACE, PoolSpec(name="p", capacity=self._case.capacity, settings=settings))
        share = {"unit0": self._case.shapes // (2 * COMPONENTS)}
        for number in range(COMPONENTS):
            policy = PolicySpec(priority=number % 3, reserved=share if number % 2 else {})
            self._services.pools.set_policy(WORKSPACE, "p", f"t{number}", policy)
        self._submit([self._spec(0, self._case.capacity)])
        numbers = self._random.sample(range(self._case.shapes), self._case.shapes)
        for first in range(0, len(numbers), BATCH):
            self._submit([self._spec(number, self._case.shape(number)) for number in numbers[first : first + BATCH]])
        if len(self._waiting) != self._case.shapes:
            raise RuntimeError(f"{len(self._waiting)} of {self._case.shapes} requests wait")

    def _spec(self, number: int, resources: dict[str, int]) -> RequestSpec:
        return RequestSpec(component=f"t{number % COMPONENTS}", resources=resources, checkpoint="auto", lease_s=3600)

    def _submit(self, specs: list[RequestSpec]) -> None:
        for answer in self._services.requests.submit_batch(WORKSPACE, specs):
            if isinstance(answer, Request) and answer.fence:
                self._running.append((answer.id, answer.fence))
            elif isinstance(answer, Request):
                self._waiting.append(answer.id)

    def release_all_units(self) -> None:
        """Release the allocation of the whole pool, and wait until all of its units are granted again."""
        self._begin("the release of the whole pool")
        self._services.requests.release(WORKSPACE, *self._running.popleft())
        self._ledger.resume_all_unfinished(WORKSPACE)

    def time_releases(self) -> list[float]:
        """Return the seconds of releases. Each grants the first waiters that fit; a submit after it keeps the queue as long."""
        self._begin("releases")
        times: list[float] = []
        until = time.monotonic() + RELEASES_S
        while len(times) < RELEASES and time.monotonic() < until:
            times.append(self._release())
            self._submit([self._any_spec()])
        return times

    def _release(self) -> float:
        if not self._running:
            self._read_allocations()
        allocation = self._running.popleft()
        start = time.perf_counter()
        with suppress(Conflict):
            self._services.requests.release(WORKSPACE, *allocation)
        return time.perf_counter() - start

    def _read_allocations(self) -> None:
        rows = self._services.queries.list_pool_requests(WORKSPACE, "p", "active", None, 100)[0]
        self._running.extend((row.request.id, row.request.fence or 0) for row in rows)

    def call_everything(self, seconds: float) -> None:
        """Make every call once, and repeat this until the time is over."""
        until, latest = time.monotonic() + seconds, time.monotonic() + MAX_ROUND_S
        while True:
            for name, call in self._calls():
                if time.monotonic() > latest:
                    self._left_out += 1
                    continue
                self._begin(name)
                with suppress(Refusal, UnfinishedWork, StoreUnavailable):
                    call()
            if time.monotonic() > until:
                return

    def _calls(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield every call with its name; a call finds the pool as the calls before have left it."""
        yield from self._calls_of_a_viewer()
        yield from self._calls_of_a_requester()
        yield from self._calls_of_an_administrator()

    def _calls_of_a_requester(self) -> Iterator[tuple[str, Callable[[], object]]]:
        requests = self._services.requests
        for _ in range(20):
            yield "release", self._release
            yield "submit", lambda: self._submit([self._any_spec()])
        yield "submit a batch", lambda: self._submit([self._any_spec() for _ in range(BATCH)])
        for _ in range(20):
            yield "cancel", lambda: requests.cancel(WORKSPACE, self._any_waiter())
        for request, fence in list(self._running)[:20]:
            yield "heartbeat", partial(requests.heartbeat, WORKSPACE, request, fence)
            yield "checkpoint", partial(requests.checkpoint, WORKSPACE, request, fence, "completed")

    def _calls_of_a_viewer(self) -> Iterator[tuple[str, Callable[[], object]]]:
        services = self._services
        for _ in range(10):
            yield "get", lambda: services.requests.get(WORKSPACE, self._any_waiter())
        for _ in range(3):
            yield "explain", lambda: services.explain.explain(WORKSPACE, self._any_waiter())
        yield "list the queue", self._list_queue
        yield "list requests", lambda: services.queries.list_requests(WORKSPACE, RequestFilter())
        yield "get the pool", lambda: services.pools.get(WORKSPACE, "p")
        yield "metrics", lambda: services.metrics.get_workspace_metrics(WORKSPACE)
        yield "metrics", lambda: list(services.metrics.list_pool_metrics(WORKSPACE))
        yield "shares", lambda: services.pool_shares.get(WORKSPACE, "p")
        yield "estimates", lambda: services.estimates.list_estimates(WORKSPACE, "p")
        yield "snapshot", lambda: self._plan_store.read_snapshot(WORKSPACE, "p", even_if_idle=True)
        yield "patience", lambda: self._ledger.give_patience_hold(WORKSPACE, "p")
        yield "usage", lambda: services.usage_history.record(WORKSPACE)
        yield "export", lambda: services.declarations.export(WORKSPACE)
        yield "events", lambda: services.requests.list_events(WORKSPACE)
        yield "dry run", self._dry_run

    def _calls_of_an_administrator(self) -> Iterator[tuple[str, Callable[[], object]]]:
        pools, size = self._services.pools, self._case.capacity
        larger = {key: 2 * units for key, units in size.items()}
        for queueing in ("strict", "best_effort"):
            settings = PoolSettings.model_validate({"queueing": queueing})
            yield f"queueing {queueing}", partial(pools.update, WORKSPACE, "p", PoolUpdate(settings=settings))
        for capacity in (larger, size):
            yield "resize", partial(pools.update, WORKSPACE, "p", PoolUpdate(capacity=capacity))
        for limit in ({"unit0": self._case.shapes // 10}, {}):
            policy = PolicySpec(priority=5, limit=limit)
            yield "change a policy", partial(pools.set_policy, WORKSPACE, "p", "t1", policy)
        yield "clean-up", lambda: self._services.cleanup.run(WORKSPACE)

    def _list_queue(self) -> None:
        cursor: str | None = "q:"
        for _ in range(PAGES):
            _, cursor = self._services.queries.list_pool_requests(WORKSPACE, "p", "queued", cursor)
            if not cursor:
                return

    def _dry_run(self) -> None:
        with suppress(DryRunUnavailable):
            self._services.dry_run.submit(WORKSPACE, self._any_spec())

    def _any_spec(self) -> RequestSpec:
        number = self._random.randrange(self._case.shapes)
        return self._spec(number, self._case.shape(number))

    def _any_waiter(self) -> str:
        return self._random.choice(self._waiting)


def _yield_cores() -> None:
    """Run this process only when no process of normal priority needs its core: neither the server nor the other workspace.

    In production clients have cores of their own. Without this, the bench would measure how processes share a core.
    """
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def be_adversary(connection: Connection, url: str, case: Case) -> None:
    """Call the methods of an adversary whose names arrive on the connection."""
    _yield_cores()
    logging.disable()
    adversary = Adversary(_client(url), case, lambda act: connection.send(("began", act)))
    connection.send("ready")
    with suppress(EOFError, BrokenPipeError):
        while True:
            method, args = connection.recv()
            connection.send(("returned", getattr(adversary, method)(*args)))


def reconcile_until(connection: Connection, url: str) -> None:
    """Reconcile the workspace of the adversary like a worker does, after nudges and ticks, until a message arrives."""
    _yield_cores()
    logging.disable()
    jobs = _services(url).periodic_jobs
    connection.send("ready")
    tick = time.monotonic()
    while not connection.poll():
        start = time.monotonic()
        jobs.reconcile_workspace(WORKSPACE)
        if start >= tick:
            jobs.reconcile()
            jobs.cleanup()
            jobs.record_usage()
            tick = time.monotonic() + TICK_S
        time.sleep(max(0.02, PAUSES_PER_PASS * (time.monotonic() - start)))


def compute_until(connection: Connection, _: str) -> None:
    """Use a core half of the time like the adversary, without calls, until a message arrives."""
    _yield_cores()
    connection.send("ready")
    while not connection.poll(REST_S):
        until = time.perf_counter() + BURST_S
        while time.perf_counter() < until:
            pass


def submit_elsewhere(connection: Connection, url: str) -> None:
    """Submit and release in another workspace, `RATE_PER_S` times a second.

    It starts after the message `measure`; after the next message it sends the seconds of each submit. The time of a submit
    counts from the moment at which it was due, also if the one before took long.
    """
    services = _services(url)
    services.pools.create(ELSEWHERE, PoolSpec(name="p", capacity={"gpu": 10}))
    services.pools.set_policy(ELSEWHERE, "p", "t", PolicySpec())
    _submit_and_release(services)
    connection.send("ready")
    with suppress(EOFError, OSError):
        while connection.recv() == "measure":
            times = _submit_until(services, connection.poll)
            connection.recv()
            connection.send(times)


def _submit_until(services: Services, is_over: Callable[[], bool]) -> list[float]:
    times: list[float] = []
    due = time.perf_counter()
    while not is_over():
        if (early_s := due - time.perf_counter()) > 0:
            time.sleep(early_s)
            due = time.perf_counter()  # a late wake-up is a delay of this process, not of the server
        times.append(_submit_and_release(services) - due)
        due += 1 / RATE_PER_S
    return times


def _submit_and_release(services: Services) -> float:
    """Submit and release a request. Return the time of the clock between both calls."""
    request = services.requests.submit(ELSEWHERE, RequestSpec(component="t", resources={"gpu": 1}))
    submitted = time.perf_counter()
    services.requests.release(ELSEWHERE, request.id, request.fence or 0)
    return submitted


def audit_once(connection: Connection, url: str) -> None:
    """Audit the workspace of the adversary once, and send a message at the end."""
    _yield_cores()
    audit = _services(url).audit
    connection.send("ready")
    audit.run(WORKSPACE)
    with suppress(OSError):
        connection.send("done")


def _services(url: str) -> Services:
    return make_services(_client(url), Settings())


def _client(url: str) -> Redis:
    client = connect(url, timeout_s=600)
    assert isinstance(client, Redis)
    return client
