"""Fixtures for the client without a socket: the API on a fake Redis, a stub server, a proxy that drops responses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from poolkeeper import Client, allocation, heartbeats

from tests.support.client_api import Api
from tests.support.flaky_proxy import FlakyProxy
from tests.support.memory_api import serving
from tests.support.memory_network import MemoryNetwork, memory_network
from tests.support.stub_server import StubServer


@pytest.fixture(autouse=True)
def no_config_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Read no configuration file of the account that runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nothing"))


@pytest.fixture(autouse=True)
def frequent_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the interval of heartbeats, so that no test waits for one."""
    monkeypatch.setattr(heartbeats, "LONGEST_INTERVAL_S", 0.02)


@dataclass
class LeaseClock:
    """The clock by which clients judge their leases; `ahead_s` are seconds that passed without a wait."""

    ahead_s: float = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


@pytest.fixture
def lease_clock(monkeypatch: pytest.MonkeyPatch) -> LeaseClock:
    """Return the clock of heartbeats and allocations, which a test can advance."""
    clock = LeaseClock()
    for module in (heartbeats, allocation):
        monkeypatch.setattr(module, "now_s", clock)
    return clock


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryNetwork]:
    """Yield the network on which clients connect."""
    with memory_network(monkeypatch) as network:
        yield network


@pytest.fixture
def api(network: MemoryNetwork) -> Iterator[Api]:
    """Yield the API in this process, on an empty fake Redis."""
    with serving(network) as api:
        yield api


@pytest.fixture
def workspace() -> str:
    """Return the workspace of the test."""
    return "test"


@pytest.fixture
def client(api: Api, workspace: str) -> Iterator[Client]:
    """Yield a client of the API, in a workspace with a pool `gpus` of 8 gpu and a policy of `team` that reserves 4."""
    with Client(api.url, workspace=workspace) as client:
        client.create_pool("gpus", {"gpu": 8})
        client.set_policy("gpus", "team", priority=10, reserved={"gpu": 4})
        yield client


@pytest.fixture
def proxy(api: Api, network: MemoryNetwork) -> Iterator[FlakyProxy]:
    """Yield a proxy in front of the API."""
    with FlakyProxy(api.port, network) as door:
        yield door


@pytest.fixture
def proxied(proxy: FlakyProxy, client: Client) -> Iterator[Client]:
    """Yield a client like `client` that reaches the API only through the proxy."""
    with Client(proxy.url, workspace=client.workspace, sleep=lambda _: time.sleep(0.01)) as other:
        yield other


@pytest.fixture
def stub(network: MemoryNetwork) -> Iterator[StubServer]:
    """Yield a server whose answers the test chooses."""
    with StubServer(network=network) as server:
        yield server


@pytest.fixture
def pauses() -> list[float]:
    """Return the list in which `make_client` records the pauses of its clients."""
    return []


@pytest.fixture
def make_client(stub: StubServer, pauses: list[float]) -> Callable[..., Client]:
    """Return a function that makes a client of the stub server; the client records its pauses and does not sleep."""
    return lambda **more: Client(stub.url, sleep=pauses.append, **more)
