"""Fixtures for the Celery module without a socket: the network of a stub server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.memory_network import MemoryNetwork, memory_network


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryNetwork]:
    """Yield the network on which clients connect."""
    with memory_network(monkeypatch) as network:
        yield network
