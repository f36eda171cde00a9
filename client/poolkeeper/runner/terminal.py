"""The terminal: while the command runs it is the command's, as it would be without `run`, so that it can be typed to and Ctrl-C
reaches it. Where it writes to a pipe, who reads there may want the keys as a pager does, so it has them once it wants them."""

from __future__ import annotations

import os
import signal
import stat
from contextlib import suppress


class Terminal:
    """Who has the terminal on stdin. Its signals have to be blocked, or handing it on would stop us."""

    def __init__(self) -> None:
        self._is_given = False

    def is_ours(self) -> bool:
        """Whether we are in the foreground of a terminal on stdin."""
        try:
            return os.tcgetpgrp(0) == os.getpgrp()
        except OSError:
            return False

    def should_give_at_start(self) -> bool:
        """Whether it is to have the terminal from its start."""
        return self.is_ours() and not _is_pipe(1)

    def mark_given(self) -> None:
        """The command has taken it."""
        self._is_given = True

    def give_to(self, group: int) -> None:
        """The command has it from now on."""
        with suppress(OSError):
            os.tcsetpgrp(0, group)
            self._is_given = True

    def take_back(self) -> None:
        """It is ours again, if it was and the shell has not taken it for itself."""
        if not self._is_given:
            return
        self._is_given = False
        with suppress(OSError):
            if os.tcgetpgrp(0) != os.getsid(0):
                os.tcsetpgrp(0, os.getpgrp())
                continue_group()


def continue_group() -> None:
    """Who stands in a pipe with us goes on, if it was stopped: by Ctrl-Z, which stops no run, or since it wanted to read."""
    os.kill(0, signal.SIGCONT)


def _is_pipe(file: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(file).st_mode)
    except OSError:
        return False
