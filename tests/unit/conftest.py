"""No test of this tier starts a process or uses a socket, except on a real backend (see `tests/conftest.py`).

Its threads end with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.support.left_threads import no_threads_left
from tests.support.unit_guard import guard


def uses_real_backend(request: pytest.FixtureRequest) -> bool:
    """Return whether the test may start a server, which has processes, sockets and threads."""
    callspec = getattr(request.node, "callspec", None)
    return callspec is not None and callspec.params.get("backend", "fake") != "fake"


@pytest.fixture(autouse=True)
def without_threads_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test if one of its threads goes on after it."""
    with nullcontext() if uses_real_backend(request) else no_threads_left():
        yield


@pytest.fixture(autouse=True)
def without_processes_and_sockets(request: pytest.FixtureRequest, without_threads_left: None) -> Iterator[None]:
    """Fail the test if it starts a process or uses a socket."""
    if uses_real_backend(request):
        yield
        return
    with guard.watch() as refused:
        yield
    assert refused == [], "a unit test needs no process and no socket; what does belongs to tests/live"
