"""The task outbox in Redis: tasks are parked, granted, dispatched, started, and after a loss parked again.

The script that grants (or ends) the request of a task also puts the task into the outbox, so every granted task is dispatched.
A dispatcher takes the due tasks under a claim, sends them and marks them as dispatched. A claim without an answer lapses, and
the task is sent again. So a message arrives at least once, and the fence shows which of two is valid.
"""

from __future__ import annotations

import base64
import json
import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from app.domain.clock import Clock, RedisClock
from app.domain.errors import Conflict, NotFound, StaleFence
from app.domain.ids import request_id
from app.domain.ledger_limits import LedgerLimits
from app.domain.models import HeartbeatResult, Request
from app.domain.states import FINAL_STATES, HOLDING_STATES, RequestState
from app.domain.tasks import OutboxBatch, OutboxStatus, Task, TaskDispatch, TaskEnd, TaskSpec, TaskStatus
from app.domain.workspace_limits import LimitedToken
from app.store import codec, workspace_codec
from app.store.change_notifications import QUIET_TIMEOUT_S
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.ledger import Ledger
from app.store.nudges import ChannelSubscription
from app.store.reply_outcomes import require_within_limits
from app.store.scripts import ScriptReply, Scripts

BATCH_SIZE = 50
"""The most tasks that one call takes from the outbox."""


