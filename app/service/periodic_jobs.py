"""What happens by the clock, in one workspace after the other: decisions, the housekeeping, and the audit.

Any number of callers may begin a round at any moment. What is done is idempotent, so that a lease for each workspace and
task is there to spare work and not to keep anything right: who finds it taken leaves that workspace to the one who has it.
A lease whose holder died ends by itself. A round ends when its time is up, and begins anywhere, so that no workspace is
always among those it did not come to.

Reconciling must not come late, so its lease is short, prolonged while the holder looks, and never just left to another:

1. who finds it taken says so, and the holder looks once more; that the holder gives the lease back, and that somebody finds
   it taken, are one step each, so that nobody falls between them
2. a tick then waits for that, and for no longer than the lease lasts: if the holder is dead, the tick looks in its place
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Literal, Protocol

from app.domain.errors import StoreUnavailable
from app.service.audit import Audit
from app.service.cleanup import Cleanup
from app.service.usage_history import UsageHistories
from app.store.ledger import Ledger
from app.store.nudges import Nudges, PassResult, PassTrigger
from app.store.workspaces import WorkspaceRegistry

log = logging.getLogger(__name__)

JobOutcome = Literal["done", "idle", "held", "failed"]

RECONCILE_LOCK_S, CLEANUP_LOCK_S, SAMPLE_LOCK_S, AUDIT_LOCK_S = 1, 10, 10, 300
RECONCILE_RUN_S, CLEANUP_RUN_S, SAMPLE_RUN_S, AUDIT_RUN_S = 20, 20, 20, 300
MAX_LOCKED_S = 5
"""How long a workspace is reconciled over and over, at most, before the others have their turn."""
MAX_PASSES = 20
"""How often, at most."""
MAX_PASS_S = 30
"""For how long a look keeps its lease, at most; then another may try."""
RETRY_S = 0.05
"""How soon a tick asks again for a lease that it found taken."""


class ReconcilePass(Protocol):
    """Who decides, and does what was decided."""

    def run(self, workspace: str) -> bool:
        """One bounded look at everything in a workspace; True if something is left to be done at once."""
        ...


class ReconcileLock:
    """Reconciles one workspace, one caller at a time, and once more for whoever came meanwhile; says how long it takes."""

    def __init__(
        self,
        nudges: Nudges,
        reconciling: ReconcilePass,
        monotonic: Callable[[], float] = time.monotonic,
        lock_s: float = RECONCILE_LOCK_S,
    ) -> None:
        self._nudges, self._reconciling, self._monotonic, self._lease_s = nudges, reconciling, monotonic, lock_s

    def run(self, workspace: str, trigger: PassTrigger = "tick") -> JobOutcome:
        """Look, until nothing is left to be done at once; it is done as well if others have looked."""
        name, until = secrets.token_hex(8), self._monotonic() + MAX_LOCKED_S
        try:
            begun = self._nudges.begin_reconcile(workspace, f"{name}.1", self._lease_s, trigger)
            number = 1
            while begun == "begun" and self._look(workspace, name, number, until):
                number += 1
        except StoreUnavailable:
            raise
        except Exception:
            log.exception("reconcile of workspace %s failed", workspace)
            return "failed"
        return begun if begun in ("idle", "held") else "done"

    def run_skipped(self, workspaces: Iterable[str]) -> dict[str, JobOutcome]:
        """Those that were `held`: each when somebody has looked, or the lease of the dead has lapsed; a long look is left."""
        outcomes, left = dict[str, JobOutcome](), sorted(workspaces)
        until = self._monotonic() + self._lease_s + 2 * RETRY_S
        while left and self._monotonic() < until:
            time.sleep(RETRY_S)
            outcomes |= {workspace: self.run(workspace, "missed") for workspace in left}
            left = [workspace for workspace in left if outcomes[workspace] == "held"]
        return outcomes

    def _look(self, workspace: str, name: str, number: int, until: float) -> bool:
        """One look; True if the next one has begun."""
        token, begun = f"{name}.{number}", self._monotonic()
        found: PassResult = "failed"
        try:
            with self._prolonged(workspace, token):
                found = "more" if self._reconciling.run(workspace) else "nothing"
        finally:
            now = self._monotonic()
            then = f"{name}.{number + 1}" if number < MAX_PASSES and now < until else None
            again = self._nudges.finish_reconcile(workspace, token, then, self._lease_s, now - begun, found)
        return again

    @contextmanager
    def _prolonged(self, workspace: str, token: str) -> Iterator[None]:
        over, until = Event(), time.monotonic() + MAX_PASS_S

        def prolong() -> None:
            while not over.wait(self._lease_s / 4) and time.monotonic() < until:
                with suppress(StoreUnavailable):
                    if not self._nudges.extend_lock(workspace, token, self._lease_s):
                        return

        thread = Thread(target=prolong, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()  # or it would take again what is about to be given back


class PeriodicJobs:
    """Goes through the workspaces, and leaves out those that somebody else is at."""

    def __init__(
        self,
        ledger: Ledger,
        registry: WorkspaceRegistry,
        housekeeping: Cleanup,
        audit: Audit,
        histories: UsageHistories,
        turns: ReconcileLock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._registry, self._housekeeping, self._audit = ledger, registry, housekeeping, audit
        self._histories, self._turns, self._monotonic = histories, turns, monotonic

    def reconcile(self) -> dict[str, JobOutcome]:
        """Every workspace is reconciled: it is decided who leaves, and done what is due."""
        outcomes = self._round("reconcile", self._turns.run, RECONCILE_RUN_S)
        held = [workspace for workspace, outcome in outcomes.items() if outcome == "held"]
        try:
            outcomes |= self._turns.run_skipped(held)
        except StoreUnavailable as away:
            log.warning("reconcile stopped before %s: %s", ", ".join(held), away)
        return outcomes

    def update_fair_shares(self) -> dict[str, JobOutcome]:
        """Workspaces with pools of fair shares: it is seen who has how much, and decided by that. Who is at it already sees."""
        return self._round("share", lambda workspace: self._turns.run(workspace, "shares"), RECONCILE_RUN_S)

    def reconcile_workspace(self, workspace: str) -> JobOutcome:
        """A workspace that was nudged is reconciled, unless somebody is at it, who then does it once more."""
        try:
            return self._turns.run(workspace, "nudge")
        except StoreUnavailable as away:
            log.warning("reconcile of workspace %s stopped: %s", workspace, away)
            return "failed"

    def cleanup(self) -> dict[str, JobOutcome]:
        """Every workspace is tidied; says what became of each that it came to."""
        return self._round("cleanup", self._leased("cleanup", self._housekeeping.run, CLEANUP_LOCK_S), CLEANUP_RUN_S)

    def record_usage(self) -> dict[str, JobOutcome]:
        """It is noted of every pool how much of it is used, and by whom."""
        return self._round("sample", self._leased("sample", self._histories.record, SAMPLE_LOCK_S), SAMPLE_RUN_S)

    def audit(self) -> dict[str, JobOutcome]:
        """The books of every workspace are compared, and what differs is logged; nothing is repaired."""
        return self._round("audit", self._leased("audit", self._report, AUDIT_LOCK_S), AUDIT_RUN_S)

    def _report(self, workspace: str) -> None:
        for difference in self._audit.run(workspace):
            log.error("workspace %s differs: %s", workspace, difference)

    def _round(self, task: str, one: Callable[[str], JobOutcome], round_s: float) -> dict[str, JobOutcome]:
        until, outcomes = self._monotonic() + round_s, dict[str, JobOutcome]()
        try:
            workspaces = self._registry.list_names()
            random.shuffle(workspaces)
            for workspace in workspaces:
                if self._monotonic() > until:
                    log.warning("%s came to %d of %d workspaces in %g s", task, len(outcomes), len(workspaces), round_s)
                    break
                outcomes[workspace] = one(workspace)
        except StoreUnavailable as away:
            log.warning("%s stopped after %d workspaces: %s", task, len(outcomes), away)
        return outcomes

    def _leased(self, task: str, work: Callable[[str], object], lease_s: int) -> Callable[[str], JobOutcome]:
        def one(workspace: str) -> JobOutcome:
            token = secrets.token_hex(8)
            try:
                if not self._ledger.take_job_lock(workspace, task, token, lease_s):
                    return "held"
                try:
                    work(workspace)
                finally:
                    self._ledger.release_job_lock(workspace, task, token)
            except StoreUnavailable:
                raise
            except Exception:
                log.exception("%s of workspace %s failed", task, workspace)
                return "failed"
            return "done"

        return one
