"""A stand-in for the server that says what a test tells it to, and misbehaves on request.

It listens on the loopback address and answers each call with the next act of its script; without one it says 200 and what
it was asked. Every call is noted, with the connection it came on.
"""

from __future__ import annotations

import json
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import TracebackType
from typing import Any

from tests.support.memory_network import MemoryNetwork


@dataclass(frozen=True)
class ReceivedCall:
    """One call, as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    connection: int


class StubHandler(BaseHTTPRequestHandler):
    """Takes a call in, and does the next act."""

    protocol_version = "HTTP/1.1"
    stub: StubServer

    def _serve(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        calls = ReceivedCall(self.command, self.path, headers, json.loads(text) if text else None, self.client_address[1])
        self.stub.calls.append(calls)
        act = self.stub.actions.popleft() if self.stub.actions else reply({"path": self.path})
        act(self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - so the library wants them called

    def reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a complete response."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def cut(self) -> None:
        """Reset the connection."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - so named above
        """Log nothing: the calls are recorded in `heard`."""

    def finish(self) -> None:
        """Count the end of a connection."""
        with suppress(OSError, ValueError):
            super().finish()
        self.stub.connections_ended += 1


Action = Callable[[StubHandler], None]


class StubServer:
    """A server that does as it is told, for as long as its context; `url` is where it listens.

    With a `network` it listens there; else on a port of the system.
    """

    def __init__(self, port: int = 0, network: MemoryNetwork | None = None) -> None:
        self.calls: list[ReceivedCall] = []
        self.actions: deque[Action] = deque()
        self.ended = Event()
        self.connections_ended = 0
        self._handler = type("BoundHandler", (StubHandler,), {"stub": self})
        self._server: ThreadingHTTPServer | None = None
        if network is None:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler)
            self._server.daemon_threads = True
        self.port = self._server.server_port if self._server else network.listen(self._serve) if network else port
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> StubServer:
        if self._server:
            Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.ended.set()
        if self._server:
            self._server.shutdown()
            self._server.server_close()

    def _serve(self, connection: socket.socket, address: tuple[str, int]) -> None:
        with suppress(OSError):
            self._handler(connection, address, None)

    def script(self, *acts: Action) -> None:
        """Set the actions for the next calls, in order."""
        self.actions.extend(acts)


def reply(body: Any, status: int = 200, **headers: str) -> Action:
    """Return an action that answers with JSON; `retry_after="1"` is the header Retry-After."""
    text = b"" if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    return lambda handler: handler.reply(status, text, {"Content-Type": "application/json", **named})


def refuse(status: int, code: str, detail: str = "no", retry_after: str | None = None, **more: Any) -> Action:
    """Return an action that answers with a problem document."""
    problem = {"type": "about:blank", "title": "No", "status": status, "code": code, "detail": detail, **more}
    return reply(problem, status, **({"retry_after": retry_after} if retry_after else {}))


def reply_text(status: int, body: bytes, kind: str = "text/html") -> Action:
    """Return an action whose response is not JSON."""
    return lambda handler: handler.reply(status, body, {"Content-Type": kind})


def cut(handler: StubHandler) -> None:
    """Read the call, and reset the connection instead of answering."""
    handler.cut()


def cut_midway(handler: StubHandler) -> None:
    """Begin a response, and reset the connection in the middle of it."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"half": ')
    handler.wfile.flush()
    handler.cut()


def then_close(act: Action) -> Action:
    """Return an action that answers, announces a persistent connection, and closes it."""

    def both(handler: StubHandler) -> None:
        act(handler)
        handler.close_connection = True

    return both


def hang(handler: StubHandler) -> None:
    """Leave the call unanswered until the test ends."""
    handler.stub.ended.wait(30)
    handler.cut()


def stream(*chunks: str) -> Action:
    """Return an action that streams these events and ends."""

    def act(handler: StubHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for chunk in chunks:
            text = chunk.encode()
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(text), text))
            handler.wfile.flush()
        handler.cut()

    return act
