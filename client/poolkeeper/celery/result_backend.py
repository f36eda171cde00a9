"""Retries of storing results while the result backend cannot be reached, so that a restart of the backend loses no result.

The run keeps its units meanwhile. If this takes too long, the task is parked again. In a pool of processes the message is
rejected, so that no worker stores an error of the backend as the result of the task.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from celery import Celery, states
from celery.app.task import Context
from celery.backends.base import Backend
from celery.exceptions import BackendStoreError, Reject
from kombu.exceptions import OperationalError

from poolkeeper.backoff import pause_s
from poolkeeper.celery import publish_hook
from poolkeeper.celery.allocation import in_pool_child
from poolkeeper.celery.message import GRANT_HEADER

if TYPE_CHECKING:
    from poolkeeper.celery.allocation import GrantedAllocation

log = logging.getLogger(__name__)

FINAL_STATES = states.READY_STATES | {states.RETRY}
"""The final states of a run, which have to be stored. Other states may stay unstored."""


def retry_storing(app: Celery, backend: Backend) -> None:
    """Wrap this backend, so that it retries to store the results of parked tasks."""
    if "store_result" in vars(backend):
        return
    store_once = backend.store_result

    def store_result(
        task_id: str, result: Any, state: str, traceback: Any = None, request: Context | None = None, **more: Any
    ) -> Any:
        store = partial(store_once, task_id, result, state, traceback=traceback, request=request, **more)
        if state not in FINAL_STATES or not _runs_here(app, request):
            return store()
        return _retry(backend, store, f"{state} of task {task_id}", vars(request).get(publish_hook.ALLOCATION_ATTRIBUTE))

    vars(backend)["store_result"] = store_result


def _retry(backend: Backend, store: Callable[[], Any], description: str, allocation: GrantedAllocation | None) -> Any:
    until_s, tries = time.monotonic() + publish_hook.RETRY_FOR_S, 0
    while True:
        try:
            result = store()
        except Exception as error:
            if not _is_unreachable(backend, error):
                raise
            tries, pause = tries + 1, pause_s(tries + 1)
            if allocation:
                allocation.is_unstored = True
            if time.monotonic() + pause >= until_s or (allocation and allocation.lost):
                log.error("%s could not be stored: %s", description, error)
                if allocation and not in_pool_child():  # an exception here would end `solo`, and be lost in a thread
                    return None
                raise Reject(f"the result backend cannot be reached: {error}", requeue=True) from error
            if tries == 1:
                log.warning("the result backend cannot be reached, %s has to wait: %s", description, error)
            time.sleep(pause)
        else:
            if allocation:
                allocation.is_unstored = False
            return result


def _runs_here(app: Celery, request: Context | None) -> bool:
    """True if the running parked task itself stores the result, not another process."""
    running = app.current_worker_task
    return running is not None and request is running.request and request.get(GRANT_HEADER) is not None


def _is_unreachable(backend: Backend, error: Exception) -> bool:
    """True if the backend was not reached; False if it refused the result."""
    if isinstance(error, BackendStoreError):  # the error names the state that was not stored, or none if the backend refused it
        return bool(getattr(error, "state", ""))
    return isinstance(error, (OSError, OperationalError)) or bool(backend.exception_safe_to_retry(error))
