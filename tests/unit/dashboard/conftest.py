"""What the dashboard is tried on: one process without a server on the fake (`desk`), and in a real browser (`browser.py`)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.conftest import Servers
from tests.unit.dashboard.page_client import Desk


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of whoever runs the tests has a say."""
    for name in [name for name in os.environ if name.startswith(("POOLKEEPER_", "PROMETHEUS_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def desk(servers: Servers) -> Iterator[Desk]:
    """The dashboard beside the API, on a fake."""
    made = Desk(servers.client("fake"))
    yield made
    made.services.long_polls.close()
