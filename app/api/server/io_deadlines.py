"""Who is being read from or written to: a client that takes too long over it is cut off, and holds its thread no more.

The worker notes the connection when a thread begins with it, the dispatch while it reads a body, and when there is an answer to
be written; what happens in between is our time and not the client's. The worker's main loop looks now and then for those that
are overdue. It is the main loop, too, that closes connections, so a descriptor noted here is never somebody else's by then.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

READ_WITHIN_S = 20.0
"""How long a request may take to arrive. Ten times what a megabyte takes on a slow line."""
BYTES_PER_S = 10_000
"""How slowly an answer may be taken, beside that time."""
CROWDED_READ_WITHIN_S = 1.0
"""How long when there are many of them."""
STOPPING_READ_WITHIN_S = 3.0
"""How long when the process has been told to stop."""
CROWDED_SHARE = 8
"""More than one in so many of the threads are many: half of what long polls and streams leave to others."""

_read_starts: dict[int, float] = {}
_write_deadlines: dict[int, float] = {}


def start_reading(descriptor: int) -> None:
    """A thread begins to read from a connection."""
    _read_starts[descriptor] = time.monotonic()


def finish(descriptor: int) -> None:
    """The request is here, or the answer is out."""
    _read_starts.pop(descriptor, None)
    _write_deadlines.pop(descriptor, None)


def start_writing(descriptor: int, length: int) -> None:
    """A thread begins to write an answer of so many bytes to a connection."""
    _write_deadlines[descriptor] = time.monotonic() + READ_WITHIN_S + length / BYTES_PER_S


def shut_overdue(within_s: float, crowded: int) -> int:
    """Shuts every connection that has taken longer: its thread reads an end, and goes on to another client. Says how many.

    While more than `crowded` are being read they have to be quick, the earliest first, until no more are left than that.
    """
    now = time.monotonic()
    slow = [
        (since, descriptor)
        for descriptor, since in list(_read_starts.items())
        if now - since > min(within_s, CROWDED_READ_WITHIN_S)
    ]
    too_many = len(_read_starts) - crowded
    overdue = [
        descriptor for place, (since, descriptor) in enumerate(sorted(slow)) if place < too_many or now - since > within_s
    ]
    overdue += [descriptor for descriptor, until in list(_write_deadlines.items()) if now > until]
    for descriptor in overdue:
        finish(descriptor)
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as again:
            again.shutdown(socket.SHUT_RDWR)
    return len(overdue)
