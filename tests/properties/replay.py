"""Every transition again, one event after the other, each judged by the model at the moment it was made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.properties.oracle import Model, Request
from tests.properties.reading import request
from tests.properties.snapshot import Snapshot

WAYS = {
    "": {"submitted": "queued"},
    "queued": {"allocated": "allocated", "cancelled": "cancelled", "rejected": "rejected", "expired": "expired"},
    "allocated": {"released": "released", "expired": "expired"},
}
"""State → event → state, as far as nobody is preempted."""


class Replay:
    """One step: the model as it was, with the rules as they are, brought forward by the events of the step."""

    def __init__(self, before: Model, rules: Model, seen: Snapshot, was: Snapshot) -> None:
        self.seen, self.was, self.before = seen, was, before
        requests = {id_: replace(one) for id_, one in before.requests.items()}
        self.model = Model(rules.pools, requests, dict(before.holds), rules.now_ms, rules.unmanaged)
        self.doubtful = {pool for pool in before.holds if rules.holds.get(pool) != before.holds[pool]}
        """Pools whose hold ended within the step, nobody knows when."""
        self.quiet = {pool for pool in rules.pools if not (_busy(seen, pool) or _busy(was, pool))}

    def step(self, event: dict[str, str], last_fence: int) -> Iterator[str]:
        """What is wrong with one event; it is applied."""
        id_, name = event["request"], event["event"]
        one = self.model.requests.get(id_)
        if not one:
            one = replace(request(id_, self.seen.get("request", id_)), status="", pool="", fence=0, granted_ms=0)
            self.model.requests[id_] = one
        if event["from"] != one.status or WAYS.get(one.status, {}).get(name) != event["to"]:
            yield f"{id_} is {one.status!r}: {event}"
        if not self.was.now_ms <= int(event["at"]) <= self.seen.now_ms:
            yield f"not now: {event}"
        judge = {"allocated": self._granted, "rejected": self._rejected, "expired": self._expired}.get(name)
        yield from judge(one, event) if judge else ()
        if name == "allocated":
            if int(event["fence"]) <= last_fence:
                yield f"the fence does not grow: {event} after {last_fence}"
            one.pool, one.fence, one.granted_ms = event["pool"], int(event["fence"]), int(event["at"])
        one.status = event["to"]

    def _granted(self, one: Request, event: dict[str, str]) -> Iterator[str]:
        pool = event["pool"]
        if not pool:
            if self.model.preferred(one.component) or self.model.unmanaged != "allow":
                yield f"tied to no pool: {event}"
            return
        if pool not in self.model.eligible(one):
            yield f"{one.id} is not eligible in {pool}"
            return
        if one not in self._grantable(pool, hold=pool not in self.doubtful):
            yield f"{one.id} was granted in {pool}, where it is {self.model.blocked(pool, one) or 'held back'}"
        before = [other for other in self._grantable(pool, hold=True) if self._stands_before(pool, other, one)]
        if before:
            yield f"{one.id} was granted in {pool} before {[other.id for other in before]}"
        for better in self.model.eligible(one):
            if better == pool:
                break
            first = self._grantable(better, hold=True)[:1]
            if better in self.quiet and first == [one]:
                yield f"{one.id} was granted in {pool} though {better} could"

    def _stands_before(self, pool: str, other: Request, one: Request) -> bool:
        return self.model.order_key(pool, other) < self.model.order_key(pool, one)

    def _grantable(self, pool: str, *, hold: bool) -> list[Request]:
        owner = self.model.requests.get(self.model.holds.get(pool, ""))
        holds = hold and owner and owner.status == "queued" and pool in self.model.eligible(owner)
        held = {pool: owner.id} if holds and owner else {}
        return replace(self.model, holds=held).grantable(pool)

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
        name, reason = ("waiting", "not_polled") if one.status == "queued" else ("live", "lease_lapsed")
        if event["reason"] != reason or self.was.get(name).get(one.id, 0) > self.seen.now_ms:
            yield f"too early: {event}, due at {self.was.get(name).get(one.id)}"

    def end(self, after: Model) -> Iterator[str]:
        """What differs between where the events lead and what is there."""
        for id_, one in self.model.requests.items():
            now = after.requests.get(id_)
            if now is None and one.status in ("queued", "allocated", "preempting"):
                yield f"{id_} is gone, and was {one.status}"
            elif now and (now.status, now.pool, now.fence) != (one.status, one.pool, one.fence):
                yield f"{id_} is {now}, by its events {one}"
        if set(after.requests) - set(self.model.requests):
            yield f"no event told of {set(after.requests) - set(self.model.requests)}"


def _busy(seen: Snapshot, pool: str) -> bool:
    fields = seen.get("pool", pool)
    return not fields or "reviewing" in fields or "unsettled" in fields
