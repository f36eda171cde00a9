"""After every test of the store an audit finds nothing wrong with its workspace, and no command wrote an undeclared key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.audit_findings import findings
from tests.support.observed_writes import observe_writes


@pytest.fixture(autouse=True)
def audited(request: pytest.FixtureRequest) -> Iterator[None]:
    """Audit the workspace at the end of a test that has one."""
    world = request.getfixturevalue("world") if "world" in request.fixturenames else None
    yield
    assert world is None or findings(world) == []


@pytest.fixture(autouse=True)
def declared_writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test if a command wrote a key on the fake that neither its head nor its libraries declare."""
    with observe_writes(monkeypatch) as undeclared:
        yield
    assert undeclared == set()
