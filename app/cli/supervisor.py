"""Keeps the processes of the service running beside each other, and ends them in order.

Each is in a session of its own, so that a Ctrl-C is for us alone, and none outlives us. One that ends is started again after a
pause that grows. Before the service has answered, one that never stands and ends again and again ends it all. So it is with
the embedded Redis, which comes back with its data and at its address, so that the others need not notice more than a few
refused calls.
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
"""Who has lived so long stands: what ends it later is another matter."""
ENDS, WITHIN_S = 5, 60
"""So many ends in so short a time, and it is given up if it never stood."""
API_PATIENCE_S, BEAT_PATIENCE_S, WORKER_PATIENCE_S = 12, 1, 4
"""How long each is waited for when all is to end; what a worker leaves undone the next round does."""
EXAMINED_EVERY_S = 10


class RestartsExhausted(ValueError):  # noqa: N818 - a state of the world
    """A process cannot be kept running; the message says which, and what it said last."""


class RestartBackoff:
    """When to try again what has ended."""

    def __init__(self, name: str, now: Callable[[], float] = time.monotonic) -> None:
        self._name, self._now = name, now
        self._end_times: deque[float] = deque(maxlen=ENDS)
        self._started_s = now()
        self._failures, self.stood = 0, False

    def begin(self) -> None:
        """It runs."""
        self._started_s = self._now()

    def look(self) -> None:
        """It still runs."""
        if self._now() - self._started_s >= STANDS_AFTER_S:
            self.stood, self._failures = True, 0

    def end(self, why: str) -> float:
        """It has ended; the seconds until it should run again, or RestartsExhausted."""
        self._end_times.append(self._now())
        if not self.stood and len(self._end_times) == ENDS and self._end_times[-1] - self._end_times[0] <= WITHIN_S:
            raise RestartsExhausted(f"{self._name} failed {ENDS} times in a row and never stood; at last it {why}")
        self._failures += 1
        return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self._failures - 1)))


class ManagedProcess:
    """One process, and its successors."""

    def __init__(self, name: str, start: Callable[[], RunningProcess], log: Path, rotation: LogRotation) -> None:
        self.name, self._start_child, self.log, self._rotation = name, start, log, rotation
        self._child: RunningProcess | None = None
        self._due = 0.0
        self.backoff = RestartBackoff(name)
        rotation.begin(log)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._child is not None and self._child.alive

    @property
    def pid(self) -> int | None:
        """The process that runs, if one does."""
        return self._child.pid if self._child and self._child.alive else None

    def watch(self, report: Callable[[str], None]) -> None:
        """Start it if it is due, and notice if it has ended."""
        if self._child and self._child.alive:
            return self.backoff.look()
        if self._child:
            child, self._child = self._child, None
            child.kill()  # what it left behind holds its port, or its place in a queue
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
        """Begin its log file anew if that is too large."""
        self._rotation.rotate(self.log)

    def tell(self, sign: signal.Signals) -> None:
        """Send a signal, without waiting for what it does; SIGKILL is for all of its session."""
        if self._child:
            self._child.send_signal(sign)

    def stop(self, patience_s: float) -> None:
        """End it, gently for a while."""
        if self._child:
            self._child.stop(patience_s)
            self._child = None


class Supervisor:
    """The parts of the service, the embedded Redis (if it is ours), and how they are kept."""

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
        """Look once after everything; RestartsExhausted if there is no point in going on."""
        self._watch_server()
        for process in self._processes.values():
            process.watch(self._report)
        if time.monotonic() - self._examined > EXAMINED_EVERY_S:
            self._examined = time.monotonic()
            self._examine()

    def _examine(self) -> None:
        """What is slow to go wrong: logs that fill the disk, and a Redis that cannot write to it."""
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
            self._report(problem or "the embedded Redis is well again")
        self._server_problem = problem

    def mark_ready(self) -> None:
        """The service has answered: from now on no part that ends again and again ends the others."""
        for process in self._processes.values():
            process.backoff.stood = True

    def pids(self) -> dict[str, int | None]:
        """Who runs."""
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
        """End all parts: the API first, whose requests are finished; beat; the worker. Redis is for the caller to stop."""
        self._processes["api"].stop(API_PATIENCE_S)
        self._processes["beat"].stop(BEAT_PATIENCE_S)
        self._processes["worker"].stop(WORKER_PATIENCE_S)

    def kill(self) -> None:
        """End all parts at once; safe in a handler of signals, for it waits for nothing."""
        for process in self._processes.values():
            process.tell(signal.SIGKILL)


def _one_line(text: str) -> str:
    return " ".join(text.split())[-300:] or "none"
