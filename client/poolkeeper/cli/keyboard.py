"""Keys pressed on a terminal that does not echo them, and a wake-up call from another thread."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from poolkeeper.wakeup_pipe import WakeupPipe

ARROWS = {"\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down"}
KEY_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)?|.", re.DOTALL)
"""The characters of one key: a letter, or a sequence that begins with Escape."""


class Keyboard:
    """The keys pressed since the last wait; `wake` ends a wait from another thread."""

    def __init__(self, wakeup: WakeupPipe) -> None:
        self._wakeup = wakeup
        self.wake = wakeup.wake

    def wait(self, within_s: float) -> list[str]:
        """Return the pressed keys (`up`, `down`, or a letter). Return at a key, at a wake-up call, or after this time."""
        stdin = sys.stdin.fileno()
        is_pressed = self._wakeup.wait(within_s, [stdin])
        return list(parse_keys(os.read(stdin, 64).decode(errors="replace"))) if is_pressed else []


def parse_keys(text: str) -> Iterator[str]:
    """Yield the keys of this input. Of the keys that send a sequence, yield only the arrows."""
    if not text:  # the terminal is gone
        yield "q"
    for sequence in KEY_SEQUENCE.findall(text):
        if key := ARROWS.get(sequence, sequence if sequence[0] != "\x1b" else None):
            yield key


@contextmanager
def open_keyboard() -> Iterator[Keyboard]:
    """Yield a keyboard whose keys need no Enter and are not echoed. Ctrl-C works, Ctrl-Z does not. A resize of the window is a
    wake-up call, as every signal is.
    """
    import termios
    import tty

    stdin, wakeup = sys.stdin.fileno(), WakeupPipe()
    previous_attributes = termios.tcgetattr(stdin)
    previous_handler = signal.signal(signal.SIGWINCH, _on_resize)
    try:
        tty.setcbreak(stdin)
        attributes = termios.tcgetattr(stdin)
        attributes[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(stdin, termios.TCSANOW, attributes)
        with wakeup.woken_by_signals():
            yield Keyboard(wakeup)
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, previous_attributes)
        signal.signal(signal.SIGWINCH, previous_handler)
        wakeup.close()


def _on_resize(_: int, __: FrameType | None) -> None:
    """Do nothing: the signal of a resize writes to the wake-up pipe only if it has a handler."""
