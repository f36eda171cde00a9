"""The API under gunicorn, for tests whose subject is the server or its sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.gunicorn_api import Live, live_api


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Yield the API on a Redis server of its own that can be killed and started again."""
    with live_api(tmp_path_factory.mktemp("live")) as api:
        yield api
