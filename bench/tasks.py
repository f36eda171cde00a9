"""The rate of Celery tasks through a pool against plain ones on the same worker and broker, and the memory of a parked task."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from redis import Redis

from app.cli.process_commands import ROOT, commands
from app.domain.specs import PolicySpec, PoolSpec, RequestSpec
from app.domain.tasks import TaskSpec
from app.store.child_process import ChildProcess
from app.store.embedded_redis import EmbeddedRedis
from app.store.ledger import Ledger
from app.store.task_outbox import TaskStore
from bench.service import HEADERS, WORKSPACE, serving
from bench.unlimited import NO_LIMITS

PROCESSES = 4
"""The processes of the worker that runs the tasks."""
UNITS = 8
"""The units of the pool: so many tasks are granted at a time, and run or wait at the worker."""

Send = Callable[[str, int, int], float]


def run(client: Redis, url: str, *, quick: bool) -> None:
    """Print the rows."""
    rates(client, url, rounds=1 if quick else 5, count=100 if quick else 400)
    memory(client, 2_000 if quick else 100_000)


def rates(client: Redis, url: str, rounds: int, count: int) -> None:
    """Measure tasks of several lengths, plain and parked in turn. Ratios compare the two of one round."""
    with workers(client, url) as send:
        send("parked", 20, 1)  # to warm up
        send("plain", 20, 1)
        for ms in (0, 10, 50):
            round_times = [(send("plain", count, ms), send("parked", count, ms)) for _ in range(rounds)]
            plain, parked = (statistics.median(column) for column in zip(*round_times, strict=True))
            share = statistics.median(plain_s / parked_s for plain_s, parked_s in round_times)
            print(f"  tasks of {ms:2} ms, {PROCESSES} processes, a pool of {UNITS}: plain {count / plain:5.0f} a second, "
                  f"parked {count / parked:5.0f}: {share:.2f} x (reach 0.5)")  # fmt: skip


def memory(client: Redis, count: int) -> None:
    """Measure the memory and the time of parked tasks that wait."""
    _pool(client, units=1)
    store, before = TaskStore(client), int(client.info("memory")["used_memory"])
    start = time.perf_counter()
    for number in range(count):
        store.park_task(WORKSPACE, _task(number), f"key-{number}")
    each = (int(client.info("memory")["used_memory"]) - before) / count
    seconds = time.perf_counter() - start
    print(f"  {count:,} parked tasks: {each:,.0f} bytes each, {each * count / 2**20:.0f} MiB in all; "
          f"{seconds / count * 1e6:.0f} us to park one")  # fmt: skip


@contextmanager
def workers(client: Redis, url: str) -> Iterator[Send]:
    """Run the service, a broker and a worker for tasks. Yield a function that sends tasks and returns their total time."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(EmbeddedRedis(folder / "broker"))
        socket = broker.url.removeprefix("unix://").partition("?")[0]
        brokers = folder / "brokers.toml"
        brokers.write_text(f'[{WORKSPACE}]\nurl = "redis+socket://{socket}"\n', "utf-8")
        _pool(client, UNITS)
        port = stack.enter_context(serving(url, POOLKEEPER_BROKERS=str(brokers)))
        variables = {name: value for name, value in os.environ.items() if not name.startswith("POOLKEEPER_")}
        ours = variables | {"POOLKEEPER_REDIS_URL": url, "POOLKEEPER_BROKERS": str(brokers)}
        theirs = variables | {
            "POOLKEEPER_URL": f"http://127.0.0.1:{port}",
            "POOLKEEPER_WORKSPACE": HEADERS["Poolkeeper-Workspace"],
            "BENCH_BROKER": socket,
        }
        celery = [sys.executable, "-m", "celery", "--quiet", "--app", "bench.tasks_app", "worker", "--loglevel", "error"]
        for name, command, env in (
            ("dispatcher", commands()["worker"], ours),
            ("tasks", (*celery, "--concurrency", str(PROCESSES), "--without-gossip", "--without-mingle"), theirs),
        ):
            stack.callback(ChildProcess([*command], folder / f"{name}.log", env=env, cwd=ROOT).stop)

        def send(kind: str, count: int, ms: int) -> float:
            command = [sys.executable, "-m", "bench.tasks_app", kind, str(count), str(ms)]
            process = subprocess.run(command, env=theirs, cwd=ROOT, check=True, capture_output=True, text=True, timeout=600)
            return float(process.stdout.split()[0])

        yield send


def _pool(client: Redis, units: int) -> None:
    client.flushall()
    ledger = Ledger(client)
    ledger.update_workspace(WORKSPACE, NO_LIMITS)
    ledger.create_pool(WORKSPACE, PoolSpec(name="p", capacity={"gpu": units}))
    ledger.set_policy(WORKSPACE, "p", "orchestrator/t0", PolicySpec(priority=1))


def _task(number: int) -> TaskSpec:
    """Return a task with a message as Celery makes it: one argument, default queue."""
    task_id = f"{number:08x}-5b1c-4e6f-9d2a-7c8e0f1a2b3c"
    queue = {"name": "celery", "exchange": {"name": "celery", "type": "direct", "durable": True}, "routing_key": "celery"}
    headers: dict[str, object] = {
        "lang": "py", "task": "project.tasks.train", "id": task_id, "shadow": None, "eta": None, "expires": None, "group": None,
        "group_index": None, "retries": 0, "timelimit": [None, None], "root_id": task_id, "parent_id": None,
        "argsrepr": f"({number},)", "kwargsrepr": "{}", "origin": "gen4711@host", "ignore_result": False,
        "replaced_task_nesting": 0, "stamped_headers": None, "stamps": {},
    }  # fmt: skip
    message = {
        "id": task_id, "body": "W1sxXSwge30sIHsiY2FsbGJhY2tzIjogbnVsbCwgImVycmJhY2tzIjogbnVsbCwgImNoYWluIjogbnVsbH1d",
        "content_type": "application/json", "content_encoding": "utf-8", "headers": headers,
        "properties": {"correlation_id": task_id, "reply_to": task_id[::-1], "delivery_mode": 2, "priority": 0},
        "exchange": "", "exchange_type": "direct", "routing_key": "celery", "queues": [queue],
    }  # fmt: skip
    request = RequestSpec(component="t0", resources={"gpu": 1}, labels={"task": "project.tasks.train"})
    return TaskSpec(task=task_id, name="project.tasks.train", request=request, message=message)
