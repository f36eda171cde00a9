"""The state of a workspace at one moment: its data by the model of the rules, and all of its events. Both are read in
one step, between two scripts, so they agree at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias

from app.domain.states import FINAL_STATES, RequestState
from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.connection import RedisClient
from app.store.keys import KEYS, prefix
from app.store.ledger import Ledger
from tests.live.races.invariants import require_none
from tests.properties.oracle import NO_OWNER, Model
from tests.properties.reading import model
from tests.properties.replay import NOTES, WAYS
from tests.properties.snapshot import Snapshot, amounts, kind_of
from tests.properties.structures import Structures
from tests.support.redis_snapshot import dump

Event: TypeAlias = Mapping[str, str]
HELD = {"allocated", "preempting"}


class WorkspaceState:
    """The snapshot, its model, and the stream of events."""

    def __init__(self, client: RedisClient, workspace: str, now_ms: int) -> None:
        begin = prefix(workspace)
        data: dict[tuple[str, ...], Any] = {}
        for key, value in dump(client).items():
            if key.startswith(begin):
                kind, parts = kind_of(key[len(begin) :])
                data[kind, *parts] = (
                    {member: int(score) for member, score in value.items()} if KEYS[kind].type == "zset" else value
                )
        self.stream: list[tuple[str, Event]] = data.get(("events",), [])
        self.snapshot = Snapshot(now_ms, data)

    @cached_property
    def model(self) -> Model:
        """Return the model of the snapshot."""
        return model(self.snapshot)

    def of_status(self, *statuses: str) -> list[str]:
        """Return the ids of the requests in one of these states."""
        return sorted(request.id for request in self.model.requests.values() if request.status in statuses)

    def count_events(self, *events: str) -> Counter[str]:
        """Return the number of events of each of these types."""
        return Counter(event["event"] for _, event in self.stream if event["event"] in events)

    def faults(self, *, lowered: bool = False) -> list[str]:
        """Return all faults. With `lowered`, the pools may have been larger before."""
        problems = list(Structures(self.snapshot, self.model).faults())
        problems += EventHistory({name: pool.capacity for name, pool in self.model.pools.items()}, lowered).faults(self.stream)
        for name, request in self.model.requests.items():
            last = [event["to"] for _, event in self.stream if event["request"] == name][-1:]
            if last != [request.status]:
                problems.append(f"{name} is {request.status}, by its events {last}")
        for pool in self.model.pools:
            problems += self._pool(pool)
        return problems

    def _pool(self, pool: str) -> Iterator[str]:
        if {"reviewing", "unsettled"} & self.snapshot.get("pool", pool).keys():
            return
        if grantable := self.model.grantable(pool):
            yield f"{[request.id for request in grantable]} could be granted in {pool}"

    def superfluous_preemptions(self) -> list[str]:
        """Return the preemptions without a waiter, or whose waiter would have enough units without them."""
        problems = []
        for pool, leaving in self.model.leaving.items():
            for name, owner in leaving.items():
                if owner == NO_OWNER:
                    problems.append(f"{name} leaves {pool} for no waiter")
                elif owner not in self.model.clearings[pool] or self.model.requests[owner].status != "queued":
                    problems.append(f"{name} leaves {pool} for {owner}, which does not wait for it")
        return problems

    def leftovers(self) -> list[str]:
        """Return the remains of preemptions that should have ended."""
        problems = [f"{name} still leaves" for name in self.of_status("preempting")]
        problems += [f"{owner} has a hold in {pool}" for pool, holds in self.model.clearings.items() for owner in holds]
        return problems + [
            f"{key} is left" for key in self.snapshot.data if key[0] in ("preemption_deadlines", "pool_victims", "hold")
        ]


class EventHistory:
    """All events from the first one, each judged by what came before: ways that there are, fences that are new, and at no
    moment one unit too many."""

    def __init__(self, capacity: Mapping[str, Mapping[str, int]], lowered: bool = False) -> None:
        self.capacity, self.lowered = capacity, lowered
        self.at: dict[str, str] = {}
        self.under: dict[str, str] = {}
        self.held: Counter[tuple[str, str]] = Counter()
        self.fence = 0

    def faults(self, stream: Iterable[tuple[str, Event]]) -> Iterator[str]:
        """Yield the faults of each event."""
        for entry, event in stream:
            for fault in self._one(event):
                yield f"{entry} {fault}: {event}"

    def _one(self, event: Event) -> Iterator[str]:
        name, before, after = event["request"], event["from"], event["to"]
        was = self.at.get(name, "")
        ways = {was} if NOTES.get(event["event"]) == was else WAYS.get(was, {}).get(event["event"], set())
        if before != was or after not in ways:
            yield f"{name} is {was!r}"
        if was in {str(state) for state in FINAL_STATES}:
            yield f"{name} had ended"
        if was in HELD and event["fence"] != self.under[name]:
            yield f"{name} held under {self.under[name]}"
        if event["event"] == "allocated":
            yield from self._granted(event)
        elif was in HELD and after not in HELD:
            self._count(event, -1)
        self.at[name] = str(RequestState(after))

    def _granted(self, event: Event) -> Iterator[str]:
        fence = int(event["fence"])
        if fence <= self.fence:
            yield f"the fence {self.fence} was given before"
        self.fence, self.under[event["request"]] = fence, event["fence"]
        self._count(event, 1)
        for key, capacity in self.capacity.get(event["pool"], {}).items():
            if not self.lowered and self.held[event["pool"], key] > capacity:
                yield f"{self.held[event['pool'], key]} of {key} are held, {capacity} is all there is"

    def _count(self, event: Event, sign: int) -> None:
        for key, units in amounts(event["resources"]).items():
            self.held[event["pool"], key] += sign * units


def check_settled(
    client: RedisClient,
    ledger: Ledger,
    workspace: str,
    now_ms: int,
    *,
    lowered: bool = False,
    checked: WorkspaceState | None = None,
) -> WorkspaceState:
    """Raise unless everything is right and nothing is unfinished; return the state, which is not checked again if it was."""
    assert not ledger.resume_unfinished(workspace), "something was left unfinished"
    all_ = WorkspaceState(client, workspace, now_ms)
    if not checked or (all_.snapshot, all_.stream) != (checked.snapshot, checked.stream):
        require_none(all_.faults(lowered=lowered))
    assert Audit(ledger, AuditStore(client)).run(workspace) == [], "the audit finds something"
    return all_
