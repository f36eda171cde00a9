"""The terminal. While the command runs, the terminal belongs to it, as without `run`: the command gets the keys and Ctrl-C. If
the command writes to a pipe, the reader of the pipe may be a pager that needs the keys. Then the command gets the terminal only
when it reads from it.
"""

from __future__ import annotations

import os
import signal
import stat
from contextlib import suppress


class Terminal:
    """The terminal on stdin and its owner. The signals of the terminal have to be blocked, because handing the terminal over
    would otherwise stop this process."""

    def __init__(self) -> None:
        self._is_given = False

    def is_ours(self) -> bool:
        """True if this process is in the foreground of a terminal on stdin."""
        try:
            return os.tcgetpgrp(0) == os.getpgrp()
        except OSError:
            return False

    def should_give_at_start(self) -> bool:
        """True if the command gets the terminal when it starts."""
        return self.is_ours() and not _is_pipe(1)

    def mark_given(self) -> None:
        """Note that the command has the terminal."""
        self._is_given = True

    def give_to(self, group: int) -> None:
        """Give the terminal to this process group."""
        with suppress(OSError):
            os.tcsetpgrp(0, group)
            self._is_given = True

    def take_back(self) -> None:
        """Take the terminal back, unless the shell has taken it."""
        if not self._is_given:
            return
        self._is_given = False
        with suppress(OSError):
            if os.tcgetpgrp(0) != os.getsid(0):
                os.tcsetpgrp(0, os.getpgrp())
                continue_group()


def continue_group() -> None:
    """Continue the processes of this shell pipeline that Ctrl-Z, or a read from the terminal, has stopped."""
    os.kill(0, signal.SIGCONT)


def _is_pipe(file: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(file).st_mode)
    except OSError:
        return False
