"""Processes of Celery and gunicorn that start quickly: forked from a server that has imported their libraries already.

The server starts with the first of these processes, and ends with the process of the tests.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from multiprocessing import Pipe
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread

from app.store.child_process import ChildProcess
from tests.support.fork_server import ForkJob
from tests.support.paths import ROOT

FORK_TIMEOUT_S = 60
"""Time for a fork, and for the imports before the first one on a busy machine."""


class ForkedPopen:
    """The part of the interface of `Popen` that `ChildProcess` uses, for a child of the server."""

    def __init__(self, pid: int, end: Future[int]) -> None:
        self.pid, self._end = pid, end
        self.returncode: int | None = None

    def wait(self) -> int:
        """Wait for the end of the process and return its exit code."""
        self.returncode = self._end.result()
        return self.returncode

    def send_signal(self, sign: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if not self._end.done():
            os.kill(self.pid, sign)


class ForkServer:
    """The connection to a server that is started with this object."""

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        self._folder = TemporaryDirectory(prefix="poolkeeper-forks-")
        self._lock = Lock()
        self._ends: dict[int, Future[int]] = {}
        self._forked: Future[ForkedPopen] = Future()
        command = [sys.executable, "-P", "-X", "faulthandler", "-m", "tests.support.fork_server", str(theirs.fileno())]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        log = Path(self._folder.name, "server.log")
        self.process = ChildProcess(command, log, [theirs.fileno()], env=environment, cwd=ROOT)
        theirs.close()
        Thread(target=self._listen, name="forks", daemon=True).start()

    def fork(self, job: ForkJob) -> ForkedPopen:
        """Start a process that runs the module of the job."""
        with self._lock:
            self._forked = Future()
            self._connection.send(job)
            try:
                return self._forked.result(FORK_TIMEOUT_S)
            except TimeoutError:
                self.process.kill()  # a late answer would be taken for that of the next job
                raise

    def _listen(self) -> None:
        try:
            while True:
                pid, exit_code = self._connection.recv()
                if exit_code is None:
                    self._ends[pid] = Future()
                    self._forked.set_result(ForkedPopen(pid, self._ends[pid]))
                else:
                    self._ends.pop(pid).set_result(exit_code)
        except (EOFError, OSError):
            error = RuntimeError(f"the fork server has ended:\n{self.process.output_tail(40)}")
            for end in self._ends.values():
                end.set_result(-signal.SIGTERM)  # the processes end with their server
            if not self._forked.done():
                self._forked.set_exception(error)


@cache
def fork_server() -> ForkServer:
    """Return the server of this process, started by the first call."""
    return ForkServer()


class ForkedProcess(ChildProcess):
    """A `ChildProcess` whose command is this Python with `-m` and a module."""

    def __init__(self, command: Sequence[str | Path], output: Path, *, env: Mapping[str, str], cwd: Path) -> None:
        words = [str(word) for word in command]
        place = words.index("-m")
        assert words[0] == sys.executable
        self._job = ForkJob(words[place + 1], words[place + 2 :], dict(env), str(cwd), str(output))
        super().__init__(command, output, env=env, cwd=cwd)

    def _spawn(self) -> ForkedPopen:  # type: ignore[override]
        return fork_server().fork(self._job)
