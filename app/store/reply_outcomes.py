"""The meaning of tagged replies: a reply or an outcome becomes a request, or a refusal that is raised or returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.domain.errors import Conflict, NotFound, Refusal, StaleFence, rule_refusal
from app.domain.explanations import WaitSummary
from app.domain.models import Request
from app.domain.states import RequestState
from app.store import codec, workspace_codec
from app.store.queue_status import StatusRow, decode_status, positions_of
from app.store.scripts import ScriptReply


def submit_outcome(
    row: dict[str, Any], tag: str, flat: list[str], lapses: str = "", status_rows: Sequence[StatusRow] = ()
) -> Request | Refusal:
    """Return the request of one outcome of a submit, or the refusal."""
    if tag == "admitted":
        fields = codec.to_mapping(row["fields"] + flat)
        fields["id"] = row["id"]
        if fields["status"] == RequestState.ALLOCATED and "lease_s" in fields:
            lapses = str(int(fields["granted_ms"]) + int(fields["lease_s"]) * 1000)
        if fields["status"] == RequestState.QUEUED and "queue_ttl_s" in fields:
            fields["polled_ms"] = fields["submitted_ms"]
        return codec.decode_request(fields, lapses)
    if tag == "limited":
        return workspace_codec.limit_refusal(*flat)
    fields = codec.to_mapping(flat)
    if tag == "read":
        return codec.decode_request(fields, lapses, positions_of(status_rows))
    if tag == "known":
        return codec.decode_request(fields, fields["lapses"])
    if tag == "conflict":
        return Conflict("idempotency_conflict", "this idempotency key was sent with another body before")
    return Conflict("id_taken", "another request has this id")


def summary_outcome(row: dict[str, Any], *outcome: Any) -> WaitSummary | Refusal:
    """Return the request of one outcome of a submit, with its wait reasons if the script has read them; or the refusal."""
    answer = submit_outcome(row, *outcome)
    if isinstance(answer, Refusal):
        return answer
    rows: Sequence[StatusRow] = outcome[3] if outcome[0] == "read" else ()
    return WaitSummary(answer, tuple(decode_status(row) for row in rows))


def release_outcome(request: str, tag: str, value: Any, reason: str) -> Request | Refusal:
    """Return the request of one outcome of a release, or the refusal."""
    if tag == "stale_fence":
        return StaleFence(request, value, reason)
    if tag == "not_leaving":
        return not_preempting(request, value)
    if tag == "no_task":
        return Conflict("no_task", f"{request} is not the request of a task")
    return codec.decode_request(codec.to_mapping(value)) if tag == "released" else NotFound("request", request)


def not_preempting(request: str, status: str) -> Conflict:
    """Return the refusal for a request that is not preempting."""
    return Conflict("not_leaving", f"{request} is {status}; it was not told to leave")


def require_found(reply: ScriptReply, kind: str, name: str) -> ScriptReply:
    """Return the reply; raise NotFound if the record does not exist."""
    if reply.tag == "not_found":
        raise NotFound(kind, name)
    return reply


def require_fence(reply: ScriptReply, request: str) -> ScriptReply:
    """Return the reply; raise StaleFence if the fence is not the one of the allocation."""
    if reply.tag == "stale_fence":
        raise StaleFence(request, reply.fields["status"], reply.fields["reason"])
    return require_found(reply, "request", request)


def require_allowed(reply: ScriptReply) -> ScriptReply:
    """Return the reply; raise RuleViolation if a rule forbids the change."""
    if reply.tag == "refused":
        raise rule_refusal(**reply.fields)
    return reply


def require_within_limits(reply: ScriptReply) -> ScriptReply:
    """Return the reply; raise LimitReached if a limit is reached."""
    if reply.tag == "limited":
        raise workspace_codec.limit_refusal(**reply.fields)
    return reply


def require_unused(reply: ScriptReply, subject: str) -> None:
    """Raise Conflict if requests still use the subject."""
    if reply.tag == "in_use":
        queued, active = reply.fields["queued"], reply.fields["active"]
        raise Conflict("in_use", f"{subject} is in use: {queued} queued, {active} active")
