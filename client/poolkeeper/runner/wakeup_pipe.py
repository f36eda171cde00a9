"""What wakes the main thread: a pipe that threads and signal handlers write to."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from contextlib import suppress


class Bell:
    """Rung from anywhere, waited for in one place; a ring that came before counts."""

    def __init__(self) -> None:
        self._heard, self._rings = os.pipe()
        os.set_blocking(self._heard, False)
        os.set_blocking(self._rings, False)

    def ring(self, *_: object) -> None:
        """Whoever waits, or will wait next, goes on."""
        with suppress(OSError):  # it is full, so it rings anyway
            os.write(self._rings, b"!")

    def wait(self, seconds: float, files: Sequence[int] = ()) -> None:
        """Until it is rung or one of the files can be read, but not longer."""
        ready, _, _ = select.select([self._heard, *files], [], [], max(0.0, seconds))
        if self._heard in ready:
            with suppress(BlockingIOError):
                os.read(self._heard, 4096)

    def close(self) -> None:
        """No more."""
        os.close(self._heard)
        os.close(self._rings)
