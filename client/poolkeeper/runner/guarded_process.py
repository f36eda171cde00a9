"""The command as `run` controls it: `run` starts and signals the command through the guard, and reads the reports of the
guard."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

from poolkeeper.errors import PoolkeeperError
from poolkeeper.runner import guard


class CommandStartError(PoolkeeperError):
    """A command that cannot be started. `code` is the exit code of a shell: 127 if the program does not exist, else 126."""

    def __init__(self, program: str, errno: int) -> None:
        super().__init__(f"{program} cannot be started: {_describe_errno(errno)}")
        self.code = 127 if errno == _ENOENT else 126


_ENOENT, _ENOEXEC = 2, 8


def _describe_errno(errno: int) -> str:
    message = os.strerror(errno).lower()
    return f"{message} (a script has to begin with #!)" if errno == _ENOEXEC else message


class GuardedProcess:
    """One process group and its state. The constructor raises CommandStartError if the command cannot be started.

    `code` is set when the first process has ended (negative for a signal). `is_gone` is set when no process is left.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], *, foreground: bool) -> None:
        self.code: int | None = None
        self.is_gone = False
        self.stopped_by: int | None = None
        """The signal that stopped the command; None if it is not stopped, or once `ProcessRun` has read it."""
        self._partial_line = b""
        self._control, guard_end = socket.socketpair()
        with guard_end:
            guard_end.set_inheritable(True)
            guard_arguments = [str(guard_end.fileno()), "1" if foreground else "0", *argv]
            start = [sys.executable, "-IS", str(Path(guard.__file__)), *guard_arguments]
            # Files that a shell opened for the command, as in `-- cmd <(make input)`, are inherited; files of `run` are not.
            self._guard = Popen(start, env=dict(environment), close_fds=False, process_group=0)
        self.group = self._await_start(argv[0])
        self._control.setblocking(False)

    def fileno(self) -> int:
        """Return the number of the file that is readable when there are reports."""
        return self._control.fileno()

    def signal(self, signum: int) -> None:
        """Send a signal to the whole group."""
        self._send_order(signum)

    def kill(self) -> None:
        """Kill every process of the command."""
        self._send_order(guard.KILL_ALL)

    def read_reports(self) -> None:
        """Read the reports of the guard that have arrived."""
        while not self.is_gone:
            try:
                chunk = self._control.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            if not chunk:
                self._handle_guard_death()
                return
            *reports, self._partial_line = (self._partial_line + chunk).split(b"\n")
            for report in reports:
                self._apply_report(*report.decode().split())

    def close(self) -> None:
        """Close the connection, and wait for the end of the guard."""
        self._control.close()
        self._guard.wait()

    def _await_start(self, program: str) -> int:
        """Wait until the command runs, and return its process group."""
        report = b""
        while not report.endswith(b"\n"):
            byte = self._control.recv(1)
            if not byte:
                self.close()
                raise PoolkeeperError("the guard process died before it could start the command")
            report += byte
        kind, number = report.split()
        if kind == b"unstartable":
            self.close()
            raise CommandStartError(program, int(number))
        return int(number)

    def _apply_report(self, kind: str, number: str = "0") -> None:
        if kind == "stopped":
            self.stopped_by = int(number)
        elif kind == "ended":
            self.code = int(number)
        else:
            self.is_gone = True

    def _send_order(self, order: int) -> None:
        with suppress(OSError):  # the guard has died: `read_reports` notices that
            self._control.sendall(bytes([order]))

    def _handle_guard_death(self) -> None:
        """Kill the rest of the command: the guard was killed, and its orphaned processes are children of this process now."""
        self._guard.wait()
        guard.kill_all(self.group)
        self.code = -signal.SIGKILL if self.code is None else self.code
        self.is_gone = True
