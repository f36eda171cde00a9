"""Keys as they are pressed, on a terminal that shows nothing of them; and being woken meanwhile."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

ARROWS = {"\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down"}
SENT = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)?|.", re.DOTALL)
"""What one key sends: a letter, or a sequence that begins with Escape."""


class Keyboard:
    """What was pressed since it was asked last; `wake` ends a wait from another thread."""

    def __init__(self) -> None:
        self._hear, self._tell = os.pipe()
        os.set_blocking(self._hear, False)
        os.set_blocking(self._tell, False)

    def wake(self) -> None:
        """Whoever waits looks up."""
        with suppress(BlockingIOError, OSError):  # it is awake already, or over
            os.write(self._tell, b".")

    def wait(self, within_s: float) -> list[str]:
        """The keys that were pressed, as soon as there is one, somebody wakes us or time is up: `up`, `down`, or a letter."""
        stdin = sys.stdin.fileno()
        ready, _, _ = select.select([stdin, self._hear], [], [], within_s)
        if self._hear in ready:
            with suppress(BlockingIOError):
                os.read(self._hear, 4096)
        return list(pressed_in(os.read(stdin, 64).decode(errors="replace"))) if stdin in ready else []

    def close(self) -> None:
        """Nobody waits any more."""
        os.close(self._hear)
        os.close(self._tell)


def pressed_in(typed: str) -> Iterator[str]:
    """The keys that sent this; of those that send more than a letter only arrows count."""
    if not typed:  # the terminal is gone
        yield "q"
    for sent in SENT.findall(typed):
        if key := ARROWS.get(sent, sent if sent[0] != "\x1b" else None):
            yield key


@contextmanager
def keys() -> Iterator[Keyboard]:
    """A keyboard whose keys count without Enter and are not echoed; Ctrl-C is what it was, Ctrl-Z nothing. A change of the
    terminal's size wakes it."""
    import termios
    import tty

    stdin, board = sys.stdin.fileno(), Keyboard()
    before = termios.tcgetattr(stdin)

    def resized(_: int, __: FrameType | None) -> None:
        board.wake()

    heard = signal.signal(signal.SIGWINCH, resized)
    try:
        tty.setcbreak(stdin)
        now = termios.tcgetattr(stdin)
        now[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(stdin, termios.TCSANOW, now)
        yield board
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, heard)
        board.close()