class TaskStore:
    """The tasks of every workspace."""

    def __init__(
        self,
        client: RedisClient,
        clock: Clock | None = None,
        limits: LedgerLimits | None = None,
        *,
        resume_later: Callable[[str, float], object] | None = None,
    ) -> None:
        """Create a store of tasks; `resume_later` as in `LedgerCalls`."""
        self._client, self._scripts, self._clock = client, Scripts(client), clock or RedisClock()
        self._limits = limits or LedgerLimits()
        self._resume = resume_later or Ledger(client, self._clock, self._limits).resume_after

    # for clients

    def park_task(self, workspace: str, spec: TaskSpec, key: str | None = None, token: LimitedToken | None = None) -> Task:
        """Park a task until its request is granted.

        A repeated key with the same body returns the first answer. If a task of this name has not ended, raise Conflict, unless
        the call gives up the allocation of that very task (`instead_of`). No limit refuses such a call.
        """
        new_id, replaced, subject = request_id(), spec.instead_of, workspace_codec.encode_token(token)
        fields = [*codec.encode_request(new_id, spec.request_spec(), None, subject)["fields"], "task", spec.task]
        reply = self._change(
            "park_task",
            workspace,
            remember_s=self._limits.idempotency_ttl_s,
            task=spec.task,
            name=spec.name,
            id=new_id,
            spec=json.dumps(fields),
            key=key or new_id,  # it makes a retried call recognisable
            digest=spec.digest(),
            message=_pack_message(spec.message),
            due_ms=None if spec.not_before is None else math.ceil(spec.not_before.timestamp() * 1000),
            most=spec.redeliveries,
            replaced=replaced.request if replaced else None,
            fence=replaced.fence if replaced else None,
            limits=json.dumps(subject) if subject else None,
        )
        require_within_limits(reply)
        if reply.tag == "conflict":
            raise Conflict("idempotency_conflict", "this idempotency key was sent with another body before")
        if reply.tag == "exists":
            raise Conflict("task_exists", f"there is a task {spec.task} already, and it has not ended")
        if reply.tag == "stale_fence" and replaced:
            raise StaleFence(replaced.request, reply.fields["status"], reply.fields["reason"])
        if reply.fields["more"] == "1":  # it may not have been granted while work was unfinished
            with suppress(NotFound):
                return self.get_task(workspace, spec.task)
        return _decode_task(reply)

    def get_task(self, workspace: str, task: str) -> Task:
        """Return a task with its present request."""
        return _decode_task(_require_found(self._scripts.call("get_task", workspace, task=task), task))

    def cancel_task(self, workspace: str, task: str) -> Task:
        """Cancel a task that has not started."""
        reply = self._change("cancel_task", workspace, task=task)
        if reply.tag == "conflict":
            status = reply.fields["status"]
            raise Conflict("not_queued", f"task {task} is {status}; only a task that has not started can be cancelled")
        return _decode_task(_require_found(reply, task))

    # for task workers

    def acknowledge_end(self, workspace: str, task: str, request: str | None = None) -> None:
        """Record that a worker knows that the task will never run, because its request has ended. Raise Conflict if it may
        run."""
        reply = _require_found(self._scripts.call("acknowledge_end", workspace, task=task, request=request), task)
        if reply.tag == "conflict":
            raise Conflict("not_ended", f"task {task} has not ended: its request is {reply.fields['status']}")

    def start_task(self, workspace: str, request: str, fence: int, runner: str) -> HeartbeatResult:
        """Start a granted task. Its lease begins, and no other runner may start it under this fence."""
        frame = {"now": self._clock.now_ms(), "events_kept": self._limits.events_kept}
        reply = self._scripts.call("start", workspace, **frame, id=request, fence=fence, runner=runner)
        if reply.tag == "stale_fence":
            raise StaleFence(request, reply.fields["status"], reply.fields["reason"])
        if reply.tag == "already_started":
            raise Conflict("already_started", f"another runner has started {request} under this fence")
        if reply.tag == "not_found":
            raise NotFound("request", request)
        return codec.decode_heartbeat(reply.fields)

    # for the dispatcher

    def take_outbox(
        self, workspace: str, claim_s: float, start_s: float, start_tries: int, count: int = BATCH_SIZE
    ) -> OutboxBatch:
        """Take the tasks to send now. They belong to this caller until the claim lapses.

        The call also queues the tasks whose time has come. It queues again the tasks that are lost or were not started after
        `start_tries` dispatches.
        """
        reply = self._change(
            "take_outbox",
            workspace,
            count=count,
            claim_ms=_ms(claim_s),
            start_ms=_ms(start_s),
            tries=start_tries,
            ids=json.dumps([request_id() for _ in range(2 * count)]),
        )
        rows, next_due = reply.fields["rows"], reply.fields["next"]
        now_ms, next_ms = int(reply.fields["now"]), int(next_due) if next_due else None
        dispatches = tuple(_decode_dispatch(*row) for row in rows)
        return OutboxBatch(dispatches, next_ms is not None and next_ms <= now_ms, next_ms, now_ms)

    def mark_dispatched(self, workspace: str, dispatches: Sequence[TaskDispatch], start_s: float) -> None:
        """Mark tasks as dispatched. A task is due again after `start_s` seconds unless it has started by then."""
        sent = json.dumps(
            [
                (dispatch.task, "" if dispatch.end else str(dispatch.fence), dispatch.attempts, dispatch.request or "")
                for dispatch in dispatches
            ]
        )
        self._scripts.call("mark_dispatched", workspace, now=self._clock.now_ms(), sent=sent, start_ms=_ms(start_s))

    def mark_dispatch_failed(self, workspace: str, dispatches: Sequence[TaskDispatch], again_s: float) -> None:
        """Make tasks that could not be sent due again after `again_s` seconds."""
        tasks = json.dumps([dispatch.task for dispatch in dispatches])
        self._scripts.call("mark_dispatch_failed", workspace, now=self._clock.now_ms(), tasks=tasks, again_ms=_ms(again_s))

    def measure_outbox(self, workspace: str) -> OutboxStatus:
        """Return the counts of the outbox."""
        fields = self._scripts.call("measure_outbox", workspace, now=self._clock.now_ms()).fields
        oldest = int(fields["oldest"]) if fields["oldest"] else None
        return OutboxStatus(
            int(fields["waiting"]), int(fields["delayed"]), int(fields["unstarted"]), oldest, int(fields["now"])
        )

    def subscribe(self, quiet_s: float = QUIET_TIMEOUT_S) -> ChannelSubscription:
        """Return a subscription to the workspaces with a task to send."""
        return ChannelSubscription(self._client, key("outbox_ready", "*"), quiet_s)

    # calls

    def _change(self, command: str, workspace: str, **args: Any) -> ScriptReply:
        frame = {"now": self._clock.now_ms(), "events_kept": self._limits.events_kept, "chunk": self._limits.chunk}
        start = time.monotonic()
        reply = self._scripts.call(command, workspace, **frame, **args)
        if reply.fields.get("more") == "1":
            self._resume(workspace, time.monotonic() - start)
        return reply


def _decode_task(reply: ScriptReply) -> Task:
    """Return the task of a reply with its request, without queue positions."""
    fields, flat = codec.to_mapping(reply.fields["task"]), reply.fields["request"]
    request_fields = codec.to_mapping(flat)
    request = codec.decode_request(request_fields, request_fields["lapses"]) if request_fields else None
    sent = int(fields.get("sent") or 0) if request and fields.get("sent_fence") == str(request.fence) else 0
    due = int(fields["due_ms"]) if "due_ms" in fields else None
    kind, _, component = fields.get("component", "").partition("/")
    lost = int(fields.get("lost") or 0)
    return Task(
        fields["id"], fields.get("name", ""), component, kind, _task_status(fields, request, sent), request, due, sent, lost
    )


