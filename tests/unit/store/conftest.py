"""After every test of the store that has a workspace, an audit finds nothing wrong with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.audit_findings import findings


@pytest.fixture(autouse=True)
def audited(request: pytest.FixtureRequest) -> Iterator[None]:
    """Audit the workspace at the end of a test that has one."""
    world = request.getfixturevalue("world") if "world" in request.fixturenames else None
    yield
    assert world is None or findings(world) == []
