"""A pipe that wakes the main thread: other threads and signal handlers write to it."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from contextlib import suppress


class WakeupPipe:
    """A wake-up call: any thread may call `wake`, and one thread waits. A call before the wait ends the next wait."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)

    def wake(self, *_: object) -> None:
        """End the current wait, or the next."""
        with suppress(OSError):  # full, so the wait ends anyway
            os.write(self._write_end, b"!")

    def wait(self, seconds: float, files: Sequence[int] = ()) -> None:
        """Wait for a wake-up or a readable file, at most for these seconds."""
        ready, _, _ = select.select([self._read_end, *files], [], [], max(0.0, seconds))
        if self._read_end in ready:
            with suppress(BlockingIOError):
                os.read(self._read_end, 4096)

    def close(self) -> None:
        """Close both ends."""
        os.close(self._read_end)
        os.close(self._write_end)
