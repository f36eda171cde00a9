"""The promise of the unit tier: no test starts a process, and none connects or binds a socket."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PROCESS_EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"}
SOCKET_EVENTS = {"socket.bind", "socket.connect"}
FAMILIES = {socket.AF_INET, socket.AF_INET6, socket.AF_UNIX}


class NotInUnitTests(BaseException):
    """A unit test started a process or used a socket; no handler of the code under test may catch this."""


class Guard:
    """Refuses processes and sockets while a unit test runs, by the audit events of the interpreter."""

    def __init__(self) -> None:
        self._refused: list[str] | None = None
        self._other_threads: set[int | None] = set()
        self._is_installed = False

    @contextmanager
    def watch(self) -> Iterator[list[str]]:
        """Refuse, for as long as the context; yield what was refused. Threads that ran before are left alone."""
        if not self._is_installed:
            sys.addaudithook(self._check)
            self._is_installed = True
        current = threading.current_thread()
        self._other_threads = {thread.ident for thread in threading.enumerate() if thread is not current}
        refused: list[str] = []
        self._refused = refused
        try:
            yield refused
        finally:
            self._refused = None

    def _check(self, event: str, args: tuple[Any, ...]) -> None:
        if self._refused is None or event not in PROCESS_EVENTS | SOCKET_EVENTS:
            return
        if event in SOCKET_EVENTS and args[0].family not in FAMILIES:
            return
        if threading.get_ident() not in self._other_threads:
            self._refused.append(event)
            raise NotInUnitTests(event)


guard = Guard()
"""The guard of this process; an audit hook stays for good, so there is one."""
