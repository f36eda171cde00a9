"""The guard of this tier refuses what it has to."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.unit_guard import Guard, NotInUnitTests


def _connect() -> None:
    with socket.socket() as unconnected:
        unconnected.connect(("127.0.0.1", 9))


def _bind() -> None:
    with socket.socket() as unbound:
        unbound.bind(("127.0.0.1", 0))


def _bind_to_a_path(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as unbound:
        unbound.bind(str(path))


@pytest.fixture
def own_guard(monkeypatch: pytest.MonkeyPatch) -> Guard:
    """Return a guard that replaces the one of these tests."""
    guard = Guard()
    monkeypatch.setattr("tests.support.unit_guard.guard._refused", None)
    return guard


@pytest.mark.parametrize(
    ("act", "event"),
    [
        (lambda: subprocess.Popen([sys.executable, "-c", ""]), "subprocess.Popen"),
        (os.fork, "os.fork"),
        (lambda: os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {}), "os.posix_spawn"),
        (_connect, "socket.connect"),
        (_bind, "socket.bind"),
        (lambda: _bind_to_a_path(Path("/nowhere/at/all")), "socket.bind"),
    ],
    ids=["Popen", "fork", "posix_spawn", "connect", "bind", "bind to a path"],
)
def test_processes_and_sockets_are_refused_and_noted(own_guard: Guard, act: Callable[[], object], event: str) -> None:
    with own_guard.watch() as refused, pytest.raises(NotInUnitTests):
        act()
    assert refused == [event]


def test_pairs_of_sockets_and_threads_that_ran_before_are_left_alone(own_guard: Guard) -> None:
    begin, done = threading.Event(), threading.Event()

    def bind_later() -> None:
        begin.wait(10)
        _bind()
        done.set()

    thread = threading.Thread(target=bind_later)
    thread.start()
    with own_guard.watch() as refused:
        for end in socket.socketpair():
            end.close()
        begin.set()
        assert done.wait(10)
    thread.join()
    assert refused == []
