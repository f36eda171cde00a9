"""No test of this tier starts a process or uses a socket, except on a real backend (see `tests/conftest.py`).

Its threads end with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.left_threads import no_threads_left
from tests.support.unit_guard import guard


@pytest.fixture(autouse=True)
def without_threads_left() -> Iterator[None]:
    """Fail the test if one of its threads goes on after it."""
    with no_threads_left():
        yield


@pytest.fixture(autouse=True)
def without_processes_and_sockets(request: pytest.FixtureRequest, without_threads_left: None) -> Iterator[None]:
    """Fail the test if it starts a process or uses a socket."""
    callspec = getattr(request.node, "callspec", None)
    if callspec and callspec.params.get("backend", "fake") != "fake":
        yield
        return
    with guard.watch() as refused:
        yield
    assert refused == [], "a unit test needs no process and no socket; what does belongs to tests/live"
