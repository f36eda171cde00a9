"""Tasks that wait, as the ledger keeps them: parked, granted, sent off through the outbox, begun, lost and parked again.

The outbox is filled by the script that grants (or ends) a task's request, so nothing is granted that nobody will send. Whoever
sends takes what is due under a claim, sends it, and says so; a claim that is never answered lapses, and the task is sent
again: at least once, and the fence tells a worker which of two is the one that counts.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from app.domain.clock import Clock, RedisClock
from app.domain.errors import Conflict, NotFound, StaleFence
from app.domain.ids import request_id
from app.domain.models import Beat, Request
from app.domain.states import FINAL, LIVE, State
from app.domain.tasks import Dispatch, Ended, Outbox, Taken, Task, TaskAsk, TaskStatus
from app.store import codec
from app.store.change_notifications import QUIET_S
from app.store.keys import key
from app.store.ledger import Ledger, Limits
from app.store.nudges import Ears
from app.store.scripts import Client, Reply, Scripts

ONCE = 50
"""Tasks one look at the outbox takes."""


class TaskStore:
    """The tasks of every workspace."""

    def __init__(self, client: Client, clock: Clock | None = None, limits: Limits | None = None) -> None:
        self._client, self._scripts, self._clock = client, Scripts(client), clock or RedisClock()
        self._limits = limits or Limits()
        self._ledger = Ledger(client, self._clock, self._limits)

    # for whoever parks

    def park(self, workspace: str, wanted: TaskAsk, key: str | None = None) -> Task:
        """Keep a task until its request is granted. The same key and body give the same answer; one of its name that is not
        over is a conflict, unless it is the task itself that gives up its present allocation by this."""
        new_id, held = request_id(), wanted.instead_of
        fields = [*codec.ask(new_id, wanted.ask(), None)["fields"], "task", wanted.task]
        reply = self._change(
            "park",
            workspace,
            remember_s=self._limits.idempotency_ttl_s,
            task=wanted.task,
            name=wanted.name,
            id=new_id,
            ask=json.dumps(fields),
            key=key or new_id,  # so a call that comes twice is known
            digest=wanted.digest(),
            message=_packed(wanted.message),
            due_ms=None if wanted.not_before is None else math.ceil(wanted.not_before.timestamp() * 1000),
            most=wanted.redeliveries,
            held=held.request if held else None,
            fence=held.fence if held else None,
        )
        if reply.tag == "conflict":
            raise Conflict("idempotency_conflict", "this idempotency key was sent with another body before")
        if reply.tag == "exists":
            raise Conflict("task_exists", f"there is a task {wanted.task} already, and it is not over")
        if reply.tag == "stale_fence" and held:
            raise StaleFence(held.request, reply.fields["status"], reply.fields["reason"])
        if reply.fields["more"] == "1":  # while work was unfinished it may not have been granted yet
            with suppress(NotFound):
                return self.look(workspace, wanted.task)
        return _task(reply)

    def look(self, workspace: str, task: str) -> Task:
        """A task as it stands."""
        return _task(_found(self._scripts.call("task_look", workspace, task=task), task))

    def cancel(self, workspace: str, task: str) -> Task:
        """Give up a task that has not begun."""
        reply = self._change("task_cancel", workspace, task=task)
        if reply.tag == "conflict":
            status = reply.fields["status"]
            raise Conflict("not_queued", f"task {task} is {status}, and only one that has not begun can be given up")
        return _task(_found(reply, task))

    # for whoever runs

    def heard(self, workspace: str, task: str, request: str | None = None) -> None:
        """A worker of the task has heard that it will never run, as this request of it has ended; Conflict if it may."""
        reply = _found(self._scripts.call("task_heard", workspace, task=task, request=request), task)
        if reply.tag == "conflict":
            raise Conflict("not_ended", f"{task} is not over, its request is {reply.fields['status']}")

    def start(self, workspace: str, request: str, fence: int, runner: str) -> Beat:
        """Begin what was granted: its lease runs from now on, and no other runner may begin it under this fence."""
        frame = {"now": self._clock.now_ms(), "kept": self._limits.events_kept}
        reply = self._scripts.call("start", workspace, **frame, id=request, fence=fence, runner=runner)
        if reply.tag == "stale_fence":
            raise StaleFence(request, reply.fields["status"], reply.fields["reason"])
        if reply.tag == "already_started":
            raise Conflict("already_started", f"another runner has begun {request} under this fence")
        if reply.tag == "not_found":
            raise NotFound("request", request)
        return codec.beat(reply.fields)

    # for whoever sends

    def take(self, workspace: str, claim_s: float, start_s: float, start_tries: int, count: int = ONCE) -> Taken:
        """What is to be sent off now, for this caller alone until the claim is over. What else is due in the outbox is done:
        tasks whose time has come enter the queue, those lost or not begun after so many tries do again."""
        reply = self._change(
            "outbox_take",
            workspace,
            count=count,
            claim_ms=_ms(claim_s),
            start_ms=_ms(start_s),
            tries=start_tries,
            ids=json.dumps([request_id() for _ in range(2 * count)]),
        )
        rows, next_due = reply.fields["rows"], reply.fields["next"]
        now_ms, next_ms = int(reply.fields["now"]), int(next_due) if next_due else None
        dispatches = tuple(_dispatch(*row) for row in rows)
        return Taken(dispatches, next_ms is not None and next_ms <= now_ms, next_ms, now_ms)

    def done(self, workspace: str, dispatches: Sequence[Dispatch], start_s: float) -> None:
        """These were sent off. A task is looked after again in `start_s` unless it has begun; what was told to be over is."""
        sent = json.dumps([(one.task, "" if one.ended else str(one.fence), one.tries, one.request or "") for one in dispatches])
        self._scripts.call("outbox_done", workspace, now=self._clock.now_ms(), sent=sent, start_ms=_ms(start_s))

    def failed(self, workspace: str, dispatches: Sequence[Dispatch], again_s: float) -> None:
        """These could not be sent off; they are due again after so long."""
        tasks = json.dumps([one.task for one in dispatches])
        self._scripts.call("outbox_failed", workspace, now=self._clock.now_ms(), tasks=tasks, again_ms=_ms(again_s))

    def outbox(self, workspace: str) -> Outbox:
        """How the outbox stands."""
        at = self._scripts.call("outbox_view", workspace, now=self._clock.now_ms()).fields
        oldest = int(at["oldest"]) if at["oldest"] else None
        return Outbox(int(at["waiting"]), int(at["delayed"]), int(at["unstarted"]), oldest, int(at["now"]))

    def ears(self, quiet_s: float = QUIET_S) -> Ears:
        """To hear in which workspaces there is something to send."""
        return Ears(self._client, key("posted", "*"), quiet_s)

    # how it is called

    def _change(self, command: str, workspace: str, **args: Any) -> Reply:
        frame = {"now": self._clock.now_ms(), "kept": self._limits.events_kept, "chunk": self._limits.chunk}
        reply = self._scripts.call(command, workspace, **frame, **args)
        if reply.fields.get("more") == "1":
            self._ledger.settle(workspace)
        return reply


def _task(reply: Reply) -> Task:
    """The task of an answer and its request, which is not told where it stands in the queues."""
    at, flat = codec.pairs(reply.fields["task"]), reply.fields["request"]
    asked = codec.pairs(flat)
    request = codec.request(asked, asked["lapses"]) if asked else None
    sent = int(at.get("sent") or 0) if request and at.get("sent_fence") == str(request.fence) else 0
    due = int(at["due_ms"]) if "due_ms" in at else None
    kind, _, component = at.get("component", "").partition("/")
    lost = int(at.get("lost") or 0)
    return Task(at["id"], at.get("name", ""), component, kind, _status(at, request, sent), request, due, sent, lost)


def _status(at: Mapping[str, str], request: Request | None, sent: int) -> TaskStatus:
    if "ended" in at or "name" not in at:
        return TaskStatus.ENDED
    if "due_ms" in at:
        return TaskStatus.DELAYED
    if request is None or request.status in FINAL:
        return TaskStatus.ENDED
    if request.status is State.QUEUED:
        return TaskStatus.PARKED
    if request.started_ms is not None:
        return TaskStatus.STARTED
    return TaskStatus.SENT if sent else TaskStatus.GRANTED


def _dispatch(what: str, task: str, message: str, tries: str, ended: str, flat: list[str]) -> Dispatch:
    at = codec.pairs(flat)
    request = codec.request(at) if at else None
    holds = what == "run" and request is not None and request.status in LIVE
    return Dispatch(
        task=task,
        request=request.id if request else None,
        fence=request.fence if request and holds else None,
        message=_unpacked(message),
        pool=request.pool if request else None,
        resources=request.resources if request else {},
        lease_s=request.lease_s if request else None,
        resume=bool(request and request.resume),
        reference=request.checkpoint_reference if request else None,
        tries=int(tries) + 1,
        begun=at.get("begun") == "1",
        ended=None if holds else _ended(request, ended),
    )


def _ended(request: Request | None, ended: str) -> Ended:
    if request is None:
        return Ended(ended or "gone", None, "it was cancelled before its time" if ended else "its request is kept no more")
    if request.reason is None:
        return Ended(request.status.value, None, f"its request was {request.status.value}")
    return Ended(request.status.value, request.reason.code.value, request.reason.message)


def _found(reply: Reply, task: str) -> Reply:
    if reply.tag == "not_found":
        raise NotFound("task", task)
    return reply


def _packed(message: Mapping[str, Any]) -> str:
    """A message as short text: a queue of a hundred thousand is kept in memory. Its first sign says how it is written."""
    deflate = zlib.compressobj(level=6, wbits=-15, zdict=_COMMON)
    deflated = deflate.compress(json.dumps(message, separators=(",", ":")).encode()) + deflate.flush()
    return _WRITTEN + base64.b85encode(deflated).decode()


def _unpacked(text: str) -> Mapping[str, Any]:
    """The message, empty if what was kept of it is damaged: so it is only this one that cannot be sent."""
    inflate = zlib.decompressobj(wbits=-15, zdict=_COMMON)
    try:
        message: Mapping[str, Any] = json.loads(inflate.decompress(base64.b85decode(text[len(_WRITTEN) :])))
    except (zlib.error, ValueError):
        return {}
    return message


_WRITTEN = "1"
_COMMON = (
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
"""What most messages say: none of it takes room. What is written with it can only be read with it, so it stays as it is."""


def _ms(seconds: float) -> int:
    return math.ceil(seconds * 1000)
