"""Invariants after every step of any history: every key is explained, every transition is allowed, no waiter could be
granted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from app.store.keys import prefix
from tests.properties.fairly import Excess, FairLaw
from tests.properties.lawful import Law
from tests.properties.oracle import Model
from tests.properties.reading import model
from tests.properties.replay import Replay
from tests.properties.served import Served
from tests.properties.snapshot import Snapshot, columns, events_since, take
from tests.properties.structures import Structures
from tests.properties.tallies import Tally
from tests.support.world import World

RETENTION_S = 40
ASK_EVERY = 3
"""One in so many checks reads queues and waiters from the ledger, as that takes longer than the rest of the check."""


class Checker:
    """Looks at a workspace after each step, and remembers how it was before."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.snapshot = self._take()
        self.model = model(self.snapshot)
        self.last_event, self.last_fence, self.event_counts = "0", 0, dict[str, int]()
        self.tally = Tally()
        self.quiet_checks = 0
        """Checks with nothing unfinished."""
        self.preemptions = 0
        """The number of preemptions so far."""
        self.served, self.called_back = Served(), set[str]()
        self.starved: dict[tuple[str, str], int] = {}
        """(pool, request) → since when it has been blocked by capacity and nothing else."""

    def check(self, *, planned: bool = False) -> None:
        """Raise AssertionError with all faults of the state, and with those of the rules if the planner decided."""
        snapshot = self._take()
        now = model(snapshot)
        faults = [*Structures(snapshot, now).faults(), *self._transitions(snapshot, now, planned), *_worse(self.model, now)]
        faults += [*_shrunk(self.snapshot, snapshot), *self.served.faults(self.model, now, snapshot, self.called_back)]
        for pool in now.pools:
            faults += _settled(snapshot, now, pool)
        if not snapshot.unfinished():
            faults += self._asked(now) if self.quiet_checks % ASK_EVERY == 0 else ()
            self.quiet_checks += 1
        self._note_starving(snapshot, now)
        self.snapshot, self.model = snapshot, now
        assert not faults, "\n".join(faults)

    def unchanged(self) -> None:
        """Raise AssertionError unless the state is that of the last check; unfinished work may have gone on."""
        snapshot = self._take()
        if self.snapshot.unfinished():
            return
        both = [key for key in {**snapshot.data, **self.snapshot.data} if key != ("nudge",)]  # which lapses by itself
        differ = [key for key in both if _without_master(snapshot, key) != _without_master(self.snapshot, key)]
        assert not differ, (
            f"refused, and yet changed: {[(key, self.snapshot.data.get(key), snapshot.data.get(key)) for key in differ]}"
        )

    def impatient(self, pool: str) -> str | None:
        """Return the first waiter in order whose patience has certainly ended, or None."""
        settings, now = self.model.pools[pool].settings, self.world.clock.now_ms()
        if "patience_s" not in settings or settings["queueing"] == "strict" or pool in self.model.holds:
            return None
        until = now - int(settings["patience_s"]) * 1000
        owners = {owner for holds in self.model.clearings.values() for owner in holds}
        queue = [waiter.id for waiter in self.model.queue(pool) if self.starved.get((pool, waiter.id), now + 1) <= until]
        if queue and queue[0] in owners:  # whose way is being cleared
            return None
        return queue[0] if queue else None

    def _take(self) -> Snapshot:
        return take(self.world.client, self.world.workspace, self.world.clock.now_ms())

    def _transitions(self, snapshot: Snapshot, now: Model, planned: bool) -> Iterator[str]:
        replay = Replay(self.model, now, snapshot, self.snapshot)
        self.called_back = set()
        for entry, event in events_since(self.world.client, self.world.workspace, self.last_event):
            yield from replay.step(event, self.last_fence)
            self.last_event = entry
            self.tally.note(event)
            if event["event"] == "reprieved":
                self.called_back.add(event["pool"])
            self.preemptions += event["event"] == "preempting" or (
                event["event"] == "preempted" and event["from"] == "allocated"
            )
            self.last_fence = int(event["fence"]) if event["event"] == "allocated" else self.last_fence
            event_count = self.event_counts[event["request"]] = self.event_counts.get(event["request"], 0) + 1
            request = snapshot.get("request", event["request"])
            story = [*request.get(f"e{event_count}", "").split(" "), "-"]
            at = "-" if event["at"] == request.get("submitted_ms") else event["at"]  # the time of the submit stands there once
            if story[:3] != [entry, event["event"], at]:
                yield f"the story says {story} of {entry} {event}"
        yield from replay.end(now)
        yield from self.tally.faults(snapshot, now.pools)
        for waiter, stopped in replay.stops.items() if planned else ():
            yield from self._unlawful(snapshot, waiter, stopped)
        if planned and replay.evicted:
            pool = next(iter(replay.evicted.values()))["pool"]
            yield from Excess(replace(self.model, now_ms=snapshot.now_ms), self.snapshot, pool).faults(replay.evicted)
        for (id_,), fields in snapshot.of("request"):
            if int(fields["events"]) != self.event_counts.get(id_, 0):
                yield f"{id_} tells of {fields['events']} events, the stream of {self.event_counts.get(id_, 0)}"
        for id_ in set(self.model.requests) - set(now.requests):
            if self.snapshot.get("ended").get(id_, snapshot.now_ms) > snapshot.now_ms - RETENTION_S * 1000:
                yield f"{id_} was forgotten too early"

    def _unlawful(self, snapshot: Snapshot, waiter: str, stopped: dict[str, dict[str, str]]) -> Iterator[str]:
        pool = next(iter(stopped.values()))["pool"]
        model = replace(self.model, now_ms=snapshot.now_ms)
        law = FairLaw(model, self.snapshot, pool) if model.is_fair(pool) else Law(model, self.snapshot, pool)
        yield from law.faults(self.model.requests[waiter], {id_: event["reason"] for id_, event in stopped.items()})

    def _asked(self, now: Model) -> Iterator[str]:
        """Yield where the ledger is wrong about a queue, read at once or by small pages, or about a waiter."""
        world = self.world
        places: dict[str, dict[str, int]] = {}
        for pool in now.pools:
            queue = [request.id for request in now.queue(pool)]
            if world.queue(pool) != queue:
                yield f"the queue of {pool} is said to be {world.queue(pool)}, should be {queue}"
            if (small := pages(world, pool, 2)) != queue:
                yield f"by pages of 2 the queue of {pool} is said to be {small}, should be {queue}"
            for place, id_ in enumerate(queue, start=1):
                places.setdefault(id_, {})[pool] = place
        for request in now.requests.values():
            if request.status == "queued" and (position := dict(world.get(request.id).position)) != places.get(request.id, {}):
                yield f"{request.id} is said to be at {position}, should be at {places.get(request.id)}"

    def _note_starving(self, snapshot: Snapshot, now: Model) -> None:
        blocked = {
            (pool, waiter.id)
            for pool in now.pools
            for waiter in now.queue(pool)
            if now.blocked(pool, waiter) and now.by_capacity(pool, waiter, doubt=False) and not snapshot.unfinished()
        }
        self.starved = {key: self.starved.get(key, snapshot.now_ms) for key in blocked}


