"""Backends, servers and workspaces for the tests of every tier.

A test that takes `client` or `world` runs on the fake, which needs no process; with `--backends all`, as `make test` and CI run
it, also on real servers. A command's behaviour is written in Lua, so the tests of the store run on every backend there is; an
expensive one whose rule does not depend on the server names two of them. What lies above the store does not depend on the
server: its tests run on the fake and on one real server. A folder or module that makes thousands of calls has a `client` or
`world` of its own, on the embedded server, as the fake takes several times as long for a call.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from xdist.remote import Producer

from app.store.connection import RedisClient
from tests.support.backends import backends_of
from tests.support.scheduling import FileScheduling, interleave
from tests.support.servers import Servers
from tests.support.world import World

OF_THE_TESTS = ("POOLKEEPER_ACCEPTANCE", "POOLKEEPER_CASES", "POOLKEEPER_TEST_")
"""Variables that the tests read. Every other variable of the service is removed, so that it changes nothing."""

# A shell that starts the tests in the background may have them ignore Ctrl-C, or a terminal's end; children would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

for _name in [name for name in os.environ if name.startswith(("POOLKEEPER_", "PROMETHEUS_"))]:
    if not _name.startswith(OF_THE_TESTS):
        del os.environ[_name]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of backends."""
    help_text = "servers for tests that take `client` or `world`: the fake (default), or every backend"
    parser.addoption("--backends", choices=("fake", "all"), default="fake", help=help_text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `backend`, however indirectly, once on each of its backends."""
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", backends_of(metafunc.definition, metafunc.config), indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests."""
    items[:] = interleave(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling | None:
    """Distribute the tests among processes if `--dist loadfile` asks for it."""
    return FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Yield every backend of this process."""
    with ExitStack() as stack:
        yield Servers(stack, tmp_path_factory)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """Return the name of each backend in turn."""
    name: str = request.param
    return name


@pytest.fixture
def client(backend: str, servers: Servers) -> RedisClient:
    """Return a client of each backend in turn, without any data."""
    return servers.client(backend)


@pytest.fixture
def world(client: RedisClient) -> World:
    """Return an empty workspace on each backend in turn."""
    return World(client)
