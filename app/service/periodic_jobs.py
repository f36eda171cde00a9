"""Periodic jobs: reconcile, fair shares, cleanup, usage history and audit, each in one workspace after the other.

1. Go through the workspaces in random order until the time of the run is up, so that no workspace is always left out.
2. In each, take the job lock. If another worker has it, skip the workspace.
3. Do the job. A failure is logged, and the next workspace follows.

A job is idempotent: any number of workers may begin it at any moment. The lock only saves duplicate work. The lock of a worker
that died expires. The lock of reconcile passes also records skipped triggers (`app.service.reconcile_lock`).
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable

from app.domain.errors import StoreUnavailable
from app.service.audit import Audit
from app.service.cleanup import Cleanup
from app.service.reconcile_lock import JobOutcome, ReconcileLock
from app.service.usage_history import UsageHistories
from app.store.ledger import Ledger
from app.store.workspaces import WorkspaceRegistry

log = logging.getLogger(__name__)

CLEANUP_LOCK_S, USAGE_LOCK_S, AUDIT_LOCK_S = 10, 10, 300
RECONCILE_RUN_S, CLEANUP_RUN_S, USAGE_RUN_S, AUDIT_RUN_S = 20, 20, 20, 300


class PeriodicJobs:
    """The jobs of the workers. Each returns its outcome in every workspace that it reached."""

    def __init__(
        self,
        ledger: Ledger,
        workspaces: WorkspaceRegistry,
        cleanup: Cleanup,
        audit: Audit,
        usage_histories: UsageHistories,
        reconcile_lock: ReconcileLock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._workspaces, self._cleanup, self._audit = ledger, workspaces, cleanup, audit
        self._usage_histories, self._reconcile_lock, self._monotonic = usage_histories, reconcile_lock, monotonic

    def reconcile(self) -> dict[str, JobOutcome]:
        """Reconcile every workspace. If another worker reconciles a workspace, wait until it is done, for about a second at
        most."""
        outcomes = self._run_everywhere("reconcile", self._reconcile_lock.run, RECONCILE_RUN_S)
        skipped = [workspace for workspace, outcome in outcomes.items() if outcome == "skipped"]
        try:
            outcomes |= self._reconcile_lock.run_skipped(skipped)
        except StoreUnavailable as error:
            log.warning("reconcile stopped before %s: %s", ", ".join(skipped), error)
        return outcomes

    def update_fair_shares(self) -> dict[str, JobOutcome]:
        """Reconcile the workspaces that have pools with fair shares, which computes the shares again."""

        def update(workspace: str) -> JobOutcome:
            return self._reconcile_lock.run(workspace, "shares")

        return self._run_everywhere("update_fair_shares", update, RECONCILE_RUN_S)

    def reconcile_workspace(self, workspace: str) -> JobOutcome:
        """Reconcile a workspace after a nudge. If another worker reconciles it already, that worker runs one more pass."""
        try:
            return self._reconcile_lock.run(workspace, "nudge")
        except StoreUnavailable as error:
            log.warning("reconcile of workspace %s stopped: %s", workspace, error)
            return "failed"

    def cleanup(self) -> dict[str, JobOutcome]:
        """Clean up every workspace."""
        return self._run_everywhere("cleanup", self._locked("cleanup", self._cleanup.run, CLEANUP_LOCK_S), CLEANUP_RUN_S)

    def record_usage(self) -> dict[str, JobOutcome]:
        """Record how much of each pool is used, and by which policies."""
        job = self._locked("record_usage", self._usage_histories.record, USAGE_LOCK_S)
        return self._run_everywhere("record_usage", job, USAGE_RUN_S)

    def audit(self) -> dict[str, JobOutcome]:
        """Audit every workspace and log the findings; nothing is repaired."""
        return self._run_everywhere("audit", self._locked("audit", self._log_findings, AUDIT_LOCK_S), AUDIT_RUN_S)

    def _log_findings(self, workspace: str) -> None:
        for finding in self._audit.run(workspace):
            log.error("workspace %s differs: %s", workspace, finding)

    def _run_everywhere(self, name: str, job: Callable[[str], JobOutcome], max_run_s: float) -> dict[str, JobOutcome]:
        deadline, outcomes = self._monotonic() + max_run_s, dict[str, JobOutcome]()
        try:
            workspaces = self._workspaces.list_names()
            random.shuffle(workspaces)
            for workspace in workspaces:
                if self._monotonic() > deadline:
                    log.warning("%s reached %d of %d workspaces in %g s", name, len(outcomes), len(workspaces), max_run_s)
                    break
                outcomes[workspace] = job(workspace)
        except StoreUnavailable as error:
            log.warning("%s stopped after %d workspaces: %s", name, len(outcomes), error)
        return outcomes

    def _locked(self, name: str, work: Callable[[str], object], lock_s: int) -> Callable[[str], JobOutcome]:
        def run(workspace: str) -> JobOutcome:
            token = secrets.token_hex(8)
            try:
                if not self._ledger.take_job_lock(workspace, name, token, lock_s):
                    return "skipped"
                try:
                    work(workspace)
                finally:
                    self._ledger.release_job_lock(workspace, name, token)
            except StoreUnavailable:
                raise
            except Exception:
                log.exception("%s of workspace %s failed", name, workspace)
                return "failed"
            return "done"

        return run
