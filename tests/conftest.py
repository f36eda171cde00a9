"""Backends, servers and workspaces for the tests of every tier.

A test that takes `client` or `world` runs on the fake, which needs no process; with `--backends all`, as in `make test` and CI,
it also runs on real servers. The behaviour of a command is written in Lua, so the tests of the store run on every backend; an
expensive test whose rule does not depend on the server names two of them. The layers above the store do not depend on the
server: their tests run on the fake and on one real server. A folder or module that makes thousands of calls has its own
`client` or `world` on the embedded server, as a call takes several times as long on the fake.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import settings
from xdist.remote import Producer

from app.store.connection import RedisClient
from tests.support.backends import backends_of
from tests.support.scheduling import FileScheduling, interleave
from tests.support.servers import Servers
from tests.support.world import World

OF_THE_TESTS = ("POOLKEEPER_ACCEPTANCE", "POOLKEEPER_CASES", "POOLKEEPER_TEST_")
"""Variables that the tests read. Every other variable of the service is removed, so that it changes nothing."""

# Tests that a shell starts in the background may ignore Ctrl-C or the end of the terminal, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

for _name in [name for name in os.environ if name.startswith(("POOLKEEPER_", "PROMETHEUS_"))]:
    if not _name.startswith(OF_THE_TESTS):
        del os.environ[_name]


# An example that takes long on a busy machine is no failure.
settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")


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
