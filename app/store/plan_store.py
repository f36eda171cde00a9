"""The planner's reads and writes: a snapshot of a pool, and one Lua command for each step of a plan.

The script of a step checks again whether the step still holds. The grant writes one line for each allocation, and only a
checkpoint changes it; so a line that was decoded for the last snapshot of a pool is not decoded again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from app.domain import amounts
from app.domain.clock import Clock, RedisClock
from app.domain.ledger_limits import LedgerLimits
from app.domain.plan_steps import EndHold, EvictOverLimit, PlanStep, Preempt, Publication, ReassignVictim
from app.domain.pool_settings import ACCOUNT_SETTINGS, DEFAULT_DISCIPLINE, DEFAULT_MODE, DEFAULT_PROFILE, default_value
from app.domain.queue_score import MAX_AMOUNT
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
from app.store.codec import FlatHash, to_mapping
from app.store.connection import RedisClient
from app.store.scripts import ScriptReply, Scripts

MAX_WAITERS = 1000
"""The most waiters in one snapshot of a pool, and the most lanes of its demand."""


AllocationCache: TypeAlias = dict[str, tuple[str, Allocation]]
"""The allocations of a pool by id, each with the line that it was decoded from."""


Rows: TypeAlias = Sequence[Sequence[str]]

WATCHED_ANEW = "anew"
"""A pool is watched, and its stored starvation is void, because it had another discipline meanwhile."""

PUBLISH_ROWS = 200
"""Accounts that one call writes."""

MAX_DEADLINES = 50
"""The most deadlines that one call enforces: each may grant waiters, and every grant takes time."""


class UnfinishedWork(Exception):  # noqa: N818 - a state of the world
    """Bounded scripts left unfinished work in this pool; it is resumed before the planner runs."""


class StepResult(NamedTuple):
    """The result of a step: applied, or stale with a reason.

    `has_progressed`: the pool changed more than the plan says. `is_unfinished`: the script left work."""

    applied: bool
    has_progressed: bool
    is_unfinished: bool
    reason: str


class PlanStore:
    """Reads snapshots and applies steps."""

    def __init__(self, client: RedisClient, clock: Clock | None = None, limits: LedgerLimits | None = None) -> None:
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()
        self._limits = limits or LedgerLimits()
        self._allocations: dict[tuple[str, str], AllocationCache] = {}

    def read_snapshot(self, workspace: str, pool: str, *, even_if_idle: bool = False) -> PoolSnapshot | None:
        """Return the pool if it has a decision open (waiters, victims, or it is watched), or `even_if_idle`.

        Raise UnfinishedWork while a script left work."""
        args = {"now": self._clock.now_ms(), "pool": pool, "most": MAX_WAITERS, "anyway": even_if_idle}
        reply = self._scripts.call("read_snapshot", workspace, **args)
        if reply.tag == "unfinished":
            raise UnfinishedWork(pool)
        if reply.tag != "found":
            self._allocations.pop((workspace, pool), None)
            return None
        allocations = _decode_allocations(reply.fields["allocations"], self._allocations.get((workspace, pool), {}))
        self._allocations[workspace, pool] = allocations
        demand = _decode_demand(reply.fields["demand"], self._remaining_demand(workspace, pool, reply.fields["next_page"]))
        return _decode_snapshot(pool, reply.fields, [allocation for _, allocation in allocations.values()], demand)

    def _remaining_demand(self, workspace: str, pool: str, after: str) -> Rows:
        """Return the demand of the lanes beyond the first page."""
        rows: list[Sequence[str]] = []
        while after:
            reply = self._scripts.call("read_demand", workspace, pool=pool, after=after, count=MAX_WAITERS)
            if reply.tag != "read":
                break
            rows += reply.fields["rows"]
            after = reply.fields["next_page"]
        return rows

    def write_fair_shares(self, workspace: str, snapshot: PoolSnapshot, publication: Publication) -> StepResult:
        """Write the publication beside the accounts of the pool, unless its rules have changed since. Bounded calls."""
        more = False
        for first in range(0, max(1, len(publication.updates)), PUBLISH_ROWS):
            rows = publication.updates[first : first + PUBLISH_ROWS]
            reply = self._scripts.call(
                "write_fair_shares",
                workspace,
                now=self._clock.now_ms(),
                events_kept=self._limits.events_kept,
                chunk=self._limits.chunk,
                pool=snapshot.pool,
                rows=json.dumps(
                    [(row.account, [word for pair in row.values for word in pair], row.removed_fields) for row in rows]
                ),
                watched=_watched_text(snapshot, publication, last=first + PUBLISH_ROWS >= len(publication.updates)),
                rules=snapshot.rules_version,
            )
            if reply.tag != "published":
                return StepResult(False, False, False, reply.fields["why"])
            more |= reply.fields["more"] == "1"
        return StepResult(True, more, more, "")

    def apply_step(self, workspace: str, snapshot: PoolSnapshot, step: PlanStep) -> StepResult:
        """Apply one step of a plan that was made from this snapshot, if the step still holds."""
        reply = self._call_step(workspace, snapshot, step)
        more = reply.fields.get("more") == "1"
        return StepResult(reply.tag == "applied", reply.fields.get("granted") == "1" or more, more, reply.fields.get("why", ""))

    def _call_step(self, workspace: str, snapshot: PoolSnapshot, step: PlanStep) -> ScriptReply:
        pool, frame = snapshot.pool, {"now": self._clock.now_ms(), "events_kept": self._limits.events_kept}
        if isinstance(step, Preempt):
            return self._scripts.call(
                "preempt",
                workspace,
                **frame,
                chunk=self._limits.chunk,
                pool=pool,
                waiter=step.waiter,
                victims=json.dumps([(victim.request, str(victim.fence), victim.trigger) for victim in step.victims]),
                unused_share_accounts=json.dumps(step.unused_share_accounts),
                reserved_accounts=json.dumps(step.reserved_accounts),
                stack_exits=json.dumps(
                    [(borrowed.account, borrowed.key, str(borrowed.max_stack_exits)) for borrowed in step.borrowed_conditions]
                ),
                used_ranges=json.dumps(
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
        target = {"id": step.request, "owner": owner, "pool": pool}
        return self._scripts.call(
            "reassign_or_reprieve", workspace, **frame, chunk=self._limits.chunk, fence=step.fence, **target
        )

    def enforce_deadlines(self, workspace: str) -> tuple[int, bool]:
        """Enforce the preemption deadlines that have passed, in one bounded call.

        Return how many allocations got the next directive or were forced out, and whether more are due.
        """
        chunk = min(self._limits.chunk, MAX_DEADLINES)
        frame = {"now": self._clock.now_ms(), "events_kept": self._limits.events_kept, "chunk": chunk}
        fields = self._scripts.call("enforce_deadlines", workspace, **frame).fields
        return int(fields["terminated"]) + int(fields["forced"]), fields["more"] == "1"


def _watched_text(snapshot: PoolSnapshot, publication: Publication, *, last: bool) -> str:
    """Return the watched flag to write with one page. Before the last page the pool stays watched: should the process die, the
    next pass writes the rest."""
    if not last:
        return WATCHED_ANEW if snapshot.has_void_starvation else "1"
    return "1" if publication.is_watched else "0"


def _decode_allocations(flat: FlatHash, cache: AllocationCache) -> AllocationCache:
    lines = iter(flat)
    return {
        id_: entry if (entry := cache.get(id_)) and entry[0] == line else (line, _decode_allocation(id_, line))
        for id_, line in zip(lines, lines, strict=True)
    }


def _decode_demand(*parts: Rows) -> dict[str, PolicyDemand]:
    """Return the demand by component; the parts of a component that comes in several are added."""
    sums: dict[str, tuple[int, dict[str, int]]] = {}
    for component, waiting, *flat in (row for rows in parts for row in rows):
        count, units = sums.get(component, (0, {}))
        for key, amount in to_mapping(flat).items():
            units[key] = min(MAX_AMOUNT, units.get(key, 0) + int(amount))
        sums[component] = count + int(waiting), units
    return {component: PolicyDemand(count, units) for component, (count, units) in sums.items()}


def _decode_snapshot(
    pool: str, fields: Mapping[str, Any], allocations: list[Allocation], demand: Mapping[str, PolicyDemand]
) -> PoolSnapshot:
    settings, leaving = to_mapping(fields["pool"]), to_mapping(fields["victims"])
    accounts = {"pool": _decode_account("pool", fields["pool"], None)}
    for group, flat in fields["groups"]:
        accounts[f"group:{group}"] = _decode_account(f"group:{group}", flat, "parent")
    for component, flat in fields["policies"]:
        accounts[f"policy:{component}"] = _decode_account(f"policy:{component}", flat, "group")
    if leaving:
        allocations = [
            replace(allocation, leaving_for=leaving[allocation.id].strip("-")) if allocation.id in leaving else allocation
            for allocation in allocations
        ]
    allocations.sort(key=attrgetter("fence"))
    waiting = sorted(fields["waiters"], key=lambda row: (int(row[6]), int(row[3])))
    return PoolSnapshot(
        pool=pool,
        now_ms=int(fields["now"]),
        rules_version=settings.get("rules", "0"),
        settings=_planner_settings(settings),
        accounts=accounts,
        allocations=tuple(allocations),
        waiters=tuple(decode_waiter(row) for row in waiting),
        holds=tuple(HoldSnapshot(decode_waiter(row), _decode_freed_units(units)) for row, units in fields["holds"] if row),
        preemptions_last_minute=int(fields["preemptions"]),
        last_decision_ms=int(settings["decided_ms"]) if "decided_ms" in settings else None,
        first_blocked_score=int(fields["line"]) if fields["line"] else None,
        demand=demand,
        is_watched=settings.get("watched", "0") != "0",
        has_void_starvation=settings.get("watched") == WATCHED_ANEW,
        patience_hold_owner=settings.get("patience", ""),
        preferred_pools={component: tuple(before) for component, *before in fields["preferred"]},
    )


def _decode_account(name: str, flat: FlatHash, parent_field: str | None) -> AccountSnapshot:
    words = iter(flat)
    columns: dict[str, dict[str, int]] = {name: {} for name in AMOUNT_COLUMNS}
    fields: dict[str, str] = {}
    for field, value in zip(words, words, strict=True):
        column, _, key = field.partition(":")
        if not key:
            fields[field] = value
        elif column in columns:
            columns[column][key] = int(value)
    parent = fields.get(parent_field) if parent_field else None
    return AccountSnapshot(
        name=name,
        parent=f"group:{parent}" if parent else "pool" if parent_field else None,
        reserved=columns["reserved"],
        limit=columns["limit"],
        used=columns["used"],
        used_fixed=columns["fixed"],
        units_on_hold=columns["victim_held"],
        stack_exits=columns["stack_exits"],
        priority=int(fields.get("priority", 0)),
        profile=fields.get("profile", DEFAULT_PROFILE),
        weight=int(fields.get("weight", 1)),
        mode=fields.get("mode", DEFAULT_MODE),
        creation_number=int(fields.get("creation_number", 0)),
        settings={name: fields[name] for name in fields.keys() & ACCOUNT_SETTINGS.keys()},
        published=PublishedStatus(
            fair_shares=columns["fair_share"],
            demand_met=frozenset(columns["demand_met"]),
            starvation_status=fields.get("status", ""),
            below_ms=_optional_int(fields.get("below_ms", "")),
            over_ms=_optional_int(fields.get("over_ms", "")),
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
    """Return a waiter from a row of a script's reply."""
    id_, lane, class_, number, chain, preempted, place = row
    component, kind, resources, *_ = lane.split("|", 3)
    return Waiter(
        id=id_,
        component=component,
        amounts=amounts.decode(resources),
        preemptible=kind == "p",
        preemption_class=int(class_),
        submission_number=int(number),
        chain=chain or None,
        queue_score=int(place),
        preempted_fence=_optional_int(preempted),
    )


def _decode_freed_units(rows: Sequence[tuple[str, str, str]]) -> dict[str, dict[str, int]]:
    units_by_account: dict[str, dict[str, int]] = {}
    for account, key, units in rows:
        units_by_account.setdefault(account, {})[key] = int(units)
    return units_by_account


def _optional_int(text: str) -> int | None:
    return int(text) if text and text != "-" else None


AMOUNT_COLUMNS = ("limit", "reserved", "used", "fixed", "victim_held", "stack_exits", "fair_share", "demand_met")
"""The fields of an account that are amounts by resource key."""


def _planner_settings(texts: Mapping[str, str]) -> PlannerSettings:
    """Return the settings of a pool as the planner goes by them: those that are not set have the default of the discipline."""
    discipline = texts.get("discipline") or DEFAULT_DISCIPLINE
    values: dict[str, Any] = {
        field.name: _setting_value(texts[field.name]) if texts.get(field.name) else default_value(field.name, discipline)
        for field in dataclass_fields(PlannerSettings)
    }
    return PlannerSettings(**{**values, "max_victims": values["max_victims"] or None})


def _setting_value(text: str) -> int | str:
    return int(text) if text.isdigit() else text
