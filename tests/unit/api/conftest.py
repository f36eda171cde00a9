"""What the API is tried on: one process without a server on a real Redis (`site`) or on each backend in turn (`everywhere`),
and, where sockets matter, gunicorn on a Redis of its own (`live`)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from app.store.scripts import RedisClient
from tests.conftest import Servers
from tests.support.gunicorn_api import Live, live_api
from tests.support.in_process_api import Site


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of whoever runs the tests has a say."""
    for name in [name for name in os.environ if name.startswith(("POOLKEEPER_", "PROMETHEUS_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def site(servers: Servers) -> Iterator[Site]:
    """The API on an empty Redis."""
    made = Site(servers.client("redis"))
    yield made
    made.services.long_polls.close()


@pytest.fixture
def everywhere(client: RedisClient) -> Iterator[Site]:
    """The API on each backend in turn."""
    made = Site(client)
    yield made
    made.services.long_polls.close()


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The API under gunicorn, on a Redis of its own that can be killed and come back."""
    with live_api(tmp_path_factory.mktemp("live")) as api:
        yield api
