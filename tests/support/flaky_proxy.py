"""A door between a client and the real API: everything passes, until a test closes it or tells it to lose answers."""

from __future__ import annotations

import socket
from contextlib import suppress
from select import select
from threading import Lock, Thread
from types import TracebackType

from tests.support.memory_network import MemoryNetwork


class FlakyProxy:
    """A way to the API that can be cut; `url` is where it begins."""

    def __init__(self, port: int, network: MemoryNetwork | None = None) -> None:
        self._port, self._lock = port, Lock()
        self._losing: list[bytes] = []
        self._open, self._silent = True, False
        self._connections: set[socket.socket] = set()
        self._listening = None if network else socket.create_server(("127.0.0.1", 0))
        own_port = network.listen(self._pass_on) if network else self._listening.getsockname()[1] if self._listening else 0
        self.url = f"http://127.0.0.1:{own_port}"
        self.lost_answers = 0
        self.passed_bytes = b""
        """The bytes that were passed on to clients."""

    def __enter__(self) -> FlakyProxy:
        if self._listening:
            Thread(target=self._serve, args=(self._listening,), name="door", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._listening:
            self._listening.shutdown(socket.SHUT_RDWR)  # ends the accept
            self._listening.close()
        self.close()

    def lose_answer_to(self, beginning: str, times: int = 1) -> None:
        """Pass on the next calls that begin so (`POST /api/v1/requests `), and drop their responses."""
        with self._lock:
            self._losing += [beginning.encode()] * times

    def silence(self) -> None:
        """Leave calls without any response."""
        self._silent = True

    def close(self) -> None:
        """Refuse new connections, and reset the open ones."""
        with self._lock:
            self._open = False
            for inside in self._connections:
                with suppress(OSError):  # the client may have gone
                    inside.shutdown(socket.SHUT_RDWR)
            self._connections.clear()

    def open(self) -> None:
        """Accept connections again."""
        with self._lock:
            self._open = True

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                client, address = listening.accept()
            except OSError:
                return
            Thread(target=self._pass_on, args=(client, address), name="in the door", daemon=True).start()

    def _pass_on(self, client: socket.socket, _: object) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            with self._lock:
                if not self._open:
                    return
                self._connections.add(client)
            try:
                self._exchange(client, server)
            except OSError:
                pass
            finally:
                with self._lock:
                    self._connections.discard(client)

    def _exchange(self, client: socket.socket, server: socket.socket) -> None:
        doomed = False
        while True:
            ready = select([client, server], [], [])[0]
            if client in ready:
                if not (query := client.recv(1 << 16)):
                    return
                if self._silent:
                    continue
                doomed = doomed or self._is_doomed(query)
                server.sendall(query)
            if server in ready:
                answer = server.recv(1 << 16)
                if doomed or not answer:
                    return
                client.sendall(answer)
                self.passed_bytes += answer

    def _is_doomed(self, query: bytes) -> bool:
        with self._lock:
            match = next((beginning for beginning in self._losing if query.startswith(beginning)), None)
            if match:
                self._losing.remove(match)
                self.lost_answers += 1
            return match is not None
