"""`poolkeeper run` as people run it: real processes in a workspace with four units, and everybody who gets in their way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.clock import ManualClock
from app.domain.models import Request
from app.service.audit import Audit
from app.service.reconcile import Reconciler
from app.store.audit import AuditStore
from app.store.connection import connect
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore
from tests.support import preemptions
from tests.support.backends import wait_until
from tests.support.cli_program import PROGRAM, Program, Terminal
from tests.support.poolkeeperd import descendants, living

ALL = ("--component", "team", "--gpu", "4", "--lease", "1")
"""Asks all there is, with a lease that has heartbeats come often."""
BEGIN = 'echo start $$ $POOLKEEPER_REQUEST $POOLKEEPER_FENCE $POOLKEEPER_RESUME "$POOLKEEPER_CHECKPOINT_REFERENCE" >>"$LOG"\n'
"""What every workload does first."""
WORK = "exec 9<> <(:)\nwhile :; do read -t 0.02 -u 9; done\n"
"""Works without end, and without children."""
SLEEP = BEGIN + "exec sleep 300\n"


@dataclass(frozen=True)
class Start:
    """A start of the workload, as it saw it."""

    pid: int
    request: str
    fence: int
    resume: str
    reference: str


class Run:
    """One `poolkeeper run`, under way."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process, self._folder = process, folder

    @property
    def pid(self) -> int:
        """Its own process."""
        return self.process.pid

    @property
    def out(self) -> str:
        """What is on stdout."""
        return (self._folder / "out").read_text()

    @property
    def err(self) -> str:
        """What is on stderr."""
        return (self._folder / "err").read_text()

    def wait_for_message(self, words: str) -> None:
        """Returns when it has said so."""
        wait_until(lambda: words in self.err, f"it says {words!r}; it said {self.err!r}")

    def send_signal(self, sign: signal.Signals) -> None:
        """A signal to it alone."""
        self.process.send_signal(sign)

    def wait_for_end(self, code: int, within_s: float = 20) -> None:
        """Returns when it has ended, which has to be so."""
        try:
            assert self.process.wait(within_s) == code, self.err
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it goes on, and said {self.err!r}") from None


