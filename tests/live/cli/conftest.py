"""Fixtures for the program `poolkeeper`: the real API, and a stand-in whose answers a test chooses."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli_program import Program
from tests.support.stub_server import StubServer

_numbers = itertools.count(1)


@pytest.fixture
def poolkeeper(service: str, tmp_path: Path) -> Program:
    """Return the program, in a workspace of its own."""
    return Program(service, tmp_path, f"cli-{os.getpid()}-{next(_numbers)}")


@pytest.fixture
def stub() -> Iterator[StubServer]:
    """Yield a server whose answers the test chooses."""
    with StubServer() as server:
        yield server


@pytest.fixture
def stubbed(stub: StubServer, tmp_path: Path) -> Program:
    """Return the program, connected to that server."""
    return Program(stub.url, tmp_path, "default")
