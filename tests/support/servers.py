"""The servers that the tests of one process share."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from app.store.connection import RedisClient
from app.store.scripts import observe
from tests.support.backends import require, start
from tests.support.fake_redis import new_fake


class Servers:
    """Servers started when first asked for, and stopped at the end."""

    def __init__(self, stack: ExitStack, folder: pytest.TempPathFactory) -> None:
        self._stack, self._folder = stack, folder
        self._clients: dict[str, RedisClient] = {}

    def client(self, backend: str) -> RedisClient:
        """Return a client of an empty server. The fake is a new server each time."""
        require(backend)
        if backend == "fake":
            return new_fake()
        if backend not in self._clients:
            self._clients[backend] = self._stack.enter_context(start(backend, self._folder.mktemp(backend)))
        self._clients[backend].flushall()
        observe(self._clients[backend])  # an observer of an earlier test is removed
        return self._clients[backend]
