"""The audit as a check of tests: a workspace is consistent at the end of each."""

from __future__ import annotations

from app.service.audit import Audit
from app.store.audit import AuditStore
from tests.support.world import World


def findings(world: World) -> list[str]:
    """Return what an audit of the workspace finds."""
    return [str(finding) for finding in Audit(world.ledger, AuditStore(world.client, world.clock)).run(world.workspace)]
