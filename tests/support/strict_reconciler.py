"""A reconcile pass that raises the failure of a pool, where the service logs it and goes on."""

from __future__ import annotations

from collections.abc import Callable

from app.service.reconcile import Reconciler


class StrictReconciler(Reconciler):
    """A pass that hides no failure."""

    def _isolate_failures(self, workspace: str, pool: str, work: Callable[[], object]) -> bool:
        return bool(work())
