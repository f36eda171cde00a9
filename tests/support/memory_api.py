"""The API in this process, served over a memory network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from app.api.app import create_app
from app.bootstrap import make_services
from app.settings import Settings
from tests.support.client_api import Api
from tests.support.fake_redis import FakeRedisProvider, new_fake
from tests.support.memory_network import MemoryNetwork, serve_app


@contextmanager
def serving(network: MemoryNetwork) -> Iterator[Api]:
    """Serve the API of an empty fake Redis, for as long as the context."""
    redis = new_fake()
    services = make_services(redis, Settings(), redis_provider=FakeRedisProvider())
    try:
        yield Api(network.listen(serve_app(create_app(services))), lambda: nullcontext(redis))
    finally:
        services.long_polls.close()
