"""A whole service, and workers of an app of its user: API, worker and beat on one Redis, the app's broker on another."""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from celery.result import AsyncResult
from poolkeeper import Client
from poolkeeper.errors import NotFound, Unavailable
from poolkeeper.models import Request

from app.cli.process_commands import ROOT, commands
from app.store.child_process import ChildProcess
from tests.live.celery import project
from tests.support.backends import free_port, require, serve, wait_until, wait_until_ready
from tests.support.forked_process import ForkedProcess

GPUS = 8
_numbers = itertools.count(1)


@dataclass
class Site:
    """A service with a pool `gpus` of 8 gpu, of which `owner` has 4 reserved and `team` none, and an app whose tasks use it."""

    client: Client
    redis_url: str
    ledger_url: str
    folder: Path
    stack: ExitStack
    workers: list[ChildProcess] = field(default_factory=list)

    def start_worker(
        self, *options: str, queues: str = "celery,metrics,special", url: str = "", name: str = "", **environment: str
    ) -> ChildProcess:
        """Start a worker of the app, with the log `{name}.log`; return when it consumes."""
        name = name or f"w{next(_numbers)}"
        log = self.folder / f"{name}.log"
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "tests.live.celery.project",
            "worker",
            "-n",
            name,
            "-l",
            "info",
            *options,
        ]
        quiet = ("--without-gossip", "--without-mingle", "-Q", queues)
        names = _project(self.redis_url, url or self.client.url) | environment
        child = ForkedProcess([*command, *quiet], log, env=names, cwd=ROOT)
        wait_until(lambda: " ready." in log.read_text("utf-8"), f"the worker is ready; see {log}", 30)
        return child

    @contextmanager
    def beat(self) -> Iterator[None]:
        """Run the beat of the app for as long as the context."""
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "tests.live.celery.project",
            "beat",
            "-s",
            str(self.folder / "beat"),
            "--pidfile=",
        ]
        child = ForkedProcess(command, self.folder / "beat.log", env=_project(self.redis_url, self.client.url), cwd=ROOT)
        try:
            yield
        finally:
            child.stop()

    @contextmanager
    def worker(self, *options: str, **more: str) -> Iterator[ChildProcess]:
        """Run a worker for as long as the context; at the end it must be idle."""
        child = self.start_worker(*options, **more)
        try:
            yield child
            self.wait_until_free()
        finally:
            child.kill()

    @contextmanager
    def full(self) -> Iterator[Request]:
        """Hold all units for as long as the context, so that no request is granted."""
        request = self.client.submit("owner", gpu=GPUS, preemptible=True, preemption_class=9, lease_s=None)
        wait_until(lambda: self.client.request(request.id).is_allocated, "all of it is held")
        request = self.client.request(request.id)
        try:
            yield request
        finally:
            self.client.release(request.id, request.fence or 0)

    def go(self, result: AsyncResult[Any]) -> None:
        """Let the task go on."""
        with project.notes() as redis:
            redis.set(f"go:{result.id}", 1)

    def notes(self, result: AsyncResult[Any], word: str = "") -> list[str]:
        """Return the notes of the task that begin with the word."""
        return [line for line in project.read(str(result.id)) if line.startswith(word)]

    def wait_for_note(self, result: AsyncResult[Any], word: str, count: int = 1, within_s: float = 20) -> list[str]:
        """Wait until the task has noted the word this often."""
        wait_until(lambda: len(self.notes(result, word)) >= count, f"{count} × {word}", within_s)
        return self.notes(result, word)

    def request(self, result: AsyncResult[Any]) -> dict[str, Any]:
        """Return the request of a task."""
        document: dict[str, Any] = self.client.call("GET", f"/tasks/{result.id}")["request"]
        return document

    def knows(self, result: AsyncResult[Any]) -> bool:
        """True if Poolkeeper knows the task, that is until the task has ended."""
        try:
            self.client.task(str(result.id))
        except NotFound:
            return False
        return True

    def used(self) -> int:
        """Return the gpus in use."""
        return self.client.pool("gpus").used.get("gpu", 0)

    def wait_for_state(self, result: AsyncResult[Any], expected: str, within_s: float = 20) -> None:
        """Wait until the result has the state."""
        wait_until(lambda: result.state == expected, f"{result.id} is {expected}", within_s)

    def wait_until_free(self) -> None:
        """Wait until no unit is held and no request is queued."""
        wait_until(lambda: self.used() == 0 and self.client.pool("gpus").queue_length == 0, "all is free")


