"""What happens by the clock, in one workspace after the other: the housekeeping, and the audit.

Any number of callers may begin a round at any moment. What is done is idempotent, so that a lease for each workspace and
task is there to spare work and not to keep anything right: who finds it taken leaves that workspace to the one who has it.
A lease whose holder died ends by itself. A round ends when its time is up, and begins anywhere, so that no workspace is
always among those it did not come to.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable
from typing import Literal

from app.service.audit import Audit
from app.service.housekeeping import Housekeeping
from app.store.connection import StoreUnavailable
from app.store.ledger import Ledger
from app.store.registry import Registry

log = logging.getLogger(__name__)

Outcome = Literal["done", "held", "failed"]

RECONCILE_LEASE_S, CLEANUP_LEASE_S, AUDIT_LEASE_S = 10, 10, 300
RECONCILE_ROUND_S, CLEANUP_ROUND_S, AUDIT_ROUND_S = 20, 20, 300


class Rounds:
    """Goes through the workspaces, and leaves out those that somebody else is at."""

    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        housekeeping: Housekeeping,
        audit: Audit,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._registry, self._housekeeping, self._audit = ledger, registry, housekeeping, audit
        self._monotonic = monotonic

    def reconcile(self) -> dict[str, Outcome]:
        """In every workspace capacity is held for those who have waited too long."""
        return self._round("reconcile", self._housekeeping.hold, RECONCILE_LEASE_S, RECONCILE_ROUND_S)

    def cleanup(self) -> dict[str, Outcome]:
        """Every workspace is tidied; says what became of each that it came to."""
        return self._round("cleanup", self._housekeeping.tidy, CLEANUP_LEASE_S, CLEANUP_ROUND_S)

    def audit(self) -> dict[str, Outcome]:
        """The books of every workspace are compared, and what differs is logged; nothing is repaired."""
        return self._round("audit", self._report, AUDIT_LEASE_S, AUDIT_ROUND_S)

    def _report(self, workspace: str) -> None:
        for difference in self._audit.run(workspace):
            log.error("workspace %s differs: %s", workspace, difference)

    def _round(self, task: str, work: Callable[[str], object], lease_s: int, round_s: float) -> dict[str, Outcome]:
        until, outcomes = self._monotonic() + round_s, dict[str, Outcome]()
        try:
            workspaces = self._registry.all()
            random.shuffle(workspaces)
            for workspace in workspaces:
                if self._monotonic() > until:
                    log.warning("%s came to %d of %d workspaces in %g s", task, len(outcomes), len(workspaces), round_s)
                    break
                outcomes[workspace] = self._one(task, workspace, work, lease_s)
        except StoreUnavailable as away:
            log.warning("%s stopped after %d workspaces: %s", task, len(outcomes), away)
        return outcomes

    def _one(self, task: str, workspace: str, work: Callable[[str], object], lease_s: int) -> Outcome:
        token = secrets.token_hex(8)
        try:
            if not self._ledger.take_lease(workspace, task, token, lease_s):
                return "held"
            try:
                work(workspace)
            finally:
                self._ledger.give_lease_back(workspace, task, token)
        except StoreUnavailable:
            raise
        except Exception:
            log.exception("%s of workspace %s failed", task, workspace)
            return "failed"
        return "done"
