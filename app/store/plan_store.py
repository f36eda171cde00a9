"""Decisions: the pool as the planner needs it, and its steps taken, each by a script that checks again whether it still holds.

What runs is kept as one line an allocation, written by the grant; lines do not change (but for a checkpoint), so those that
were understood at the last look at a pool are not read again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from app.domain import amounts
from app.domain.clock import Clock, RedisClock
from app.domain.plan_steps import EndHold, EvictOverLimit, PlanStep, Preempt, Publication, ReassignVictim
from app.domain.queue_score import EXACT
from app.domain.snapshot import (
    AccountSnapshot,
    Allocation,
    HoldSnapshot,
    PlannerSettings,
    PolicyDemand,
    PoolSnapshot,
    PublishedStatus,
    Waiter,
)
from app.domain.specs import AccountSettings
from app.store.codec import FlatHash, to_mapping
from app.store.ledger import LedgerLimits
from app.store.scripts import RedisClient, ScriptReply, Scripts

MAX_WAITERS = 1000
"""Waiters that are asked in one look at a pool, and shapes of them."""


AllocationCache: TypeAlias = dict[str, tuple[str, Allocation]]
"""Allocations of a pool, each with the line it was read from."""


Rows: TypeAlias = Sequence[Sequence[str]]

WATCHED_ANEW = "anew"
"""A pool is watched, and what is kept of who starves there is void, as it had another discipline meanwhile."""

PUBLISH_ROWS = 200
"""Accounts that one call publishes."""

MAX_DEADLINES = 50
"""Who has to go at once, at most: each may let others in, who have all to be weighed."""


class UnfinishedWork(Exception):  # noqa: N818 - a state of the world
    """Bounded scripts left work in this pool, which has to be done before anything can be decided."""


class StepResult(NamedTuple):
    """What became of a step: taken, or stale and why; whether more moved in the pool than was planned, and work was left."""

    applied: bool
    has_progressed: bool
    is_unfinished: bool
    reason: str


class PlanStore:
    """What decisions read and write."""

    def __init__(self, client: RedisClient, clock: Clock | None = None, limits: LedgerLimits | None = None) -> None:
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()
        self._limits = limits or LedgerLimits()
        self._allocations: dict[tuple[str, str], AllocationCache] = {}

    def snapshot(self, workspace: str, pool: str, *, anyway: bool = False) -> PoolSnapshot | None:
        """The pool, if there is anything to decide about (somebody waits or leaves, or it is watched), or `anyway` if it is
        there. Unfinished while scripts left work."""
        seen = {"now": self._clock.now_ms(), "pool": pool, "most": MAX_WAITERS, "anyway": anyway}
        reply = self._scripts.call("read_snapshot", workspace, **seen)
        if reply.tag == "unfinished":
            raise UnfinishedWork(pool)
        if reply.tag != "found":
            self._allocations.pop((workspace, pool), None)
            return None
        running = _decode_allocations(reply.fields["held"], self._allocations.get((workspace, pool), {}))
        self._allocations[workspace, pool] = running
        demand = _decode_demand(reply.fields["wanted"], self._remaining_demand(workspace, pool, reply.fields["rest"]))
        return _decode_snapshot(pool, reply.fields, [one for _, one in running.values()], demand)

    def _remaining_demand(self, workspace: str, pool: str, after: str) -> Rows:
        """What is asked by shapes that one look does not show."""
        rows: list[Sequence[str]] = []
        while after:
            reply = self._scripts.call("read_demand", workspace, pool=pool, after=after, count=MAX_WAITERS)
            if reply.tag != "wanted":
                break
            rows += reply.fields["rows"]
            after = reply.fields["rest"]
        return rows

    def publish(self, workspace: str, snapshot: PoolSnapshot, found: Publication) -> StepResult:
        """Write what was found about a pool beside its accounts, unless its rules have changed since; bounded calls."""
        more = False
        for first in range(0, max(1, len(found.updates)), PUBLISH_ROWS):
            rows = found.updates[first : first + PUBLISH_ROWS]
            reply = self._scripts.call(
                "write_fair_shares",
                workspace,
                now=self._clock.now_ms(),
                kept=self._limits.events_kept,
                chunk=self._limits.chunk,
                pool=snapshot.pool,
                rows=json.dumps(
                    [(row.account, [word for pair in row.values for word in pair], row.removed_fields) for row in rows]
                ),
                watched=_watched_text(snapshot, found, last=first + PUBLISH_ROWS >= len(found.updates)),
                rules=snapshot.rules_version,
            )
            if reply.tag != "published":
                return StepResult(False, False, False, reply.fields["why"])
            more |= reply.fields["more"] == "1"
        return StepResult(True, more, more, "")

    def apply_step(self, workspace: str, snapshot: PoolSnapshot, step: PlanStep) -> StepResult:
        """Take one step of a plan made from this snapshot, if it still holds."""
        reply = self._call_step(workspace, snapshot, step)
        more = reply.fields.get("more") == "1"
        return StepResult(reply.tag == "applied", reply.fields.get("granted") == "1" or more, more, reply.fields.get("why", ""))

    def _call_step(self, workspace: str, snapshot: PoolSnapshot, step: PlanStep) -> ScriptReply:
        pool, frame = snapshot.pool, {"now": self._clock.now_ms(), "kept": self._limits.events_kept}
        if isinstance(step, Preempt):
            return self._scripts.call(
                "preempt",
                workspace,
                **frame,
                chunk=self._limits.chunk,
                pool=pool,
                waiter=step.waiter,
                victims=json.dumps([(victim.request, str(victim.fence), victim.trigger) for victim in step.victims]),
                unused=json.dumps(step.unused_share_accounts),
                within=json.dumps(step.reserved_accounts),
                borrowed=json.dumps(
                    [(still.account, still.key, str(still.max_stack_exits)) for still in step.borrowed_conditions]
                ),
                uses=json.dumps(
                    [(use.account, use.key, str(use.min_units), str(use.max_units)) for use in step.usage_conditions]
                ),
                rules=snapshot.rules_version,
            )
        if isinstance(step, EvictOverLimit):
            victims = json.dumps([(victim.request, str(victim.fence), victim.account) for victim in step.victims])
            frame["chunk"] = self._limits.chunk
            return self._scripts.call(
                "evict_over_limit", workspace, **frame, pool=pool, victims=victims, rules=snapshot.rules_version
            )
        if isinstance(step, EndHold):
            return self._scripts.call("end_hold", workspace, **frame, chunk=self._limits.chunk, pool=pool, owner=step.owner)
        owner = step.owner if isinstance(step, ReassignVictim) else ""
        judged = {"id": step.request, "owner": owner, "pool": pool}
        return self._scripts.call(
            "reassign_or_reprieve", workspace, **frame, chunk=self._limits.chunk, fence=step.fence, **judged
        )

    def enforce_deadlines(self, workspace: str) -> tuple[int, bool]:
        """Those whose time to leave is up: how many were told to end or made to, and whether more is left. One bounded call."""
        chunk = min(self._limits.chunk, MAX_DEADLINES)
        frame = {"now": self._clock.now_ms(), "kept": self._limits.events_kept, "chunk": chunk}
        fields = self._scripts.call("enforce_deadlines", workspace, **frame).fields
        return int(fields["told"]) + int(fields["forced"]), fields["more"] == "1"


def _watched_text(snapshot: PoolSnapshot, found: Publication, *, last: bool) -> str:
    """What is written with a part of what was found: if it should be all that ever is, the rest is found by the next look."""
    if not last:
        return WATCHED_ANEW if snapshot.has_void_starvation else "1"
    return "1" if found.is_watched else "0"


def _decode_allocations(held: FlatHash, known: AllocationCache) -> AllocationCache:
    lines = iter(held)
    return {
        id_: seen if (seen := known.get(id_)) and seen[0] == line else (line, _decode_allocation(id_, line))
        for id_, line in zip(lines, lines, strict=True)
    }


def _decode_demand(*parts: Rows) -> dict[str, PolicyDemand]:
    """What is asked by policy; of one that comes in several parts the sum."""
    sums: dict[str, tuple[int, dict[str, int]]] = {}
    for component, waiting, *asked in (row for rows in parts for row in rows):
        count, units = sums.get(component, (0, {}))
        for key, amount in to_mapping(asked).items():
            units[key] = min(EXACT, units.get(key, 0) + int(amount))
        sums[component] = count + int(waiting), units
    return {component: PolicyDemand(count, units) for component, (count, units) in sums.items()}


def _decode_snapshot(
    pool: str, fields: Mapping[str, Any], running: list[Allocation], demand: Mapping[str, PolicyDemand]
) -> PoolSnapshot:
    at, leaving = to_mapping(fields["pool"]), to_mapping(fields["leaving"])
    accounts = {"pool": _decode_account("pool", fields["pool"], None)}
    for group, flat in fields["groups"]:
        accounts[f"group:{group}"] = _decode_account(f"group:{group}", flat, "parent")
    for component, flat in fields["policies"]:
        accounts[f"policy:{component}"] = _decode_account(f"policy:{component}", flat, "group")
    if leaving:
        running = [replace(one, leaving_for=leaving[one.id].strip("-")) if one.id in leaving else one for one in running]
    running.sort(key=attrgetter("fence"))
    waiting = sorted(fields["waiters"], key=lambda row: (int(row[6]), int(row[3])))
    return PoolSnapshot(
        pool=pool,
        now_ms=int(fields["now"]),
        rules_version=at.get("rules", "0"),
        settings=_terms(at),
        accounts=accounts,
        allocations=tuple(running),
        waiters=tuple(decode_waiter(row) for row in waiting),
        holds=tuple(HoldSnapshot(decode_waiter(row), _decode_brought(brought)) for row, brought in fields["holds"] if row),
        preemptions_last_minute=int(fields["stops"]),
        last_decision_ms=int(at["decided_ms"]) if "decided_ms" in at else None,
        first_blocked_position=int(fields["line"]) if fields["line"] else None,
        demand=demand,
        is_watched=at.get("watched", "0") != "0",
        has_void_starvation=at.get("watched") == WATCHED_ANEW,
        patience_hold_owner=at.get("patience", ""),
        preferred_pools={component: tuple(before) for component, *before in fields["preferred"]},
    )


def _decode_account(name: str, flat: FlatHash, above: str | None) -> AccountSnapshot:
    at = iter(flat)
    columns: dict[str, dict[str, int]] = {name: {} for name in AMOUNT_COLUMNS}
    said: dict[str, str] = {}
    for field, value in zip(at, at, strict=True):
        column, _, key = field.partition(":")
        if not key:
            said[field] = value
        elif column in columns:
            columns[column][key] = int(value)
    parent = said.get(above) if above else None
    return AccountSnapshot(
        name=name,
        parent=f"group:{parent}" if parent else "pool" if above else None,
        reserved=columns["reserved"],
        limit=columns["limit"],
        used=columns["used"],
        used_fixed=columns["fixed"],
        units_on_hold=columns["cleared"],
        stack_exits=columns["back"],
        priority=int(said.get("priority", 0)),
        profile=said.get("profile", "batch"),
        weight=int(said.get("weight", 1)),
        mode=said.get("mode", "fair_share"),
        creation_number=int(said.get("born", 0)),
        settings={name: said[name] for name in said.keys() & AccountSettings.model_fields.keys()},
        published=PublishedStatus(
            fair_shares=columns["fair"],
            demand_met=frozenset(columns["sated"]),
            starvation_status=said.get("status", ""),
            below_ms=_optional_int(said.get("below_ms", "")),
            over_ms=_optional_int(said.get("over_ms", "")),
        ),
    )


def _decode_allocation(id_: str, line: str) -> Allocation:
    fence, component, kind, class_, checkpoint, minutes, walltime, granted, checkpointed, chain, resources = line.split(" ")
    return Allocation(
        id=id_,
        component=component,
        amounts=amounts.decode(resources),
        fence=int(fence),
        preemptible=kind == "p",
        preemption_class=int(class_),
        checkpoint=checkpoint,
        checkpoint_minutes=_optional_int(minutes),
        walltime_s=_optional_int(walltime),
        granted_ms=int(granted),
        checkpointed_ms=_optional_int(checkpointed),
        chain=None if chain == "-" else chain,
    )


def decode_waiter(row: Sequence[str]) -> Waiter:
    """Somebody who waits, as scripts tell it."""
    id_, lane, class_, number, chain, preempted, place = row
    component, kind, resources = lane.split("|")
    return Waiter(
        id=id_,
        component=component,
        amounts=amounts.decode(resources),
        preemptible=kind == "p",
        preemption_class=int(class_),
        submission_number=int(number),
        chain=chain or None,
        queue_position=int(place),
        preempted_fence=_optional_int(preempted),
    )


def _decode_brought(rows: Sequence[tuple[str, str, str]]) -> dict[str, dict[str, int]]:
    brought: dict[str, dict[str, int]] = {}
    for account, key, units in rows:
        brought.setdefault(account, {})[key] = int(units)
    return brought


def _optional_int(text: str) -> int | None:
    return int(text) if text and text != "-" else None


AMOUNT_COLUMNS = ("limit", "reserved", "used", "fixed", "cleared", "back", "fair", "sated")
"""What of an account is told by key."""

BY_DISCIPLINE = {"classes": {"near_completion_s": 300, "max_victims": 3}, "fair_share": {"backoff_s": 5}}
"""What holds in a discipline where nothing is set."""


def _terms(at: Mapping[str, str]) -> PlannerSettings:
    discipline = at.get("discipline", "reserved")
    own = BY_DISCIPLINE.get(discipline, {})

    def number(setting: str) -> int | None:
        return int(at[setting]) if at.get(setting) else own.get(setting)

    return PlannerSettings(
        discipline=discipline,
        order=at.get("order", "share_first"),
        queueing=at.get("queueing", "best_effort"),
        near_completion_s=number("near_completion_s") or 0,
        min_runtime_s=number("min_runtime_s") or 0,
        max_victims=number("max_victims") or None,
        max_preemptions_per_minute=number("max_preemptions_per_minute"),
        backoff_s=number("backoff_s") or 0,
        cost_key=at.get("cost_key", "gpu"),
        value_per_class=number("value_per_class"),
        grace_s=int(at.get("grace_s") or 30),
        checkpoint_timeout_s=int(at.get("checkpoint_timeout_s") or 600),
        max_deferral_s=int(at.get("max_deferral_s") or 300),
    )
