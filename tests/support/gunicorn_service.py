"""The API under gunicorn as `poolkeeperd api` runs it, on a Redis that keeps its data when it is killed."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.cli.process_commands import ROOT, commands
from app.domain.models import Event
from app.settings import Settings
from app.store.child_process import ChildProcess
from app.store.connection import connect
from app.store.embedded_redis import EmbeddedRedis
from app.store.ledger import Ledger
from tests.support.backends import free_port, require, wait_until
from tests.support.forked_process import ForkedProcess
from tests.support.gunicorn_api import read_response

USUAL = "app.wsgi:application()"
HURRIED = "tests.live.api.short_deadlines:application()"
SHORT_OF_FILES = "tests.live.api.short_deadlines:short_of_files()"


class Service:
    """A running API, which can be stopped, killed in part and started again at the same port."""

    def __init__(self, folder: Path, redis: EmbeddedRedis, application: str, settings: dict[str, object]) -> None:
        self._folder, self.redis, self._application, self._settings = folder, redis, application, settings
        self.port = free_port()
        self.log = folder / "api.log"
        self._api: ChildProcess | None = None

    def start(self) -> None:
        """Start the API, and wait until it answers."""
        *start, _ = commands()["api"]
        self._api = ForkedProcess([*start, self._application], self.log, env=self._environment(), cwd=ROOT)
        wait_until(lambda: _ready(self.port), f"the API answers; see {self.log}")
        wait_until(self._all_serve, f"all of its processes serve; see {self.log}")

    def _all_serve(self) -> bool:
        workers = self.workers()
        return len(workers) == self._settings.get("api_processes", Settings().api_processes) and all(map(_serves, workers))

    @property
    def pid(self) -> int:
        """Return the process id of gunicorn."""
        assert self._api
        return self._api.pid

    def workers(self) -> list[int]:
        """Return the process ids of the workers."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def resident_mb(self) -> float:
        """Return the memory of all processes, in megabytes."""
        return sum(_resident_kb(pid) for pid in (self.pid, *self.workers())) / 1024

    def tell_to_stop(self) -> None:
        """Send SIGTERM, as a supervisor does."""
        assert self._api
        self._api.send_signal(signal.SIGTERM)

    def stops_within(self, seconds: float) -> bool:
        """True if the service ends by itself within this time."""
        assert self._api
        return self._api.wait_for_end(seconds)

    def stop(self) -> None:
        """End the service and all of its processes."""
        if self._api:
            self._api.stop()

    def kill_redis(self) -> None:
        """Kill Redis; `redis.start()` starts it again with its data."""
        with connect(self.redis.url) as client:
            pid = client.info("server")["process_id"]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.redis.alive, "it has ended")

    def clear(self) -> None:
        """Empty Redis and the log."""
        with connect(self.redis.url) as client:
            client.flushall()
        os.truncate(self.log, 0)

    def events(self, workspace: str = "default") -> list[Event]:
        """Return all events."""
        events: list[Event] = []
        with connect(self.redis.url) as client:
            while page := Ledger(client).read_events(workspace, events[-1].id if events else "0", 1000):
                events += page
        return events

    def sweep(self, workspace: str = "default") -> None:
        """Run the cleanup."""
        with connect(self.redis.url) as client:
            Ledger(client).clean_up(workspace)

    def complaints(self) -> list[dict[str, Any]]:
        """Return the log entries above the level of information."""
        lines = [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]
        return [line for line in lines if line["level"] not in ("debug", "info")]

    def _environment(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("POOLKEEPER_", "PROMETHEUS_"))}
        settings = {"redis_url": self.redis.url, "port": self.port, "redis_timeout_s": 2, **self._settings}
        return clean | {f"POOLKEEPER_{name.upper()}": str(value) for name, value in settings.items()}


def _ready(port: int) -> bool:
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return read_response(connection.getresponse()).status == 200
    except HTTPException:
        return False
    finally:
        connection.close()


def _serves(worker: int) -> bool:
    """True if the worker polls two files at least, one of which is the listening socket."""
    return any(entry.read_text().count("tfd:") >= 2 for entry in Path(f"/proc/{worker}/fdinfo").iterdir())


def _resident_kb(pid: int) -> int:
    match = re.search(r"Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text())
    return int(match[1]) if match else 0


@contextmanager
def service(folder: Path, application: str = USUAL, **settings: object) -> Iterator[Service]:
    """Run an API for as long as the context."""
    require("embedded")
    with EmbeddedRedis(folder / "data") as redis:
        made = Service(folder, redis, application, settings)
        try:
            made.start()
            yield made
        finally:
            made.stop()
