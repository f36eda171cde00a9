"""The request of an Airflow task: submitted once for each try, polled, kept by heartbeats, released or cancelled at the end.

This module imports nothing of Airflow. `poolkeeper_sensor.py` is the part that does.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from poolkeeper import Client, errors, request_spec
from poolkeeper.heartbeats import HeartbeatThread, now_s
from poolkeeper.models import Request

log = logging.getLogger(__name__)

LEASE_S = 900
"""Seconds that an allocation is kept between two heartbeats: from the grant to the work, and between two tries of the work."""
QUEUE_TTL_S = 300
"""Seconds after the last poll until a queued request expires, so that the request of a cleared task does not stay."""
TASK_LABEL, TRY_LABEL = "airflow", "airflow_try"
LIVE = ("queued", "allocated", "preempting")


class GrantError(Exception):
    """The request was not granted, or its units are lost; the message has the reason."""

    def __init__(self, message: str, may_retry: bool = False) -> None:
        super().__init__(message)
        self.may_retry = may_retry
        """True if another request may be granted."""


@dataclass(frozen=True)
class TaskTry:
    """One try of one task instance."""

    dag_id: str
    run_id: str
    task_id: str
    id: str
    """The id of the try, a UUID of version 7: that of a later try is greater, also if the run was deleted and made again."""
    map_index: int = -1

    @property
    def task(self) -> str:
        """Return the task instance, as a label."""
        parts = [self.dag_id, self.run_id, self.task_id, *([str(self.map_index)] if self.map_index >= 0 else [])]
        text = "/".join(parts)
        return text if len(text) <= 200 else f"{text[:160]}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    @property
    def key(self) -> str:
        """Return the idempotency key: a submit that is repeated within one try finds the same request."""
        return f"airflow/{self.id}"


def submit(client: Client, task_try: TaskTry, component: str, resources: Mapping[str, int], **options: Any) -> str:
    """Submit the request of this try and return its id. Requests of earlier tries are ended first."""
    name = f"{task_try.dag_id}/{task_try.task_id}"[:100]
    fields = {"name": name, "lease_s": LEASE_S, "queue_ttl_s": QUEUE_TTL_S, "retries": 0} | options
    labels = {**fields.pop("labels", {}), TASK_LABEL: task_try.task, TRY_LABEL: task_try.id}
    end_requests(client, task_try, keep_own=True)
    body = request_spec(component, resources=resources, labels=labels, **fields)
    return client.submit_spec(body, task_try.key).id


def poll(client: Client, request_id: str) -> dict[str, Any] | None:
    """Return the grant of a request, or None if it is queued. Raise GrantError if it has ended.

    If the service does not answer, the request counts as queued: its queue TTL does not run in that time.
    """
    try:
        request = client.request(request_id)
    except (errors.Unavailable, errors.TooManyRequests) as error:
        log.warning("Poolkeeper does not answer; the next poll tries again: %s", error)
        return None
    if request.is_queued:
        return None
    if not request.is_allocated:
        reason = request.reason.message if request.reason else "it is over"
        raise GrantError(f"request {request.id} is {request.status}: {reason}", request.status in ("expired", "preempted"))
    return {
        "request": request.id,
        "fence": request.fence,
        "pool": request.pool,
        "resources": dict(request.resources),
        "lease_s": request.lease_s,
    }


@contextmanager
def holding(grant: Mapping[str, Any], client: Client | None = None) -> Iterator[HeartbeatThread]:
    """Prolong the lease of a grant while the block runs. Raise GrantError if the units are lost before its end.

    The thread in the block has `directive` (`terminate` if the units are needed elsewhere) and `deadline`.
    """
    client, request_id = client or Client(), grant["request"]
    try:
        client.heartbeat(request_id, grant["fence"])
    except (errors.StaleFence, errors.NotFound) as error:
        raise GrantError(f"the units of request {request_id} are lost: {error}") from error
    heartbeats = HeartbeatThread(client, request_id, grant["fence"], grant["lease_s"], now_s(), _log_directive)
    heartbeats.start()
    try:
        yield heartbeats
    finally:
        heartbeats.stop()
    if heartbeats.loss_reason:
        raise GrantError(f"the units of request {request_id} were lost: {heartbeats.loss_reason}")


def release(client: Client, grant: Mapping[str, Any]) -> bool:
    """Release a grant; a repeated release changes nothing. Return False if the units were lost before."""
    try:
        client.release(grant["request"], grant["fence"])
    except (errors.StaleFence, errors.NotFound) as error:
        log.warning("nothing to release: %s", error)
        return False
    return True


def end_requests(client: Client, task_try: TaskTry, keep_own: bool = False) -> list[str]:
    """Cancel the queued requests of a task instance, release its allocations, and return their ids.

    Requests of later tries stay. With `keep_own`, the request of this try stays as well.
    """
    requests = [
        request
        for request in client.requests(status=LIVE, labels={TASK_LABEL: task_try.task})
        if (own := request.labels.get(TRY_LABEL, "")) < task_try.id or (own == task_try.id and not keep_own)
    ]
    return [request.id for request in requests if _end(client, request)]


def give_up(task_try: TaskTry, client: Client | None = None) -> list[str]:
    """End the requests of a try that fails. If that is not possible now, they end by their queue TTL or their lease."""
    try:
        return end_requests(client or Client(), task_try)
    except errors.PoolkeeperError as error:
        log.warning("the request could not be ended, it will expire: %s", error)
        return []


def _end(client: Client, request: Request) -> bool:
    """Cancel a queued request, or release its units, also if its state changes meanwhile. Return False if it had ended."""
    try:
        if request.is_queued:
            client.cancel(request.id)
        else:
            client.release(request.id, request.fence or 0, "failed")
    except errors.NotFound:
        return False
    except errors.Conflict:
        present = client.request(request.id)
        has_changed = (present.status, present.fence) != (request.status, request.fence)
        return present.status in LIVE and has_changed and _end(client, present)
    return True


def _log_directive(directive: str) -> None:
    log.warning("Poolkeeper asks: %s", directive)