def _task_status(fields: Mapping[str, str], request: Request | None, sent: int) -> TaskStatus:
    if "ended" in fields or "name" not in fields:
        return TaskStatus.ENDED
    if "due_ms" in fields:
        return TaskStatus.DELAYED
    if request is None or request.status in FINAL_STATES:
        return TaskStatus.ENDED
    if request.status is RequestState.QUEUED:
        return TaskStatus.PARKED
    if request.started_ms is not None:
        return TaskStatus.STARTED
    return TaskStatus.SENT if sent else TaskStatus.GRANTED


def _decode_dispatch(kind: str, task: str, message: str, attempts: str, end: str, flat: list[str]) -> TaskDispatch:
    fields = codec.to_mapping(flat)
    request = codec.decode_request(fields) if fields else None
    holds = kind == "run" and request is not None and request.status in HOLDING_STATES
    return TaskDispatch(
        task=task,
        request=request.id if request else None,
        fence=request.fence if request and holds else None,
        message=_unpack_message(message),
        pool=request.pool if request else None,
        resources=request.resources if request else {},
        lease_s=request.lease_s if request else None,
        resume=bool(request and request.resume),
        reference=request.checkpoint_reference if request else None,
        attempts=int(attempts) + 1,
        started=fields.get("begun") == "1",
        end=None if holds else _task_end(request, end),
    )


def _task_end(request: Request | None, status: str) -> TaskEnd:
    if request is None:
        return TaskEnd(status or "gone", None, "it was cancelled before its time" if status else "its request is kept no more")
    if request.reason is None:
        return TaskEnd(request.status.value, None, f"its request was {request.status.value}")
    return TaskEnd(request.status.value, request.reason.code.value, request.reason.message)


def _require_found(reply: ScriptReply, task: str) -> ScriptReply:
    if reply.tag == "not_found":
        raise NotFound("task", task)
    return reply


def _pack_message(message: Mapping[str, Any]) -> str:
    """Return a message as a short text, because Redis keeps a hundred thousand in memory. Its first character names the
    format."""
    deflate = zlib.compressobj(level=6, wbits=-15, zdict=_DICTIONARY)
    deflated = deflate.compress(json.dumps(message, separators=(",", ":")).encode()) + deflate.flush()
    return _FORMAT + base64.b85encode(deflated).decode()


def _unpack_message(text: str) -> Mapping[str, Any]:
    """Return the message; empty if the text is damaged, so that only this message cannot be sent."""
    inflate = zlib.decompressobj(wbits=-15, zdict=_DICTIONARY)
    try:
        message: Mapping[str, Any] = json.loads(inflate.decompress(base64.b85decode(text[len(_FORMAT) :])))
    except (zlib.error, ValueError):
        return {}
    return message


_FORMAT = "1"
_DICTIONARY = (
    b'"max_length":null,"max_length_bytes":null,"max_priority":null,"expires":null,"message_ttl":null,"exclusive":false,'
    b'"queue_arguments":null,"binding_arguments":null,"no_declare":null,"queues":[{"name":"default","exchange":{"name":"",'
    b'"type":"direct","durable":true,"auto_delete":false,"arguments":null,"delivery_mode":2}}],"exchange_type":"direct",'
    b'"routing_key":"celery","priority":0,"properties":{"correlation_id":"","reply_to":"","delivery_mode":2},"exchange":"",'
    b'"group":null,"group_index":null,"retries":0,"timelimit":[null,null],"root_id":"","parent_id":null,"argsrepr":"()",'
    b'"kwargsrepr":"{}","origin":"gen","ignore_result":false,"replaced_task_nesting":0,"stamped_headers":null,"stamps":{}},'
    b'"content_type":"application/json","content_encoding":"utf-8","headers":{"lang":"py","task":"tasks.","id":"",'
    b'"shadow":null,"eta":null,"expires":null,"{"id":"","body":"W1sxXSwge30sIHsiY2FsbGJhY2tzIjogbnVsbCwgImVycmJhY2tzI'
    b"jogbnVsbCwgImNoYWluIjogbnVsbCwgImNob3JkIjogbnVsbH1d"
)
"""The deflate dictionary: texts that most messages have. Stored messages can only be read with it, so it must not change."""


def _ms(seconds: float) -> int:
    return math.ceil(seconds * 1000)
