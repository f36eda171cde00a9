"""gunicorn's threaded worker, with what it lacks: it says when it is to stop, and no slow client keeps a thread for long.

A connection takes a thread when it has sent something, and not before. What it then sends has to arrive in time (`reading.py`),
and so has the answer to be taken. What is left are event streams, which have seats of their own: a client that takes none of it
loses its seat after `SEND_WITHIN_S`.
"""

from __future__ import annotations

import errno
import selectors
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

from app.api.server import io_deadlines
from app.api.server.connection_counts import ConnectionCounts

SEND_WITHIN_S = 30
"""How long a client may take no byte of what it is sent."""

NO_DESCRIPTORS_PAUSE_S = 0.2
"""How long nobody is let in when there are too many files open."""
YIELD_S = 0.001
"""How long a process with fewer connections is given to be the first at the door."""

connection_counts = ConnectionCounts()

stop_callbacks: list[Callable[[], None]] = []
"""What is done first when this process is told to stop: long polls answer and streams end, as nobody would wait for them."""


class ApiWorker(ThreadWorker):  # type: ignore[misc]
    """A process of the API."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Told to stop gracefully: requests under way are finished, and none is kept waiting."""
        super().handle_exit(sig, frame)
        _run_stop_callbacks()

    def handle_quit(self, sig: int, frame: Any) -> None:
        """Told to stop at once: Python waits for the threads even so.

        Not by way of the threaded worker: it closes its pool of threads first, and waits for ever if this signal came just when
        the pool was being given work.
        """
        _run_stop_callbacks()
        super(ThreadWorker, self).handle_quit(sig, frame)

    def run(self) -> None:
        """Serve until told to stop."""
        connection_counts.write(self.age, 0)
        super().run()

    def accept(self, listener: socket.socket) -> None:
        """Take in a connection, unless a process that has fewer does so; with no descriptor left, it waits outside."""
        if connection_counts.has_less_loaded_process(self.age, self.nr_conns):
            time.sleep(YIELD_S)
        try:
            super().accept(listener)
            connection_counts.write(self.age, self.nr_conns)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self.log.warning("no connection can be taken in: %s", error.strerror)
            time.sleep(NO_DESCRIPTORS_PAUSE_S)

    def enqueue_req(self, conn: TConn) -> None:
        """A new connection waits for its first byte in the main loop, any other is served."""
        if conn.initialized or conn.data_ready:
            super().enqueue_req(conn)
            return
        conn.sock.setblocking(False)
        conn.timeout = time.monotonic() + self.cfg.keepalive
        self.pending_conns.append(conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_pending_socket_readable, conn))

    def handle(self, conn: TConn) -> object:
        """Serve a request of a connection, in a thread."""
        if not conn.initialized:
            limit = struct.pack("ll", SEND_WITHIN_S, 0)
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        descriptor = conn.sock.fileno()
        io_deadlines.start_reading(descriptor)
        try:
            return super().handle(conn)
        finally:
            io_deadlines.finish(descriptor)

    def handle_request(self, req: Any, conn: TConn) -> object:
        """Serve a request that has been read; a client that takes nothing is as good as gone."""
        try:
            return super().handle_request(req, conn)
        except BlockingIOError as stuck:
            raise ConnectionResetError(errno.ECONNRESET, "the client takes nothing") from stuck

    def _cap_keepalive(self, deadline: float) -> None:
        """When it ends: nor is a connection waited for that has sent nothing yet."""
        super()._cap_keepalive(deadline)
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)

    def murder_pending(self) -> None:
        """Every second or so, or more often: connections that sent nothing, and those that send too slowly."""
        super().murder_pending()
        connection_counts.write(self.age, self.nr_conns)
        crowded = self.cfg.threads // io_deadlines.CROWDED_SHARE
        io_deadlines.shut_overdue(io_deadlines.READ_WITHIN_S if self.alive else io_deadlines.STOPPING_READ_WITHIN_S, crowded)


def _run_stop_callbacks() -> None:
    for act in stop_callbacks:
        act()
