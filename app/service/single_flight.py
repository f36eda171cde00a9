"""Share one computation between the threads of a process: a lock with a timeout, and a cache with a time to live."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Generic, TypeVar

TIMEOUT_S = 5.0
"""Seconds that a thread waits for the lock. Without it, waiting threads would time out one after the other if Redis hangs."""

Value = TypeVar("Value")
CacheKey = tuple[str, ...]


@contextmanager
def acquire(lock: Lock) -> Iterator[bool]:
    """Yield True with the lock held until the context ends, or False if it was not free in time."""
    acquired = lock.acquire(timeout=TIMEOUT_S)
    try:
        yield acquired
    finally:
        if acquired:
            lock.release()


class TtlCache(Generic[Value]):
    """A cache of values by key, each for some seconds. One thread computes a value, and the other threads wait for it."""

    def __init__(self, ttl_s: float, max_entries: int, monotonic: Callable[[], float]) -> None:
        self._ttl_s, self._max_entries, self._monotonic = ttl_s, max_entries, monotonic
        self._entries: dict[CacheKey, tuple[float, Value]] = {}
        self._lock = Lock()

    def get(self, key: CacheKey, compute: Callable[[], Value]) -> Value:
        """Return the cached value, or compute it. An empty value is not cached."""
        with self._lock:
            if key in self._entries and self._monotonic() < self._entries[key][0]:
                return self._entries[key][1]
            value = compute()
            if len(self._entries) >= self._max_entries:
                self._entries.clear()
            if value:
                self._entries[key] = self._monotonic() + self._ttl_s, value
            return value