@dataclass(frozen=True)
class RunLab:
    """The workspace, and where the workloads write what happens to them."""

    program: Program
    redis_url: str
    folder: Path

    @property
    def log(self) -> Path:
        """Where workloads write."""
        return self.folder / "log"

    def create_pool(self, *settings: str) -> RunLab:
        """A pool `gpus` of four with these settings, and a policy of `team`."""
        values = [word for setting in settings for word in ("--setting", setting)]
        self.program("pool", "create", "gpus", "--capacity", "gpu=4", *values)
        self.program("policy", "attach", "gpus", "team")
        return self

    def variables(self, **more: str) -> dict[str, str]:
        """What a run sees: the program is found, and the workload's log."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return self.program.environment(LOG=str(self.log), PATH=path, TMPDIR=str(self.folder), **more)

    def nohup(self, *words: str, script: str) -> AbstractContextManager[Run]:
        """A run that a hangup is not to end."""
        return self.run(*words, script=script, before=("nohup",))

    @contextmanager
    def run(
        self, *words: str, script: str | None = None, before: Sequence[str] = (), url: str | None = None, **more: str
    ) -> Iterator[Run]:
        """A run with these options, of a script of bash or else of the command that stands in them, while the context lasts."""
        more |= {"POOLKEEPER_URL": url} if url else {}
        command = ["--", "bash", "-c", script] if script is not None else []
        folder = self.folder / f"run-{len(list(self.folder.glob('run-*')))}"
        folder.mkdir()
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                [*before, PROGRAM, "run", *words, *command],
                env=self.variables(**more),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        try:
            yield Run(process, folder)
        finally:
            below = descendants(process.pid)
            process.kill()
            process.wait()
            for pid in living(below):
                os.kill(pid, signal.SIGKILL)

    @contextmanager
    def on_a_terminal(self, *words: str, script: str, width: int = 200, **more: str) -> Iterator[Terminal]:
        """The same, before somebody at a terminal."""
        with self.terminal([str(PROGRAM), "run", *words, "--", "bash", "-c", script], width, **more) as terminal:
            yield terminal

    @contextmanager
    def terminal(self, command: list[str], width: int = 200, **more: str) -> Iterator[Terminal]:
        """A command before somebody at a terminal; whatever it started ends with it."""
        terminal = Terminal(command, self.variables(**more), width)
        try:
            yield terminal
        finally:
            below = descendants(terminal.process.pid)
            terminal.close()
            for pid in living(below):
                os.kill(pid, signal.SIGKILL)

    def lines(self) -> list[str]:
        """What workloads have written so far."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def wait_for_line(self, line: str, times: int = 1) -> None:
        """Returns when the workload has written this line so often."""
        wait_until(lambda: self.lines().count(line) >= times, f"{line!r} in the log; there is {self.lines()}")

    def wait_for_start(self, number: int = 1) -> Start:
        """The start of this number, once it is there."""
        wait_until(lambda: len(self._starts()) >= number, f"start {number}; there is {self.lines()}")
        return self._starts()[number - 1]

    def _starts(self) -> list[Start]:
        document = [(line + " ").split(" ", 5) for line in self.lines() if line.startswith("start ")]
        return [Start(int(pid), request, int(fence), resume, rest.strip()) for _, pid, request, fence, resume, rest in document]

    def request(self, id_: str) -> dict[str, Any]:
        """A request as it stands."""
        document: dict[str, Any] = self.program("request", "describe", id_, "-o", "json").json
        return document

    def wait_for_status(self, id_: str, status: str, outcome: str | None = None) -> None:
        """Return when the request has this status; it then has this outcome."""
        with connect(self.redis_url) as redis:
            ledger = Ledger(redis)
            wait_until(lambda: self._read(ledger, id_).status == status, f"{id_} is {status}")
            assert self._read(ledger, id_).outcome == outcome

    def _read(self, ledger: Ledger, id_: str) -> Request:
        return ledger.get_request(self.program.workspace, id_)

    def only_request(self) -> dict[str, Any]:
        """The one request there is."""
        (document,) = self.program("request", "list", "--all", "-o", "json").json
        return dict(document)

    def submit_for_all(self, *words: str) -> str:
        """Somebody has all there is, or waits for it."""
        query = ("request", "submit", "--component", "team", "--resource", "gpu=4", "--lease", "none", "-o", "name")
        return self.program(*query, *words).line

    def preempt(self, start: Start) -> str:
        """Who was started so has to leave, for somebody whose id this is."""
        return self.preempt_request(start.request, start.fence)

    def preempt_request(self, id_: str, fence: int, component: str = "team") -> str:
        """The same, of whoever holds units under this fence."""
        waiter = self.submit_for_all("--class", "8", "--component", component)
        with connect(self.redis_url) as redis:
            preemptions.preempt(redis, waiter, [(id_, fence)], workspace=self.program.workspace)
        return waiter

    def release(self, id_: str) -> None:
        """A holder gives back what it has."""
        self.program("request", "release", id_)

    def reprieve(self, waiter: str) -> None:
        """Nobody needs the units any more."""
        self.program("request", "cancel", waiter)
        with connect(self.redis_url) as redis:
            Reconciler(PlanStore(redis), Ledger(redis)).run(self.program.workspace)

    def enforce_deadlines(self, start: Start) -> None:
        """The time of who has to leave is up, whatever the clock says."""
        with connect(self.redis_url) as redis:
            preemptions.depart(redis, workspace=self.program.workspace, clock=self._in_an_hour())

    def expire_leases(self) -> None:
        """Every lease lapses."""
        with connect(self.redis_url) as redis:
            assert Ledger(redis, self._in_an_hour()).clean_up(self.program.workspace).expired_leases

    def wait_for_expiry(self, id_: str) -> None:
        """Return when a request's lease has lapsed, and its units have been taken back."""
        with connect(self.redis_url) as redis:
            ledger = Ledger(redis)

            def is_expired() -> bool:
                ledger.clean_up(self.program.workspace)
                return self._read(ledger, id_).status == "expired"

            wait_until(is_expired, f"the lease of {id_} lapses")

    def check_invariants(self) -> None:
        """Nobody holds anything, and the audit finds nothing."""
        with connect(self.redis_url) as redis:
            ledger = Ledger(redis)
            assert Audit(ledger, AuditStore(redis)).run(self.program.workspace) == []
        pool = self.program("pool", "describe", "gpus", "-o", "json").json
        assert (pool["active_count"], pool["queue_length"], pool["used"].get("gpu", 0)) == (0, 0, 0)

    @staticmethod
    def _in_an_hour() -> ManualClock:
        return ManualClock(int(time.time() * 1000) + 3_600_000)


def wait_until_dead(pids: Mapping[int, str]) -> None:
    """Returns when none of these processes runs any more."""
    wait_until(lambda: living(dict(pids)) == {}, f"they have ended: {pids}")
