"""The revoke hook: a parked task is cancelled in the service. Only other ids go to the workers, which remember them for hours.

The hook wraps the broadcast of the command, which may come from a result, from the app or from `celery control`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from celery import Celery
from celery.utils.functional import maybe_list

log = logging.getLogger(__name__)


def wrap(app: Celery, cancel: Callable[[str], bool]) -> None:
    """Wrap `revoke` so that it first calls `cancel`, which returns True if it has cancelled a parked task."""
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
    try:  # the worker that gets the message of its end informs the chord
        app.backend.mark_as_revoked(task_id, "revoked")
    except Exception:
        log.warning("task %s is revoked, but its state could not be set", task_id, exc_info=True)
    return True
