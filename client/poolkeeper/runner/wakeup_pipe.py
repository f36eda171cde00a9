"""What wakes the main thread: a pipe that threads and signal handlers write to."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from contextlib import suppress


class WakeupPipe:
    """Rung from anywhere, waited for in one place; a ring that came before counts."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)

    def wake(self, *_: object) -> None:
        """Whoever waits, or will wait next, goes on."""
        with suppress(OSError):  # it is full, so it rings anyway
            os.write(self._write_end, b"!")

    def wait(self, seconds: float, files: Sequence[int] = ()) -> None:
        """Until it is rung or one of the files can be read, but not longer."""
        ready, _, _ = select.select([self._read_end, *files], [], [], max(0.0, seconds))
        if self._read_end in ready:
            with suppress(BlockingIOError):
                os.read(self._read_end, 4096)

    def close(self) -> None:
        """No more."""
        os.close(self._read_end)
        os.close(self._write_end)
