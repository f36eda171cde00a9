"""Signals to `run` itself: an exception while it waits, news to be looked at while the command runs.

Everything but the waiting is done without exceptions, so that no Ctrl-C can fall between asking for units and knowing of it.
Python drops what is raised while it finalizes something, so a signal is raised again until it has got through.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, Self

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that are to end what is going on."""
PASSED = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that only the command may know the meaning of."""
OF_THE_TERMINAL = (signal.SIGTTOU, signal.SIGTTIN)
"""Signals that would stop us, for a word to the terminal while it is the command's, or as a pager beside us wants to read."""
HEEDED = (*ENDING, *PASSED, signal.SIGTSTP)
AGAIN_S = 0.1
"""After which a signal is raised again that has not got through."""


class Interrupted(BaseException):
    """Somebody wants an end of it; `code` is the exit code that says so."""

    def __init__(self, sign: int) -> None:
        super().__init__(sign)
        self.sign, self.code = signal.Signals(sign), 128 + sign


class Interruptions:
    """The signals that came, for as long as the context. What was ignored before, as by nohup, stays so."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self.came: deque[signal.Signals] = deque()
        self._ring, self._raising = ring, False
        self._raised: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for sign in (*HEEDED, signal.SIGALRM):
            if (before := signal.getsignal(sign)) != signal.SIG_IGN:
                self._before[sign] = before
                signal.signal(sign, self._raise_again if sign == signal.SIGALRM else self._hear)
        signal.pthread_sigmask(signal.SIG_BLOCK, OF_THE_TERMINAL)
        return self

    def __exit__(self, *_: object) -> None:
        for sign, before in self._before.items():
            signal.signal(sign, before)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Inside, the first that wants an end is raised as Interrupted, wherever we are."""
        self.check()
        self._raising = True
        try:
            self.check()
            yield
        except Interrupted:
            self._raised = None
            raise
        finally:
            self._raising = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            if self._raised:  # and dropped, just before the end
                self.came.append(self._raised)
                self._raised = None

    def check(self) -> None:
        """Raises Interrupted if one that wants an end has come and was not looked at."""
        for sign in self.came:
            if sign in ENDING:
                self.came.remove(sign)
                raise Interrupted(sign)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        sign = signal.Signals(number)
        if not self._raising or self._raised:
            self.came.append(sign)
            self._ring()
        elif sign in ENDING:
            self._raise(sign)
        elif sign == signal.SIGTSTP:  # nothing runs yet: as anybody
            os.kill(os.getpid(), signal.SIGSTOP)

    def _raise(self, sign: signal.Signals) -> NoReturn:
        self._raised = sign
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        raise Interrupted(sign)

    def _raise_again(self, number: int, frame: FrameType | None) -> None:
        if self._raising and self._raised:
            self._raise(self._raised)
