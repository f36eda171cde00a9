"""An installation of processes that can be killed and started again, one by one.

It has a ledger, a broker and a store of results (each a Redis that keeps every acknowledged write), the service, which requires
a token, and workers of an app that uses the service for its two teams.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Final

from poolkeeper import Client
from poolkeeper.errors import PoolkeeperError
from redis import Redis

from app.cli.process_commands import ROOT, commands
from app.store.child_process import ChildProcess
from app.store.connection import connect
from app.store.embedded_redis import find_server
from app.store.keys import OWN, key
from app.store.ledger import Ledger
from tests.live.celery_faults import project
from tests.live.celery_faults.journal import Journal, Line
from tests.support.backends import free_port, wait_until, wait_until_ready
from tests.support.forked_process import ForkedProcess
from tests.support.poolkeeperd import environment, run_in_process

WORKSPACE: Final = "default"
GPUS, SHARE, SLOTS = 4, 2, 40
START_S, TRIES = 1, 3
"""The seconds within which a sent task begins, and the number of times it is sent."""
SERVERS: Final = ("ledger", "broker", "results")
SERVICE: Final = ("api", "dispatcher", "beat")
COMMANDS: Final = {"api": "api", "dispatcher": "worker", "beat": "beat"}
TEAMS: Final = ("red", "blue")
TOKENS: Final = {
    "operations": ("--role", "admin"),
    "proofs": ("--role", "requester", *(word for team in TEAMS for word in ("--component", team))),
}
"""Those of the test itself and of the app, and what each may."""
KEPT: Final = ("outbox", "unstarted", "delayed")
IN_S: Final = 40


@dataclass
class Installation:
    """All of it, and what is known of it from outside."""

    folder: Path
    stack: ExitStack
    children: dict[str, ChildProcess] = field(default_factory=dict)
    workers: list[ChildProcess] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.ports = {name: free_port() for name in (*SERVERS, "api")}
        for name in (*SERVERS, "gates", "saved"):
            (self.folder / name).mkdir()
        self.journal = Journal(self.folder / "journal")
        self._logs = count(1)
        toml = f'[{WORKSPACE}]\nurl = "{self.url("broker")}"\nstart_deadline_s = {START_S}\nstart_tries = {TRIES}\n'
        (self.folder / "brokers.toml").write_text(toml)

    def url(self, server: str) -> str:
        """Return the address of a server."""
        return f"redis://127.0.0.1:{self.ports[server]}/0"

    # ---- the processes

    def start_all(self) -> None:
        """Start everything but workers, make the tokens, and furnish the pools."""
        self.start(*SERVERS)
        self.tokens |= {name: self._token(name, *words) for name, words in TOKENS.items()}
        project.configure(self.folder, self.url("broker"), self.url("results"), self.client.url, self.tokens["proofs"])
        self.start(*SERVICE)
        self.set_up()

    def set_up(self) -> None:
        """Create two teams that own half of a pool each; one of them has another pool for itself."""
        self.client.create_pool("gpus", {"gpu": GPUS}, settings={"grace_s": 3, "checkpoint_timeout_s": 6})
        for team in TEAMS:
            self.client.set_policy("gpus", team, reserved={"gpu": SHARE})
        self.client.create_pool("slots", {"slot": SLOTS})
        self.client.set_policy("slots", "blue")

    def start(self, *names: str) -> None:
        """Start what is not running; returns when servers and API answer."""
        for name in names:
            self.children[name] = self._server(name) if name in SERVERS else self._process(name)
        if "api" in names:
            wait_until(self.answers, f"the API answers; see {self.folder}", 30)

    def kill(self, *names: str) -> None:
        """Kill processes with all their children."""
        for name in names:
            self.children[name].kill()

    def restart(self, *names: str) -> None:
        """Kill processes, and start them again."""
        self.kill(*names)
        self.start(*names)

    def empty(self, server: str) -> None:
        """Delete the data of a server that was killed."""
        assert not self.children[server].alive
        shutil.rmtree(self.folder / server)
        (self.folder / server).mkdir()

    def clear(self) -> None:
        """Delete everything on every server but the tokens."""
        ledger: Any = self.server("ledger")
        tokens = ledger.hgetall(key("tokens", OWN))
        for name in SERVERS:
            self.server(name).flushall()
        ledger.hset(key("tokens", OWN), mapping=tokens)

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """Stop a process with SIGSTOP: connections to it stay open, and nothing is sent on them."""
        self.children[name].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.children[name].send_signal(signal.SIGCONT)

    @contextmanager
    def unwritten(self) -> Iterator[None]:
        """Pause all writes to the ledger; callers that write wait."""
        ledger: Any = self.server("ledger")
        ledger.execute_command("CLIENT PAUSE", 60_000, "WRITE")
        try:
            yield
        finally:
            ledger.execute_command("CLIENT UNPAUSE")

    def start_worker(self, pool: str = "prefork", slots: int = 4, *, insists: bool = True) -> ChildProcess:
        """Start a worker of the app; return when it consumes. If it `insists`, it retries until a result is stored."""
        log = self.folder / f"user-{next(self._logs)}.log"
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "tests.live.celery_faults.project",
            "worker",
            "-l",
            "info",
            "-n",
            log.stem,
        ]
        quietly = ("-P", pool, "-c", str(slots), "--without-gossip", "--without-mingle")
        variables = {
            **environment(self.folder),
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "client"))),
            "C_FORCE_ROOT": "1",
            "PROOFS_FOLDER": str(self.folder),
            "PROOFS_BROKER": self.url("broker"),
            "PROOFS_RESULTS": self.url("results"),
            "PROOFS_URL": self.client.url,
            "PROOFS_TOKEN": self.tokens["proofs"],
            "PROOFS_INSISTS": "yes" if insists else "",
        }
        child = ForkedProcess([*command, *quietly], log, env=variables, cwd=ROOT)
        self.workers.append(child)
        self.stack.callback(child.stop, 0)
        wait_until(lambda: " ready." in log.read_text("utf-8"), f"the worker is ready; see {log}", 30)
        return child

    def end_workers(self) -> None:
        """Kill all workers of the app."""
        while self.workers:
            self.workers.pop().kill()

    def _server(self, name: str) -> ChildProcess:
        options = {"port": self.ports[name], "bind": "127.0.0.1", "dir": self.folder / name, "save": ""}
        options |= {"appendonly": "yes", "appendfsync": "always"}
        words = [str(word) for option, value in options.items() for word in (f"--{option}", value)]
        child = ChildProcess([find_server("path"), *words], self.folder / f"{name}.log")
        self.stack.callback(child.stop, 0)
        wait_until_ready(self.url(name)) if name == "ledger" else wait_until(self.server(name).ping, f"{name} answers")
        return child

    def _process(self, name: str) -> ChildProcess:
        settings = {
            "redis_url": self.url("ledger"),
            "port": self.ports["api"],
            "api_processes": 1,
            "api_threads": 32,
            "require_token": True,
            "log_format": "text",
            "cleanup_interval_s": 0.5,
            "reconcile_interval_s": 0.5,
            "brokers": self.folder / "brokers.toml",
        }
        variables = environment(self.folder, **{f"POOLKEEPER_{word.upper()}": str(value) for word, value in settings.items()})
        child = ForkedProcess(commands()[COMMANDS[name]], self.folder / f"{name}.log", env=variables, cwd=ROOT)
        self.stack.callback(child.stop, 0)
        return child

    def _token(self, name: str, *words: str) -> str:
        made = run_in_process(self.folder, "token", "create", name, *words, POOLKEEPER_REDIS_URL=self.url("ledger"))
        if made.returncode:
            raise AssertionError(made.stderr)
        return made.stdout.strip()

    # ---- what is asked of it

    @cached_property
    def client(self) -> Client:
        """Return a client with the token of an operator."""
        url = f"http://127.0.0.1:{self.ports['api']}"
        return self.stack.enter_context(Client(url, self.tokens["operations"], workspace=WORKSPACE))

    @cached_property
    def _servers(self) -> dict[str, Any]:
        return {name: self.stack.enter_context(connect(self.url(name), timeout_s=1)) for name in SERVERS}

    def server(self, name: str) -> Redis:
        """Return a connection to one of the servers."""
        client: Redis = self._servers[name]
        return client

    @property
    def ledger(self) -> Ledger:
        """Return the ledger."""
        return Ledger(self.server("ledger"))

    def answers(self) -> bool:
        """True if the API answers."""
        try:
            self.client.clone(timeout_s=1, tries=1).pools()
        except PoolkeeperError:
            return False
        return True

    def ledger_key(self, name: str, *parts: str) -> str:
        """Return a key of the ledger."""
        return key(name, WORKSPACE, *parts)

    def events(self, after: str = "-") -> list[tuple[str, Mapping[str, str]]]:
        """Return the events of the ledger with their numbers; all, or those after one."""
        entries: Any = self.server("ledger").xrange(self.ledger_key("events"), f"({after}" if after != "-" else after, "+")
        return list(entries)

    def last_event(self) -> str:
        """Return the number of the newest event."""
        entries: Any = self.server("ledger").xrevrange(self.ledger_key("events"), count=1)
        return str(entries[0][0]) if entries else "-"

    def list_allocations(self) -> list[str]:
        """Return the tasks that hold units."""
        ledger: Any = self.server("ledger")
        return [
            ledger.hget(self.ledger_key("request", name), "task") for name in ledger.zrange(self.ledger_key("leases"), 0, -1)
        ]

    def times_sent(self, task: str) -> int:
        """Return the number of times that a task was sent under its fence."""
        return int(self.server("ledger").hget(self.ledger_key("task", task), "sent") or 0)

    def counted(self, name: str) -> int:
        """Return a counter of the ledger."""
        return int(self.server("ledger").hget(self.ledger_key("counters"), name) or 0)

    def list_outbox_entries(self) -> list[str]:
        """Return the keys of tasks in the ledger."""
        ledger = self.server("ledger")
        begin = self.ledger_key("task", "")
        return [
            *ledger.scan_iter(f"{begin}*", 1000),
            *(queue_key for queue_key in map(self.ledger_key, KEPT) if ledger.exists(queue_key)),
        ]

    def waiter_count(self) -> int:
        """Return the number of scripts that wait until the ledger accepts writes again."""
        clients: Any = self.server("ledger").client_list()
        return sum("b" in connection["flags"] and connection["cmd"].startswith("eval") for connection in clients)

    def queued(self) -> int:
        """Return the number of messages in the broker's queue."""
        return int(self.server("broker").llen("celery"))

    def claimed(self) -> int:
        """Return the number of tasks that a dispatcher has claimed and not yet reported."""
        ledger: Any = self.server("ledger")
        seconds, micros = ledger.time()
        return int(ledger.zcount(self.ledger_key("outbox"), f"({seconds * 1000 + micros // 1000}", "+inf"))

    def end_claims(self) -> None:
        """End the claims on all tasks of the outbox, as if their time were over."""
        ledger: Any = self.server("ledger")
        outbox = self.ledger_key("outbox")
        ledger.zadd(outbox, dict.fromkeys(ledger.zrange(outbox, 0, -1), 1))

    def sent(self, tasks: Iterable[str]) -> bool:
        """True if all tasks were sent and the ledger has recorded it."""
        waiting = {str(task_id) for task_id in self.server("ledger").zrange(self.ledger_key("unstarted"), 0, -1)}
        return set(tasks) <= waiting

    def results(self, tasks: Iterable[str]) -> dict[str, tuple[str, Any]]:
        """Return state and result of the tasks that have a result."""
        names = list(tasks)
        texts: Any = self.server("results").mget([f"celery-task-meta-{name}" for name in names])
        results = {name: json.loads(text) for name, text in zip(names, texts, strict=True) if text}
        return {name: (result["status"], result["result"]) for name, result in results.items()}

    # ---- waiting

    def written(self, word: str, *tasks: str, step: int = 0, times: int = 1) -> list[Line]:
        """Wait until each task has this many lines of the word (at this step or a later one); return the newest of each."""

        def all_of_them() -> bool:
            return all(len(self._lines(word, task, step)) >= times for task in tasks)

        wait_until(all_of_them, f"{times} × {word} of {len(tasks)} tasks", IN_S)
        return [self._lines(word, task, step)[-1] for task in tasks]

    def _lines(self, word: str, task: str, step: int) -> list[Line]:
        return [line for line in self.journal.read([task], word) if line.step >= step]

    def until(self, condition: Callable[[], object], description: str) -> None:
        """Wait until the condition holds."""
        wait_until(condition, f"{description}; see {self.folder}", IN_S)

    def release_tasks(self, *tasks: str) -> None:
        """Let waiting tasks go on."""
        for task in tasks:
            project.gate(task).touch()
