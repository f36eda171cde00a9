"""Processes at one door know of each other how many connections they have, and believe nothing of the dead."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.api.server.connection_counts import SLOTS, ConnectionCounts


@contextmanager
def _process(neighbours: ConnectionCounts, place: int, connections: int) -> Iterator[None]:
    """Run another process that has announced this many connections, for as long as the context."""
    text, say = os.pipe()
    stay, leave = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(leave)
        neighbours.write(place, connections)
        os.close(say)
        os.read(stay, 1)
        os._exit(0)
    os.close(say)
    assert os.read(text, 1) == b"", "it has said so"
    yield
    os.close(leave)
    os.waitpid(pid, 0)
    os.close(text)
    os.close(stay)


def test_the_process_with_fewer_connections_accepts_first() -> None:
    neighbours = ConnectionCounts()
    neighbours.write(1, 3)
    assert not neighbours.has_less_loaded_process(1, 3), "one alone goes first"
    with _process(neighbours, 2, 2):
        assert neighbours.has_less_loaded_process(1, 3)
        assert not neighbours.has_less_loaded_process(1, 2), "as many are not fewer"
        assert neighbours.has_less_loaded_process(1 + SLOTS, 3), "later processes take the places of earlier ones"


def test_the_dead_are_not_waited_for() -> None:
    neighbours = ConnectionCounts()
    with _process(neighbours, 2, 0):
        assert neighbours.has_less_loaded_process(1, 1)
    assert not neighbours.has_less_loaded_process(1, 1)
    with _process(neighbours, 2, 0):
        assert neighbours.has_less_loaded_process(1, 1), "its place is another's now"


def test_a_process_id_of_another_process_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbours = ConnectionCounts()
    with _process(neighbours, 2, 0):
        assert neighbours.has_less_loaded_process(1, 1)

        def not_ours(_pid: int, _sign: int) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "kill", not_ours)
        assert not neighbours.has_less_loaded_process(1, 1)
        monkeypatch.undo()
        assert not neighbours.has_less_loaded_process(1, 1), "its row is cleared"
