"""Deadlines for reading a request and writing a response. A client that is too slow is disconnected, which frees its thread.

The worker records a connection when a thread begins with it. The request handler records it while it reads a body and before
it writes a response. The time in between is spent by the service, and does not count. The main loop of the worker shuts overdue
connections. The main loop also closes connections, so a recorded descriptor never belongs to another connection.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

READ_WITHIN_S = 20.0
"""Seconds that a request may take to arrive: ten times the time of a megabyte on a slow line."""
BYTES_PER_S = 10_000
"""The lowest rate at which a response may be read, after `READ_WITHIN_S`."""
CROWDED_READ_WITHIN_S = 1.0
"""Seconds that a request may take to arrive while many connections are being read."""
STOPPING_READ_WITHIN_S = 3.0
"""Seconds that a request may take to arrive while the process stops."""
CROWDED_SHARE = 8
"""Threads for each connection being read, below which the connections are many: two thirds of the threads that long polls and
streams leave free."""

_read_starts: dict[int, float] = {}
_write_deadlines: dict[int, float] = {}


def start_reading(descriptor: int) -> None:
    """Record that a thread begins to read from a connection."""
    _read_starts[descriptor] = time.monotonic()


def finish(descriptor: int) -> None:
    """Record that the request has been read, or the response written."""
    _read_starts.pop(descriptor, None)
    _write_deadlines.pop(descriptor, None)


def start_writing(descriptor: int, length: int) -> None:
    """Record that a thread begins to write a response of this length to a connection."""
    _write_deadlines[descriptor] = time.monotonic() + READ_WITHIN_S + length / BYTES_PER_S


def shut_overdue(within_s: float, crowded: int) -> int:
    """Shut every overdue connection, so that its thread serves another client. Return their number.

    While more than `crowded` connections are being read, the shorter time applies to the earliest of them.
    """
    now = time.monotonic()
    slow = [
        (since, descriptor)
        for descriptor, since in list(_read_starts.items())
        if now - since > min(within_s, CROWDED_READ_WITHIN_S)
    ]
    too_many = len(_read_starts) - crowded
    overdue = [
        descriptor for number, (since, descriptor) in enumerate(sorted(slow)) if number < too_many or now - since > within_s
    ]
    overdue += [descriptor for descriptor, until in list(_write_deadlines.items()) if now > until]
    for descriptor in overdue:
        finish(descriptor)
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)
    return len(overdue)
