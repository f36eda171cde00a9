"""Requests: submit, poll, heartbeat, checkpoint, release, cancel, drop."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from app.domain.errors import Refusal
from app.domain.explanations import WaitSummary
from app.domain.field_types import MAX_EXIT_CODE, MIN_EXIT_CODE
from app.domain.ids import request_id
from app.domain.models import Event, HeartbeatResult, Request
from app.domain.names import is_name
from app.domain.specs import RequestSpec
from app.domain.workspace_limits import LimitedToken
from app.service.validation import checked_count, checked_id, checked_key, checked_name, checked_number
from app.store.keys import OWN
from app.store.ledger import Ledger
from app.store.workspaces import WorkspaceRegistry

MAX_BATCH = 50
"""The most requests that one script call submits."""

OUTCOMES = ("succeeded", "failed", "vacated", "lost")
CHECKPOINT_STATES = ("started", "progress", "defer", "completed", "failed")


class Requests:
    """The requests of every workspace."""

    def __init__(self, ledger: Ledger, registry: WorkspaceRegistry) -> None:
        self._ledger, self._registry = ledger, registry

    def submit(self, workspace: str, spec: RequestSpec, key: str | None = None, token: LimitedToken | None = None) -> Request:
        """Submit a request. Return it as allocated, queued (with its positions) or rejected.

        Raise LimitReached beyond a limit of the workspace, the component or the token.
        """
        return self.submit_explained(workspace, spec, key, token).request

    def submit_explained(
        self, workspace: str, spec: RequestSpec, key: str | None = None, token: LimitedToken | None = None
    ) -> WaitSummary:
        """Submit a request as `submit` does. Return also why a queued request waits, if the same script has read that."""
        self._register_workspace(workspace)
        return self._ledger.submit_explained(workspace, spec, checked_key(key), token)

    def submit_batch(
        self,
        workspace: str,
        specs: Sequence[RequestSpec],
        keys: Sequence[str | None] = (),
        token: LimitedToken | None = None,
    ) -> list[Request | Refusal]:
        """Submit many requests in order. Each is submitted or refused by itself."""
        self._register_workspace(workspace)
        checked_keys = [checked_key(key) for key in keys] or [None] * len(specs)
        submissions = [(request_id(), spec, key) for spec, key in zip(specs, checked_keys, strict=True)]
        answers: list[Request | Refusal] = []
        for first in range(0, len(submissions), MAX_BATCH):
            answers += self._ledger.submit_all(workspace, submissions[first : first + MAX_BATCH], token)
        return answers

    def poll(self, workspace: str, request: str) -> Request:
        """Return a request, for its owner: its queue TTL starts again."""
        return self._ledger.get_request(checked_name(workspace), checked_id(request), poll=True)

    def record_refused_poll(self, workspace: str, request: str, components: Sequence[str] | None) -> None:
        """Record a poll that is refused for its rate. `components`: those that the caller may see; None: all."""
        if is_name(request):
            self._ledger.record_refused_poll(checked_name(workspace), request, components)

    def get(self, workspace: str, request: str) -> Request:
        """Return a request, for other readers: its queue TTL does not change."""
        return self._ledger.get_request(checked_name(workspace), checked_id(request))

    def heartbeat(self, workspace: str, request: str, fence: int) -> HeartbeatResult:
        """Prolong the lease of an allocation."""
        return self._ledger.heartbeat(checked_name(workspace), checked_id(request), checked_number("fence", fence))

    def release(
        self, workspace: str, request: str, fence: int, outcome: str = "succeeded", exit_code: int | None = None
    ) -> Request:
        """Release an allocation. Its work has `succeeded` or `failed`, it left by its directive (`vacated`), or the process of
        its task is gone (`lost`). A negative `exit_code` of the work is a signal."""
        if outcome not in OUTCOMES:
            raise ValueError(f"an outcome is one of {', '.join(OUTCOMES)}")
        if exit_code is not None and not MIN_EXIT_CODE <= exit_code <= MAX_EXIT_CODE:
            raise ValueError(f"an exit code is a number from {MIN_EXIT_CODE} to {MAX_EXIT_CODE}")
        allocation = (checked_name(workspace), checked_id(request), checked_number("fence", fence))
        return self._ledger.release(*allocation, outcome, exit_code)

    def checkpoint(
        self,
        workspace: str,
        request: str,
        fence: int,
        state: str,
        seconds: int = 0,
        reference: str | None = None,
        *,
        routine: bool = False,
    ) -> HeartbeatResult:
        """Report one of CHECKPOINT_STATES. `seconds` goes with `defer`, `reference` and `routine` with `completed`."""
        if state not in CHECKPOINT_STATES:
            raise ValueError(f"the state of a checkpoint is one of {', '.join(CHECKPOINT_STATES)}")
        if state == "defer":
            checked_number("seconds", seconds)
        allocation = (checked_name(workspace), checked_id(request), checked_number("fence", fence))
        return self._ledger.checkpoint(*allocation, state, seconds, reference, routine=routine)

    def cancel(self, workspace: str, request: str) -> Request:
        """Cancel a queued request."""
        return self._ledger.cancel(checked_name(workspace), checked_id(request))

    def drop(self, workspace: str, request: str) -> Request:
        """Drop a request in any state."""
        return self._ledger.drop(checked_name(workspace), checked_id(request))

    def list_events(self, workspace: str, after: str = "0", count: int = 100) -> list[Event]:
        """Return the events of the workspace after an event."""
        if not re.fullmatch(r"\d{1,16}(-\d{1,16})?", after, re.ASCII):
            raise ValueError("an event's id is two numbers with a - between them")
        return self._ledger.read_events(checked_name(workspace), after, checked_count(count))

    def read_counters(self, workspace: str) -> Mapping[str, int]:
        """Return the counters of the ledger."""
        return self._ledger.read_counters(checked_name(workspace))

    def _register_workspace(self, workspace: str) -> None:
        self._registry.add(checked_name(workspace))

    def check_ready(self) -> None:
        """Raise StoreUnavailable unless Redis answers, has the scripts and accepts a write."""
        self._ledger.take_job_lock(OWN, "ready", "any", ttl_s=1)

    def get_last_event_id(self, workspace: str) -> str:
        """Return the id of the newest event of the workspace; 0-0 if there is none."""
        return self._ledger.get_last_event_id(checked_name(workspace))
