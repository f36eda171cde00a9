"""The ledger: one typed method per command. What a script refuses is raised as the error it is; all else is a model.

Scripts touch a bounded number of things a call and say when something is left. The ledger goes on until nothing is, and if it
dies on the way the next call or the housekeeping does.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.domain import amounts
from app.domain.clock import Clock, RedisClock
from app.domain.declaration_diff import DeclarationStep
from app.domain.errors import Conflict, NotFound, Refusal, StaleFence, rule_refusal
from app.domain.ids import request_id
from app.domain.models import CleanupCounts, Event, HeartbeatResult, Pool, Request
from app.domain.queue_score import BAND
from app.domain.quota_validation import threshold_refusal
from app.domain.specs import GroupSpec, PolicySpec, PoolSpec, PoolUpdate, RequestSpec, WorkspaceSettings
from app.domain.states import HOLDING_STATES, RequestState
from app.store import codec, declaration_codec
from app.store.connection import RedisClient
from app.store.scripts import ScriptReply, Scripts

MAX_RESUMES = 100_000
"""Rounds a caller goes on with unfinished work: enough for millions of waiters, and an end if the books are broken."""


@dataclass(frozen=True, slots=True)
class LedgerLimits:
    """What one call may touch, and how long things are kept."""

    chunk: int = 200
    events_kept: int = 100_000
    retention_s: int = 7 * 86_400
    idempotency_ttl_s: int = 86_400


class Ledger:
    """Pools, policies, requests and allocations of every workspace on one Redis."""

    def __init__(self, client: RedisClient, clock: Clock | None = None, limits: LedgerLimits | None = None) -> None:
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()
        self._limits = limits or LedgerLimits()

    # requests

    def submit(self, workspace: str, spec: RequestSpec, key: str | None = None, own_id: str | None = None) -> Request:
        """Take in one ask. The same idempotency key and body give the same request, another body a conflict."""
        answer = self.submit_all(workspace, [(own_id or request_id(), spec, key)])[0]
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def submit_all(self, workspace: str, asks: Sequence[tuple[str, RequestSpec, str | None]]) -> list[Request | Refusal]:
        """Take in asks (id, ask, idempotency key) one after the other in one call, each wholly or not at all."""
        rows = [codec.encode_request(*request) for request in asks]
        reply = self._change("submit", workspace, remember_s=self._limits.idempotency_ttl_s, specs=json.dumps(rows))
        answers = [_submit_outcome(tag, ask, flat) for ask, (tag, flat) in zip(rows, reply.fields["outcomes"], strict=True)]
        if reply.fields["more"] != "1":
            return answers
        return [self._refreshed(workspace, answer) for answer in answers]

    def _refreshed(self, workspace: str, answer: Request | Refusal) -> Request | Refusal:
        """What was queued while work was unfinished, as it stands when that is done."""
        return (
            self.get_request(workspace, answer.id)
            if isinstance(answer, Request) and answer.status == RequestState.QUEUED
            else answer
        )

    def get_request(self, workspace: str, request: str, *, poll: bool = False) -> Request:
        """A request as it stands. With `poll` its owner has asked for it, so it will not expire for a while."""
        reply = self._scripts.call("get_request", workspace, now=self._clock.now_ms(), id=request, poll=poll)
        fields = _require_found(reply, "request", request).fields
        return codec.decode_request(codec.to_mapping(fields["request"]), fields["lapses"], fields["places"])

    def list_events(self, workspace: str, after: str = "0", count: int = 100) -> list[Event]:
        """A stretch of the workspace's stream after an entry."""
        entries = self._scripts.call("read_events", workspace, after=after, count=count).fields["entries"]
        return [codec.decode_event(entry, codec.to_mapping(fields)) for entry, fields in entries]

    def get_last_event_id(self, workspace: str) -> str:
        """The id of the newest event, to have those after it; "0-0" if there is none."""
        return str(self._scripts.call("get_last_event_id", workspace).fields["id"])

    def heartbeat(self, workspace: str, request: str, fence: int) -> HeartbeatResult:
        """Prolong a lease."""
        reply = self._scripts.call("heartbeat", workspace, now=self._clock.now_ms(), id=request, fence=fence)
        return codec.decode_heartbeat(_require_fence(reply, request).fields)

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
        """What a holder says of its checkpoint; with one `completed` on its way out it has left, unless it is `routine`."""
        report = {"state": state, "seconds": seconds, "reference": reference, "routine": "1" if routine else None}
        args = {"op": _new_operation_id(), "id": request, "fence": fence, **report}
        reply = self._change("checkpoint", workspace, **args)
        if reply.tag == "left":
            status = RequestState(reply.fields["status"])  # said again, it may be granted again, but not to this holder
            return HeartbeatResult(RequestState.QUEUED if status in HOLDING_STATES else status, None)
        if reply.tag == "not_leaving":
            raise _not_preempting(request, reply.fields["status"])
        return codec.decode_heartbeat(_require_fence(reply, request).fields)

    def release(self, workspace: str, request: str, fence: int, outcome: str = "succeeded") -> Request:
        """Give an allocation back; who fits now has been granted when this returns."""
        answer = self.release_all(workspace, [(request, fence)], outcome)[0]
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def read_counters(self, workspace: str) -> dict[str, int]:
        """What the metrics count in a workspace."""
        counters = codec.to_mapping(self._scripts.call("read_counters", workspace).fields["counts"])
        return {name: int(count) for name, count in counters.items()}

    def release_all(
        self, workspace: str, allocations: Sequence[tuple[str, int]], outcome: str = "succeeded"
    ) -> list[Request | Refusal]:
        """Give allocations (id, fence) back one after the other in one call, each for itself."""
        rows = json.dumps([(request, str(fence), outcome) for request, fence in allocations])
        outcomes = self._change("release", workspace, allocations=rows).fields["outcomes"]
        return [_release_outcome(one, *returned) for (one, _), returned in zip(allocations, outcomes, strict=True)]

    def cancel(self, workspace: str, request: str) -> Request:
        """Leave the queue."""
        reply = self._change("cancel", workspace, id=request)
        if reply.tag == "conflict":
            raise Conflict("not_queued", f"{request} is {reply.fields['status']}, and only a queued request can be cancelled")
        return codec.decode_request(codec.to_mapping(_require_found(reply, "request", request).fields["request"]))

    def drop(self, workspace: str, request: str) -> Request:
        """End a request whatever its state; a final one stays as it is."""
        reply = _require_found(self._change("drop", workspace, id=request), "request", request)
        return codec.decode_request(codec.to_mapping(reply.fields["request"]))

    # pools, groups, policies

    def create_pool(self, workspace: str, spec: PoolSpec, operation: str | None = None) -> None:
        """Make a pool. A caller that names the operation may repeat it, as with the deletions."""
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

    def update_pool(self, workspace: str, name: str, change: PoolUpdate) -> None:
        """Merge a change into a pool; waiters have been looked at again when this returns."""
        reply = self._change(
            "update_pool",
            workspace,
            name=name,
            description="" if change.description is None else f"={change.description}",
            capacity=amounts.encode(change.capacity),
            settings=codec.encode_settings(change.settings.explicit_values()),
        )
        _require_allowed(_require_found(reply, "pool", name))

    def delete_pool(self, workspace: str, name: str, operation: str | None = None) -> None:
        """Delete a pool, its groups and policies, while nobody waits for it or holds anything of it."""
        reply = _require_found(
            self._scripts.call("delete_pool", workspace, op=operation or _new_operation_id(), name=name), "pool", name
        )
        _require_unused(reply, f"pool {name}")

    def list_pools(self, workspace: str) -> list[str]:
        """Names of the pools, in order."""
        return sorted(codec.to_mapping(self._scripts.call("list_pools", workspace).fields["pools"]))

    def get_pool(self, workspace: str, name: str) -> Pool:
        """A pool with its groups and policies, all as of one moment."""
        return codec.decode_pool(
            name, _require_found(self._scripts.call("get_pool", workspace, name=name), "pool", name).fields
        )

    def list_queue(self, workspace: str, name: str, after: int | None = None, count: int = 100) -> tuple[list[str], int | None]:
        """A page of a pool's queue, in order: ids, at times few, and where the next begins (None: that was all)."""
        reply = self._scripts.call("list_queue", workspace, pool=name, after=-BAND - 1 if after is None else after, count=count)
        fields = _require_found(reply, "pool", name).fields
        return fields["ids"], int(fields["last"]) if fields["last"] else None

    def set_policy(self, workspace: str, pool: str, component: str, spec: PolicySpec) -> bool:
        """Connect a component (`type/name`) to a pool or replace how it is; says whether it is new."""
        fields = {"component": component, "priority": spec.priority, "profile": spec.profile}
        return self._set_account("set_policy", workspace, pool, spec.group, spec, **fields)

    def delete_policy(self, workspace: str, pool: str, component: str, operation: str | None = None) -> None:
        """Part a component from a pool while nothing of it waits or runs there."""
        args = {"op": operation or _new_operation_id(), "pool": pool, "component": component}
        reply = self._change("delete_policy", workspace, **args)
        while reply.tag == "unfinished":
            self.resume_all_unfinished(workspace)
            reply = self._change("delete_policy", workspace, **args)
        _require_unused(_require_found(reply, "policy", f"{component} in pool {pool}"), f"policy {component}")

    def set_group(self, workspace: str, pool: str, group: str, spec: GroupSpec) -> bool:
        """Make a group or replace its numbers and parent; says whether it is new."""
        return self._set_account("set_group", workspace, pool, spec.parent, spec, own_group=group)

    def delete_group(self, workspace: str, pool: str, group: str, operation: str | None = None) -> None:
        """Delete a group without children."""
        reply = self._change("delete_group", workspace, op=operation or _new_operation_id(), pool=pool, group=group)
        if _require_found(reply, "group", f"{group} in pool {pool}").tag == "in_use":
            raise Conflict("in_use", f"group {group} is the parent of {reply.fields['child'].replace(':', ' ', 1)}")

    def declare(self, workspace: str, steps: Sequence[DeclarationStep], operation: str | None = None) -> bool:
        """Make pools as declared, all of it or nothing; False, and nothing done, if one is not what it was planned against."""
        args = {"op": operation or _new_operation_id(), "changes": declaration_codec.encode_steps(steps)}
        reply = self._change("declare", workspace, **args)
        while reply.tag == "unfinished":
            self.resume_all_unfinished(workspace)
            reply = self._change("declare", workspace, **args)
        return declaration_codec.was_applied(reply)

    def update_workspace(self, workspace: str, change: WorkspaceSettings) -> None:
        """Change settings of the workspace."""
        self._scripts.call("update_workspace", workspace, settings=codec.encode_settings(change.explicit_values()))

    # what time and unfinished work ask for

    def sweep(self, workspace: str) -> CleanupCounts:
        """End what time has ended: lapsed leases, waiters nobody polls for, requests kept long enough. One bounded call."""
        reply = self._change("clean_up", workspace, retention_s=self._limits.retention_s)
        return CleanupCounts(
            **{name: int(reply.fields[name]) for name in ("expired_leases", "expired_waiters", "pruned_requests")}
        )

    def give_patience_hold(self, workspace: str, pool: str) -> str | None:
        """Give the pool's hold to the first who lost patience; says to whom."""
        reply = self._scripts.call("give_patience_hold", workspace, now=self._clock.now_ms(), pool=pool)
        return reply.fields["id"] if reply.tag == "given" else None

    def resume_unfinished(self, workspace: str) -> bool:
        """One round of what bounded scripts left unfinished; says whether something is still left."""
        reply = self._scripts.call("resume_unfinished", workspace, **self._frame())
        return bool(reply.fields["more"] == "1")

    def take_job_lock(self, workspace: str, job: str, token: str, ttl_s: int) -> bool:
        """Take a task of the housekeeping for this workspace; False if another token has it. It lapses after `ttl_s`."""
        return self._scripts.call("take_job_lock", workspace, task=job, token=token, ttl_ms=ttl_s * 1000).tag == "taken"

    def release_job_lock(self, workspace: str, job: str, token: str) -> None:
        """Let go of a task, if this token still has it."""
        self._scripts.call("release_job_lock", workspace, task=job, token=token)

    # how it is called

    def _frame(self) -> dict[str, int | None]:
        return {"now": self._clock.now_ms(), "events_kept": self._limits.events_kept, "chunk": self._limits.chunk}

    def _change(self, command: str, workspace: str, **args: Any) -> ScriptReply:
        reply = self._scripts.call(command, workspace, **self._frame(), **args)
        if reply.fields.get("more") == "1":
            self.resume_all_unfinished(workspace)
        return reply

    def resume_all_unfinished(self, workspace: str) -> None:
        """Go on with what bounded scripts left unfinished until nothing is."""
        for _ in range(MAX_RESUMES):
            if not self.resume_unfinished(workspace):
                return
        raise RuntimeError(f"unfinished work of workspace {workspace} makes no progress; run poolkeeperd audit --repair")

    def _set_account(
        self, command: str, workspace: str, pool: str, parent: str | None, spec: GroupSpec | PolicySpec, **names: Any
    ) -> bool:
        parent_field = {"group": names.pop("own_group"), "parent": parent} if "own_group" in names else {"group": parent}
        reply = self._change(
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
        return bool(_require_allowed(reply).fields["created"] == "1")


def _new_operation_id() -> str:
    return secrets.token_hex(8)


def _submit_outcome(tag: str, ask: dict[str, Any], flat: list[str]) -> Request | Refusal:
    if tag == "taken_in":
        at = codec.to_mapping(ask["fields"] + flat)
        at["id"], lapses = ask["id"], ""
        if at["status"] == RequestState.ALLOCATED and "lease_s" in at:
            lapses = str(int(at["granted_ms"]) + int(at["lease_s"]) * 1000)
        return codec.decode_request(at, lapses)
    at = codec.to_mapping(flat)
    if tag == "known":
        return codec.decode_request(at, at["lapses"])
    if tag == "conflict":
        return Conflict("idempotency_conflict", "this idempotency key was sent with another body before")
    return Conflict("id_taken", "this id is another request's")


def _release_outcome(request: str, tag: str, found: Any, reason: str) -> Request | Refusal:
    if tag == "stale_fence":
        return StaleFence(request, found, reason)
    if tag == "not_leaving":
        return _not_preempting(request, found)
    if tag == "no_task":
        return Conflict("no_task", f"{request} is no task's request")
    return codec.decode_request(codec.to_mapping(found)) if tag == "released" else NotFound("request", request)


def _not_preempting(request: str, status: str) -> Conflict:
    return Conflict("not_leaving", f"{request} is {status}; nobody asked it to leave")


def _require_found(reply: ScriptReply, kind: str, name: str) -> ScriptReply:
    if reply.tag == "not_found":
        raise NotFound(kind, name)
    return reply


def _require_fence(reply: ScriptReply, request: str) -> ScriptReply:
    if reply.tag == "stale_fence":
        raise StaleFence(request, reply.fields["status"], reply.fields["reason"])
    return _require_found(reply, "request", request)


def _require_allowed(reply: ScriptReply) -> ScriptReply:
    if reply.tag == "refused":
        raise rule_refusal(**reply.fields)
    return reply


def _require_unused(reply: ScriptReply, subject: str) -> None:
    if reply.tag == "in_use":
        queued, active = reply.fields["queued"], reply.fields["active"]
        raise Conflict("in_use", f"{subject} is in use: {queued} queued, {active} active")
