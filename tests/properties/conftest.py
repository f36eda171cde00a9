"""A workspace for random histories, on the embedded server."""

from __future__ import annotations

import pytest

from tests.support.servers import Servers
from tests.support.world import World


@pytest.fixture
def world(servers: Servers) -> World:
    """Return an empty workspace on the embedded server; the fake takes several times as long for a call."""
    return World(servers.client("embedded"))
