"""For how long one waits for another in the same process to work out what both want to know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

TIMEOUT_S = 5.0
"""Where Redis hangs, those who wait would else run into its time limit one after the other."""


@contextmanager
def acquire(lock: Lock) -> Iterator[bool]:
    """Whether it is one's turn; if so, others wait until the context ends."""
    got = lock.acquire(timeout=TIMEOUT_S)
    try:
        yield got
    finally:
        if got:
            lock.release()
