"""The replay of every transition: one event after the other is judged by the model of its moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

from tests.properties.oracle import FOR_NONE, NO_OWNER, Hold, Model, Request
from tests.properties.reading import request
from tests.properties.snapshot import Snapshot

WAYS = {
    "": {"submitted": {"queued"}},
    "queued": {"allocated": {"allocated"}, "cancelled": {"cancelled"}, "rejected": {"rejected"}, "expired": {"expired"}},
    "allocated": {
        "released": {"released"}, "expired": {"expired"}, "preempting": {"preempting"}, "preempted": {"queued", "preempted"},
    },
    "preempting": {
        "released": {"released"}, "expired": {"expired"}, "reprieved": {"allocated"},
        "preempted": {"queued", "preempted"}, "forced": {"queued", "preempted"},
    },
}  # fmt: skip
"""State → event → states it may lead to."""
TRIGGERS = {"priority", "reclaim", "sensitive", "starvation", "aggressive_starvation"}
NOTES = {"clearing": "queued", "terminating": "preempting", "passed_on": "preempting", "started": "allocated"}
"""The events that are no transition, with the status of their request."""


class Replay:
    """One step: the model as it was, with the rules as they are, brought forward by the events of the step."""

    def __init__(self, before: Model, rules: Model, snapshot: Snapshot, was: Snapshot) -> None:
        self.snapshot, self.was, self.before = snapshot, was, before
        requests = {id_: replace(request) for id_, request in before.requests.items()}
        clearings = {pool: deepcopy(before.clearings.get(pool, {})) for pool in rules.pools}
        leaving = {pool: dict(before.leaving.get(pool, {})) for pool in rules.pools}
        self.model = Model(rules.pools, requests, dict(before.holds), rules.now_ms, rules.unmanaged, clearings, leaving)
        self.after = rules
        self.stops: dict[str, dict[str, dict[str, str]]] = {}
        """Waiter → victim → the event of its preemption."""
        self.evicted: dict[str, dict[str, str]] = {}
        """Request → the event of its eviction, for evictions that have not ended."""
        self.noted: dict[str, set[str]] = {}
        """Waiter → the victims in its events."""
        self.quiet = {pool for pool in rules.pools if not (_busy(snapshot, pool) or _busy(was, pool))}

    def step(self, event: dict[str, str], last_fence: int) -> Iterator[str]:
        """Apply one event, and yield its faults."""
        id_, name = event["request"], event["event"]
        current = self.model.requests.get(id_)
        if not current:
            current = replace(request(id_, self.snapshot.get("request", id_)), status="", pool="", fence=0, granted_ms=0)
            self.model.requests[id_] = current
        ways = {current.status} if NOTES.get(name) == current.status else WAYS.get(current.status, {}).get(name, set())
        if event["from"] != current.status or event["to"] not in ways:
            yield f"{id_} is {current.status!r}: {event}"
        if not self.was.now_ms <= int(event["at"]) <= self.snapshot.now_ms:
            yield f"not now: {event}"
        judges = {
            "allocated": self._granted, "rejected": self._rejected, "expired": self._expired, "preempting": self._stopped,
            "preempted": self._departed, "forced": self._departed, "clearing": self._clearing, "passed_on": self._passed_on,
        }  # fmt: skip
        yield from judges[name](current, event) if name in judges else ()
        if name == "allocated":
            if int(event["fence"]) <= last_fence:
                yield f"the fence does not grow: {event} after {last_fence}"
            current.pool, current.fence, current.granted_ms = event["pool"], int(event["fence"]), int(event["at"])
        self._apply(current, event)

    def _apply(self, request: Request, event: dict[str, str]) -> None:
        """Apply the changes of an event, except the numbers of a grant."""
        if event["event"] == "passed_on":
            self._leaves(request, event)
        if event["event"] in NOTES:
            return
        if request.status == "queued":
            self._end_holds(request.id)
        elif request.status == "allocated" and event["event"] in ("preempting", "preempted") and event["by"]:
            self._leaves(request, event)
        elif request.status == "allocated" and event["event"] == "preempting":
            self.model.leaving[request.pool][request.id] = FOR_NONE
        if request.status == "preempting" or event["event"] == "preempted":
            self._gone(request, brings=event["event"] != "reprieved")
        request.status = event["to"]
        if request.status == "queued" and event["from"]:
            request.pool, request.fence, request.granted_ms = "", 0, 0

    def _leaves(self, request: Request, event: dict[str, str]) -> None:
        self._hold_of(event["by"], request.pool)
        self.model.leaving[request.pool][request.id] = event["by"]

    def _hold_of(self, owner: str, pool: str) -> None:
        holds = self.model.clearings[pool]
        if owner in holds or owner not in self.model.requests:
            return
        holds[owner] = Hold(owner, max([0, *(hold.number for hold in holds.values())]) + 1, Counter())
        if self.model.holds.get(pool) == owner:
            del self.model.holds[pool]

    def _gone(self, request: Request, *, brings: bool) -> None:
        owner = self.model.leaving[request.pool].pop(request.id, NO_OWNER)
        hold = self.model.clearings[request.pool].get(owner)
        if hold and brings:
            hold.freed_units.update(self.model.brings(request.pool, self.model.requests[owner], request))

    def _end_holds(self, owner: str) -> None:
        for pool, holds in self.model.clearings.items():
            holds.pop(owner, None)
            owners_by_victim = self.model.leaving[pool]
            owners_by_victim.update({id_: NO_OWNER for id_, owner_id in owners_by_victim.items() if owner_id == owner})

    def _granted(self, request: Request, event: dict[str, str]) -> Iterator[str]:
        pool = event["pool"]
        if not pool:
            if not self.model.may_run_outside(request):
                yield f"tied to no pool: {event}"
            return
        if pool not in self.model.eligible(request):
            yield f"{request.id} is not eligible in {pool}"
            return
        worlds = self._worlds(pool)
        if all(request not in world.grantable(pool, doubt=doubt) for world in worlds for doubt in (True, False)):
            yield f"{request.id} was granted in {pool}, where it is {self.model.blocked(pool, request) or 'held back'}"
        before = [other for other in self._always(pool, worlds) if self._stands_before(pool, other, request)]
        if before:
            yield f"{request.id} was granted in {pool} before {[other.id for other in before]}"
        for better in self.model.eligible(request):
            if better == pool:
                break
            first = self._always(better, self._worlds(better))[:1]
            if better in self.quiet and first == [request]:
                yield f"{request.id} was granted in {pool} though {better} could"

    def _stands_before(self, pool: str, other: Request, request: Request) -> bool:
        return self.model.order_key(pool, other) < self.model.order_key(pool, request)

    def _worlds(self, pool: str) -> list[Model]:
        """Return the possible models within a step: with all holds, and without those that ended at an unknown point of it."""
        holds, clearings = dict(self.model.holds), self.model.clearings[pool]
        patient = self.model.requests.get(holds.get(pool, ""))
        if patient and not (patient.status == "queued" and pool in self.model.eligible(patient)):
            del holds[pool]
        certain = {owner: hold for owner, hold in clearings.items() if self._stays(pool, owner)}
        lasting = {name: owner for name, owner in holds.items() if name != pool or self.after.holds.get(pool) == owner}
        valid = {owner: hold for owner, hold in clearings.items() if self._valid(pool, owner)}
        worlds = [replace(self.model, holds=holds, clearings={**self.model.clearings, pool: valid})]
        if len(certain) < len(valid) or len(lasting) < len(holds):
            for variant in (certain, valid):
                for patience in (lasting, holds):
                    worlds.append(replace(self.model, holds=patience, clearings={**self.model.clearings, pool: variant}))
        return worlds

    def _stays(self, pool: str, owner: str) -> bool:
        """True if a hold is there at the end of the step, or ends by its owner's own event."""
        then = self.after.requests.get(owner)
        ends_by_event = not then or then.status != "queued"
        return self._valid(pool, owner) and (ends_by_event or owner in self.after.clearings[pool])

    def _valid(self, pool: str, owner: str) -> bool:
        waiter = self.model.requests.get(owner)
        return bool(waiter and waiter.status == "queued" and pool in self.model.eligible(waiter))

    def _always(self, pool: str, worlds: list[Model]) -> list[Request]:
        """Return the requests that may be granted in every model, in order."""
        lists = [world.grantable(pool) for world in worlds]
        return [request for request in lists[0] if all(request in other_list for other_list in lists[1:])]

    def _stopped(self, request: Request, event: dict[str, str]) -> Iterator[str]:
        """Yield the faults of a preemption: its waiter exists, cannot be granted, and gets an event too."""
        if event["reason"] == "limit":
            yield from self._over_limit(request, event)
            return
        pool, waiter = event["pool"], self.model.requests.get(event["by"])
        if not waiter or waiter.status != "queued" or pool not in self.model.eligible(waiter):
            yield f"{request.id} has to leave {pool} for a request that does not wait there: {event}"
            return
        if not request.preemptible or event["reason"] not in TRIGGERS:
            yield f"{request.id} is not to be preempted like this: {event}"
        for name in self.model.eligible(waiter):
            first = waiter.id not in self.stops
            if first and name in self.quiet and waiter in self._always(name, self._worlds(name)):
                yield f"{request.id} has to leave {pool} for {waiter.id}, which can be granted in {name}"
        if any(waiter.id in holds for name, holds in self.model.clearings.items() if name != pool):
            yield f"{request.id} has to leave {pool} for {waiter.id}, whose way is being cleared elsewhere"
        if (event.get("rank"), event.get("by_rank")) != (self._rank(pool, request), self._rank(pool, waiter)):
            yield f"{request.id} ranks {self._rank(pool, request)}, {waiter.id} {self._rank(pool, waiter)}: {event}"
        self.stops.setdefault(waiter.id, {})[request.id] = event

    def _over_limit(self, request: Request, event: dict[str, str]) -> Iterator[str]:
        """Yield the faults of an eviction: an account of its path must be over its limit on a key that it holds."""
        pool = self.model.pools[request.pool]
        used = self.model.used(request.pool)
        over = [
            (account, key)
            for account in pool.path(request.component)
            for key in request.amounts
            if used[account][key] > pool.limit(account, key)
        ]
        if not request.preemptible or event["by"] or not over:
            yield f"{request.id} is not to be evicted like this: {event}"
        if (event.get("rank"), event.get("by_rank")) != (self._rank(request.pool, request), ""):
            yield f"{request.id} ranks {self._rank(request.pool, request)}: {event}"
        self.evicted[request.id] = event

    def _passed_on(self, request: Request, event: dict[str, str]) -> Iterator[str]:
        if (
            self.model.leaving[request.pool].get(request.id) != NO_OWNER
            or event["by"] not in self.model.clearings[request.pool]
        ):
            yield f"{request.id} leaves for {self.model.leaving[request.pool].get(request.id)}: {event}"
        self.stops.setdefault(event["by"], {})[request.id] = event

    def _rank(self, pool: str, request: Request) -> str:
        policy = self.model.pools[pool].policy(request.component)
        return f"{policy.priority if policy else None},{request.rank}"

    def _clearing(self, request: Request, event: dict[str, str]) -> Iterator[str]:
        """Yield the faults of a waiter's event, which lists all victims of its decision."""
        pool = event["pool"] or next((name for name, holds in self.after.clearings.items() if request.id in holds), "")
        ranks_by_victim = dict(pair.split("@") for pair in event.get("victims", "").split(";") if pair)
        self.noted.setdefault(request.id, set()).update(ranks_by_victim)
        if pool:
            self._hold_of(request.id, pool)
        for id_, rank in ranks_by_victim.items():
            if pool and (id_ not in self.model.requests or rank != self._rank(pool, self.model.requests[id_])):
                yield f"{id_} does not rank {rank}: {event}"
        if (pool and event["rank"] != self._rank(pool, request)) or event["reason"] not in TRIGGERS:
            yield f"{request.id} ranks {self._rank(pool, request)}: {event}"

    def _departed(self, request: Request, event: dict[str, str]) -> Iterator[str]:
        """Yield the faults of the end of a preemption: the request returns to the queue if it may."""
        if request.status == "allocated" and not event["rank"]:  # it says that it has left, and was just called back
            if self.was.get("request", request.id).get("preempting_fence") != str(request.fence):
                yield f"{request.id} was never told to leave: {event}"
        elif request.status == "allocated":
            yield from self._stopped(request, event)
            if self._setting(request.pool, "grace_s") != "0":
                yield f"{request.id} is given no grace: {event}"
        fields = self.snapshot.get("request", request.id)
        saved = fields.get("left_by") == "completed" and fields.get("left_fence") == str(request.fence)  # late, but it did
        failed = event["event"] == "forced" or (request.failed and not saved)
        lost = failed and self._setting(request.pool, "requeue_failed_checkpoint") == "0"
        again = not lost and (request.retries == -1 or request.preemptions < request.retries)
        if (event["to"] == "queued") != again:
            yield f"{request.id} with {request.retries} retries, {request.preemptions} used, failed {failed}: {event}"
        request.preemptions += 1

    def _setting(self, pool: str, name: str) -> str | None:
        return self.model.pools[pool].settings.get(name)

    def _rejected(self, request: Request, event: dict[str, str]) -> Iterator[str]:
        """Yield the faults of a rejection: by the policies, and for a new request also by those that templates would make."""
        models = (self.model, self.model.with_planned(request.component))
        faults = [[*_rejection_faults(model, request, event, self.snapshot)] for model in models]
        yield from min(faults, key=len)

    def _expired(self, request: Request, event: dict[str, str]) -> Iterator[str]:
        name, reason = ("waiting", "not_polled") if request.status == "queued" else ("leases", "lease_lapsed")
        if event["reason"] != reason or self.was.get(name).get(request.id, 0) > self.snapshot.now_ms:
            yield f"too early: {event}, due at {self.was.get(name).get(request.id)}"

    def end(self, after: Model) -> Iterator[str]:
        """Yield the differences between the state that follows from the events and the actual one."""
        for id_, expected in self.model.requests.items():
            now = after.requests.get(id_)
            if now is None and expected.status in ("queued", "allocated", "preempting"):
                yield f"{id_} is gone, and was {expected.status}"
            elif now and _where(now) != _where(expected):
                yield f"{id_} is {now}, by its events {expected}"
        if set(after.requests) - set(self.model.requests):
            yield f"no event told of {set(after.requests) - set(self.model.requests)}"
        for pool in after.pools:
            yield from self._end_of_holds(pool, after)
        for waiter in self.stops.keys() | self.noted.keys():
            noted, stopped = self.noted.get(waiter, set()), self.stops.get(waiter, {}).keys()
            if noted != stopped:
                yield f"{waiter} was told of {sorted(noted)}, and for it were stopped {sorted(stopped)}"

    def _end_of_holds(self, pool: str, after: Model) -> Iterator[str]:
        """Yield the faults of holds: each follows from the events, unless it ended; the victims of an ended one have no
        waiter."""
        holds_by_events, now = self.model.clearings[pool], after.clearings[pool]
        if not now.keys() <= holds_by_events.keys():
            yield f"{pool}: no event told of the holds of {now.keys() - holds_by_events.keys()}"
        for owner in now.keys() & holds_by_events.keys():
            if now[owner].freed_units != +holds_by_events[owner].freed_units:
                units = holds_by_events[owner].freed_units
                yield f"{pool}: to {owner} was brought {now[owner].freed_units}, by the events {units}"
        for id_, beneficiary in after.leaving[pool].items():
            was = self.model.leaving[pool].get(id_)
            if beneficiary != was and not (beneficiary == NO_OWNER and was not in now):
                yield f"{pool}: {id_} leaves for {beneficiary}, by the events for {was}"


