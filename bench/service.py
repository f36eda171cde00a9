"""The service over HTTP, under gunicorn as `poolkeeperd api` runs it: a submit against an empty view, a batch, long polls."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from typing import Any

from redis import Redis

from app.api.schemas.inputs import LONGEST_BATCH
from app.cli.process_commands import ROOT, commands
from app.domain.ids import request_id
from app.domain.models import Request
from app.domain.specs import PolicySpec, PoolSpec, RequestSpec
from app.store.child_process import ChildProcess
from app.store.ledger import Ledger
from bench import callers
from bench.site import EMPTY
from bench.timing import quantile
from bench.unlimited import NO_LIMITS

WORKSPACE = "bench"
HEADERS = {"Poolkeeper-Workspace": WORKSPACE}
CLIENTS = 8
BATCHES = 2
WAITERS = 500
ASK = {"component": "t0", "resources": {"gpu": 1}}

Act = Callable[..., Any]


def run(client: Redis, url: str, *, quick: bool) -> None:
    """Print the rows."""
    with serving(url) as port, ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:

        def apart(act: Act, *args: object) -> Any:
            return pool.submit(act, *args).result()

        submits(client, port, apart, calls=100 if quick else 400)
        polls(client, port, apart, releases=50 if quick else 500)


@contextmanager
def serving(url: str, **more: str) -> Iterator[int]:
    """Run the API on this Redis, with the empty view, and yield its port. `more` are variables of its environment."""
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        *start, _ = commands()["api"]
        variables = {name: value for name, value in os.environ.items() if not name.startswith("POOLKEEPER_")}
        variables |= {"POOLKEEPER_REDIS_URL": url, "POOLKEEPER_PORT": str(port), **more}
        child = ChildProcess([*start, "bench.site:application()"], Path(folder) / "api.log", env=variables, cwd=ROOT)
        try:
            _wait_until_ready(child, port)
            yield port
        finally:
            child.stop()


def submits(client: Redis, port: int, apart: Act, calls: int, rounds: int = 15) -> None:
    """Measure granted submits, single and in batches, in turn with calls of the empty view. Each turn has an empty pool.

    A round is short, and its calls are compared with each other, as other load on the machine changes between rounds.
    """
    ours = callers.request("POST", "/api/v1/requests", ASK, HEADERS)
    empty = callers.request("POST", EMPTY, ASK, HEADERS)
    batch = callers.request("POST", "/api/v1/requests/batch", {"requests": [ASK] * LONGEST_BATCH}, HEADERS)

    def turn(sent: bytes, count: int, each: int) -> float:
        _pool(client, units=10**6)
        return float(apart(callers.seconds, port, CLIENTS, sent, count)) / count / each * 1e6

    def one_round() -> tuple[float, float, float]:
        return turn(ours, calls, 1), turn(empty, calls, 1), turn(batch, BATCHES, LONGEST_BATCH)

    one_round()  # to warm up
    round_times = [one_round() for _ in range(rounds)]
    single_us, empty_us, batch_us = (statistics.median(column) for column in zip(*round_times, strict=True))
    share = statistics.median(nothing / single for single, nothing, _ in round_times)
    gain = statistics.median(single / each for single, _, each in round_times)
    print(f"  POST /requests, granted, {CLIENTS} clients: {single_us:6.0f} us, an empty view {empty_us:6.0f} us: "
          f"{share:.2f} x its rate (reach 0.5)")  # fmt: skip
    print(f"  in batches of {LONGEST_BATCH:,}: {batch_us:6.0f} us each: {gain:.1f} x the single rate (reach 5)")


def polls(client: Redis, port: int, apart: Act, releases: int) -> None:
    """Measure waiters in long polls: one unit goes from each waiter to the next, then one release grants all of them."""
    allocation, waiters = _queue(client, WAITERS, units=1)
    took = apart(callers.handed_on, port, waiters, allocation, releases, HEADERS)
    print(f"  a release to the answer of the next of {WAITERS} long polls: p50 {quantile(took, 0.5) * 1000:.1f} ms, "
          f"p99 {quantile(took, 0.99) * 1000:.1f} ms (reach 50), {len(took)} releases")  # fmt: skip
    allocation, waiters = _queue(client, WAITERS, units=WAITERS)
    took = apart(callers.all_at_once, port, waiters, allocation, HEADERS)
    print(f"  one release that grants all {WAITERS}: the first answered after {took[0] * 1000:.0f} ms, half after "
          f"{quantile(took, 0.5) * 1000:.0f} ms, all after {took[-1] * 1000:.0f} ms")  # fmt: skip


def _pool(client: Redis, units: int) -> Ledger:
    """Empty Redis, and create a pool with these units. Return its ledger."""
    client.flushall()
    ledger = Ledger(client)
    ledger.update_workspace(WORKSPACE, NO_LIMITS)
    ledger.create_pool(WORKSPACE, PoolSpec(name="p", capacity={"gpu": units}))
    ledger.set_policy(WORKSPACE, "p", "orchestrator/t0", PolicySpec(priority=1))
    return ledger


def _queue(client: Redis, waiters: int, units: int) -> tuple[tuple[str, int], list[str]]:
    """Return an allocation (request and fence) of all units, and the ids of waiters for one unit each, in order."""
    ledger = _pool(client, units)
    allocation = ledger.submit(WORKSPACE, RequestSpec(component="t0", resources={"gpu": units}))
    asks = [(request_id(), RequestSpec.model_validate(ASK), None) for _ in range(waiters)]
    return (allocation.id, allocation.fence or 0), [
        request.id for request in ledger.submit_all(WORKSPACE, asks) if isinstance(request, Request)
    ]


def _wait_until_ready(child: ChildProcess, port: int) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            caller = callers.Caller(port)
            caller.ask(callers.request("GET", "/readyz"))
            return caller.close()
        except (OSError, RuntimeError):
            if not child.alive or time.monotonic() > until:
                raise RuntimeError(f"the API does not answer; its output:\n{child.output_tail()}") from None
            time.sleep(0.05)


def _free_port() -> int:
    with create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
