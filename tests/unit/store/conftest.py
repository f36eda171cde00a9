"""Whatever a test of the store did to its workspace, an audit finds nothing wrong with it afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.service.audit import Audit
from app.store.audit import AuditStore
from tests.support.world import World


def findings(world: World) -> list[str]:
    """What an audit of the workspace finds."""
    return [str(found) for found in Audit(world.ledger, AuditStore(world.client, world.clock)).run(world.workspace)]


@pytest.fixture(autouse=True)
def audited(request: pytest.FixtureRequest) -> Iterator[None]:
    """Audits the workspace at the end of a test that has one."""
    world = request.getfixturevalue("world") if "world" in request.fixturenames else None
    yield
    assert world is None or findings(world) == []
