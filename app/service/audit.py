"""The audit: compute every account from the allocations and every queue from the requests, compare, and repair on demand."""

from __future__ import annotations

from app.domain.models import AuditFinding
from app.store.audit import AuditStore
from app.store.ledger import Ledger


class Audit:
    """The search for errors in the ledger, such as units that are lost or counted twice, and waiters that no constraint
    blocks."""

    def __init__(self, ledger: Ledger, auditor: AuditStore) -> None:
        self._ledger, self._auditor = ledger, auditor

    def run(self, workspace: str, *, repair: bool = False) -> list[AuditFinding]:
        """Return every finding. With `repair`, repair each finding, and grant the waiters that then fit."""
        pools = self._ledger.list_pools(workspace)
        findings = [*self._auditor.check_indexes(workspace, pools, repair=repair)]
        findings += self._auditor.check_requests(workspace, repair=repair)
        for pool in pools:
            findings += self._auditor.check_templates(workspace, pool, repair=repair)
        findings += self._auditor.check_limits(workspace, repair=repair)
        for pool in pools:
            findings += self._auditor.check_holds(workspace, pool, repair=repair)
            findings += self._auditor.check_accounts(workspace, pool, repair=repair)
        self._finish(workspace, repair)
        for pool in pools:
            findings += self._auditor.check_lanes(workspace, pool, repair=repair)
        self._finish(workspace, repair)
        return findings

    def _finish(self, workspace: str, repaired: bool) -> None:
        if repaired:
            self._ledger.resume_all_unfinished(workspace)
