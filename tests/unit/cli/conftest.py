"""Fixtures for `poolkeeper` without a process or a socket: the API on a fake Redis, and a stub server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from poolkeeper import event_stream, http_client

from tests.support.cli_program import Program
from tests.support.client_api import Api
from tests.support.memory_api import serving
from tests.support.memory_network import MemoryNetwork, memory_network
from tests.support.stub_server import StubServer


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make no pause between the tries of a call."""
    for module in (http_client, event_stream):
        monkeypatch.setattr(module, "pause_s", lambda *_: 0.0)


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryNetwork]:
    """Yield the network on which the program connects."""
    with memory_network(monkeypatch) as network:
        yield network


@pytest.fixture
def api(network: MemoryNetwork) -> Iterator[Api]:
    """Yield the API in this process, on an empty fake Redis."""
    with serving(network) as api:
        yield api


@pytest.fixture
def poolkeeper(api: Api, tmp_path: Path) -> Program:
    """Return the program, connected to the API, in a workspace of its own."""
    return Program(api.url, tmp_path, "cli")


@pytest.fixture
def stub(network: MemoryNetwork) -> Iterator[StubServer]:
    """Yield a server whose answers the test chooses."""
    with StubServer(network=network) as server:
        yield server


@pytest.fixture
def stubbed(stub: StubServer, tmp_path: Path) -> Program:
    """Return the program, connected to that server."""
    return Program(stub.url, tmp_path, "default")
