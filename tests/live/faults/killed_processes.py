"""Redis, workers and beats as processes that are killed at random moments and started again, and what their outages excuse."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Final

from redis import Redis
from redis.exceptions import RedisError

from app.cli.process_commands import ROOT, commands
from app.store.change_notifications import CLIENT_NAME
from app.store.child_process import ChildProcess
from app.store.connection import connect
from app.store.embedded_redis import find_server
from app.store.keys import key
from tests.support.backends import free_port, wait_until, wait_until_ready
from tests.support.forked_process import ForkedProcess
from tests.support.poolkeeperd import environment

INTERVAL_S: Final = 0.5
LEASE_S: Final = 1.0
START_S: Final = 6.0
"""After that long a beat that was started ticks."""
KINDS: Final = ("worker", "beat")
WORKSPACE: Final = "default"


@dataclass(frozen=True)
class Kill:
    """A kill: the process, its time, and the time at which a process of its kind ran again; at once if others go on."""

    kind: str
    at_s: float
    over: float


@dataclass
class KillableService:
    """All processes there are: a Redis that forgets nothing, and two of each of the others."""

    folder: Path
    stack: ExitStack
    port: int = field(default_factory=free_port)
    children: dict[str, list[ChildProcess]] = field(default_factory=dict)
    started: int = 0

    def __post_init__(self) -> None:
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.redis = self._start_redis()
        self.client = self.stack.enter_context(connect(self.url, timeout_s=1))
        assert isinstance(self.client, Redis)

    def _start_redis(self) -> ChildProcess:
        options = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self.folder,
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
        }
        words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        child = ChildProcess([find_server("path"), *words], self.folder / "server.log")
        self.stack.callback(child.stop)
        wait_until_ready(self.url)
        return child

    def start(self, kind: str) -> ChildProcess:
        """Start one more process of the kind."""
        self.started += 1
        settings = {"POOLKEEPER_REDIS_URL": self.url, "POOLKEEPER_LOG_FORMAT": "text"}
        settings |= {"POOLKEEPER_RECONCILE_INTERVAL_S": str(INTERVAL_S), "POOLKEEPER_CLEANUP_INTERVAL_S": "2"}
        child = ForkedProcess(commands()[kind], self.log(kind), env=environment(self.folder, **settings), cwd=ROOT)
        self.stack.callback(child.stop, 0)
        self.children.setdefault(kind, []).append(child)
        return child

    def log(self, kind: str) -> Path:
        """Return the log of the newest process of the kind."""
        return self.folder / f"{kind}-{self.started}.log"

    def begin(self) -> None:
        """Start two processes of each kind, and wait until they work."""
        before = self.tick_count()
        for kind in KINDS * 2:
            self.start(kind)
        wait_until(lambda: self.listener_count() == 2, "the workers listen", 30)
        wait_until(lambda: self.tick_count() > before + 2, "beats tick", 30)

    def listener_count(self) -> int:
        """Return the number of workers that listen."""
        return sum(connection["name"] == CLIENT_NAME and connection["psub"] == "1" for connection in self.client.client_list())

    def tick_count(self) -> int:
        """Return the number of ticks that were sent to this server."""
        return int(self.client.info("commandstats").get("cmdstat_lpush", {"calls": 0})["calls"])

    # killing

    def kill_redis(self) -> Kill:
        """Kill Redis, and start it again with its data."""
        started_s = time.time()
        self.redis.kill()
        self.redis = self._start_redis()
        return Kill("redis", started_s, time.time())

    def kill(self, kind: str, which: int) -> Kill:
        """Kill one process and start another in its place; the others go on meanwhile."""
        self.children[kind].pop(which).kill()
        now = time.time()
        self.start(kind)
        return Kill(kind, now, now)

    def kill_all(self) -> Kill:
        """Kill all workers and beats at once, and start others."""
        started_s = time.time()
        for kind in KINDS:
            while self.children[kind]:
                self.children[kind].pop().kill()
        self.begin()
        return Kill("all", started_s, time.time())


class RandomKiller:
    """Kills at random moments, as long as the context: half of the workers at work, and never the last one that is ready."""

    def __init__(self, service: KillableService, seed: int, between_s: tuple[float, float]) -> None:
        self.service, self.random, self.between_s = service, Random(seed), between_s
        self.kills: list[Kill] = []
        self.failed: list[BaseException] = []
        self._over = Event()
        self._thread = Thread(target=self._run, name="killer", daemon=True)
        self._beat_since = time.monotonic() - START_S
        """The time at which the newer of the two beats was started; until it is ready, the older one is not killed."""

    def __enter__(self) -> RandomKiller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._over.wait(self.random.uniform(*self.between_s)):
                self._kill_next(len(self.kills))
        except BaseException as error:
            self.failed.append(error)

    def _kill_next(self, turn: int) -> None:
        if turn % 7 == 3:
            self.kills.append(self.service.kill_redis())
        elif turn % 14 == 6:
            self.kills.append(self.service.kill_all())
        elif turn % 3 == 2 and time.monotonic() - self._beat_since > START_S:
            self.kills.append(self.service.kill("beat", 0))
            self._beat_since = time.monotonic()
        elif self._listener_count() >= 2:
            if self.random.random() < 0.5:
                self._wait_for_reconcile()
            self.kills.append(self.service.kill("worker", self.random.randrange(2)))

    def _listener_count(self) -> int:
        try:
            return self.service.listener_count()
        except RedisError:
            return 0

    def _wait_for_reconcile(self) -> None:
        """Wait until a worker is at it, but not for long."""
        until = time.monotonic() + 1
        while time.monotonic() < until and not self.service.client.exists(key("job_lock", WORKSPACE, "reconcile")):
            time.sleep(0.0005)
