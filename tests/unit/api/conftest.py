"""The API in this process, without a server: on a fake (`site`), or on each backend in turn (`everywhere`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.store.connection import RedisClient
from tests.support.fake_redis import new_fake
from tests.support.in_process_api import Site


@pytest.fixture
def site() -> Iterator[Site]:
    """Yield the API on an empty fake."""
    site = Site(new_fake())
    yield site
    site.services.long_polls.close()


@pytest.fixture
def everywhere(client: RedisClient) -> Iterator[Site]:
    """Yield the API on each backend in turn."""
    site = Site(client)
    yield site
    site.services.long_polls.close()
