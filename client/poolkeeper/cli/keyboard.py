"""Keys pressed on a terminal that does not echo them, and a wake-up call from another thread."""

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
KEY_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)?|.", re.DOTALL)
"""The characters of one key: a letter, or a sequence that begins with Escape."""


class Keyboard:
    """The keys pressed since the last wait; `wake` ends a wait from another thread."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)

    def wake(self) -> None:
        """End the current wait, or the next."""
        with suppress(BlockingIOError, OSError):  # a wake-up call is pending, or the pipe is closed
            os.write(self._write_end, b".")

    def wait(self, within_s: float) -> list[str]:
        """Return the pressed keys (`up`, `down`, or a letter). Return at a key, at a wake-up call, or after this time."""
        stdin = sys.stdin.fileno()
        ready, _, _ = select.select([stdin, self._read_end], [], [], within_s)
        if self._read_end in ready:
            with suppress(BlockingIOError):
                os.read(self._read_end, 4096)
        return list(parse_keys(os.read(stdin, 64).decode(errors="replace"))) if stdin in ready else []

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._read_end)
        os.close(self._write_end)


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
    wake-up call.
    """
    import termios
    import tty

    stdin, keyboard = sys.stdin.fileno(), Keyboard()
    previous_attributes = termios.tcgetattr(stdin)

    def on_resize(_: int, __: FrameType | None) -> None:
        keyboard.wake()

    previous_handler = signal.signal(signal.SIGWINCH, on_resize)
    try:
        tty.setcbreak(stdin)
        attributes = termios.tcgetattr(stdin)
        attributes[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(stdin, termios.TCSANOW, attributes)
        yield keyboard
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, previous_attributes)
        signal.signal(signal.SIGWINCH, previous_handler)
        keyboard.close()
