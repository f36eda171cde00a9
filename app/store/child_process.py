"""A child process that ends with this process, whatever ends this process.

A thread that lives as long as the child starts it, and the kernel sends the child a signal when that thread is gone (Linux).
The signal is SIGTERM for a child that has data to write, else SIGKILL, so that its port is free at once.

The kernel signals only the children of a process, and a fork does not inherit the signal. So a child that forks calls
`end_with_parent` in each fork.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, Popen
from threading import Event, Thread
from typing import Protocol

PR_SET_PDEATHSIG = 1
"""The option of prctl: the signal that the kernel sends when the thread that started this process is gone."""

_LAUNCH = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, int(sys.argv[2]))
if os.getppid() == int(sys.argv[1]):  # else the parent died before it could be watched
    os.execv(sys.argv[3], sys.argv[3:])
"""


def end_with_parent(parent: int) -> None:
    """End this fork at once if the process `parent` ends, or has ended; only on Linux.

    The forking thread has to live as long as the parent.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call of prctl
        os._exit(1)


class RunningProcess(Protocol):
    """A process that this process started."""

    @property
    def pid(self) -> int:
        """Return the id of the process."""

    @property
    def alive(self) -> bool:
        """True if the process runs."""

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""

    def stop(self, timeout_s: float) -> None:
        """Ask the process to end, and kill it if it has not ended in time."""

    def kill(self) -> None:
        """Kill the process with its session, and wait for its end."""

    def send_signal(self, sign: signal.Signals) -> None:
        """Send a signal and do not wait; SIGKILL goes to the whole session."""

    def output_tail(self, lines: int) -> str:
        """Return the last lines that the process wrote."""


class ChildProcess:
    """A process that ends no later than this process. It has a session of its own, so that a Ctrl-C does not reach it.

    The kernel sends `death_signal` to it when this process is gone.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        output: Path,
        inherited_fds: Iterable[int] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        death_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self._command, self._output, self._inherited_fds = command, output, tuple(inherited_fds)
        self._env, self._cwd, self._death_signal = env, cwd, death_signal
        self._output_before = output.stat().st_size if output.exists() else 0
        self._ended = Event()
        started: Future[Popen[bytes]] = Future()
        Thread(target=self._supervise, args=(started,), name="keeper", daemon=True).start()
        self._process = started.result()

    def _supervise(self, started: Future[Popen[bytes]]) -> None:
        """Start the child and wait for its end, in one thread, because the kernel watches the thread that started it."""
        try:
            process = self._spawn()
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()
        self._ended.set()

    def _spawn(self) -> Popen[bytes]:
        launch = [sys.executable, "-ISc", _LAUNCH, str(os.getpid()), str(int(self._death_signal))]
        watched = launch if sys.platform == "linux" else []
        with self._output.open("ab") as log:
            return Popen(
                [*watched, *self._command],
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=self._inherited_fds,
                start_new_session=True,
                umask=0o077,
                env=self._env,
                cwd=self._cwd,
            )

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        return not self._ended.is_set()

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        return None if self.alive else self._process.returncode

    def wait_for_end(self, seconds: float) -> bool:
        """Wait for the end of the process, at most so many seconds. Return True if it has ended."""
        return self._ended.wait(seconds)

    def stop(self, timeout_s: float = 10) -> None:
        """Ask the process to end, and kill it after the timeout. No process of its session is left."""
        if self.alive:
            self.send_signal(signal.SIGTERM)
            self._ended.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """Kill the process and all processes of its session."""
        self.send_signal(signal.SIGKILL)
        self._ended.wait()

    def send_signal(self, sign: signal.Signals) -> None:
        """Send a signal without waiting. SIGKILL goes to the whole session."""
        with suppress(ProcessLookupError, PermissionError):  # macOS raises PermissionError for a session that has ended
            if sign == signal.SIGKILL:
                os.killpg(self.pid, sign)
            elif self.alive:
                self._process.send_signal(sign)

    def output_tail(self, lines: int = 10) -> str:
        """Return the last lines that the process wrote."""
        return output_since(self._output, self._output_before, lines)


def output_since(output: Path, start: int, lines: int) -> str:
    """Return the last lines of a log after its first `start` bytes. If the log was cut since, all of it counts."""
    content = output.read_bytes()
    content = content[start:] if len(content) >= start else content
    return "\n".join(content.decode(errors="replace").splitlines()[-lines:])
