"""Every transition again, one event after the other, each judged by the model at the moment it was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

from tests.properties.oracle import FOR_NONE, NOBODY, Hold, Model, Request
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
"""What is told and is no transition → the state in which it is."""


class Replay:
    """One step: the model as it was, with the rules as they are, brought forward by the events of the step."""

    def __init__(self, before: Model, rules: Model, seen: Snapshot, was: Snapshot) -> None:
        self.seen, self.was, self.before = seen, was, before
        requests = {id_: replace(one) for id_, one in before.requests.items()}
        clearings = {pool: deepcopy(before.clearings.get(pool, {})) for pool in rules.pools}
        leaving = {pool: dict(before.leaving.get(pool, {})) for pool in rules.pools}
        self.model = Model(rules.pools, requests, dict(before.holds), rules.now_ms, rules.unmanaged, clearings, leaving)
        self.after = rules
        self.stops: dict[str, dict[str, dict[str, str]]] = {}
        """Waiter → victim → the event that told it to leave."""
        self.evicted: dict[str, dict[str, str]] = {}
        """Who had to leave as its account was over a limit → the event that told it to."""
        self.noted: dict[str, set[str]] = {}
        """Waiter → the victims it was told of."""
        self.quiet = {pool for pool in rules.pools if not (_busy(seen, pool) or _busy(was, pool))}

    def step(self, event: dict[str, str], last_fence: int) -> Iterator[str]:
        """What is wrong with one event; it is applied."""
        id_, name = event["request"], event["event"]
        one = self.model.requests.get(id_)
        if not one:
            one = replace(request(id_, self.seen.get("request", id_)), status="", pool="", fence=0, granted_ms=0)
            self.model.requests[id_] = one
        ways = {one.status} if NOTES.get(name) == one.status else WAYS.get(one.status, {}).get(name, set())
        if event["from"] != one.status or event["to"] not in ways:
            yield f"{id_} is {one.status!r}: {event}"
        if not self.was.now_ms <= int(event["at"]) <= self.seen.now_ms:
            yield f"not now: {event}"
        judges = {
            "allocated": self._granted, "rejected": self._rejected, "expired": self._expired, "preempting": self._stopped,
            "preempted": self._departed, "forced": self._departed, "clearing": self._clearing, "passed_on": self._passed_on,
        }  # fmt: skip
        yield from judges[name](one, event) if name in judges else ()
        if name == "allocated":
            if int(event["fence"]) <= last_fence:
                yield f"the fence does not grow: {event} after {last_fence}"
            one.pool, one.fence, one.granted_ms = event["pool"], int(event["fence"]), int(event["at"])
        self._apply(one, event)

    def _apply(self, one: Request, event: dict[str, str]) -> None:
        """What an event changes besides the numbers of a grant."""
        if event["event"] == "passed_on":
            self._leaves(one, event)
        if event["event"] in NOTES:
            return
        if one.status == "queued":
            self._end_holds(one.id)
        elif one.status == "allocated" and event["event"] in ("preempting", "preempted") and event["by"]:
            self._leaves(one, event)
        elif one.status == "allocated" and event["event"] == "preempting":
            self.model.leaving[one.pool][one.id] = FOR_NONE
        if one.status == "preempting" or event["event"] == "preempted":
            self._gone(one, brings=event["event"] != "reprieved")
        one.status = event["to"]
        if one.status == "queued" and event["from"]:
            one.pool, one.fence, one.granted_ms = "", 0, 0

    def _leaves(self, one: Request, event: dict[str, str]) -> None:
        self._hold_of(event["by"], one.pool)
        self.model.leaving[one.pool][one.id] = event["by"]

    def _hold_of(self, owner: str, pool: str) -> None:
        holds = self.model.clearings[pool]
        if owner in holds or owner not in self.model.requests:
            return
        holds[owner] = Hold(owner, max([0, *(hold.number for hold in holds.values())]) + 1, Counter())
        if self.model.holds.get(pool) == owner:
            del self.model.holds[pool]

    def _gone(self, one: Request, *, brings: bool) -> None:
        owner = self.model.leaving[one.pool].pop(one.id, NOBODY)
        hold = self.model.clearings[one.pool].get(owner)
        if hold and brings:
            hold.brought.update(self.model.brings(one.pool, self.model.requests[owner], one))

    def _end_holds(self, owner: str) -> None:
        for pool, holds in self.model.clearings.items():
            holds.pop(owner, None)
            told = self.model.leaving[pool]
            told.update({id_: NOBODY for id_, whom in told.items() if whom == owner})

    def _granted(self, one: Request, event: dict[str, str]) -> Iterator[str]:
        pool = event["pool"]
        if not pool:
            if self.model.preferred(one.component) or self.model.unmanaged != "allow":
                yield f"tied to no pool: {event}"
            return
        if pool not in self.model.eligible(one):
            yield f"{one.id} is not eligible in {pool}"
            return
        worlds = self._worlds(pool)
        if all(one not in world.grantable(pool, doubt=doubt) for world in worlds for doubt in (True, False)):
            yield f"{one.id} was granted in {pool}, where it is {self.model.blocked(pool, one) or 'held back'}"
        before = [other for other in self._always(pool, worlds) if self._stands_before(pool, other, one)]
        if before:
            yield f"{one.id} was granted in {pool} before {[other.id for other in before]}"
        for better in self.model.eligible(one):
            if better == pool:
                break
            first = self._always(better, self._worlds(better))[:1]
            if better in self.quiet and first == [one]:
                yield f"{one.id} was granted in {pool} though {better} could"

    def _stands_before(self, pool: str, other: Request, one: Request) -> bool:
        return self.model.order_key(pool, other) < self.model.order_key(pool, one)

    def _worlds(self, pool: str) -> list[Model]:
        """The model with all holds, and without those that ended within the step, nobody knows when."""
        holds, clearings = dict(self.model.holds), self.model.clearings[pool]
        patient = self.model.requests.get(holds.get(pool, ""))
        if patient and not (patient.status == "queued" and pool in self.model.eligible(patient)):
            del holds[pool]
        certain = {owner: hold for owner, hold in clearings.items() if self._stays(pool, owner)}
        lasting = {name: owner for name, owner in holds.items() if name != pool or self.after.holds.get(pool) == owner}
        valid = {owner: hold for owner, hold in clearings.items() if self._valid(pool, owner)}
        worlds = [replace(self.model, holds=holds, clearings={**self.model.clearings, pool: valid})]
        if len(certain) < len(valid) or len(lasting) < len(holds):
            for some in (certain, valid):
                for patience in (lasting, holds):
                    worlds.append(replace(self.model, holds=patience, clearings={**self.model.clearings, pool: some}))
        return worlds

    def _stays(self, pool: str, owner: str) -> bool:
        """Whether a hold is there at the end of the step as well, or ends by its owner's own event."""
        then = self.after.requests.get(owner)
        ends_by_event = not then or then.status != "queued"
        return self._valid(pool, owner) and (ends_by_event or owner in self.after.clearings[pool])

    def _valid(self, pool: str, owner: str) -> bool:
        one = self.model.requests.get(owner)
        return bool(one and one.status == "queued" and pool in self.model.eligible(one))

    def _always(self, pool: str, worlds: list[Model]) -> list[Request]:
        """Who may be granted whatever holds there still are, in order."""
        lists = [world.grantable(pool) for world in worlds]
        return [one for one in lists[0] if all(one in others for others in lists[1:])]

    def _stopped(self, one: Request, event: dict[str, str]) -> Iterator[str]:
        """Somebody is told to leave: for a waiter that there is, that cannot be granted, and that gets to know of it."""
        if event["reason"] == "limit":
            yield from self._over_limit(one, event)
            return
        pool, waiter = event["pool"], self.model.requests.get(event["by"])
        if not waiter or waiter.status != "queued" or pool not in self.model.eligible(waiter):
            yield f"{one.id} has to leave {pool} for one who does not wait there: {event}"
            return
        if not one.preemptible or event["reason"] not in TRIGGERS:
            yield f"{one.id} is not to be preempted like this: {event}"
        for name in self.model.eligible(waiter):
            first = waiter.id not in self.stops
            if first and name in self.quiet and waiter in self._always(name, self._worlds(name)):
                yield f"{one.id} has to leave {pool} for {waiter.id}, who can be granted in {name}"
        if any(waiter.id in holds for name, holds in self.model.clearings.items() if name != pool):
            yield f"{one.id} has to leave {pool} for {waiter.id}, whose way is being cleared elsewhere"
        if (event.get("rank"), event.get("by_rank")) != (self._rank(pool, one), self._rank(pool, waiter)):
            yield f"{one.id} ranks {self._rank(pool, one)}, {waiter.id} {self._rank(pool, waiter)}: {event}"
        self.stops.setdefault(waiter.id, {})[one.id] = event

    def _over_limit(self, one: Request, event: dict[str, str]) -> Iterator[str]:
        """It goes for nobody: it has something of which an account of its path has more than it may."""
        pool = self.model.pools[one.pool]
        used = self.model.used(one.pool)
        over = [
            (account, key)
            for account in pool.path(one.component)
            for key in one.amounts
            if used[account][key] > pool.limit(account, key)
        ]
        if not one.preemptible or event["by"] or not over:
            yield f"{one.id} is not to be evicted like this: {event}"
        if (event.get("rank"), event.get("by_rank")) != (self._rank(one.pool, one), ""):
            yield f"{one.id} ranks {self._rank(one.pool, one)}: {event}"
        self.evicted[one.id] = event

    def _passed_on(self, one: Request, event: dict[str, str]) -> Iterator[str]:
        if self.model.leaving[one.pool].get(one.id) != NOBODY or event["by"] not in self.model.clearings[one.pool]:
            yield f"{one.id} leaves for {self.model.leaving[one.pool].get(one.id)}: {event}"
        self.stops.setdefault(event["by"], {})[one.id] = event

    def _rank(self, pool: str, one: Request) -> str:
        policy = self.model.pools[pool].policy(one.component)
        return f"{policy.priority if policy else None},{one.rank}"

    def _clearing(self, one: Request, event: dict[str, str]) -> Iterator[str]:
        """The waiter is told of all victims of a decision; and they of it."""
        pool = event["pool"] or next((name for name, holds in self.after.clearings.items() if one.id in holds), "")
        told = dict(pair.split("@") for pair in event.get("victims", "").split(";") if pair)
        self.noted.setdefault(one.id, set()).update(told)
        if pool:
            self._hold_of(one.id, pool)
        for id_, rank in told.items():
            if pool and (id_ not in self.model.requests or rank != self._rank(pool, self.model.requests[id_])):
                yield f"{id_} does not rank {rank}: {event}"
        if (pool and event["rank"] != self._rank(pool, one)) or event["reason"] not in TRIGGERS:
            yield f"{one.id} ranks {self._rank(pool, one)}: {event}"

    def _departed(self, one: Request, event: dict[str, str]) -> Iterator[str]:
        """It goes back to the queue if it may, else it ends."""
        if one.status == "allocated" and not event["rank"]:  # it says that it has left, and was just called back
            if self.was.get("request", one.id).get("preempting_fence") != str(one.fence):
                yield f"{one.id} was never told to leave: {event}"
        elif one.status == "allocated":
            yield from self._stopped(one, event)
            if self._setting(one.pool, "grace_s") != "0":
                yield f"{one.id} is given no grace: {event}"
        fields = self.seen.get("request", one.id)
        saved = fields.get("left_by") == "completed" and fields.get("left_fence") == str(one.fence)  # late, but it did
        failed = event["event"] == "forced" or (one.failed and not saved)
        lost = failed and self._setting(one.pool, "requeue_failed_checkpoint") == "0"
        again = not lost and (one.retries == -1 or one.preemptions < one.retries)
        if (event["to"] == "queued") != again:
            yield f"{one.id} with {one.retries} retries, {one.preemptions} used, failed {failed}: {event}"
        one.preemptions += 1

    def _setting(self, pool: str, name: str) -> str | None:
        return self.model.pools[pool].settings.get(name)

    def _rejected(self, one: Request, event: dict[str, str]) -> Iterator[str]:
        pools, fields = self.model.preferred(one.component), self.seen.get("request", one.id)
        told = [text.split(" ") for text in fields.get("reasons", "").split(";") if text]
        if self.model.eligible(one):
            yield f"{one.id} was rejected and is eligible in {self.model.eligible(one)}"
        if [words[0] for words in told] != pools:
            yield f"{one.id} was rejected by {told}, its pools are {pools}"
            return
        for pool, code, key, asked, bound, account in told:
            if (code, key, int(asked), int(bound), account) not in self.model.refusals(pool, one):
                yield f"{one.id}: {pool} says {code} {key} {asked} {bound} {account}, not {self.model.refusals(pool, one)}"
        if event["reason"] != (told[0][1] if told else "no_policy"):
            yield f"{one.id} was rejected for {event['reason']}: {told}"
        if not pools and self.model.unmanaged == "allow":
            yield f"{one.id} has no policy and is allowed"

    def _expired(self, one: Request, event: dict[str, str]) -> Iterator[str]:
        name, reason = ("waiting", "not_polled") if one.status == "queued" else ("leases", "lease_lapsed")
        if event["reason"] != reason or self.was.get(name).get(one.id, 0) > self.seen.now_ms:
            yield f"too early: {event}, due at {self.was.get(name).get(one.id)}"

    def end(self, after: Model) -> Iterator[str]:
        """What differs between where the events lead and what is there."""
        for id_, one in self.model.requests.items():
            now = after.requests.get(id_)
            if now is None and one.status in ("queued", "allocated", "preempting"):
                yield f"{id_} is gone, and was {one.status}"
            elif now and _where(now) != _where(one):
                yield f"{id_} is {now}, by its events {one}"
        if set(after.requests) - set(self.model.requests):
            yield f"no event told of {set(after.requests) - set(self.model.requests)}"
        for pool in after.pools:
            yield from self._end_of_holds(pool, after)
        for waiter in self.stops.keys() | self.noted.keys():
            told, stopped = self.noted.get(waiter, set()), self.stops.get(waiter, {}).keys()
            if told != stopped:
                yield f"{waiter} was told of {sorted(told)}, and for it were stopped {sorted(stopped)}"

    def _end_of_holds(self, pool: str, after: Model) -> Iterator[str]:
        """Holds are those the events lead to, but for those that ended; and who left for these leaves for nobody any more."""
        told, now = self.model.clearings[pool], after.clearings[pool]
        if not now.keys() <= told.keys():
            yield f"{pool}: no event told of the holds of {now.keys() - told.keys()}"
        for owner in now.keys() & told.keys():
            if now[owner].brought != +told[owner].brought:
                yield f"{pool}: to {owner} was brought {now[owner].brought}, by the events {told[owner].brought}"
        for id_, whom in after.leaving[pool].items():
            was = self.model.leaving[pool].get(id_)
            if whom != was and not (whom == NOBODY and was not in now):
                yield f"{pool}: {id_} leaves for {whom}, by the events for {was}"


def _where(one: Request) -> tuple[object, ...]:
    return (one.status, one.pool, one.fence, one.preemptions)


def _busy(seen: Snapshot, pool: str) -> bool:
    fields = seen.get("pool", pool)
    return not fields or "reviewing" in fields or "unsettled" in fields
