"""What a person is told, all of it on stderr: stdout is the command's. On a terminal the wait is one line, written anew."""

from __future__ import annotations

import math
import os
import select
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from poolkeeper.formatting import duration, printable

if TYPE_CHECKING:
    from poolkeeper.models import Request

PROGRAM = "poolkeeper"
QUIET_S = 30.0
"""Between two lines about the place in the queue, where there is no terminal."""
LIVE_POLL_S, PLAIN_POLL_S = 2.0, 10.0
"""How often to ask for the place."""
FORESEEN_S = 10.0
"""How often to ask when it may start."""


MOST_KEPT = 100
"""Lines that nobody takes just now."""
LAST_S = 2.0
"""How long the last of them may take."""
LONGEST = 1000
"""Characters of a line: less than a pipe takes at once when it says that it takes something."""


class Showing:
    """Lines on stderr, and the line of the wait. Whether anybody reads them is of no matter to the work: where stderr takes no
    more, as after a Ctrl-S or in a pipe nobody reads, lines are kept until it does, the latest of them, and nothing waits."""

    def __init__(self, *, quiet: bool = False) -> None:
        terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._quiet, self._live = quiet, terminal and not quiet
        self.poll_s = LIVE_POLL_S if self._live else PLAIN_POLL_S
        self._drawn = False
        self._kept: deque[str] = deque(maxlen=MOST_KEPT)
        self._said: dict[str, tuple[str, float]] = {}
        self._since, self._since_s = "", 0.0
        self._likely, self._asked_s = "", -FORESEEN_S

    def say(self, message: str) -> None:
        """How it goes; not said where quiet was asked for."""
        if not self._quiet:
            self.warn(message)

    def warn(self, message: str) -> None:
        """What somebody has to know."""
        self.clear()
        self._kept.append(f"{PROGRAM}: {printable(' '.join(message.split()))}"[:LONGEST] + "\n")
        self.flush()

    def flush(self, within_s: float = 0) -> None:
        """Lines that could not be said are, if they can be so soon."""
        until_s = time.monotonic() + within_s
        while self._kept and _is_taken(max(0.0, until_s - time.monotonic())):
            self._write(self._kept.popleft())

    def begin_waiting(self) -> None:
        """A wait begins now."""
        self._since, self._since_s = time.strftime("%H:%M"), time.monotonic()
        self._said.clear()

    @property
    def wants_estimate(self) -> bool:
        """Whether it is time to ask again when it may start."""
        return self._live and time.monotonic() - self._asked_s >= FORESEEN_S

    def foreseen(self, likely: datetime | None) -> None:
        """When it may start, if anybody can tell."""
        self._asked_s, self._likely = time.monotonic(), ""
        if likely is not None:
            minutes = max(0, math.ceil((likely - datetime.now(UTC)).total_seconds() / 60))
            self._likely = f", likely in {duration(minutes * 60)}" if minutes else ", likely any moment"

    def waiting(self, request: Request) -> None:
        """Where the request stands in the queue now."""
        self.flush()
        told = f"{places(request.position)}, since {self._since}"
        if self._live:
            self._draw(f"{told} ({duration(int(time.monotonic() - self._since_s))}){self._likely}")
        else:
            self._say_now_and_then("place", f"request {request.id}: {told}")

    def trouble(self, what: str) -> None:
        """No answer just now; it is tried again."""
        if self._live:
            self._draw(f"{what}; trying again")
        else:
            self._say_now_and_then("trouble", f"{what}; trying again")

    def clear(self) -> None:
        """The line of the wait is gone."""
        if self._drawn and _is_taken():
            self._write("\r\x1b[K")
            self._drawn = False

    def _say_now_and_then(self, about: str, told: str) -> None:
        before, said_s = self._said.get(about, ("", -QUIET_S))
        if told != before and time.monotonic() - said_s >= QUIET_S:
            self._said[about] = told, time.monotonic()
            self.say(told)

    def _draw(self, line: str) -> None:
        self.flush()
        if not self._kept and _is_taken():
            self._write(f"\r\x1b[K{printable(f'{PROGRAM}: {line}')[: _width() - 1]}")
            self._drawn = True

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError, AttributeError):  # nobody reads it, it is closed, there is none
            sys.stderr.write(text)
            sys.stderr.flush()


def _is_taken(within_s: float = 0) -> bool:
    """Whether stderr takes a line so soon."""
    with suppress(OSError, ValueError, AttributeError):
        return bool(select.select([], [sys.stderr.fileno()], [], within_s)[1])
    return True  # what is no file does not stop anybody


def _width() -> int:
    with suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return 80


def places(position: Mapping[str, int]) -> str:
    """`waiting in gpus: 3rd in the queue, 2 ahead`."""
    told = [
        f"in {pool}: {ordinal(place)} in the queue{f', {place - 1} ahead' if place > 1 else ''}"
        for pool, place in position.items()
    ]
    return f"waiting {'; '.join(told)}" if told else "waiting"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
