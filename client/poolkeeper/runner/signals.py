"""Signals to `run` itself: an exception while `run` waits, a pending signal while the command runs.

Only waits raise exceptions, so that no Ctrl-C interrupts a submit before its answer. Python drops an exception that is raised
in a finalizer, so the exception is raised again until it arrives.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, Self

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end the run."""
FORWARDED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are forwarded, because only the command knows their meaning."""
TERMINAL_SIGNALS = (signal.SIGTTOU, signal.SIGTTIN)
"""Signals that are blocked: they would stop `run` if it writes while the command, or a pager, has the terminal."""
HANDLED_SIGNALS = (*ENDING_SIGNALS, *FORWARDED_SIGNALS, signal.SIGTSTP)
RERAISE_AFTER_S = 0.1
"""The seconds after which an exception that did not get through is raised again."""
ALARM_EVERY_S = 1.0
"""The seconds between two alarms during a wait. An alarm interrupts a system call, so that Python runs the handlers of signals
that came just before it.
"""


class Interrupted(BaseException):
    """The end of a run by a signal; `code` is the exit code for it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum, self.code = signal.Signals(signum), 128 + signum


class SignalHandler:
    """The handler of signals inside a `with` block. A signal that was ignored before, as by nohup, stays ignored."""

    def __init__(self) -> None:
        self.pending: deque[signal.Signals] = deque()
        self._is_raising = False
        self._undelivered: signal.Signals | None = None
        self._previous_handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for signum in (*HANDLED_SIGNALS, signal.SIGALRM):
            if (handler := signal.getsignal(signum)) != signal.SIG_IGN:
                self._previous_handlers[signum] = handler
                signal.signal(signum, self._raise_again if signum == signal.SIGALRM else self._on_signal)
        signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._previous_handlers.items():
            signal.signal(signum, handler)

    @contextmanager
    def raise_on_signal(self) -> Iterator[None]:
        """Raise Interrupted inside the block at the first ending signal, at any statement of the main thread."""
        self.check()
        try:
            self._is_raising = True
            signal.setitimer(signal.ITIMER_REAL, ALARM_EVERY_S, ALARM_EVERY_S)
            self.check()
            yield
        except Interrupted:
            self._undelivered = None
            raise
        finally:
            self._is_raising = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            if self._undelivered:  # Python dropped the exception just before the end
                self.pending.append(self._undelivered)
                self._undelivered = None

    def check(self) -> None:
        """Raise Interrupted if an ending signal is pending."""
        for signum in self.pending:
            if signum in ENDING_SIGNALS:
                self.pending.remove(signum)
                raise Interrupted(signum)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        signum = signal.Signals(number)
        if not self._is_raising or self._undelivered:
            self.pending.append(signum)
        elif signum in ENDING_SIGNALS:
            self._raise(signum)
        elif signum == signal.SIGTSTP:  # nothing runs yet: stop like any other process
            os.kill(os.getpid(), signal.SIGSTOP)

    def _raise(self, signum: signal.Signals) -> NoReturn:
        self._undelivered = signum
        signal.setitimer(signal.ITIMER_REAL, RERAISE_AFTER_S, ALARM_EVERY_S)
        raise Interrupted(signum)

    def _raise_again(self, number: int, frame: FrameType | None) -> None:
        if self._is_raising and self._undelivered:
            self._raise(self._undelivered)
