"""Processes of Celery and gunicorn that start cheaply: forked from a server that has imported their libraries already.

The server starts with the first process that is asked for, and ends with this one.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread

from app.store.child_process import ChildProcess
from tests.support.fork_server import Job
from tests.support.paths import ROOT


class ForkedPopen:
    """What `ChildProcess` uses of `Popen`, for a child of the server."""

    def __init__(self, pid: int, end: Future[int]) -> None:
        self.pid, self._end = pid, end
        self.returncode: int | None = None

    def wait(self) -> int:
        """Return the exit code when the process has ended."""
        self.returncode = self._end.result()
        return self.returncode

    def send_signal(self, sign: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if not self._end.done():
            os.kill(self.pid, sign)


class ForkServer:
    """The server of this process, started when it is first used."""

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        self._folder = TemporaryDirectory(prefix="poolkeeper-forks-")
        self._lock = Lock()
        self._ends: dict[int, Future[int]] = {}
        self._forked: Future[ForkedPopen] = Future()
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.support.fork_server", str(theirs.fileno())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "client")))}
        log = Path(self._folder.name, "server.log")
        self.process = ChildProcess(command, log, [theirs.fileno()], env=environment, cwd=ROOT)
        theirs.close()
        Thread(target=self._listen, args=(self._connection,), name="forks", daemon=True).start()

    def fork(self, job: Job) -> ForkedPopen:
        """Start a process that does the job."""
        with self._lock:
            self._forked = Future()
            self._connection.send(job)
            return self._forked.result(60)

    def _listen(self, connection: Connection) -> None:
        try:
            while True:
                pid, exit_code = connection.recv()
                if exit_code is None:
                    self._ends[pid] = Future()
                    self._forked.set_result(ForkedPopen(pid, self._ends[pid]))
                else:
                    self._ends.pop(pid).set_result(exit_code)
        except (EOFError, OSError):
            error = RuntimeError(f"the fork server has ended:\n{self.process.output_tail(40)}")
            for end in self._ends.values():
                end.set_exception(error)
            if not self._forked.done():
                self._forked.set_exception(error)


@cache
def fork_server() -> ForkServer:
    """Return the server of this process."""
    return ForkServer()


class ForkedProcess(ChildProcess):
    """A process like any `ChildProcess`, whose command is a Python with `-m` and a module."""

    def __init__(self, command: Sequence[str | Path], output: Path, *, env: Mapping[str, str], cwd: Path) -> None:
        words = [str(word) for word in command]
        place = words.index("-m")
        assert words[0] == sys.executable
        self._job = Job(words[place + 1], words[place + 2 :], dict(env), str(cwd), str(output))
        super().__init__(command, output, env=env, cwd=cwd)

    def _spawn(self) -> ForkedPopen:  # type: ignore[override]
        return fork_server().fork(self._job)
