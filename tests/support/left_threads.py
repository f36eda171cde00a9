"""A check that the threads of a test end with it: a thread that goes on would act in the next test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

END_WITHIN_S = 10
"""The time that threads have to end. A thread that the test has stopped ends at once."""


@contextmanager
def no_threads_left() -> Iterator[None]:
    """Wait for the end of the threads that start within the context. Fail if one goes on."""
    before = set(threading.enumerate())
    yield
    until_s = time.monotonic() + END_WITHIN_S
    started = [thread for thread in threading.enumerate() if thread not in before]
    for thread in started:
        thread.join(max(0.0, until_s - time.monotonic()))
    assert [thread.name for thread in started if thread.is_alive()] == [], "threads go on after their test"
