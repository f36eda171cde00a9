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
from app.domain.plan_steps import EndHold, Evict, PassOn, Publication, Step, Stop
from app.domain.queue_score import EXACT
from app.domain.snapshot import Account, Allocation, Demand, Hold, Published, Snapshot, Terms, Waiter
from app.domain.specs import NodeSettings
from app.store.codec import Flat, pairs
from app.store.ledger import Limits
from app.store.scripts import Client, Reply, Scripts

MOST = 1000
"""Waiters that are asked in one look at a pool, and shapes of them."""


Known: TypeAlias = dict[str, tuple[str, Allocation]]
"""Allocations of a pool, each with the line it was read from."""


Rows: TypeAlias = Sequence[Sequence[str]]

ANEW = "anew"
"""A pool is watched, and what is kept of who starves there is void, as it had another discipline meanwhile."""

ROWS = 200
"""Accounts that one call publishes."""

DEPARTURES = 50
"""Who has to go at once, at most: each may let others in, who have all to be weighed."""


class Unfinished(Exception):  # noqa: N818 - a state of the world
    """Bounded scripts left work in this pool, which has to be done before anything can be decided."""


class Taken(NamedTuple):
    """What became of a step: taken, or stale and why; whether more moved in the pool than was planned, and work was left."""

    applied: bool
    moved_on: bool
    more: bool
    why: str


class Planning:
    """What decisions read and write."""

    def __init__(self, client: Client, clock: Clock | None = None, limits: Limits | None = None) -> None:
        self._scripts = Scripts(client)
        self._clock = clock or RedisClock()
        self._limits = limits or Limits()
        self._known: dict[tuple[str, str], Known] = {}

    def snapshot(self, workspace: str, pool: str, *, anyway: bool = False) -> Snapshot | None:
        """The pool, if there is anything to decide about (somebody waits or leaves, or it is watched), or `anyway` if it is
        there. Unfinished while scripts left work."""
        seen = {"now": self._clock.now_ms(), "pool": pool, "most": MOST, "anyway": anyway}
        reply = self._scripts.call("snapshot", workspace, **seen)
        if reply.tag == "unfinished":
            raise Unfinished(pool)
        if reply.tag != "found":
            self._known.pop((workspace, pool), None)
            return None
        running = _running(reply.fields["held"], self._known.get((workspace, pool), {}))
        self._known[workspace, pool] = running
        demand = _demand(reply.fields["wanted"], self._rest(workspace, pool, reply.fields["rest"]))
        return _snapshot(pool, reply.fields, [one for _, one in running.values()], demand)

    def _rest(self, workspace: str, pool: str, after: str) -> Rows:
        """What is asked by shapes that one look does not show."""
        rows: list[Sequence[str]] = []
        while after:
            reply = self._scripts.call("demand", workspace, pool=pool, after=after, count=MOST)
            if reply.tag != "wanted":
                break
            rows += reply.fields["rows"]
            after = reply.fields["rest"]
        return rows

    def publish(self, workspace: str, snapshot: Snapshot, found: Publication) -> Taken:
        """Write what was found about a pool beside its accounts, unless its rules have changed since; bounded calls."""
        more = False
        for first in range(0, max(1, len(found.rows)), ROWS):
            rows = found.rows[first : first + ROWS]
            reply = self._scripts.call(
                "publish",
                workspace,
                now=self._clock.now_ms(),
                kept=self._limits.events_kept,
                chunk=self._limits.chunk,
                pool=snapshot.pool,
                rows=json.dumps([(row.account, [word for pair in row.said for word in pair], row.gone) for row in rows]),
                watched=_watched(snapshot, found, last=first + ROWS >= len(found.rows)),
                rules=snapshot.version,
            )
            if reply.tag != "published":
                return Taken(False, False, False, reply.fields["why"])
            more |= reply.fields["more"] == "1"
        return Taken(True, more, more, "")

    def take(self, workspace: str, snapshot: Snapshot, step: Step) -> Taken:
        """Take one step of a plan made from this snapshot, if it still holds."""
        reply = self._step(workspace, snapshot, step)
        more = reply.fields.get("more") == "1"
        return Taken(reply.tag == "applied", reply.fields.get("granted") == "1" or more, more, reply.fields.get("why", ""))

    def _step(self, workspace: str, snapshot: Snapshot, step: Step) -> Reply:
        pool, frame = snapshot.pool, {"now": self._clock.now_ms(), "kept": self._limits.events_kept}
        if isinstance(step, Stop):
            return self._scripts.call(
                "preempt",
                workspace,
                **frame,
                chunk=self._limits.chunk,
                pool=pool,
                waiter=step.waiter,
                victims=json.dumps([(victim.request, str(victim.fence), victim.trigger) for victim in step.victims]),
                unused=json.dumps(step.unused),
                within=json.dumps(step.within),
                borrowed=json.dumps([(still.account, still.key, str(still.most)) for still in step.borrowed]),
                uses=json.dumps([(use.account, use.key, str(use.least), str(use.most)) for use in step.uses]),
                rules=snapshot.version,
            )
        if isinstance(step, Evict):
            victims = json.dumps([(victim.request, str(victim.fence), victim.account) for victim in step.victims])
            frame["chunk"] = self._limits.chunk
            return self._scripts.call("evict", workspace, **frame, pool=pool, victims=victims, rules=snapshot.version)
        if isinstance(step, EndHold):
            return self._scripts.call("hold_end", workspace, **frame, chunk=self._limits.chunk, pool=pool, owner=step.owner)
        owner = step.owner if isinstance(step, PassOn) else ""
        judged = {"id": step.request, "owner": owner, "pool": pool}
        return self._scripts.call("reprieve", workspace, **frame, chunk=self._limits.chunk, fence=step.fence, **judged)

    def depart(self, workspace: str) -> tuple[int, bool]:
        """Those whose time to leave is up: how many were told to end or made to, and whether more is left. One bounded call."""
        chunk = min(self._limits.chunk, DEPARTURES)
        frame = {"now": self._clock.now_ms(), "kept": self._limits.events_kept, "chunk": chunk}
        fields = self._scripts.call("depart", workspace, **frame).fields
        return int(fields["told"]) + int(fields["forced"]), fields["more"] == "1"


