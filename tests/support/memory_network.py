"""Connections within this process: a listener is a function, and a connection a pair of connected sockets without a port."""

from __future__ import annotations

import errno
import itertools
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from threading import Thread
from typing import Any
from urllib.parse import unquote_to_bytes
from weakref import WeakSet

import pytest
from flask import Flask

from tests.support.left_threads import no_threads_left

Serve = Callable[[socket.socket, tuple[str, int]], object]
"""Handles one connection, given the address of its client."""


class _LoopbackSocket(socket.socket):
    """A socket of a pair that accepts the options of TCP."""

    def setsockopt(self, level: int, *option: Any) -> None:
        """Set the option, unless it is one of TCP, which a pair does not have."""
        if level != socket.IPPROTO_TCP:
            super().setsockopt(level, *option)


class MemoryNetwork:
    """The loopback address of one test. `connect` stands in for `socket.create_connection`."""

    def __init__(self) -> None:
        self._listeners: dict[int, Serve] = {}
        self._ports, self._client_ports = itertools.count(1024), itertools.count(49_152)
        self._connections: WeakSet[socket.socket] = WeakSet()

    def listen(self, serve: Serve) -> int:
        """Serve each connection in a thread of its own; return the port."""
        port = next(self._ports)
        self._listeners[port] = serve
        return port

    def stop(self, port: int) -> None:
        """Refuse new connections to this port."""
        self._listeners.pop(port, None)

    def resume(self, port: int, serve: Serve) -> None:
        """Serve new connections to this port again."""
        self._listeners[port] = serve

    def close(self) -> None:
        """Refuse new connections and end all others."""
        self._listeners.clear()
        for connection in list(self._connections):
            with suppress(OSError):  # it is closed already
                connection.shutdown(socket.SHUT_RDWR)

    def connect(self, address: tuple[str, int], timeout: float | None = None, source_address: object = None) -> socket.socket:
        """Connect to a port. Raise ConnectionRefusedError if there is no listener."""
        serve = self._listeners.get(address[1]) if address[0] == "127.0.0.1" else None
        if serve is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        ours, theirs = socket.socketpair()
        self._connections.add(theirs)
        client = _LoopbackSocket(fileno=ours.detach())
        client.settimeout(timeout)
        port = next(self._client_ports)
        Thread(target=self._serve, args=(serve, theirs, port), name=f"connection-{port}", daemon=True).start()
        return client

    @staticmethod
    def _serve(serve: Serve, connection: socket.socket, port: int) -> None:
        with connection:
            serve(connection, ("127.0.0.1", port))


@contextmanager
def memory_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryNetwork]:
    """Let clients connect on a new network. Before the patch is undone, wait for all threads that could connect."""
    network = MemoryNetwork()
    monkeypatch.setattr(socket, "create_connection", network.connect)
    with no_threads_left():
        yield network
        network.close()


def serve_app(app: Flask) -> Serve:
    """Return what serves a WSGI application over HTTP/1.1, one request of a connection after the other."""
    handler = type("AppHandler", (_AppHandler,), {"app": app})

    def serve(connection: socket.socket, address: tuple[str, int]) -> None:
        handler(connection, address, None)

    return serve


class _AppHandler(BaseHTTPRequestHandler):
    """Passes each request to the application, and its answer back in chunks."""

    protocol_version = "HTTP/1.1"
    app: Flask

    def _serve(self) -> None:
        try:
            self._answer(self.app(self._environ(), self._start_response))
        except OSError:  # the client is gone
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _serve  # noqa: N815 - the names that the library looks for

    def _environ(self) -> dict[str, Any]:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        environ = {
            "REQUEST_METHOD": self.command,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
            "RAW_URI": self.path,
            "QUERY_STRING": query,
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": self.request_version,
            "REMOTE_ADDR": self.client_address[0],
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)) if body or "Content-Length" in self.headers else "",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": BytesIO(body),
            "wsgi.errors": BytesIO(),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        return environ | {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in self.headers.items()}

    def _start_response(self, status: str, headers: list[tuple[str, str]], error: object = None) -> Callable[[bytes], object]:
        code, _, phrase = status.partition(" ")
        self.send_response(int(code), phrase)
        names = {name.lower() for name, _ in headers}
        self._is_chunked = "content-length" not in names and code not in ("204", "304")
        for name, value in headers:
            self.send_header(name, value)
        if self._is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
        return self.wfile.write

    def _answer(self, chunks: Any) -> None:
        try:
            self.end_headers()
            for chunk in chunks:
                if chunk and self.command != "HEAD":
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._is_chunked else chunk)
            if self._is_chunked:
                self.wfile.write(b"0\r\n\r\n")
        finally:
            if hasattr(chunks, "close"):
                chunks.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the library
        """Write no log."""
