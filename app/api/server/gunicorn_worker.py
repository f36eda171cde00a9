"""The threaded worker of gunicorn, extended: it announces its stop, and a slow client keeps no thread for long.

A connection takes a thread only after its first byte. The client has to send the request in time, and to read the response in
time (`io_deadlines.py`). Event streams have no such deadline, but wait slots of their own: a client that reads nothing loses
its slot after `SEND_WITHIN_S`.
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

from gunicorn.http.body import ChunkedReader
from gunicorn.util import close
from gunicorn.workers.gthread import TConn, ThreadWorker

from app.api.server import freed_memory, io_deadlines
from app.api.server.connection_counts import ConnectionCounts
from app.api.server.lingering_sockets import LingeringSockets

SEND_WITHIN_S = 30
"""Seconds for which a client may read no byte of a response."""
TCP_OPTIONS = {
    "TCP_USER_TIMEOUT": SEND_WITHIN_S * 1000,
    "TCP_KEEPIDLE": SEND_WITHIN_S,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
}
"""The options of a connection, if the system has them: the time for an acknowledgement, and the probes of a silent client."""

NO_DESCRIPTORS_PAUSE_S = 0.2
"""Seconds for which no connection is accepted after too many files were open."""
YIELD_S = 0.001
"""Seconds that a process waits, so that a process with fewer connections accepts first."""

connection_counts = ConnectionCounts()

stop_callbacks: list[Callable[[], None]] = []
"""The functions that are called first when the process has to stop: long polls answer, and streams end."""


class ApiWorker(ThreadWorker):  # type: ignore[misc]
    """A process of the API."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop gracefully: finish requests under way, and end long polls."""
        super().handle_exit(sig, frame)
        _run_stop_callbacks()

    def handle_quit(self, sig: int, frame: Any) -> None:
        """Stop at once, though Python still waits for the threads.

        The method of the threaded worker is skipped: it closes its thread pool first, and would wait for ever if the signal
        interrupts a hand-over of work to the pool.
        """
        _run_stop_callbacks()
        super(ThreadWorker, self).handle_quit(sig, frame)

    def run(self) -> None:
        """Serve until the process has to stop."""
        self._lingering = LingeringSockets(self.poller)
        connection_counts.write(self.age, 0)
        freed_memory.use_one_arena()
        super().run()

    def accept(self, listener: socket.socket) -> None:
        """Accept a connection, after processes with fewer connections. Without a free descriptor it stays in the backlog."""
        if connection_counts.has_less_loaded_process(self.age, self.nr_conns):
            time.sleep(YIELD_S)
        try:
            super().accept(listener)
            connection_counts.write(self.age, self.nr_conns)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self.log.warning("no connection can be accepted: %s", error.strerror)
            time.sleep(NO_DESCRIPTORS_PAUSE_S)

    def enqueue_req(self, conn: TConn) -> None:
        """Serve a connection. A new one waits in the main loop for its first byte."""
        if conn.initialized or conn.data_ready:
            super().enqueue_req(conn)
            return
        conn.sock.setblocking(False)
        conn.timeout = time.monotonic() + self.cfg.keepalive
        self.pending_conns.append(conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_pending_socket_readable, conn))

    def handle(self, conn: TConn) -> object:
        """Serve a request of a connection in a thread."""
        if not conn.initialized:
            set_timeouts(conn.sock)
            conn.close = partial(self._close, conn)
        descriptor = conn.sock.fileno()
        io_deadlines.start_reading(descriptor)
        try:
            return super().handle(conn)
        finally:
            io_deadlines.finish(descriptor)

    def handle_request(self, req: Any, conn: TConn) -> object:
        """Serve a request that has been read. Drop a client that reads nothing."""
        try:
            return super().handle_request(req, conn)
        except BlockingIOError as stuck:
            raise ConnectionResetError(errno.ECONNRESET, "the client takes nothing") from stuck

    def _keepalive_after(self, conn: TConn, keepalive: object) -> bool:
        """Discard the part of a body that the application has not read, within the deadlines for a body.

        A chunked body ends the connection instead: to discard short chunks takes longer than to send them.
        """
        reader = conn.parser.mesg.body.reader
        if isinstance(reader, ChunkedReader) and reader.parser is not None:  # the last chunk has not been read
            return False
        io_deadlines.start_reading(conn.sock.fileno())
        return bool(super()._keepalive_after(conn, keepalive))

    def _close(self, conn: TConn, graceful: bool = False) -> None:
        """Close a connection. The main loop goes on, where gunicorn would wait for the client to close its side."""
        if graceful:
            self._lingering.add(conn.sock)
        else:
            close(conn.sock)

    def _cap_keepalive(self, deadline: float) -> None:
        """Cap the timeouts at the end of the process, also for connections that have sent nothing yet."""
        super()._cap_keepalive(deadline)
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)

    def murder_pending(self) -> None:
        """Close connections that sent nothing or are too slow, and return the memory of large bodies. Called every second."""
        super().murder_pending()
        connection_counts.write(self.age, self.nr_conns)
        freed_memory.return_after_large_bodies()
        self._lingering.close_overdue()
        crowded = self.cfg.threads // io_deadlines.CROWDED_SHARE
        io_deadlines.shut_overdue(io_deadlines.READ_WITHIN_S if self.alive else io_deadlines.STOPPING_READ_WITHIN_S, crowded)


def set_timeouts(sock: socket.socket) -> None:
    """Bound the time for a client that reads nothing, and for a client whose machine or network is gone.

    Without the latter an event stream would keep its wait slot for a quarter of an hour: its lines fit into the send buffer.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_WITHIN_S, 0))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in TCP_OPTIONS.items():
        if hasattr(socket, name) and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _run_stop_callbacks() -> None:
    for act in stop_callbacks:
        act()
