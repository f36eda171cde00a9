"""The return of the memory of large bodies to the system.

The C library keeps freed memory in arenas, which threads share. It keeps blocks up to the size of the largest that was freed
before. Free memory between used blocks is not returned, and with many arenas this is most of it. Without this module, a few
large bodies would make a process of many threads several times as large for good.
"""

from __future__ import annotations

import ctypes
from threading import Lock
from typing import Final

M_ARENA_MAX: Final = -8
"""The parameter of `mallopt` for the number of arenas."""
M_MMAP_THRESHOLD: Final = -3
"""The parameter of `mallopt` for the size from which a block is returned as soon as it is freed."""
LARGE_BLOCK: Final = 2**17

_lock = Lock()
_due = 0


def use_one_arena() -> None:
    """Make all threads of the process allocate in one arena; threads that run Python rarely allocate at the same moment."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only, as malloc_trim
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)
        mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


def record_large_body() -> None:
    """Record the end of a call with a large body. Its memory is freed soon after, so the next two ticks return memory."""
    global _due
    with _lock:
        _due = 2


def return_after_large_bodies() -> None:
    """Return freed memory to the system if a call with a large body has ended lately."""
    global _due
    with _lock:
        is_due, _due = _due > 0, max(0, _due - 1)
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if is_due else None
    if malloc_trim is not None:
        malloc_trim(0)
