"""What has to happen as time goes by: lapsed leases, forgotten waiters, lost patience, old requests, unfinished work.

Any number may run at once: every step is atomic, bounded and idempotent. Grants never wait for it.
"""

from __future__ import annotations

import logging

from app.domain.models import Swept
from app.store.connection import StoreUnavailable
from app.store.ledger import Ledger
from app.store.workspaces import Registry

log = logging.getLogger(__name__)

ROUNDS = 50
"""Bounded calls a workspace gets in one tidying; what is left comes with the next."""


class Housekeeping:
    """Keeps every workspace tidy."""

    def __init__(self, ledger: Ledger, registry: Registry) -> None:
        self._ledger, self._registry = ledger, registry

    def tidy(self, workspace: str) -> Swept:
        """What time has ended in one workspace, and what is unfinished there; says what ended."""
        ended = [self._ledger.sweep(workspace)]
        while any((ended[-1].lapsed, ended[-1].forgotten, ended[-1].pruned)) and len(ended) < ROUNDS:
            ended.append(self._ledger.sweep(workspace))
        for _ in range(ROUNDS):
            if not self._ledger.advance(workspace):
                break
        return Swept(
            lapsed=sum(swept.lapsed for swept in ended),
            forgotten=sum(swept.forgotten for swept in ended),
            pruned=sum(swept.pruned for swept in ended),
        )

    def hold(self, workspace: str) -> None:
        """Capacity is held for the first in each pool who has waited too long."""
        for pool in self._ledger.pools(workspace):
            self._ledger.give_patience(workspace, pool)

    def tidy_all(self) -> dict[str, Swept]:
        """Every workspace; one that fails is logged and does not stop the others."""
        done = {}
        for workspace in self._registry.all():
            try:
                done[workspace] = self.tidy(workspace)
                self.hold(workspace)
            except StoreUnavailable:
                raise
            except Exception:
                log.exception("tidying of workspace %s failed", workspace)
        return done
