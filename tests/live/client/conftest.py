"""What the client is tried on: the API under gunicorn on an embedded Redis, a door in front of it, a stand-in for faults."""

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
    """The API that the live tests share."""
    return Api(int(service.rpartition(":")[2]), partial(connect, beneath))


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
