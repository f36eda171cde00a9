"""Messages of `run`, all on stderr: stdout is the command's. On a terminal the wait is one line that is drawn again."""

from __future__ import annotations

import os
import select
import sys
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from poolkeeper.formatting import shorten
from poolkeeper.runner.waiting_line import WaitDetails, describe_positions, waiting_line

if TYPE_CHECKING:
    from poolkeeper.models import Request

PROGRAM = "poolkeeper"
REPEAT_AFTER_S = 30.0
"""The least seconds between two lines about the position in the queue, without a terminal."""
LIVE_POLL_S, PLAIN_POLL_S = 2.0, 10.0
"""The seconds between two reads of the position: with and without a terminal."""
DETAILS_EVERY_S = 10.0
"""The seconds between two reads of the reason of the wait and the estimated start."""


MAX_PENDING = 100
"""The most lines that are kept while stderr accepts no output."""
FINAL_FLUSH_S = 2.0
"""The seconds that writing the kept lines may take at the end."""
MAX_LINE = 1000
"""The most characters of a line: a pipe that is ready takes them all at once."""


class Progress:
    """Lines on stderr, and the live line of the wait. Writing never blocks. While stderr accepts no output, as after Ctrl-S or
    with a full pipe, the latest lines are kept and written later.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._is_quiet, self._is_live = quiet, terminal and not quiet
        self.poll_s = LIVE_POLL_S if self._is_live else PLAIN_POLL_S
        self._is_drawn = False
        self._pending: deque[str] = deque(maxlen=MAX_PENDING)
        self._last_lines: dict[str, tuple[str, float]] = {}
        self._waiting_since, self._waiting_since_s = "", 0.0
        self._details, self._details_asked_s = WaitDetails(), -DETAILS_EVERY_S

    def info(self, message: str) -> None:
        """Print a message, unless the run is quiet."""
        if not self._is_quiet:
            self.warn(message)

    def warn(self, message: str) -> None:
        """Print a message, also if the run is quiet."""
        self.clear()
        self._pending.append(shorten(f"{PROGRAM}: {message}", MAX_LINE) + "\n")
        self.flush()

    def flush(self, within_s: float = 0) -> None:
        """Write the kept lines, as far as stderr accepts them within this time."""
        until_s = time.monotonic() + within_s
        while self._pending and _is_writable(max(0.0, until_s - time.monotonic())):
            self._write(self._pending.popleft())

    def begin_waiting(self) -> None:
        """Note that a wait begins."""
        self._waiting_since, self._waiting_since_s = time.strftime("%H:%M"), time.monotonic()
        self._details, self._details_asked_s = WaitDetails(), -DETAILS_EVERY_S
        self._last_lines.clear()

    @property
    def wants_details(self) -> bool:
        """True if the reason of the wait and the estimated start should be read again. They are never read in a short wait
        without a terminal.
        """
        if self._is_live:
            return time.monotonic() - self._details_asked_s >= DETAILS_EVERY_S
        asked_s = max(self._details_asked_s, self._waiting_since_s)
        return not self._is_quiet and time.monotonic() - asked_s >= REPEAT_AFTER_S

    def set_details(self, details: WaitDetails) -> None:
        """Set the details that the line shows from now on."""
        self._details_asked_s, self._details = time.monotonic(), details

    def show_position(self, request: Request) -> None:
        """Show the position of the request in the queue, and its details."""
        self.flush()
        if self._is_live:
            waited_s = int(time.monotonic() - self._waiting_since_s)
            width = _width() - 1 - len(f"{PROGRAM}: ")
            self._draw(waiting_line(request.position, self._waiting_since, waited_s, self._details, width))
            return
        place = f"request {request.id}: {describe_positions(request.position)}, since {self._waiting_since}"
        reason = f": {self._details.reason}" if self._details.reason else ""
        self._info_rarely("place", f"{place}{reason}", f"{place} {self._details.verdict}")

    def show_retry(self, error: str) -> None:
        """Show that a call failed and is tried again."""
        if self._is_live:
            self._draw(f"{error}; trying again")
        else:
            self._info_rarely("trouble", f"{error}; trying again", error)

    def clear(self) -> None:
        """Remove the live line."""
        if self._is_drawn and _is_writable():
            self._write("\r\x1b[K")
            self._is_drawn = False

    def _info_rarely(self, topic: str, text: str, state: str) -> None:
        """Print a text if its state differs from the last printed state, and enough time has passed since."""
        previous, shown_s = self._last_lines.get(topic, ("", -REPEAT_AFTER_S))
        if state != previous and time.monotonic() - shown_s >= REPEAT_AFTER_S:
            self._last_lines[topic] = state, time.monotonic()
            self.info(text)

    def _draw(self, line: str) -> None:
        self.flush()
        if not self._pending and _is_writable():
            self._write(f"\r\x1b[K{shorten(f'{PROGRAM}: {line}', _width() - 1)}")
            self._is_drawn = True

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError, AttributeError):  # stderr has no reader, is closed, or does not exist
            sys.stderr.write(text)
            sys.stderr.flush()


def _is_writable(within_s: float = 0) -> bool:
    """True if stderr accepts a line within this time."""
    with suppress(OSError, ValueError, AttributeError):
        return bool(select.select([], [sys.stderr.fileno()], [], within_s)[1])
    return True  # a stream that is no file never blocks


def _width() -> int:
    with suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return 80