def _watched(snapshot: Snapshot, found: Publication, *, last: bool) -> str:
    """What is written with a part of what was found: if it should be all that ever is, the rest is found by the next look."""
    if not last:
        return ANEW if snapshot.lapsed else "1"
    return "1" if found.watched else "0"


def _running(held: Flat, known: Known) -> Known:
    lines = iter(held)
    return {
        id_: seen if (seen := known.get(id_)) and seen[0] == line else (line, _allocation(id_, line))
        for id_, line in zip(lines, lines, strict=True)
    }


def _demand(*parts: Rows) -> dict[str, Demand]:
    """What is asked by policy; of one that comes in several parts the sum."""
    sums: dict[str, tuple[int, dict[str, int]]] = {}
    for component, waiting, *asked in (row for rows in parts for row in rows):
        count, units = sums.get(component, (0, {}))
        for key, amount in pairs(asked).items():
            units[key] = min(EXACT, units.get(key, 0) + int(amount))
        sums[component] = count + int(waiting), units
    return {component: Demand(count, units) for component, (count, units) in sums.items()}


def _snapshot(pool: str, fields: Mapping[str, Any], running: list[Allocation], demand: Mapping[str, Demand]) -> Snapshot:
    at, leaving = pairs(fields["pool"]), pairs(fields["leaving"])
    accounts = {"pool": _account("pool", fields["pool"], None)}
    for group, flat in fields["groups"]:
        accounts[f"group:{group}"] = _account(f"group:{group}", flat, "parent")
    for component, flat in fields["policies"]:
        accounts[f"policy:{component}"] = _account(f"policy:{component}", flat, "group")
    if leaving:
        running = [replace(one, leaving_for=leaving[one.id].strip("-")) if one.id in leaving else one for one in running]
    running.sort(key=attrgetter("fence"))
    waiting = sorted(fields["waiters"], key=lambda row: (int(row[6]), int(row[3])))
    return Snapshot(
        pool=pool,
        now_ms=int(fields["now"]),
        version=at.get("rules", "0"),
        terms=_terms(at),
        accounts=accounts,
        allocations=tuple(running),
        waiters=tuple(waiter(row) for row in waiting),
        holds=tuple(Hold(waiter(row), _brought(brought)) for row, brought in fields["holds"] if row),
        stopped_last_minute=int(fields["stops"]),
        decided_ms=int(at["decided_ms"]) if "decided_ms" in at else None,
        line=int(fields["line"]) if fields["line"] else None,
        demand=demand,
        watched=at.get("watched", "0") != "0",
        lapsed=at.get("watched") == ANEW,
        patient=at.get("patience", ""),
        preferred={component: tuple(before) for component, *before in fields["preferred"]},
    )


