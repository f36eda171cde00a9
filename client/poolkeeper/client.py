"""Poolkeeper's API, typed: a method for each thing there is to do. Everything else is there by `call`, `items` and `events`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import EllipsisType
from typing import Any

from poolkeeper.allocation import Allocation, OnDirective
from poolkeeper.errors import ApiError, api_error
from poolkeeper.http_client import IDEMPOTENCY_HEADER, new_key
from poolkeeper.models import Caller, Heartbeat, Plan, Request, Task, TimelineEntry
from poolkeeper.pool_api import PoolApi, path_segment
from poolkeeper.request_body import request_spec
from poolkeeper.wait_for_grant import wait_for_grant

BATCH_SIZE = 1000
"""Asks of one batch."""


class Client(PoolApi):
    """Poolkeeper over HTTP. What is not given is read from POOLKEEPER_URL, POOLKEEPER_TOKEN and POOLKEEPER_WORKSPACE, then from
    the file that `poolkeeper login` writes. Threads may share one, and a forked child may go on using it."""

    # ---- requests

    def submit(
        self,
        component: str,
        *,
        component_type: str | None = None,
        name: str | None = None,
        pools: Sequence[str] | None = None,
        resources: Mapping[str, int] | None = None,
        settings: Mapping[str, Any] | None = None,
        preemptible: bool | None = None,
        preemption_class: int | None = None,
        checkpoint: str | None = None,
        checkpoint_minutes: int | None = None,
        walltime_s: int | None = None,
        retries: int | None = None,
        lease_s: int | EllipsisType | None = ...,
        queue_ttl_s: int | EllipsisType | None = ...,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        wait_s: float = 0,
        **amounts: int,
    ) -> Request:
        """Ask for capacity: the request as it stands, allocated, queued or rejected. `gpu=2` means `resources={"gpu": 2}`; only
        `pools` may grant it, if they are given.

        With `wait_s`, at most 60, it is returned when it is no longer queued, or after so long; `waits` tells why it is queued.
        With the same `idempotency_key` the same request comes back; without one a key is made, so that a retry is safe.
        """
        body = request_spec(
            component,
            component_type=component_type,
            name=name,
            pools=pools,
            resources=resources,
            settings=settings,
            preemptible=preemptible,
            preemption_class=preemption_class,
            checkpoint=checkpoint,
            checkpoint_minutes=checkpoint_minutes,
            walltime_s=walltime_s,
            retries=retries,
            lease_s=lease_s,
            queue_ttl_s=queue_ttl_s,
            labels=labels,
            **amounts,
        )
        return self.submit_spec(body, idempotency_key or new_key(), wait_s)

    def submit_spec(self, body: Mapping[str, Any], idempotency_key: str, wait_s: float = 0) -> Request:
        """Submit a spec of `poolkeeper.request_spec` under this idempotency key, and wait for the grant for so long."""
        return Request.from_json(self.submit_document(body, idempotency_key, wait_s))

    def submit_many(
        self, specs: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> list[Request | ApiError]:
        """Submit specs made by `poolkeeper.request_spec`, in order. The result of a malformed spec is its ApiError.

        The key is for all of them: with the same key the same requests come back.
        """
        key = idempotency_key or new_key()
        results: list[Request | ApiError] = []
        for first in range(0, len(specs), BATCH_SIZE):
            headers = {IDEMPOTENCY_HEADER: f"{key}/{first}" if first else key}
            body = {"requests": [dict(each) for each in specs[first : first + BATCH_SIZE]]}
            rows = self.call("POST", "/requests/batch", body=body, headers=headers)
            results += [_request_or_error(row) for row in rows["items"]]
        return results

    def request(self, request_id: str) -> Request:
        """A request as it stands; of a queued one this counts as asking for it."""
        return Request.from_json(self.call("GET", f"/requests/{path_segment(request_id)}"))

    def requests(
        self,
        *,
        status: str | Sequence[str] | None = None,
        component: str | None = None,
        component_type: str | None = None,
        pool: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[Request]:
        """The requests of the workspace that are so, newest first."""
        label = [f"{key}:{value}" for key, value in (labels or {}).items()]
        query = {"status": status, "component": component, "component_type": component_type, "pool": pool, "label": label}
        return map(Request.from_json, self.items("/requests", query=query))

    def explain(self, request_id: str) -> dict[str, Any]:
        """Why a request waits: a `sentence`, and for each of its `pools` the verdict, who holds the units, and more."""
        explanation: dict[str, Any] = self.call("GET", f"/requests/{path_segment(request_id)}/explain")
        return explanation

    def estimate(self, request_id: str, *, reasons: bool = False) -> dict[str, Any]:
        """When a request may start, for each of its `pools`: what `explain` says of it without the reasons, and cheap.

        With `reasons`, each has the `verdict` and a short `sentence`, too.
        """
        query = {"reasons": "true"} if reasons else {}
        estimate: dict[str, Any] = self.call("GET", f"/requests/{path_segment(request_id)}/estimate", query=query)
        return estimate

    def dry_run(self, **hypothesis: Any) -> dict[str, Any]:
        """What would come of it, and nothing done: `request=` a spec of `poolkeeper.request_spec`, or a `pool=`, `policy=` or
        `group=` as it would be, or `pools=`, `cancel=`, `drop=`."""
        outcome: dict[str, Any] = self.call("POST", "/dry-run", body=hypothesis)
        return outcome

    def timeline(self, request_id: str) -> list[TimelineEntry]:
        """What happened to a request, oldest first."""
        return [TimelineEntry.from_json(row) for row in self.items(f"/requests/{path_segment(request_id)}/events")]

    def wait(self, request_id: str, timeout_s: float | None = None) -> Request:
        """The request as soon as it is no longer queued, whatever it is then; WaitTimeout when it takes longer than that.

        A server that is away for less than five minutes is waited for as well.
        """
        return wait_for_grant(self, request_id, f"/requests/{path_segment(request_id)}", timeout_s, self._sleep)

    def heartbeat(self, request_id: str, fence: int) -> Heartbeat:
        """Prolong the lease; StaleFence if there is nothing to prolong."""
        return Heartbeat.from_json(self.call("POST", f"/requests/{path_segment(request_id)}/heartbeat", body={"fence": fence}))

    def release(self, request_id: str, fence: int, outcome: str = "succeeded", *, exit_code: int | None = None) -> Request:
        """Give the units back; the work has `succeeded` or `failed`, or (`vacated`) it left because it was asked to.

        The exit code of a process is kept for people; a negative one is the number of the signal that ended it.
        Conflict (`not_leaving`) if it says `vacated` and nobody has asked.
        """
        body = {"fence": fence, "outcome": outcome} | ({} if exit_code is None else {"exit_code": exit_code})
        return Request.from_json(self.call("POST", f"/requests/{path_segment(request_id)}/release", body=body))

    def checkpoint(
        self,
        request_id: str,
        fence: int,
        state: str,
        seconds: int | None = None,
        reference: str | None = None,
        *,
        routine: bool = False,
    ) -> Heartbeat:
        """How far the saving of the work is: `started`, `progress`, `defer` (by `seconds`), `failed` or `completed`, with a
        reference to go on from. Who completes what was asked for has left with that, and the answer's `holds` is False; a
        `routine` one is only kept, whatever was asked meanwhile."""
        fields = {"fence": fence, "state": state, "seconds": seconds, "reference": reference, "routine": routine or None}
        body = {field: value for field, value in fields.items() if value is not None}
        return Heartbeat.from_json(self.call("POST", f"/requests/{path_segment(request_id)}/checkpoint", body=body))

    def cancel(self, request_id: str) -> Request:
        """Leave the queue; Conflict (`not_queued`) if it was granted or has ended otherwise."""
        return Request.from_json(self.call("POST", f"/requests/{path_segment(request_id)}/cancel"))

    def drop(self, request_id: str) -> Request:
        """End a request whatever its state; for operators."""
        return Request.from_json(self.call("DELETE", f"/requests/{path_segment(request_id)}"))

    def allocation(
        self,
        component: str,
        *,
        component_type: str | None = None,
        name: str | None = None,
        pools: Sequence[str] | None = None,
        resources: Mapping[str, int] | None = None,
        settings: Mapping[str, Any] | None = None,
        preemptible: bool | None = None,
        preemption_class: int | None = None,
        checkpoint: str | None = None,
        checkpoint_minutes: int | None = None,
        walltime_s: int | None = None,
        retries: int | None = None,
        lease_s: int | EllipsisType | None = ...,
        queue_ttl_s: int | EllipsisType | None = ...,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        wait_s: float | None = None,
        on_directive: OnDirective | None = None,
        **amounts: int,
    ) -> Allocation:
        """Capacity for the length of a `with` block: waited for (`wait_s`), kept by heartbeats, given back whatever happens.

        The rest is as in `submit`; what holds inside the block is said at `Allocation`. Without an `idempotency_key` nobody
        could find the request again that was preempted and is granted once more, so it ends then, unless `retries` are given.
        """
        if idempotency_key is None and retries is None:
            retries = 0
        body = request_spec(
            component,
            component_type=component_type,
            name=name,
            pools=pools,
            resources=resources,
            settings=settings,
            preemptible=preemptible,
            preemption_class=preemption_class,
            checkpoint=checkpoint,
            checkpoint_minutes=checkpoint_minutes,
            walltime_s=walltime_s,
            retries=retries,
            lease_s=lease_s,
            queue_ttl_s=queue_ttl_s,
            labels=labels,
            **amounts,
        )
        return Allocation(self, body, idempotency_key, wait_s, on_directive)

    # ---- tasks

    def park(self, body: Mapping[str, Any], idempotency_key: str | None = None) -> Task:
        """Park a task: its `message` is published when its `request`, a spec of `poolkeeper.request_spec`, is granted."""
        return Task.from_json(
            self.call("POST", "/tasks", body=dict(body), headers={IDEMPOTENCY_HEADER: idempotency_key or new_key()})
        )

    def task(self, task_id: str) -> Task:
        """A task as it stands; NotFound once it is over."""
        return Task.from_json(self.call("GET", f"/tasks/{path_segment(task_id)}"))

    def cancel_task(self, task_id: str) -> Task:
        """Give up a task; Conflict (`not_queued`) if it was granted."""
        return Task.from_json(self.call("POST", f"/tasks/{path_segment(task_id)}/cancel"))

    def start(self, request_id: str, fence: int, runner: str) -> Heartbeat:
        """Begin what was granted; StaleFence, or Conflict (`already_started`) if another runner has begun it."""
        body, path = {"fence": fence, "runner": runner}, f"/requests/{path_segment(request_id)}/start"
        return Heartbeat.from_json(self.call("POST", path, body=body))

    # ---- the workspace

    def whoami(self) -> Caller:
        """Who the server takes us for, and what we may do."""
        return Caller.from_json(self.call("GET", "/whoami"))

    def declaration(self) -> dict[str, Any]:
        """The workspace's pools, groups and policies as one document."""
        document: dict[str, Any] = self.call("GET", "/declaration")
        return document

    def plan(self, declaration: Mapping[str, Any], *, prune: bool = False) -> Plan:
        """What `apply` would change."""
        return Plan.from_json(self.call("POST", "/declaration/plan", query={"prune": prune}, body=dict(declaration)))

    def apply(self, declaration: Mapping[str, Any], *, prune: bool = False) -> Plan:
        """Make the workspace as declared; `prune` also deletes pools that are not in it."""
        return Plan.from_json(self.call("PUT", "/declaration", query={"prune": prune}, body=dict(declaration)))


def _request_or_error(row: Mapping[str, Any]) -> Request | ApiError:
    if "id" in row:
        return Request.from_json(row)
    return api_error(int(row.get("status") or 0), row, None)
