"""A pipe that wakes the main thread: other threads write to it, and so does every signal."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress


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

    @contextmanager
    def woken_by_signals(self) -> Iterator[None]:
        """Wake at every signal with a handler inside the block.

        The interpreter itself writes to the pipe. A handler would be too late: Python runs it after the system call that the
        main thread has begun, and a signal just before that call does not interrupt it.
        """
        previous = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous)

    def wait(self, seconds: float, files: Sequence[int] = ()) -> list[int]:
        """Wait for a wake-up or a readable file, at most for these seconds. Return the readable files."""
        ready, _, _ = select.select([self._read_end, *files], [], [], max(0.0, seconds))
        if self._read_end in ready:
            with suppress(BlockingIOError):
                os.read(self._read_end, 4096)
        return [file for file in files if file in ready]

    def close(self) -> None:
        """Close both ends."""
        os.close(self._read_end)
        os.close(self._write_end)
