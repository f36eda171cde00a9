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
from app.domain.declaration_diff import Step
from app.domain.errors import Conflict, NotFound, Refused, StaleFence, refused
from app.domain.ids import request_id
from app.domain.models import Beat, Event, Pool, Request, Swept
from app.domain.queue_score import BAND
from app.domain.quota_validation import unprotectable
from app.domain.specs import GroupAsk, PolicyAsk, PoolAsk, PoolChange, RequestAsk, WorkspaceSettings
from app.domain.states import LIVE, State
from app.store import codec, declaration_codec
from app.store.scripts import Client, Reply, Scripts

ROUNDS = 100_000
"""Rounds a caller goes on with unfinished work: enough for millions of waiters, and an end if the books are broken."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call may touch, and how long things are kept."""

    chunk: int = 200
    events_kept: int = 100_000
    retention_s: int = 7 * 86_400
    idempotency_ttl_s: int = 86_400


class Ledger:
    """Pools, policies, requests and allocations of every workspace on one Redis."""

    def __init__(self, client: Client, clock: Clock | None = None, limits: Limits | None = None) -> None:
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()
        self._limits = limits or Limits()

    # requests

    def submit(self, workspace: str, wanted: RequestAsk, key: str | None = None, own_id: str | None = None) -> Request:
        """Take in one ask. The same idempotency key and body give the same request, another body a conflict."""
        answer = self.submit_all(workspace, [(own_id or request_id(), wanted, key)])[0]
        if isinstance(answer, Refused):
            raise answer
        return answer

    def submit_all(self, workspace: str, asks: Sequence[tuple[str, RequestAsk, str | None]]) -> list[Request | Refused]:
        """Take in asks (id, ask, idempotency key) one after the other in one call, each wholly or not at all."""
        taken = [codec.ask(*one) for one in asks]
        reply = self._change("submit", workspace, remember_s=self._limits.idempotency_ttl_s, asks=json.dumps(taken))
        answers = [_outcome(tag, ask, flat) for ask, (tag, flat) in zip(taken, reply.fields["outcomes"], strict=True)]
        if reply.fields["more"] != "1":
            return answers
        return [self._anew(workspace, answer) for answer in answers]

    def _anew(self, workspace: str, answer: Request | Refused) -> Request | Refused:
        """What was queued while work was unfinished, as it stands when that is done."""
        return self.look(workspace, answer.id) if isinstance(answer, Request) and answer.status == State.QUEUED else answer

    def look(self, workspace: str, request: str, *, poll: bool = False) -> Request:
        """A request as it stands. With `poll` its owner has asked for it, so it will not expire for a while."""
        reply = self._scripts.call("look", workspace, now=self._clock.now_ms(), id=request, poll=poll)
        fields = _found(reply, "request", request).fields
        return codec.request(codec.pairs(fields["request"]), fields["lapses"], fields["places"])

    def events(self, workspace: str, after: str = "0", count: int = 100) -> list[Event]:
        """A stretch of the workspace's stream after an entry."""
        entries = self._scripts.call("events", workspace, after=after, count=count).fields["entries"]
        return [codec.event(entry, codec.pairs(fields)) for entry, fields in entries]

    def last_event(self, workspace: str) -> str:
        """The id of the newest event, to have those after it; "0-0" if there is none."""
        return str(self._scripts.call("last_event", workspace).fields["id"])

    def heartbeat(self, workspace: str, request: str, fence: int) -> Beat:
        """Prolong a lease."""
        reply = self._scripts.call("heartbeat", workspace, now=self._clock.now_ms(), id=request, fence=fence)
        return codec.beat(_held(reply, request).fields)

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
    ) -> Beat:
        """What a holder says of its checkpoint; with one `completed` on its way out it has left, unless it is `routine`."""
        said = {"state": state, "seconds": seconds, "reference": reference, "routine": "1" if routine else None}
        args = {"op": _operation(), "id": request, "fence": fence, **said}
        reply = self._change("checkpoint", workspace, **args)
        if reply.tag == "left":
            status = State(reply.fields["status"])  # said again, it may be granted again, but not to this holder
            return Beat(State.QUEUED if status in LIVE else status, None)
        if reply.tag == "not_leaving":
            raise _not_leaving(request, reply.fields["status"])
        return codec.beat(_held(reply, request).fields)

    def release(self, workspace: str, request: str, fence: int, outcome: str = "succeeded") -> Request:
        """Give an allocation back; who fits now has been granted when this returns."""
        answer = self.release_all(workspace, [(request, fence)], outcome)[0]
        if isinstance(answer, Refused):
            raise answer
        return answer

    def counts(self, workspace: str) -> dict[str, int]:
        """What the metrics count in a workspace."""
        counted = codec.pairs(self._scripts.call("counted", workspace).fields["counts"])
        return {what: int(count) for what, count in counted.items()}

    def release_all(
        self, workspace: str, held: Sequence[tuple[str, int]], outcome: str = "succeeded"
    ) -> list[Request | Refused]:
        """Give allocations (id, fence) back one after the other in one call, each for itself."""
        taken = json.dumps([(request, str(fence), outcome) for request, fence in held])
        outcomes = self._change("release", workspace, held=taken).fields["outcomes"]
        return [_returned(one, *returned) for (one, _), returned in zip(held, outcomes, strict=True)]

    def cancel(self, workspace: str, request: str) -> Request:
        """Leave the queue."""
        reply = self._change("cancel", workspace, id=request)
        if reply.tag == "conflict":
            raise Conflict("not_queued", f"{request} is {reply.fields['status']}, and only a queued request can be cancelled")
        return codec.request(codec.pairs(_found(reply, "request", request).fields["request"]))

    def drop(self, workspace: str, request: str) -> Request:
        """End a request whatever its state; a final one stays as it is."""
        reply = _found(self._change("drop", workspace, id=request), "request", request)
        return codec.request(codec.pairs(reply.fields["request"]))

    # pools, groups, policies

    def create_pool(self, workspace: str, wanted: PoolAsk, operation: str | None = None) -> None:
        """Make a pool. A caller that names the operation may repeat it, as with the deletions."""
        if no := unprotectable("pool", wanted.settings, wanted.capacity):
            raise no
        reply = self._scripts.call(
            "pool_create",
            workspace,
            op=operation or _operation(),
            name=wanted.name,
            description=wanted.description,
            capacity=amounts.encode(wanted.capacity),
            settings=codec.all_settings(wanted.settings),
        )
        if reply.tag == "exists":
            raise Conflict("pool_exists", f"there is a pool {wanted.name} already")

    def update_pool(self, workspace: str, name: str, change: PoolChange) -> None:
        """Merge a change into a pool; waiters have been looked at again when this returns."""
        reply = self._change(
            "pool_update",
            workspace,
            name=name,
            description="" if change.description is None else f"={change.description}",
            capacity=amounts.encode(change.capacity),
            settings=codec.settings(change.settings.changed()),
        )
        _allowed(_found(reply, "pool", name))

    def delete_pool(self, workspace: str, name: str, operation: str | None = None) -> None:
        """Delete a pool, its groups and policies, while nobody waits for it or holds anything of it."""
        reply = _found(self._scripts.call("pool_delete", workspace, op=operation or _operation(), name=name), "pool", name)
        _unused(reply, f"pool {name}")

    def pools(self, workspace: str) -> list[str]:
        """Names of the pools, in order."""
        return sorted(codec.pairs(self._scripts.call("pools", workspace).fields["pools"]))

    def view_pool(self, workspace: str, name: str) -> Pool:
        """A pool with its groups and policies, all as of one moment."""
        return codec.pool(name, _found(self._scripts.call("pool_view", workspace, name=name), "pool", name).fields)

    def queue(self, workspace: str, name: str, after: int | None = None, count: int = 100) -> tuple[list[str], int | None]:
        """A page of a pool's queue, in order: ids, at times few, and where the next begins (None: that was all)."""
        reply = self._scripts.call("queued", workspace, pool=name, after=-BAND - 1 if after is None else after, count=count)
        fields = _found(reply, "pool", name).fields
        return fields["ids"], int(fields["last"]) if fields["last"] else None

    def set_policy(self, workspace: str, pool: str, component: str, wanted: PolicyAsk) -> bool:
        """Connect a component (`type/name`) to a pool or replace how it is; says whether it is new."""
        own = {"component": component, "priority": wanted.priority, "profile": wanted.profile}
        return self._set("policy_set", workspace, pool, wanted.group, wanted, **own)

    def delete_policy(self, workspace: str, pool: str, component: str, operation: str | None = None) -> None:
        """Part a component from a pool while nothing of it waits or runs there."""
        args = {"op": operation or _operation(), "pool": pool, "component": component}
        reply = self._change("policy_delete", workspace, **args)
        while reply.tag == "unfinished":
            self.settle(workspace)
            reply = self._change("policy_delete", workspace, **args)
        _unused(_found(reply, "policy", f"{component} in pool {pool}"), f"policy {component}")

    def set_group(self, workspace: str, pool: str, group: str, wanted: GroupAsk) -> bool:
        """Make a group or replace its numbers and parent; says whether it is new."""
        return self._set("group_set", workspace, pool, wanted.parent, wanted, own_group=group)

    def delete_group(self, workspace: str, pool: str, group: str, operation: str | None = None) -> None:
        """Delete a group without children."""
        reply = self._change("group_delete", workspace, op=operation or _operation(), pool=pool, group=group)
        if _found(reply, "group", f"{group} in pool {pool}").tag == "in_use":
            raise Conflict("in_use", f"group {group} is the parent of {reply.fields['child'].replace(':', ' ', 1)}")

    def declare(self, workspace: str, steps: Sequence[Step], operation: str | None = None) -> bool:
        """Make pools as declared, all of it or nothing; False, and nothing done, if one is not what it was planned against."""
        args = {"op": operation or _operation(), "changes": declaration_codec.encode(steps)}
        reply = self._change("declare", workspace, **args)
        while reply.tag == "unfinished":
            self.settle(workspace)
            reply = self._change("declare", workspace, **args)
        return declaration_codec.done(reply)

    def configure(self, workspace: str, change: WorkspaceSettings) -> None:
        """Change settings of the workspace."""
        self._scripts.call("workspace_set", workspace, settings=codec.settings(change.changed()))

    # what time and unfinished work ask for

    def sweep(self, workspace: str) -> Swept:
        """End what time has ended: lapsed leases, waiters nobody polls for, requests kept long enough. One bounded call."""
        reply = self._change("sweep", workspace, retention_s=self._limits.retention_s)
        return Swept(**{name: int(reply.fields[name]) for name in ("lapsed", "forgotten", "pruned")})

    def give_patience(self, workspace: str, pool: str) -> str | None:
        """Give the pool's hold to the first who lost patience; says to whom."""
        reply = self._scripts.call("patience", workspace, now=self._clock.now_ms(), pool=pool)
        return reply.fields["id"] if reply.tag == "given" else None

    def advance(self, workspace: str) -> bool:
        """One round of what bounded scripts left unfinished; says whether something is still left."""
        reply = self._scripts.call("advance", workspace, **self._frame())
        return bool(reply.fields["more"] == "1")

    def take_lease(self, workspace: str, task: str, token: str, ttl_s: int) -> bool:
        """Take a task of the housekeeping for this workspace; False if another token has it. It lapses after `ttl_s`."""
        return self._scripts.call("lease_take", workspace, task=task, token=token, ttl_ms=ttl_s * 1000).tag == "taken"

    def give_lease_back(self, workspace: str, task: str, token: str) -> None:
        """Let go of a task, if this token still has it."""
        self._scripts.call("lease_give_back", workspace, task=task, token=token)

    # how it is called

    def _frame(self) -> dict[str, int | None]:
        return {"now": self._clock.now_ms(), "kept": self._limits.events_kept, "chunk": self._limits.chunk}

    def _change(self, command: str, workspace: str, **args: Any) -> Reply:
        reply = self._scripts.call(command, workspace, **self._frame(), **args)
        if reply.fields.get("more") == "1":
            self.settle(workspace)
        return reply

    def settle(self, workspace: str) -> None:
        """Go on with what bounded scripts left unfinished until nothing is."""
        for _ in range(ROUNDS):
            if not self.advance(workspace):
                return
        raise RuntimeError(f"unfinished work of workspace {workspace} makes no progress; run poolkeeperd audit --repair")

    def _set(
        self, command: str, workspace: str, pool: str, parent: str | None, wanted: GroupAsk | PolicyAsk, **names: Any
    ) -> bool:
        over = {"group": names.pop("own_group"), "parent": parent} if "own_group" in names else {"group": parent}
        reply = self._change(
            command,
            workspace,
            op=_operation(),
            pool=pool,
            reserved=amounts.encode(wanted.reserved),
            limit=amounts.encode(wanted.limit),
            weight=wanted.weight,
            settings=json.dumps(codec.own_settings(wanted)),
            **over,
            **names,
        )
        if reply.tag == "not_found":
            raise NotFound(reply.fields["what"], parent or pool if reply.fields["what"] == "group" else pool)
        return bool(_allowed(reply).fields["created"] == "1")


