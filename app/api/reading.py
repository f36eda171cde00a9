"""Who is being read from: a client that takes too long over sending its request is cut off, and holds its thread no more.

The worker notes the connection when a thread begins with it, the dispatch when the request has been read whole; the worker's
main loop looks now and then for those that are overdue. It is the main loop, too, that closes connections, so a descriptor
noted here is never somebody else's by then.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

WITHIN_S = 20.0
"""How long a request may take to arrive. Ten times what a megabyte takes on a slow line."""

_since: dict[int, float] = {}


def begun(sock: socket.socket) -> None:
    """A thread begins to read from it."""
    _since[sock.fileno()] = time.monotonic()


def done(sock: socket.socket | None) -> None:
    """The request is here, or the connection is done with."""
    if sock is not None:
        _since.pop(sock.fileno(), None)


def cut_off(within_s: float = WITHIN_S) -> int:
    """Shuts every connection that has taken longer: its thread reads an end, and goes on to another client. Says how many."""
    now = time.monotonic()
    overdue = [descriptor for descriptor, since in list(_since.items()) if now - since > within_s]
    for descriptor in overdue:
        _since.pop(descriptor, None)
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as again:
            again.shutdown(socket.SHUT_RDWR)
    return len(overdue)
