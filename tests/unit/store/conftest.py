"""After every test of the store an audit finds nothing wrong with its workspace, and no command wrote an undeclared key.

The audit takes longer than many tests. At the end of a test its workspace is the same on every backend, so one is audited.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.audit_findings import findings
from tests.support.backends import backends_of
from tests.support.observed_writes import observe_writes


@pytest.fixture(autouse=True)
def audited(request: pytest.FixtureRequest) -> Iterator[None]:
    """Audit the workspace at the end of a test that has one: on the embedded server, else on the fake, else on the first."""
    world = request.getfixturevalue("world") if "world" in request.fixturenames else None
    names = backends_of(request.node, request.config)
    audited_backend = next((name for name in ("embedded", "fake", *names) if name in names), None)
    callspec = getattr(request.node, "callspec", None)
    is_audited = callspec is None or callspec.params.get("backend", audited_backend) == audited_backend
    yield
    assert world is None or not is_audited or findings(world) == []


@pytest.fixture(autouse=True)
def declared_writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test if a command wrote a key on the fake that neither its head nor its libraries declare."""
    with observe_writes(monkeypatch) as undeclared:
        yield
    assert undeclared == set()
