"""What metrics are made of, for who may look at a workspace."""

from __future__ import annotations

from collections.abc import Iterator

from app.domain.metrics import PoolMetrics, WorkspaceMetrics
from app.service.validation import checked_name
from app.store.ledger import Ledger
from app.store.metrics import MetricsStore


class MetricQueries:
    """Tells numbers, and no names but those of pools and policies."""

    def __init__(self, measuring: MetricsStore, ledger: Ledger) -> None:
        self._measuring, self._ledger = measuring, ledger

    def get_workspace_metrics(self, workspace: str) -> WorkspaceMetrics:
        """What was counted in a workspace, and how many are in it now."""
        return self._measuring.get_workspace(checked_name(workspace))

    def list_pool_metrics(self, workspace: str) -> Iterator[PoolMetrics]:
        """Its pools by name; one that has gone meanwhile is left out."""
        for name in self._ledger.list_pools(checked_name(workspace)):
            if pool := self._measuring.get_pool(workspace, name):
                yield pool
