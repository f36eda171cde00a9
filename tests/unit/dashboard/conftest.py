"""The dashboard in this process, without a server and without a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fake_redis import new_fake
from tests.unit.dashboard.page_client import Desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Yield the dashboard beside the API, on a fake."""
    desk = Desk(new_fake())
    yield desk
    desk.services.long_polls.close()
