"""One suite over every backend: a test that takes `client` or `world` runs on each of them, on a server of its own kind."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from app.store.scripts import RedisClient, observe
from tests.support.backends import BACKENDS, available, new_fake, start
from tests.support.world import World

# Whoever starts the tests in the background may have them ignore Ctrl-C, or a terminal's end; their children would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first, so that at the end no process is left alone with one."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in slow, tests[item.path]))


class Servers:
    """Servers started when first asked for, and stopped at the end."""

    def __init__(self, stack: ExitStack, folder: pytest.TempPathFactory) -> None:
        self._stack, self._folder = stack, folder
        self._clients: dict[str, RedisClient] = {}

    def client(self, backend: str) -> RedisClient:
        """A client of an empty server; the fake is a new one each time."""
        if absent := available(backend):
            if os.environ.get("CI"):
                pytest.fail(f"backend {backend} is absent: {absent}")
            pytest.skip(f"backend {backend} is absent: {absent}")
        if backend == "fake":
            return new_fake()
        if backend not in self._clients:
            self._clients[backend] = self._stack.enter_context(start(backend, self._folder.mktemp(backend)))
        self._clients[backend].flushall()
        observe(self._clients[backend])  # by nobody: whom an earlier test had look on is gone
        return self._clients[backend]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Every backend of this process."""
    with ExitStack() as stack:
        yield Servers(stack, tmp_path_factory)


@pytest.fixture(params=BACKENDS)
def client(request: pytest.FixtureRequest, servers: Servers) -> RedisClient:
    """A client of each backend in turn, with nothing in it."""
    return servers.client(request.param)


@pytest.fixture
def world(client: RedisClient) -> World:
    """An empty workspace on each backend in turn."""
    return World(client)