def _operation() -> str:
    return secrets.token_hex(8)


def _outcome(tag: str, ask: dict[str, Any], flat: list[str]) -> Request | Refused:
    if tag == "taken_in":
        at = codec.pairs(ask["fields"] + flat)
        at["id"], lapses = ask["id"], ""
        if at["status"] == State.ALLOCATED and "lease_s" in at:
            lapses = str(int(at["granted_ms"]) + int(at["lease_s"]) * 1000)
        return codec.request(at, lapses)
    at = codec.pairs(flat)
    if tag == "known":
        return codec.request(at, at["lapses"])
    if tag == "conflict":
        return Conflict("idempotency_conflict", "this idempotency key was sent with another body before")
    return Conflict("id_taken", "this id is another request's")


def _returned(request: str, tag: str, found: Any, reason: str) -> Request | Refused:
    if tag == "stale_fence":
        return StaleFence(request, found, reason)
    if tag == "not_leaving":
        return _not_leaving(request, found)
    if tag == "no_task":
        return Conflict("no_task", f"{request} is no task's request")
    return codec.request(codec.pairs(found)) if tag == "released" else NotFound("request", request)


def _not_leaving(request: str, status: str) -> Conflict:
    return Conflict("not_leaving", f"{request} is {status}; nobody asked it to leave")


def _found(reply: Reply, kind: str, name: str) -> Reply:
    if reply.tag == "not_found":
        raise NotFound(kind, name)
    return reply


def _held(reply: Reply, request: str) -> Reply:
    if reply.tag == "stale_fence":
        raise StaleFence(request, reply.fields["status"], reply.fields["reason"])
    return _found(reply, "request", request)


def _allowed(reply: Reply) -> Reply:
    if reply.tag == "refused":
        raise refused(**reply.fields)
    return reply


def _unused(reply: Reply, what: str) -> None:
    if reply.tag == "in_use":
        queued, active = reply.fields["queued"], reply.fields["active"]
        raise Conflict("in_use", f"{what} is in use: {queued} queued, {active} active")
