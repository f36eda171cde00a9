"""The ledger: one typed method per Lua command. A refusal of a script is raised as an exception; any other reply is a model.

A script touches a bounded number of records per call, and notes unfinished work. That work is resumed until none is left
(`work_resumer.py`). If the process dies in between, the next call or the next cleanup job resumes it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any

from app.domain import amounts
from app.domain.declaration_diff import DeclarationStep
from app.domain.errors import Conflict, NotFound, Refusal, RuleViolation
from app.domain.explanations import WaitSummary
from app.domain.ids import request_id
from app.domain.models import CleanupCounts, Event, HeartbeatResult, Pool, Request
from app.domain.queue_score import BORROWING_STEP
from app.domain.quota_validation import threshold_refusal
from app.domain.specs import GroupSpec, PolicySpec, PoolSpec, PoolUpdate, RequestSpec, WorkspaceSettings
from app.domain.states import HOLDING_STATES, RequestState
from app.domain.workspace_limits import MAX_COMPONENT_LIMITS, LimitedToken
from app.store import codec, declaration_codec, workspace_codec
from app.store.ledger_calls import LedgerCalls
from app.store.pool_reader import read_pool
from app.store.reply_outcomes import (
    not_preempting,
    release_outcome,
    require_allowed,
    require_fence,
    require_found,
    require_unused,
    require_within_limits,
    summary_outcome,
)

PATIENCE_LANES = 100  # the lanes that one call of `give_patience_hold` compares


def _require_accepted(answer: WaitSummary | Refusal) -> WaitSummary:
    if isinstance(answer, Refusal):
        raise answer
    return answer


class Ledger(LedgerCalls):
    """The pools, policies, requests and allocations of every workspace on one Redis."""

    # requests

    def submit(
        self,
        workspace: str,
        spec: RequestSpec,
        key: str | None = None,
        own_id: str | None = None,
        *,
        token: LimitedToken | None = None,
    ) -> Request:
        """Submit a request. A repeated idempotency key returns the first request; with another body, raise Conflict.

        Beyond a limit of the workspace, the component or the `token`, raise LimitReached.
        """
        (answer,) = self._submit(workspace, [(own_id or request_id(), spec, key)], with_status=False, token=token)
        return _require_accepted(answer).request

    def submit_explained(
        self, workspace: str, spec: RequestSpec, key: str | None = None, token: LimitedToken | None = None
    ) -> WaitSummary:
        """Submit a request. A queued request is returned with its positions, its timeline and its wait reasons, by the same
        script call; without reasons if unfinished work had to be resumed."""
        (answer,) = self._submit(workspace, [(request_id(), spec, key)], with_status=True, token=token)
        return _require_accepted(answer)

    def submit_all(
        self, workspace: str, specs: Sequence[tuple[str, RequestSpec, str | None]], token: LimitedToken | None = None
    ) -> list[Request | Refusal]:
        """Submit requests (id, spec, idempotency key) in order in one call. Each is accepted or refused by itself."""
        answers = self._submit(workspace, specs, with_status=False, token=token)
        return [answer if isinstance(answer, Refusal) else answer.request for answer in answers]

    def _submit(
        self,
        workspace: str,
        specs: Sequence[tuple[str, RequestSpec, str | None]],
        *,
        with_status: bool,
        token: LimitedToken | None,
    ) -> list[WaitSummary | Refusal]:
        subject = workspace_codec.encode_token(token)
        rows = [codec.encode_request(*request, subject) for request in specs]
        answers: list[WaitSummary | Refusal] = []
        while len(answers) < len(rows):
            rest = rows[len(answers) :]
            args = {"remember_s": self._limits.idempotency_ttl_s, "specs": json.dumps(rest), "with_status": with_status}
            reply = self._change("submit", workspace, **args)
            done = [summary_outcome(row, *outcome) for row, outcome in zip(rest, reply.fields["outcomes"], strict=False)]
            answers += [self._refreshed(workspace, answer) for answer in done] if reply.fields["more"] == "1" else done
        return answers

    def _refreshed(self, workspace: str, answer: WaitSummary | Refusal) -> WaitSummary | Refusal:
        """Read a queued request again: it may have been granted when unfinished work was resumed."""
        if isinstance(answer, Refusal) or answer.request.status != RequestState.QUEUED:
            return answer
        return WaitSummary(self.get_request(workspace, answer.request.id))

    def get_request(self, workspace: str, request: str, *, poll: bool = False) -> Request:
        """Return a request with its queue positions and timeline. `poll` marks a poll of its client: the TTL starts anew."""
        reply = self._scripts.call("get_request", workspace, now=self._clock.now_ms(), id=request, poll=poll)
        fields = require_found(reply, "request", request).fields
        return codec.decode_request(codec.to_mapping(fields["request"]), fields["lapses"], fields["places"])

    def record_refused_poll(self, workspace: str, request: str, components: Sequence[str] | None) -> None:
        """Restart the queue TTL of a waiter of these components (None: all), although its poll was refused."""
        visible = None if components is None else json.dumps(list(components))
        self._scripts.call("record_refused_poll", workspace, now=self._clock.now_ms(), id=request, components=visible)

    def read_events(self, workspace: str, after: str = "0", count: int = 100) -> list[Event]:
        """Return at most `count` events of the workspace after an entry of its stream."""
        entries = self._scripts.call("read_events", workspace, after=after, count=count).fields["entries"]
        return [codec.decode_event(entry, codec.to_mapping(fields)) for entry, fields in entries]

    def get_last_event_id(self, workspace: str) -> str:
        """Return the id of the newest event; "0-0" if there is none."""
        return str(self._scripts.call("get_last_event_id", workspace).fields["id"])

    def heartbeat(self, workspace: str, request: str, fence: int) -> HeartbeatResult:
        """Extend the lease of an allocation."""
        reply = self._scripts.call("heartbeat", workspace, now=self._clock.now_ms(), id=request, fence=fence)
        return codec.decode_heartbeat(require_fence(reply, request).fields)

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
        """Report a checkpoint of an allocation. While preempting, `completed` also releases it, unless it is `routine`."""
        report = {"state": state, "seconds": seconds, "reference": reference, "routine": "1" if routine else None}
        args = {"op": _new_operation_id(), "id": request, "fence": fence, **report}
        reply = self._change("checkpoint", workspace, **args)
        if reply.tag == "left":
            status = RequestState(
                reply.fields["status"]
            )  # a repeated report: the request may be granted again, but under another fence
            return HeartbeatResult(RequestState.QUEUED if status in HOLDING_STATES else status, None)
        if reply.tag == "not_leaving":
            raise not_preempting(request, reply.fields["status"])
        return codec.decode_heartbeat(require_fence(reply, request).fields)

    def release(
        self, workspace: str, request: str, fence: int, outcome: str = "succeeded", exit_code: int | None = None
    ) -> Request:
        """Release an allocation. When this returns, the waiters that fit now have been granted."""
        answer = self.release_all(workspace, [(request, fence)], outcome, exit_code)[0]
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def read_counters(self, workspace: str) -> dict[str, int]:
        """Return the metric counters of a workspace."""
        reply = self._scripts.call("read_counters", workspace)
        return {name: int(count) for name, count in codec.to_mapping(reply.fields["counts"]).items()}

    def release_all(
        self, workspace: str, allocations: Sequence[tuple[str, int]], outcome: str = "succeeded", exit_code: int | None = None
    ) -> list[Request | Refusal]:
        """Release allocations (id, fence) in order in one call. Each is released or refused by itself."""
        end = (outcome,) if exit_code is None else (outcome, str(exit_code))
        rows = [(request, str(fence), *end) for request, fence in allocations]
        answers: list[Request | Refusal] = []
        while len(answers) < len(rows):
            rest = rows[len(answers) :]
            outcomes = self._change("release", workspace, allocations=json.dumps(rest)).fields["outcomes"]
            answers += [
                release_outcome(request_id, *returned) for (request_id, *_), returned in zip(rest, outcomes, strict=False)
            ]
        return answers

    def cancel(self, workspace: str, request: str) -> Request:
        """Cancel a queued request."""
        reply = self._change("cancel", workspace, id=request)
        if reply.tag == "conflict":
            raise Conflict("not_queued", f"{request} is {reply.fields['status']}, and only a queued request can be cancelled")
        return codec.decode_request(codec.to_mapping(require_found(reply, "request", request).fields["request"]))

    def drop(self, workspace: str, request: str) -> Request:
        """End a request in any state. A request in a final state stays as it is."""
        reply = require_found(self._change("drop", workspace, id=request), "request", request)
        return codec.decode_request(codec.to_mapping(reply.fields["request"]))

    # pools, groups, policies

    def create_pool(self, workspace: str, spec: PoolSpec, operation: str | None = None) -> None:
        """Create a pool. A call with the same `operation` may be repeated, like those of deletions."""
        if refusal := threshold_refusal("pool", spec.settings, spec.capacity):
            raise refusal
        reply = self._scripts.call(
            "create_pool",
            workspace,
            op=operation or _new_operation_id(),
            name=spec.name,
            description=spec.description,
            capacity=amounts.encode(spec.capacity),
            settings=codec.encode_new_settings(spec.settings),
        )
        if reply.tag == "exists":
            raise Conflict("pool_exists", f"there is a pool {spec.name} already")
        require_within_limits(reply)

    def update_pool(self, workspace: str, name: str, change: PoolUpdate) -> None:
        """Merge a change into a pool. When this returns, its waiters have been checked again."""
        reply = self._change_rules(
            "update_pool",
            workspace,
            name=name,
            description="" if change.description is None else f"={change.description}",
            capacity=amounts.encode(change.capacity),
            settings=codec.encode_settings(change.settings.explicit_values()),
        )
        require_allowed(require_found(reply, "pool", name))

    def delete_pool(self, workspace: str, name: str, operation: str | None = None) -> None:
        """Delete a pool with its groups and policies, unless it has queued requests or allocations."""
        reply = require_found(
            self._scripts.call("delete_pool", workspace, op=operation or _new_operation_id(), name=name), "pool", name
        )
        require_unused(reply, f"pool {name}")

    def list_pools(self, workspace: str) -> list[str]:
        """Return the names of the pools, sorted."""
        return sorted(codec.to_mapping(self._scripts.call("list_pools", workspace).fields["pools"]))

    def get_pool(self, workspace: str, name: str) -> Pool:
        """Return a pool with its groups and policies. Raise NotFound if there is none."""
        return read_pool(self._scripts, workspace, name)

    def list_queue(self, workspace: str, name: str, after: int | None = None, count: int = 100) -> tuple[list[str], int | None]:
        """Return a page of a pool's queue in order: ids, and the score after which the next page begins (None: the last
        page)."""
        reply = self._scripts.call(
            "list_queue", workspace, pool=name, after=-BORROWING_STEP - 1 if after is None else after, count=count
        )
        fields = require_found(reply, "pool", name).fields
        return fields["ids"], int(fields["last"]) if fields["last"] else None

    def fill_queue_page(
        self, workspace: str, name: str, after: int | None, count: int, max_calls: int
    ) -> tuple[list[str], int | None]:
        """Return a page of a queue like `list_queue`, in several calls. If `max_calls` do not fill the page, it is short."""
        ids: list[str] = []
        for _ in range(max_calls):
            page, after = self.list_queue(workspace, name, after, count - len(ids))
            ids += page
            if after is None or len(ids) == count:
                break
        return ids, after

    def set_policy(self, workspace: str, pool: str, component: str, spec: PolicySpec) -> bool:
        """Create or replace the policy of a component (`type/name`) in a pool. Return True if it is new."""
        fields = {"component": component, "priority": spec.priority, "profile": spec.profile}
        return self._set_account("set_policy", workspace, pool, spec.group, spec, **fields)

    def delete_policy(self, workspace: str, pool: str, component: str, operation: str | None = None) -> None:
        """Delete the policy of a component, unless the component has queued requests or allocations in the pool."""
        args = {"op": operation or _new_operation_id(), "pool": pool, "component": component}
        reply = self._change_policies("delete_policy", workspace, **args)
        require_unused(require_found(reply, "policy", f"{component} in pool {pool}"), f"policy {component}")

    def set_group(self, workspace: str, pool: str, group: str, spec: GroupSpec) -> bool:
        """Create or replace a group of a pool. Return True if it is new."""
        return self._set_account("set_group", workspace, pool, spec.parent, spec, own_group=group)

    def delete_group(self, workspace: str, pool: str, group: str, operation: str | None = None) -> None:
        """Delete a group without children."""
        reply = self._change_rules("delete_group", workspace, op=operation or _new_operation_id(), pool=pool, group=group)
        if require_found(reply, "group", f"{group} in pool {pool}").tag == "in_use":
            raise Conflict("in_use", f"group {group} is the parent of {reply.fields['child'].replace(':', ' ', 1)}")

    def declare(self, workspace: str, steps: Sequence[DeclarationStep], operation: str | None = None) -> bool:
        """Apply the steps of a declaration, all or none. Return False if a pool has changed since the steps were planned."""
        args = {"op": operation or _new_operation_id(), "changes": declaration_codec.encode_steps(steps)}
        reply = self._change_policies("declare", workspace, **args)
        return declaration_codec.was_applied(require_within_limits(reply))

    def update_workspace(self, workspace: str, change: WorkspaceSettings) -> None:
        """Change the settings of a workspace."""
        settings = workspace_codec.encode_workspace_settings(change)
        reply = self._scripts.call("update_workspace", workspace, settings=settings)
        if reply.tag == "too_many":
            message = f"{reply.fields['components']} components would have limits of their own; {MAX_COMPONENT_LIMITS} may"
            raise RuleViolation("too_many_component_limits", message)

    # deadlines and unfinished work

    def clean_up(self, workspace: str, available_since_ms: int | None = None, expected_ms: int | None = None) -> CleanupCounts:
        """End allocations with expired leases and waiters that are not polled; prune old requests. One bounded call: work that
        it leaves is not resumed, because a workspace may always have some.

        A queue TTL does not end before its length has passed since `available_since_ms`. If the clock is ahead of
        `expected_ms`, it was set forward: leases and queue TTLs that ended for that reason begin anew.
        """
        times = {"available_since_ms": available_since_ms, "expected": expected_ms}
        args = {**self._frame(), "retention_s": self._limits.retention_s, **times}
        fields = self._scripts.call("clean_up", workspace, **args).fields
        names = ("expired_leases", "expired_waiters", "pruned_requests", "idle_policies", "cut_times", "times_left", "now")
        return CleanupCounts(*(int(fields[name]) for name in names))

    def give_patience_hold(self, workspace: str, pool: str) -> str | None:
        """Give the patience hold of a pool to the first waiter past its patience; return its id, or None."""
        args: dict[str, Any] = {"now": self._clock.now_ms(), "pool": pool, "count": PATIENCE_LANES, "first": 0, "best": ""}
        while (reply := self._scripts.call("give_patience_hold", workspace, **args)).tag == "more":
            args |= reply.fields
        return reply.fields["id"] if reply.tag == "given" else None

    def _set_account(
        self, command: str, workspace: str, pool: str, parent: str | None, spec: GroupSpec | PolicySpec, **names: Any
    ) -> bool:
        parent_field = {"group": names.pop("own_group"), "parent": parent} if "own_group" in names else {"group": parent}
        reply = self._change_policies(
            command,
            workspace,
            op=_new_operation_id(),
            pool=pool,
            reserved=amounts.encode(spec.reserved),
            limit=amounts.encode(spec.limit),
            weight=spec.weight,
            settings=json.dumps(codec.encode_account_settings(spec)),
            **parent_field,
            **names,
        )
        if reply.tag == "not_found":
            raise NotFound(reply.fields["what"], parent or pool if reply.fields["what"] == "group" else pool)
        return bool(require_allowed(require_within_limits(reply)).fields["created"] == "1")


def _new_operation_id() -> str:
    return secrets.token_hex(8)
