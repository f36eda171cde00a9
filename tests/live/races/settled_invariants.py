"""What is true when nothing is unfinished: every queue is in order, and nobody waits who could be granted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from app.domain.amounts import UNBOUNDED
from app.domain.queue_score import MAX_AMOUNT
from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.connection import RedisClient
from app.store.ledger import Ledger
from tests.live.races import invariants
from tests.support.redis_snapshot import Record, Shape, Snapshot, lane, shape

Order: TypeAlias = tuple[Any, ...]


def check(client: RedisClient, ledger: Ledger, workspace: str, *, lowered: bool = False) -> Snapshot:
    """Everything is right and nothing is left to do; what is seen."""
    assert not ledger.resume_unfinished(workspace), "something was left unfinished"
    seen = Snapshot(client, workspace)
    invariants.require_none([*invariants.faults(seen, lowered=lowered), *faults(seen)])
    assert Audit(ledger, AuditStore(client)).run(workspace) == [], "the audit finds something"
    return seen


def faults(seen: Snapshot) -> list[str]:
    """All that is wrong for a time at which nothing is unfinished."""
    found = list(_unfinished(seen))
    for pool in seen.pools:
        found += [*PoolRules(seen, pool).queue_faults(), *PoolRules(seen, pool).grantable()]
    return found


def _unfinished(seen: Snapshot) -> Iterator[str]:
    left = [
        key
        for key in seen.keys
        if key in ("unfinished", "orphaned_lanes") or (key.startswith("pool:") and key.endswith(":unfinished"))
    ]
    marked = [pool for pool in seen.pools if {"reviewing", "unsettled"} & seen.hash(f"pool:{pool}").keys()]
    if left or marked:
        yield f"unfinished: {left}, pools {marked}"
    homeless = [name for name, request in seen.of_status("queued").items() if not any(_pools_of(seen, request))]
    if homeless:
        yield f"waiting, but eligible nowhere: {homeless}"


def _pools_of(seen: Snapshot, request: Record) -> Iterator[bool]:
    yield from (PoolRules(seen, pool).eligible(shape(request)) for pool in seen.pools)


class PoolRules:
    """The rules of one pool, as they are written down for people, applied to everything as of one moment."""

    def __init__(self, seen: Snapshot, pool: str) -> None:
        self.seen, self.pool, self.settings = seen, pool, seen.hash(f"pool:{pool}")
        self.capacity = seen.column(f"pool:{pool}", "limit")
        parts = [f"pool:{pool}:{kind}:{name}" for kind in ("policy", "group") for name, _ in seen.parts(pool, kind)]
        self.share_keys = {key for part in parts for key in seen.column(part, "reserved")}
        self.waiting = {name: request for name, request in seen.of_status("queued").items() if self.eligible(shape(request))}

    def total(self, key: str) -> int:
        """The capacity, also of a key the pool does not list."""
        return self.capacity.get(key, MAX_AMOUNT if key in UNBOUNDED else 0)

    def limit(self, account: str, key: str) -> int:
        """What counts of a policy's or a group's limit: one as large as the pool is none."""
        limit = self.seen.column(account, "limit").get(key, MAX_AMOUNT)
        return limit if limit < self.total(key) else MAX_AMOUNT

    def eligible(self, who: Shape) -> bool:
        """Whether it could be granted if nothing were in use."""
        path = self.seen.path(self.pool, who.component)
        return bool(path) and all(
            amount <= self.total(key)
            and all(amount <= self.seen.column(account, "limit").get(key, MAX_AMOUNT) for account in path)
            and (not who.fixed or key not in self.capacity or amount <= self.seen.column(path[0], "reserved").get(key, 0))
            for key, amount in who.ask.items()
        )

    def in_share(self, who: Shape) -> bool:
        """Whether it fits into its policy's unused share, on at least one share key."""
        policy = self.seen.path(self.pool, who.component)[0]
        reserved, taken = self.seen.column(policy, "reserved"), self.seen.column(policy, "fixed" if who.fixed else "used")
        asked = self.share_keys & who.ask.keys()
        return bool(asked) and all(who.ask[key] <= reserved.get(key, 0) - taken.get(key, 0) for key in asked)

    def rank(self, request: Record) -> Order:
        """Rules 2 and 3 of the order."""
        policy = self.seen.hash(self.seen.path(self.pool, request["component"])[0])
        by = (-int(policy["priority"]), -int(request["class"]))
        return (*(by if self.settings.get("discipline") != "classes" else by[::-1]), int(request["seq"]))

    def queue_key(self, request: Record) -> Order:
        """Where somebody stands."""
        *rank, age = self.rank(request)
        band = not self.in_share(shape(request))
        return (*rank, band, age) if self.settings.get("order") == "priority_first" else (band, *rank, age)

    def blocker(self, who: Shape, *, held: bool) -> str:
        """What keeps it from being granted: `limit` (or the fixed share), `capacity`, or nothing."""
        *below, pool = self.seen.path(self.pool, who.component)
        reserved, fixed = self.seen.column(below[0], "reserved"), self.seen.column(below[0], "fixed")
        for key, amount in who.ask.items():
            if any(self._short(account, key, amount, self.limit(account, key)) for account in below):
                return "limit"
            if who.fixed and key in self.capacity and fixed.get(key, 0) + amount > reserved.get(key, 0):
                return "limit"
        for key, amount in who.ask.items():
            if self._short(pool, key, amount, self.total(key)):
                return "capacity"
            limits = {account: self.seen.column(account, "limit").get(key, self.total(key)) for account in (*below, pool)}
            if held and any(
                self._short(account, key, amount, limit, "used", "patience_held") for account, limit in limits.items()
            ):
                return "capacity"
        return ""

    def _short(self, account: str, key: str, amount: int, limit: int, *columns: str) -> bool:
        return sum(self.seen.column(account, column).get(key, 0) for column in columns or ("used",)) + amount > limit

    def queue_faults(self) -> Iterator[str]:
        """The queue holds those who are eligible, in order, and the lanes stand by their heads."""
        wanted = sorted(self.waiting, key=lambda name: self.rank(self.waiting[name]))
        queue = list(self.seen.zset(f"pool:{self.pool}:queue"))
        if queue != wanted:
            yield f"queue of {self.pool}: {queue}, but should be {wanted}"
        heads = sorted((self.queue_key(request), lane(request)) for request in self.waiting.values())
        lanes = list(dict.fromkeys(name for _, name in heads))
        here = list(self.seen.zset(f"pool:{self.pool}:lanes"))
        if here != lanes:
            yield f"lanes of {self.pool}: {here}, but should be {lanes}"
        shares = {lane(request) for request in self.waiting.values() if self.in_share(shape(request))}
        if shares != self.seen.set(f"pool:{self.pool}:in_share"):
            yield f"lanes in share of {self.pool}: {self.seen.set(f'pool:{self.pool}:in_share')}, but should be {shares}"

    def grantable(self) -> Iterator[str]:
        """Those who wait although the rules allow them to be granted."""
        owner = self.settings.get("patience")
        bound_after = self.queue_key(self.seen.requests[owner]) if owner else None
        if owner and self.blocker(shape(self.seen.requests[owner]), held=False) != "capacity":
            yield f"{owner} has a hold in {self.pool}, but it is not capacity that keeps it waiting"
        for request in sorted(self.waiting.values(), key=self.queue_key):
            held = bound_after is not None and self.queue_key(request) > bound_after
            kept = self.blocker(shape(request), held=held)
            if not kept:
                yield f"{request} could be granted in {self.pool}"
            if kept == "capacity" and self.settings.get("queueing") == "strict":
                return
