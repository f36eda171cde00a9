"""gunicorn's threaded worker, with what it lacks: it says when it is to stop, and lets go of slow clients."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

from app.api import reading

SEND_WITHIN_S = 30
"""How long a client may take no byte of what it is sent."""

stopping: list[Callable[[], None]] = []
"""What is done first when this process is told to stop: long polls answer and streams end, as nobody would wait for them."""


class Worker(ThreadWorker):  # type: ignore[misc]
    """A process of the API."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Told to stop gracefully: requests under way are finished, and none is kept waiting."""
        super().handle_exit(sig, frame)
        for act in stopping:
            act()

    def handle(self, conn: TConn) -> object:
        """Serve a request of a connection, in a thread."""
        if not conn.initialized:
            limit = struct.pack("ll", SEND_WITHIN_S, 0)
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        sock = conn.sock
        reading.begun(sock)
        try:
            return super().handle(conn)
        finally:
            reading.done(sock)

    def murder_pending(self) -> None:
        """Every second or so: connections that sent nothing, and those that send too slowly."""
        super().murder_pending()
        reading.cut_off()