def pages(world: World, pool: str, count: int) -> list[str]:
    """Return a queue, read page by page."""
    ids, after = world.ledger.list_queue(world.workspace, pool, count=count)
    while after is not None:
        more, after = world.ledger.list_queue(world.workspace, pool, after, count)
        ids = [*ids, *more]
    return ids


def _worse(before: Model, now: Model) -> Iterator[str]:
    """Yield accounts beyond their limits, unless a limit was lowered and the use has not grown since."""
    for name, pool in now.pools.items():
        for account, used in now.used(name).items():
            was = before.used(name).get(account, Counter()) if name in before.pools else Counter()
            for key, units in used.items():
                if units > pool.limit(account, key) and units > was[key]:
                    yield f"{name} {account} uses {units} of {key}, its limit is {pool.limit(account, key)}"
        for account, fixed in now.used(name, fixed=True).items():
            was = before.used(name, fixed=True).get(account, Counter()) if name in before.pools else Counter()
            for key, units in fixed.items():
                reserved = pool.accounts[account].reserved.get(key, 0) if account.startswith("policy:") else units
                if key in pool.capacity and units > reserved and units > was[key]:
                    yield f"{name} {account} uses {units} of {key} fixed, it has {reserved} reserved"


def _settled(snapshot: Snapshot, now: Model, pool: str) -> Iterator[str]:
    """Yield waiters that could be granted and lanes parked on units that are free, unless a script left work here."""
    fields = snapshot.get("pool", pool)
    if "reviewing" in fields or "unsettled" in fields:
        if pool not in snapshot.get("unfinished"):
            yield f"{pool} is unfinished and not among what is to do"
        return
    if grantable := now.grantable(pool):
        yield f"{[waiter.id for waiter in grantable]} could be granted in {pool}"
    heads = {waiter.lane: waiter for waiter in reversed(now.queue(pool))}
    for lane, text in snapshot.get("pool_parked", pool).items():
        spot, need, _ = text.split(" ")
        constraint = spot.partition("@")[0]
        if constraint == "line":
            if now.pools[pool].settings["queueing"] != "strict":
                yield f"{pool}: {lane} stands in a line"
            continue
        kind, account, key = constraint.split("|")
        left = _left(now, pool, kind, account, key)
        if (lane in heads and heads[lane].amounts.get(key, 0) != int(need)) or left is None or left >= int(need):
            yield f"{pool}: {lane} is parked on {text}, where {left} is left"


