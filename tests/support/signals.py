"""Signals that do not interrupt the main thread."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def another_thread_gets(signum: signal.Signals) -> Iterator[None]:
    """Send a signal during the block so that it does not interrupt the main thread, as one just before a system call."""
    ended = threading.Event()
    receiver = threading.Thread(target=ended.wait)
    receiver.start()
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signum])
    sender = threading.Timer(0.2, os.kill, (os.getpid(), signum))
    sender.start()
    try:
        yield
    finally:
        sender.join()
        ended.set()
        receiver.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
