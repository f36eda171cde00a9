"""The supervisor of `poolkeeperd up`: it keeps the processes of the service running, and ends them in order.

Each process has a session of its own, so that Ctrl-C reaches only the supervisor. No process outlives the supervisor. If a
process ends, it is started again after a pause that grows. Before the service is ready, a process that fails again and again
ends the service. The same holds for the embedded Redis: it starts again with its data and its address, so the other processes
see only a few refused calls.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from app.cli.log_rotation import LogRotation
from app.domain.errors import StoreUnavailable
from app.store.child_process import RunningProcess
from app.store.connection import StoreMisconfigured
from app.store.embedded_redis import LOG_FILE, EmbeddedRedis

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
STANDS_AFTER_S = 10
"""Seconds after which a process counts as stable: a later end is another failure."""
ENDS, WITHIN_S = 5, 60
"""The number of ends, and the seconds for them, after which a process that was never stable is given up."""
API_PATIENCE_S, BEAT_PATIENCE_S, WORKER_PATIENCE_S = 12, 1, 4
"""Seconds that each process has to end. The next run of a job does what a worker leaves undone."""
EXAMINED_EVERY_S = 10


class RestartsExhausted(ValueError):  # noqa: N818 - a state of the world
    """A process that cannot be kept running. The message has its name and its last words."""


class RestartBackoff:
    """The pauses between the restarts of a process."""

    def __init__(self, name: str, now: Callable[[], float] = time.monotonic) -> None:
        self._name, self._now = name, now
        self._end_times: deque[float] = deque(maxlen=ENDS)
        self._started_s = now()
        self._failures, self.stood = 0, False

    def begin(self) -> None:
        """Record that the process was started."""
        self._started_s = self._now()

    def look(self) -> None:
        """Record that the process still runs."""
        if self._now() - self._started_s >= STANDS_AFTER_S:
            self.stood, self._failures = True, 0

    def end(self, why: str) -> float:
        """Record that the process has ended. Return the seconds until its restart, or raise RestartsExhausted."""
        self._end_times.append(self._now())
        if not self.stood and len(self._end_times) == ENDS and self._end_times[-1] - self._end_times[0] <= WITHIN_S:
            raise RestartsExhausted(f"{self._name} failed {ENDS} times in a row within {WITHIN_S} s; at last it {why}")
        self._failures += 1
        return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self._failures - 1)))


class ManagedProcess:
    """One process of the service, with its restarts."""

    def __init__(self, name: str, start: Callable[[], RunningProcess], log: Path, rotation: LogRotation) -> None:
        self.name, self._start_child, self.log, self._rotation = name, start, log, rotation
        self._child: RunningProcess | None = None
        self._due = 0.0
        self.backoff = RestartBackoff(name)
        rotation.begin(log)

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        return self._child is not None and self._child.alive

    @property
    def pid(self) -> int | None:
        """Return the id of the process; None if it does not run."""
        return self._child.pid if self._child and self._child.alive else None

    def watch(self, report: Callable[[str], None]) -> None:
        """Start the process if it is due, and schedule a restart if it has ended."""
        if self._child and self._child.alive:
            return self.backoff.look()
        if self._child:
            child, self._child = self._child, None
            child.kill()  # the rest of its session may hold its port or its broker connection
            last_line = _one_line(child.output_tail(1))
            self._schedule_restart(f"ended, exit code {child.exit_code}, log {self.log}, last words: {last_line}", report)
        elif time.monotonic() >= self._due:
            self._start(report)
        return None

    def _start(self, report: Callable[[str], None]) -> None:
        self.backoff.begin()
        try:
            self._child = self._start_child()
        except OSError as error:
            self._schedule_restart(f"could not be started: {error}", report)

    def _schedule_restart(self, failure: str, report: Callable[[str], None]) -> None:
        pause = self.backoff.end(failure)
        self._due = time.monotonic() + pause
        report(f"{self.name} {failure}; it is started again in {pause:g} s")

    def rotate_log(self) -> None:
        """Rotate the log file if it is too large."""
        self._rotation.rotate(self.log)

    def tell(self, sign: signal.Signals) -> None:
        """Send a signal and do not wait. SIGKILL goes to the whole session."""
        if self._child:
            self._child.send_signal(sign)

    def stop(self, patience_s: float) -> None:
        """End the process with SIGTERM, after `patience_s` with SIGKILL."""
        if self._child:
            self._child.stop(patience_s)
            self._child = None


class Supervisor:
    """The processes of the service, and the embedded Redis if this service started it."""

    def __init__(
        self,
        processes: Sequence[ManagedProcess],
        server: EmbeddedRedis | None,
        report: Callable[[str], None],
        rotation: LogRotation | None = None,
    ) -> None:
        self._processes = {process.name: process for process in processes}
        self._server, self._report, self._rotation = server, report, rotation
        self._server_backoff = RestartBackoff("the embedded Redis")
        self._server_restart_s: float | None = None
        self._server_problem = ""
        self._examined = time.monotonic()

    def watch(self) -> None:
        """Check every process once. Raise RestartsExhausted if one cannot be kept running."""
        self._watch_server()
        for process in self._processes.values():
            process.watch(self._report)
        if time.monotonic() - self._examined > EXAMINED_EVERY_S:
            self._examined = time.monotonic()
            self._examine()

    def _examine(self) -> None:
        """Rotate the logs, and report if Redis cannot write to its disk."""
        for process in self._processes.values():
            process.rotate_log()
        if self._server and self._rotation:
            self._rotation.rotate(self._server.data_dir / LOG_FILE)
        try:
            if self._server and self._server.alive:
                self._server.check_health()
            problem = ""
        except StoreUnavailable as why:
            problem = _one_line(str(why))
        if problem != self._server_problem:
            self._report(problem or "the embedded Redis works again")
        self._server_problem = problem

    def mark_ready(self) -> None:
        """Record that the service has answered: from now on a process that fails again and again does not end the others."""
        for process in self._processes.values():
            process.backoff.stood = True

    def pids(self) -> dict[str, int | None]:
        """Return name → process id; None for a process that does not run."""
        return {name: process.pid for name, process in self._processes.items()}

    def _watch_server(self) -> None:
        if not self._server:
            return
        if self._server.alive:
            self._server_backoff.look()
        elif self._server_restart_s is None:
            pause = self._server_backoff.end(f"ended; its log is in {self._server.data_dir}")
            self._server_restart_s = time.monotonic() + pause
            self._report(f"the embedded Redis ended; it is started again in {pause:g} s with its data")
        elif time.monotonic() >= self._server_restart_s:
            self._server_restart_s = None
            try:
                self._server.start()
                self._server_backoff.begin()
            except (StoreMisconfigured, StoreUnavailable) as wrong:
                self._report(f"the embedded Redis cannot be started: {_one_line(str(wrong))}")

    def stop(self) -> None:
        """End the API after its present requests, then beat, then the worker. The caller stops Redis."""
        self._processes["api"].stop(API_PATIENCE_S)
        self._processes["beat"].stop(BEAT_PATIENCE_S)
        self._processes["worker"].stop(WORKER_PATIENCE_S)

    def kill(self) -> None:
        """Kill all processes without waiting, so that it is safe in a signal handler."""
        for process in self._processes.values():
            process.tell(signal.SIGKILL)


def _one_line(text: str) -> str:
    return " ".join(text.split())[-300:] or "none"