def _left(now: Model, pool: str, kind: str, account: str, key: str) -> int | None:
    """Return the free units under a constraint; None if it is not one."""
    place = now.pools[pool]
    if account != "pool" and account not in place.accounts:
        return None
    if kind == "fixed":
        return place.accounts[account].reserved.get(key, 0) - now.used(pool, fixed=True)[account][key]
    left = place.limit(account, key) - now.used(pool)[account][key]
    owner, cleared = now.requests.get(now.holds.get(pool, "")), now.cleared(pool)[account, key]
    owner_units = owner.amounts.get(key, 0) if owner and account in place.path(owner.component) else 0
    return {"limit": left, "victim_held": left - cleared, "patience_held": left - cleared - owner_units}.get(kind)


def _shrunk(was: Snapshot, snapshot: Snapshot) -> Iterator[str]:
    """Yield monotonic counters that shrank: the units that left an account's stack, and the changes of a pool's rules."""
    for kind, column in (("policy", "stack_exits"), ("group", "stack_exits")):
        for parts, fields in snapshot.of(kind):
            now, before = columns(fields, column), columns(was.get(kind, *parts), column)
            if any(units > now.get(key, 0) for key, units in before.items()):
                yield f"{kind} {parts} {column}: {before}, then {now}"
    for parts, fields in snapshot.of("pool"):
        for name in ("rules", "hold_n", "decided_ms"):
            if int(was.get("pool", *parts).get(name) or 0) > int(fields.get(name) or 0):
                yield f"pool {parts} {name} went back from {was.get('pool', *parts)[name]} to {fields.get(name)}"


def stream_length(world: World) -> int:
    """Return the number of events."""
    return int(world.client.xlen(prefix(world.workspace) + "events"))


def _without_master(snapshot: Snapshot, key: tuple[str, ...]) -> Any:
    """Return the value of a key, without the id of the master, which a workspace gets with its second call."""
    value = snapshot.data.get(key)
    return {name: text for name, text in value.items() if name != "master"} if key == ("meta",) and value else value
