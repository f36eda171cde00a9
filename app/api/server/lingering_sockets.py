"""Connections after their last response, until the client closes them.

If a socket is closed while data of the client is unread, the system resets the connection, and the client may lose the
response. So first only the sending side is closed. gunicorn would then wait in its main loop for up to two seconds, and accept
no connection meanwhile. Here the main loop goes on, and reads from such a connection when data arrives.
"""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import suppress

LINGER_S = 2.0
"""Seconds that a client has to close the connection."""
MAX_SOCKETS = 100
"""The most such connections of a process, as each is an open file; beyond it the oldest is closed."""
MAX_DRAINED_BYTES = 2**16
"""The most bytes that a client may send meanwhile."""


class LingeringSockets:
    """The connections of one process that wait for their clients to close them."""

    def __init__(self, poller: selectors.BaseSelector) -> None:
        self._poller = poller
        self._sockets: dict[socket.socket, tuple[float, int]] = {}  # end of its time, bytes read; the oldest first

    def add(self, sock: socket.socket) -> None:
        """Close the sending side. Close the socket when the client closes it, sends too much or takes too long."""
        try:
            sock.setblocking(False)
            sock.shutdown(socket.SHUT_WR)
            self._poller.register(sock, selectors.EVENT_READ, self._drain)
        except (OSError, ValueError, KeyError):
            sock.close()
            return
        self._sockets[sock] = time.monotonic() + LINGER_S, 0
        if len(self._sockets) > MAX_SOCKETS:
            self._close(next(iter(self._sockets)))

    def close_overdue(self) -> None:
        """Close the connections whose time is over."""
        now = time.monotonic()
        for sock in [sock for sock, (end_s, _) in self._sockets.items() if end_s <= now]:
            self._close(sock)

    def _drain(self, sock: socket.socket) -> None:
        if sock not in self._sockets:  # closed by an earlier event of the same round
            return
        until, drained = self._sockets[sock]
        try:
            received = len(sock.recv(MAX_DRAINED_BYTES))
        except BlockingIOError:
            return
        except OSError:
            received = 0
        self._sockets[sock] = until, drained + received
        if not received or drained + received >= MAX_DRAINED_BYTES:
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        self._sockets.pop(sock, None)
        with suppress(OSError, ValueError, KeyError):
            self._poller.unregister(sock)
        sock.close()
