"""The command, as `run` has it: started and signalled by way of its guard, heard of by the guard's reports."""

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


class Unstartable(PoolkeeperError):  # noqa: N818 - names what happened
    """The command cannot be started; `code` is what shells say then: 127 if it is not there, else 126."""

    def __init__(self, word: str, errno: int) -> None:
        super().__init__(f"{word} cannot be started: {_told(errno)}")
        self.code = 127 if errno == _ABSENT else 126


_ABSENT, _NO_FORMAT = 2, 8


def _told(errno: int) -> str:
    said = os.strerror(errno).lower()
    return f"{said} (a script has to begin with #!)" if errno == _NO_FORMAT else said


class Command:
    """One process group, and how it is doing. Unstartable if there is no such command.

    `code` is known once its first process has ended (negative for a signal), `gone` is True once nothing of it lives.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], *, foreground: bool) -> None:
        self.code: int | None = None
        self.gone = False
        self.stopped_by: int | None = None
        """The signal that stopped it, until somebody has looked."""
        self._rest = b""
        self._control, other = socket.socketpair()
        with other:
            other.set_inheritable(True)
            said = [str(other.fileno()), "1" if foreground else "0", *words]
            start = [sys.executable, "-IS", str(Path(guard.__file__)), *said]
            # what a shell has opened for the command, as in `-- cmd <(make input)`, is passed on; nothing of ours can be
            self._guard = Popen(start, env=dict(environment), close_fds=False, process_group=0)
        self.group = self._begun(words[0])
        self._control.setblocking(False)

    def fileno(self) -> int:
        """Readable when there is something to `hear`."""
        return self._control.fileno()

    def signal(self, sign: int) -> None:
        """To the whole group."""
        self._order(sign)

    def kill(self) -> None:
        """All there is of it, at once."""
        self._order(guard.KILL_ALL)

    def hear(self) -> None:
        """What the guard has reported meanwhile."""
        while not self.gone:
            try:
                read = self._control.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                read = b""
            if not read:
                self._without_guard()
                return
            *reports, self._rest = (self._rest + read).split(b"\n")
            for report in reports:
                self._note(*report.decode().split())

    def close(self) -> None:
        """Nothing of it is left, and nothing of its guard."""
        self._control.close()
        self._guard.wait()

    def _begun(self, word: str) -> int:
        """The group, once the command runs in it."""
        said = b""
        while not said.endswith(b"\n"):
            read = self._control.recv(1)
            if not read:
                self.close()
                raise PoolkeeperError("the process that was to start the command has died")
            said += read
        what, number = said.split()
        if what == b"unstartable":
            self.close()
            raise Unstartable(word, int(number))
        return int(number)

    def _note(self, what: str, number: str = "0") -> None:
        if what == "stopped":
            self.stopped_by = int(number)
        elif what == "ended":
            self.code = int(number)
        else:
            self.gone = True

    def _order(self, order: int) -> None:
        with suppress(OSError):  # no guard: `hear` will find that out
            self._control.sendall(bytes([order]))

    def _without_guard(self) -> None:
        """The guard was killed, and its command with it; what that has left became ours."""
        self._guard.wait()
        guard.end_all(self.group)
        self.code = -signal.SIGKILL if self.code is None else self.code
        self.gone = True