def _account(name: str, flat: Flat, above: str | None) -> Account:
    at = iter(flat)
    columns: dict[str, dict[str, int]] = {name: {} for name in COLUMNS}
    said: dict[str, str] = {}
    for field, value in zip(at, at, strict=True):
        column, _, key = field.partition(":")
        if not key:
            said[field] = value
        elif column in columns:
            columns[column][key] = int(value)
    parent = said.get(above) if above else None
    return Account(
        name=name,
        parent=f"group:{parent}" if parent else "pool" if above else None,
        reserved=columns["reserved"],
        limit=columns["limit"],
        used=columns["used"],
        used_fixed=columns["fixed"],
        cleared=columns["cleared"],
        back=columns["back"],
        priority=int(said.get("priority", 0)),
        profile=said.get("profile", "batch"),
        weight=int(said.get("weight", 1)),
        mode=said.get("mode", "fair_share"),
        born=int(said.get("born", 0)),
        said={name: said[name] for name in said.keys() & NodeSettings.model_fields.keys()},
        published=Published(
            fair=columns["fair"],
            sated=frozenset(columns["sated"]),
            status=said.get("status", ""),
            below_ms=_whole(said.get("below_ms", "")),
            over_ms=_whole(said.get("over_ms", "")),
        ),
    )


def _allocation(id_: str, line: str) -> Allocation:
    fence, component, kind, class_, checkpoint, minutes, walltime, granted, checkpointed, chain, resources = line.split(" ")
    return Allocation(
        id=id_,
        component=component,
        amounts=amounts.decode(resources),
        fence=int(fence),
        preemptible=kind == "p",
        preemption_class=int(class_),
        checkpoint=checkpoint,
        checkpoint_minutes=_whole(minutes),
        walltime_s=_whole(walltime),
        granted_ms=int(granted),
        checkpointed_ms=_whole(checkpointed),
        chain=None if chain == "-" else chain,
    )


def waiter(row: Sequence[str]) -> Waiter:
    """Somebody who waits, as scripts tell it."""
    id_, lane, class_, number, chain, preempted, place = row
    component, kind, resources = lane.split("|")
    return Waiter(
        id=id_,
        component=component,
        amounts=amounts.decode(resources),
        preemptible=kind == "p",
        preemption_class=int(class_),
        number=int(number),
        chain=chain or None,
        place=int(place),
        preempted_fence=_whole(preempted),
    )


def _brought(rows: Sequence[tuple[str, str, str]]) -> dict[str, dict[str, int]]:
    brought: dict[str, dict[str, int]] = {}
    for account, key, units in rows:
        brought.setdefault(account, {})[key] = int(units)
    return brought


def _whole(text: str) -> int | None:
    return int(text) if text and text != "-" else None


COLUMNS = ("limit", "reserved", "used", "fixed", "cleared", "back", "fair", "sated")
"""What of an account is told by key."""

BY_DISCIPLINE = {"classes": {"near_completion_s": 300, "max_victims": 3}, "fair_share": {"backoff_s": 5}}
"""What holds in a discipline where nothing is set."""


def _terms(at: Mapping[str, str]) -> Terms:
    discipline = at.get("discipline", "reserved")
    own = BY_DISCIPLINE.get(discipline, {})

    def number(setting: str) -> int | None:
        return int(at[setting]) if at.get(setting) else own.get(setting)

    return Terms(
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
