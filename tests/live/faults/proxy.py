"""Between a client and a server: passes everything on, until it is told to swallow the answer to a script's call."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from select import select
from threading import Lock, Thread
from types import TracebackType
from typing import TypeAlias

Address: TypeAlias = str | tuple[str, int]
"""A socket's path, or host and port."""


def connect_to(address: Address) -> socket.socket:
    """Open a connection to the address."""
    if isinstance(address, tuple):
        return socket.create_connection(address)
    here = socket.socket(socket.AF_UNIX)
    here.connect(address)
    return here


class CuttingProxy:
    """A way to a server that can be cut; `url` is where it begins."""

    def __init__(self, folder: Path, upstream: Address) -> None:
        self.path, self.upstream = str(folder / "proxy.sock"), upstream
        self.url = f"unix://{self.path}"
        self.swallowed = 0
        self._cuts, self._lock = 0, Lock()
        self._then: Callable[[], object] = _nothing
        self._door = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> CuttingProxy:
        self._door.bind(self.path)
        self._door.listen()
        Thread(target=self._serve, name="proxy", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._door.close()

    def cut(self, times: int, then: Callable[[], object] | None = None) -> None:
        """Break the connection after the server has carried out each of the next calls of scripts, then call `then`."""
        with self._lock:
            self._cuts, self._then = times, then or _nothing

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            Thread(target=self._pass_on, args=(client,), name="proxied", daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, connect_to(self.upstream) as server:
            doomed = False
            while True:
                ready = select([client, server], [], [])[0]
                if client in ready:
                    if not (request := client.recv(1 << 16)):
                        return
                    doomed = doomed or (b"EVAL" in request and self._cuts_this_call())
                    server.sendall(request)
                if server in ready:
                    answer = server.recv(1 << 16)
                    if doomed or not answer:
                        self._then()
                        return
                    client.sendall(answer)

    def _cuts_this_call(self) -> bool:
        with self._lock:
            doomed = self._cuts > 0
            self._cuts -= doomed
            self.swallowed += doomed
            return doomed


def _nothing() -> None:
    """Do nothing."""
