"""What the part for Celery is tested on without a socket: the network of a stub server."""

from __future__ import annotations

import socket

import pytest

from tests.support.memory_network import MemoryNetwork


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> MemoryNetwork:
    """The network that clients connect on."""
    network = MemoryNetwork()
    monkeypatch.setattr(socket, "create_connection", network.connect)
    return network
