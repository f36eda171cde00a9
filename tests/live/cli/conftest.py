"""What `poolkeeper` is tried on: the real API, and a stand-in that answers as it is told."""

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
    """The program, in a workspace nobody else uses."""
    return Program(service, tmp_path, f"cli-{os.getpid()}-{next(_numbers)}")


@pytest.fixture
def stub() -> Iterator[StubServer]:
    """A server that does as it is told."""
    with StubServer() as server:
        yield server


@pytest.fixture
def stubbed(stub: StubServer, tmp_path: Path) -> Program:
    """The program, before that server."""
    return Program(stub.url, tmp_path, "default")
