"""Revoking: a parked task is cancelled at the service; workers, which remember a revoked id for hours, are told only of the
others.

The command is caught where it is broadcast: it may come from a result, from the app or from `celery control`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from celery import Celery
from celery.utils.functional import maybe_list

log = logging.getLogger(__name__)


def wrap(app: Celery, cancel: Callable[[str], bool]) -> None:
    """Make `revoke` call `cancel` first; it returns True if the task was parked and needs nothing more."""
    original_broadcast = app.control.broadcast

    def broadcast(command: str, arguments: Mapping[str, Any] | None = None, *rest: Any, **more: Any) -> Any:
        if command != "revoke" or not arguments:
            return original_broadcast(command, arguments, *rest, **more)
        task_ids = maybe_list(arguments.get("task_id")) or []
        unparked = [each for each in task_ids if not _revoke_parked(app, cancel, each)]
        if task_ids and not unparked:
            return [] if more.get("reply") else None
        revocation = arguments if len(unparked) == len(task_ids) else {**arguments, "task_id": unparked}
        return original_broadcast(command, dict(revocation), *rest, **more)

    vars(app.control)["broadcast"] = broadcast


def _revoke_parked(app: Celery, cancel: Callable[[str], bool], task_id: str) -> bool:
    if not cancel(task_id):
        return False
    try:  # a chord it belongs to is told by the worker that hears of its end
        app.backend.mark_as_revoked(task_id, "revoked")
    except Exception:
        log.warning("task %s is revoked, but its state could not be set", task_id, exc_info=True)
    return True
