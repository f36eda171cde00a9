"""How many connections each process of the API has, in a page of memory that all of them share.

All processes wait at one door, and who is awake already is always the first there: without this, one would take in nearly
everybody while the others sleep.
"""

from __future__ import annotations

import os
from mmap import mmap
from struct import Struct

SLOTS = 128

_ROW = Struct("ii")  # whose it is (0: nobody's), and how many


class ConnectionCounts:
    """The page; made before the processes are."""

    def __init__(self) -> None:
        self._page = mmap(-1, SLOTS * _ROW.size)

    def write(self, place: int, connections: int) -> None:
        """This process, whose place it is, has so many."""
        _ROW.pack_into(self._page, place % SLOTS * _ROW.size, os.getpid(), connections)

    def has_less_loaded_process(self, place: int, connections: int) -> bool:
        """Whether a living process has fewer than so many."""
        rows, own = enumerate(_ROW.iter_unpack(self._page)), place % SLOTS
        return any(pid and count < connections and at != own and self._is_alive(at, pid) for at, (pid, count) in rows)

    def _is_alive(self, place: int, pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, PermissionError):  # gone, or its number is somebody else's by now
            _ROW.pack_into(self._page, place * _ROW.size, 0, 0)
            return False
        return True