@pytest.fixture(scope="module", autouse=True)
def without_results_left() -> Iterator[None]:
    """Delete the results of the module's tasks with it: a result that ends during another test uses the broker."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield the service for all tests."""
    require("redis")
    folder = tmp_path_factory.mktemp("site")
    with ExitStack() as stack:
        ledger, broker = free_port(), free_port()
        for name, port in (("ledger", ledger), ("broker", broker)):
            (folder / name).mkdir()
            stack.enter_context(serve(folder / name, "--port", str(port)))
        redis_url, ledger_url = f"redis://127.0.0.1:{broker}", f"redis://127.0.0.1:{ledger}/0"
        wait_until_ready(f"{redis_url}/0")
        (folder / "brokers.toml").write_text(f'[default]\nurl = "{redis_url}/1"\nstart_deadline_s = 3\n')
        port = free_port()
        names = _service(ledger_url, port, folder)
        for name in ("api", "worker", "beat"):
            child = ForkedProcess(commands()[name], folder / f"{name}.log", env=names, cwd=folder)
            stack.callback(child.stop)
        client = stack.enter_context(Client(f"http://127.0.0.1:{port}", workspace="default"))
        wait_until(lambda: _answers(client), f"the API answers; see {folder}", 30)
        client.create_pool("gpus", {"gpu": GPUS}, settings={"grace_s": 8, "checkpoint_timeout_s": 20})
        client.set_policy("gpus", "owner", priority=10, reserved={"gpu": 4})
        client.set_policy("gpus", "team", priority=5)
        project.configure(redis_url, client.url)
        yield Site(client, redis_url, ledger_url, folder, stack)


@pytest.fixture
def fresh(site: Site) -> Iterator[Callable[[], None]]:
    """Yield a wait for free units, and check at the end that nothing is held or queued."""
    yield site.wait_until_free
    site.wait_until_free()


def state(result: AsyncResult[Any]) -> str:
    """Return the state of a result; Celery has more states than its type names."""
    return str(result.state)


def has_ended(pid: int) -> bool:
    """True if the process does not exist or is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _answers(client: Client) -> bool:
    try:
        client.pools()
    except Unavailable:
        return False
    return True


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("POOLKEEPER_", "PROMETHEUS_"))}


def _project(redis_url: str, url: str) -> dict[str, str]:
    paths = os.pathsep.join((str(ROOT), str(ROOT / "client")))
    return _clean() | {
        "PROJECT_REDIS": redis_url,
        "PROJECT_POOLKEEPER": url,
        "PYTHONPATH": paths,
        "C_FORCE_ROOT": "1",
        "PYTHONFAULTHANDLER": "1",
    }


def _service(ledger_url: str, port: int, folder: Path) -> dict[str, str]:
    values = {
        "redis_url": ledger_url,
        "data_dir": folder / "data",
        "host": "127.0.0.1",
        "port": port,
        "api_processes": 1,
        "api_threads": 32,
        "worker_processes": 1,
        "cleanup_interval_s": 1,
        "reconcile_interval_s": 1,
        "brokers": folder / "brokers.toml",
    }
    return _clean() | {"PYTHONPATH": str(ROOT)} | {f"POOLKEEPER_{name.upper()}": str(value) for name, value in values.items()}
