"""Poolkeeper's API with types: a method for each action. `call`, `items` and `events` reach all of the API."""

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
"""The most requests of one batch."""


class Client(PoolApi):
    """The client of Poolkeeper over HTTP. Arguments that are not given come from POOLKEEPER_URL, POOLKEEPER_TOKEN and
    POOLKEEPER_WORKSPACE, then from the file that `poolkeeper login` writes. Threads and forked children may share a client."""

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
        """Submit a request for capacity. Return it as allocated, queued or rejected.

        `gpu=2` means `resources={"gpu": 2}`. If `pools` are given, only these may grant it. With `wait_s`, at most 60, the call
        returns when the request is no longer queued, or after these seconds; `waits` is then the reason why it is queued. The
        same `idempotency_key` returns the same request. Without a key the client makes one, so that a retry is safe.
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
        """Submit a spec of `poolkeeper.request_spec` under this idempotency key, and wait up to `wait_s` for the grant."""
        return Request.from_json(self.submit_document(body, idempotency_key, wait_s))

    def submit_many(
        self, specs: Sequence[Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> list[Request | ApiError]:
        """Submit specs made by `poolkeeper.request_spec`, in order. The result of a malformed spec is its ApiError.

        The key is for all of them: the same key returns the same requests.
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
        """Return a request. For a queued one this counts as a poll."""
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
        """Yield the requests of the workspace that match all of these filters, newest first."""
        label = [f"{key}:{value}" for key, value in (labels or {}).items()]
        query = {"status": status, "component": component, "component_type": component_type, "pool": pool, "label": label}
        return map(Request.from_json, self.items("/requests", query=query))

    def explain(self, request_id: str) -> dict[str, Any]:
        """Explain why a request waits: a `sentence`, and for each of its `pools` the verdict, the holders and more."""
        explanation: dict[str, Any] = self.call("GET", f"/requests/{path_segment(request_id)}/explain")
        return explanation

    def estimate(self, request_id: str, *, reasons: bool = False) -> dict[str, Any]:
        """Estimate the start of a request in each of its `pools`: the part of `explain` without the reasons, at a low cost.

        With `reasons`, each pool also has the `verdict` and a short `sentence`.
        """
        query = {"reasons": "true"} if reasons else {}
        estimate: dict[str, Any] = self.call("GET", f"/requests/{path_segment(request_id)}/estimate", query=query)
        return estimate

    def dry_run(self, **hypothesis: Any) -> dict[str, Any]:
        """Simulate a change and return its effect; nothing is changed. The change is `request=` (a spec of
        `poolkeeper.request_spec`), a new `pool=`, `policy=` or `group=`, or `pools=`, `cancel=`, `drop=`."""
        outcome: dict[str, Any] = self.call("POST", "/dry-run", body=hypothesis)
        return outcome

    def timeline(self, request_id: str) -> list[TimelineEntry]:
        """Return the events of a request, oldest first."""
        return [TimelineEntry.from_json(row) for row in self.items(f"/requests/{path_segment(request_id)}/events")]

    def wait(self, request_id: str, timeout_s: float | None = None) -> Request:
        """Wait until a request is no longer queued, and return it in its new state. Raise WaitTimeout after `timeout_s`.

        If the server cannot be reached for less than five minutes, the wait goes on.
        """
        return wait_for_grant(self, request_id, f"/requests/{path_segment(request_id)}", timeout_s, self._sleep)

    def heartbeat(self, request_id: str, fence: int) -> Heartbeat:
        """Prolong the lease. Raise StaleFence if the fence holds no units."""
        return Heartbeat.from_json(self.call("POST", f"/requests/{path_segment(request_id)}/heartbeat", body={"fence": fence}))

    def release(self, request_id: str, fence: int, outcome: str = "succeeded", *, exit_code: int | None = None) -> Request:
        """Release the units. The work has `succeeded`, has `failed`, or has left because of a directive (`vacated`).

        The exit code of a process is kept for people; a negative one is the number of the signal that ended it.
        Raise Conflict (`not_leaving`) for `vacated` without a directive.
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
        """Report the progress of a checkpoint: `started`, `progress`, `defer` (by `seconds`), `failed`, or `completed` with a
        reference to resume from. After a directive, `completed` releases the units (then `is_allocated` of the answer is
        False); a `routine` checkpoint is only stored."""
        fields = {"fence": fence, "state": state, "seconds": seconds, "reference": reference, "routine": routine or None}
        body = {field: value for field, value in fields.items() if value is not None}
        return Heartbeat.from_json(self.call("POST", f"/requests/{path_segment(request_id)}/checkpoint", body=body))

    def cancel(self, request_id: str) -> Request:
        """Cancel a queued request. Raise Conflict (`not_queued`) if it was granted or has ended."""
        return Request.from_json(self.call("POST", f"/requests/{path_segment(request_id)}/cancel"))

    def drop(self, request_id: str) -> Request:
        """End a request in any state; for operators."""
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
        """Return an `Allocation`: units for the length of a `with` block, kept by heartbeats and released at its end.

        On entry the process waits for the grant, at most `wait_s` if given. The other arguments are those of `submit`. Without
        an `idempotency_key`, no process could find a preempted request again: a preemption ends it, unless `retries` are given.
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
        """Return a task. Raise NotFound once it is over."""
        return Task.from_json(self.call("GET", f"/tasks/{path_segment(task_id)}"))

    def cancel_task(self, task_id: str) -> Task:
        """Cancel a task. Raise Conflict (`not_queued`) if it was granted."""
        return Task.from_json(self.call("POST", f"/tasks/{path_segment(task_id)}/cancel"))

    def start(self, request_id: str, fence: int, runner: str) -> Heartbeat:
        """Start a granted allocation. Raise StaleFence, or Conflict (`already_started`) if another runner has started it."""
        body, path = {"fence": fence, "runner": runner}, f"/requests/{path_segment(request_id)}/start"
        return Heartbeat.from_json(self.call("POST", path, body=body))

    # ---- the workspace

    def whoami(self) -> Caller:
        """Return the identity of this client for the server, and its permissions."""
        return Caller.from_json(self.call("GET", "/whoami"))

    def declaration(self) -> dict[str, Any]:
        """Return the pools, groups and policies of the workspace as one document."""
        document: dict[str, Any] = self.call("GET", "/declaration")
        return document

    def plan(self, declaration: Mapping[str, Any], *, prune: bool = False) -> Plan:
        """Return the changes that `apply` would make."""
        return Plan.from_json(self.call("POST", "/declaration/plan", query={"prune": prune}, body=dict(declaration)))

    def apply(self, declaration: Mapping[str, Any], *, prune: bool = False) -> Plan:
        """Change the workspace to what is declared; `prune` also deletes pools that are not in the declaration."""
        return Plan.from_json(self.call("PUT", "/declaration", query={"prune": prune}, body=dict(declaration)))


def _request_or_error(row: Mapping[str, Any]) -> Request | ApiError:
    if "id" in row:
        return Request.from_json(row)
    return api_error(int(row.get("status") or 0), row, None)
