"""`poolkeeper run` in real processes, in a workspace with four units, and the clients that compete for them."""

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
"""The first line of every workload."""
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
        """Return the process id of the run."""
        return self.process.pid

    @property
    def out(self) -> str:
        """Return its standard output."""
        return (self._folder / "out").read_text()

    @property
    def err(self) -> str:
        """Return its standard error."""
        return (self._folder / "err").read_text()

    def wait_for_message(self, words: str) -> None:
        """Wait until standard error has the words."""
        wait_until(lambda: words in self.err, f"it says {words!r}; it said {self.err!r}")

    def send_signal(self, sign: signal.Signals) -> None:
        """Send a signal to the run alone."""
        self.process.send_signal(sign)

    def wait_for_end(self, code: int, within_s: float = 20) -> None:
        """Wait for the end, and check the exit code."""
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
        """Return the file into which workloads write."""
        return self.folder / "log"

    def create_pool(self, *settings: str) -> RunLab:
        """Create a pool `gpus` of four units with these settings, and a policy of `team`."""
        values = [word for setting in settings for word in ("--setting", setting)]
        self.program("pool", "create", "gpus", "--capacity", "gpu=4", *values)
        self.program("policy", "attach", "gpus", "team")
        return self

    def variables(self, **more: str) -> dict[str, str]:
        """Return the variables of a run: the program is on PATH, and LOG is the log of the workload."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return self.program.environment(LOG=str(self.log), PATH=path, TMPDIR=str(self.folder), **more)

    def nohup(self, *words: str, script: str) -> AbstractContextManager[Run]:
        """Start a run that ignores a hangup."""
        return self.run(*words, script=script, before=("nohup",))

    @contextmanager
    def run(
        self, *words: str, script: str | None = None, before: Sequence[str] = (), url: str | None = None, **more: str
    ) -> Iterator[Run]:
        """Start a run with these options, of a bash script or of the command among them, for as long as the context."""
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
        """Start a run on a terminal."""
        with self.terminal([str(PROGRAM), "run", *words, "--", "bash", "-c", script], width, **more) as terminal:
            yield terminal

    @contextmanager
    def terminal(self, command: list[str], width: int = 200, **more: str) -> Iterator[Terminal]:
        """Start a command on a terminal; its processes end with the context."""
        terminal = Terminal(command, self.variables(**more), width)
        try:
            yield terminal
        finally:
            below = descendants(terminal.process.pid)
            terminal.close()
            for pid in living(below):
                os.kill(pid, signal.SIGKILL)

    def lines(self) -> list[str]:
        """Return the lines that workloads have written so far."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def wait_for_line(self, line: str, times: int = 1) -> None:
        """Wait until workloads have written this line so often."""
        wait_until(lambda: self.lines().count(line) >= times, f"{line!r} in the log; there is {self.lines()}")

    def wait_for_start(self, number: int = 1) -> Start:
        """Wait for the start of this number, and return it."""
        wait_until(lambda: len(self._starts()) >= number, f"start {number}; there is {self.lines()}")
        return self._starts()[number - 1]

    def _starts(self) -> list[Start]:
        document = [(line + " ").split(" ", 5) for line in self.lines() if line.startswith("start ")]
        return [Start(int(pid), request, int(fence), resume, rest.strip()) for _, pid, request, fence, resume, rest in document]

    def request(self, id_: str) -> dict[str, Any]:
        """Return the request as the service describes it."""
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
        """Return the only request."""
        (document,) = self.program("request", "list", "--all", "-o", "json").json
        return dict(document)

    def submit_for_all(self, *words: str) -> str:
        """Submit a request for all units, and return its id."""
        query = ("request", "submit", "--component", "team", "--resource", "gpu=4", "--lease", "none", "-o", "name")
        return self.program(*query, *words).line

    def preempt(self, start: Start) -> str:
        """Preempt a run, and return the id of the waiter."""
        return self.preempt_request(start.request, start.fence)

    def preempt_request(self, id_: str, fence: int, component: str = "team") -> str:
        """Preempt an allocation, and return the id of the waiter."""
        waiter = self.submit_for_all("--class", "8", "--component", component)
        with connect(self.redis_url) as redis:
            preemptions.preempt(redis, waiter, [(id_, fence)], workspace=self.program.workspace)
        return waiter

    def release(self, id_: str) -> None:
        """Release an allocation."""
        self.program("request", "release", id_)

    def reprieve(self, waiter: str) -> None:
        """Cancel the waiter, so that its victim is reprieved."""
        self.program("request", "cancel", waiter)
        with connect(self.redis_url) as redis:
            Reconciler(PlanStore(redis), Ledger(redis)).run(self.program.workspace)

    def enforce_deadlines(self, start: Start) -> None:
        """Enforce the deadline of a victim, whatever the clock says."""
        with connect(self.redis_url) as redis:
            preemptions.depart(redis, workspace=self.program.workspace, clock=self._in_an_hour())

    def expire_leases(self) -> None:
        """Let every lease lapse."""
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
        """Check that no unit is held, and that the audit finds nothing."""
        with connect(self.redis_url) as redis:
            ledger = Ledger(redis)
            assert Audit(ledger, AuditStore(redis)).run(self.program.workspace) == []
        pool = self.program("pool", "describe", "gpus", "-o", "json").json
        assert (pool["active_count"], pool["queue_length"], pool["used"].get("gpu", 0)) == (0, 0, 0)

    @staticmethod
    def _in_an_hour() -> ManualClock:
        return ManualClock(int(time.time() * 1000) + 3_600_000)


def wait_until_dead(pids: Mapping[int, str]) -> None:
    """Wait until none of these processes runs any more."""
    wait_until(lambda: living(dict(pids)) == {}, f"they have ended: {pids}")
