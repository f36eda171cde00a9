"""What metrics are made of, for who may look at a workspace."""

from __future__ import annotations

from collections.abc import Iterator

from app.domain.metrics import PoolMeasure, WorkspaceMeasure
from app.service.validation import checked_name
from app.store.ledger import Ledger
from app.store.metrics import Measuring


class Measures:
    """Tells numbers, and no names but those of pools and policies."""

    def __init__(self, measuring: Measuring, ledger: Ledger) -> None:
        self._measuring, self._ledger = measuring, ledger

    def workspace(self, workspace: str) -> WorkspaceMeasure:
        """What was counted in a workspace, and how many are in it now."""
        return self._measuring.workspace(checked_name(workspace))

    def pools(self, workspace: str) -> Iterator[PoolMeasure]:
        """Its pools by name; one that has gone meanwhile is left out."""
        for name in self._ledger.pools(checked_name(workspace)):
            if pool := self._measuring.pool(workspace, name):
                yield pool