def _where(request: Request) -> tuple[object, ...]:
    return (request.status, request.pool, request.fence, request.preemptions)


def _busy(snapshot: Snapshot, pool: str) -> bool:
    fields = snapshot.get("pool", pool)
    return not fields or "reviewing" in fields or "unsettled" in fields


def _rejection_faults(model: Model, request: Request, event: dict[str, str], snapshot: Snapshot) -> Iterator[str]:
    pools, fields = model.candidates(request), snapshot.get("request", request.id)
    pools += [pool for pool in request.named_pools if pool not in pools]
    reasons = [text.split(" ") for text in fields.get("reasons", "").split(";") if text]
    full = {pool for pool, code, *_ in reasons if code == "too_many_tenants"}
    if eligible := set(model.eligible(request)) - full:
        yield f"{request.id} was rejected and is eligible in {eligible}"
    if [words[0] for words in reasons] != pools:
        yield f"{request.id} was rejected by {reasons}, its pools are {pools}"
        return
    for pool, code, key, units, bound, account in reasons:
        if pool not in full and (code, key, int(units), int(bound), account) not in model.refusals(pool, request):
            refusals = model.refusals(pool, request)
            yield f"{request.id}: {pool} says {code} {key} {units} {bound} {account}, not {refusals}"
    if event["reason"] != (reasons[0][1] if reasons else "no_policy"):
        yield f"{request.id} was rejected for {event['reason']}: {reasons}"
    if model.may_run_outside(request):
        yield f"{request.id} has no policy and is allowed"
