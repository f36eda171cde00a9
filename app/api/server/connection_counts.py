"""The number of connections of each API process, in a page of shared memory.

All processes accept from one socket, and a process that runs already accepts first. Without this page one process would take
nearly all connections while the others sleep.
"""

from __future__ import annotations

import os
from mmap import mmap
from struct import Struct

SLOTS = 128

_ROW = Struct("ii")  # process id (0: free slot), connections


class ConnectionCounts:
    """The shared page, created before the fork."""

    def __init__(self) -> None:
        self._page = mmap(-1, SLOTS * _ROW.size)

    def write(self, slot: int, connections: int) -> None:
        """Write the number of connections of this process into its slot."""
        _ROW.pack_into(self._page, slot % SLOTS * _ROW.size, os.getpid(), connections)

    def has_less_loaded_process(self, slot: int, connections: int) -> bool:
        """True if a living process has fewer connections."""
        rows, own_slot = enumerate(_ROW.iter_unpack(self._page)), slot % SLOTS
        return any(pid and count < connections and row != own_slot and self._is_alive(row, pid) for row, (pid, count) in rows)

    def _is_alive(self, slot: int, pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, PermissionError):  # ended, or its id belongs to another user's process by now
            _ROW.pack_into(self._page, slot * _ROW.size, 0, 0)
            return False
        return True
