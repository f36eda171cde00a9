"""Fixtures for the client: the API under gunicorn on an embedded Redis, a proxy in front of it, and a stand-in for faults."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from poolkeeper import Client

from app.store.connection import connect
from tests.support.client_api import Api
from tests.support.flaky_proxy import FlakyProxy
from tests.support.stub_server import StubServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def api(service: str, beneath: str) -> Api:
    """Return the API that the live tests share."""
    return Api(int(service.rpartition(":")[2]), partial(connect, beneath))


@pytest.fixture(autouse=True)
def no_config_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Read no configuration file of the account that runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nothing"))


@pytest.fixture
def workspace() -> str:
    """Return the name of a workspace that no other test uses."""
    return f"test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def client(api: Api, workspace: str) -> Iterator[Client]:
    """Yield a client of the real API, in a workspace with a pool `gpus` of 8 gpu and a policy of `team` that reserves 4."""
    with Client(api.url, workspace=workspace) as client:
        client.create_pool("gpus", {"gpu": 8})
        client.set_policy("gpus", "team", priority=10, reserved={"gpu": 4})
        yield client


@pytest.fixture
def proxy(api: Api) -> Iterator[FlakyProxy]:
    """Yield a proxy in front of the real API."""
    with FlakyProxy(api.port) as door:
        yield door


@pytest.fixture
def proxied(proxy: FlakyProxy, client: Client) -> Iterator[Client]:
    """Yield a client like `client` that reaches the API only through the proxy."""
    with Client(proxy.url, workspace=client.workspace) as other:
        yield other


@pytest.fixture
def stub() -> Iterator[StubServer]:
    """Yield a server whose answers the test chooses."""
    with StubServer() as server:
        yield server


@pytest.fixture
def pauses() -> list[float]:
    """Return the list in which `make_client` records the pauses of its clients."""
    return []


@pytest.fixture
def make_client(stub: StubServer, pauses: list[float]) -> Callable[..., Client]:
    """Return a function that makes a client of the stand-in; the client records its pauses and does not sleep."""
    return lambda **more: Client(stub.url, sleep=pauses.append, **more)
