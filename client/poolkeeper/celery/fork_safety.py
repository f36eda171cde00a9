"""Protection of threads from forks: a forked process inherits every lock in its present state, but no thread that could release
the lock.

When a child has died, the main process of a worker forks a new child. At the same time, threads of this package make calls in
the main process. These calls use libraries with locks (the result backend, imports). So these threads and a fork wait for each
other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, local

MAX_FORK_DELAY_S = 1.0
"""The most seconds that a fork waits, because a call may wait long for a server, and the process has other work."""


class _ForkLock:
    def __init__(self) -> None:
        self.lock, self._local = Lock(), local()  # several threads may fork at a time

    def acquire(self) -> None:
        self._local.shut = False
        self._local.shut = self.lock.acquire(timeout=MAX_FORK_DELAY_S)

    def release(self) -> None:
        if getattr(self._local, "shut", False):
            self._local.shut = False
            self.lock.release()

    def replace(self) -> None:
        self.lock = Lock()


_fork_lock = _ForkLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_fork_lock.acquire, after_in_parent=_fork_lock.release, after_in_child=_fork_lock.replace)


@contextmanager
def block_forks() -> Iterator[None]:
    """Block forks of this process inside the block, but not longer than `MAX_FORK_DELAY_S`; one thread at a time."""
    with _fork_lock.lock:
        yield
