"""Invariants that hold when no work is unfinished: every queue is in order, and no waiter could be granted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def check(client: RedisClient, ledger: Ledger, workspace: str, *, lowered: bool = False, audited: bool = True) -> Snapshot:
    """Raise unless everything is right and nothing is left to do, also by the audit if `audited`; return what was read."""
    assert not ledger.resume_unfinished(workspace), "something was left unfinished"
    snapshot = Snapshot(client, workspace, fields=invariants.REQUEST_FIELDS)
    invariants.require_none([*invariants.faults(snapshot, lowered=lowered), *faults(snapshot)])
    assert not audited or Audit(ledger, AuditStore(client)).run(workspace) == [], "the audit finds something"
    return snapshot


def faults(snapshot: Snapshot) -> list[str]:
    """Return all faults at a time without unfinished work."""
    pools = [PoolRules(snapshot, pool) for pool in snapshot.pools]
    problems = list(_unfinished(snapshot, pools))
    for rules in pools:
        problems += [*rules.queue_faults(), *rules.grantable()]
    return problems


def _unfinished(snapshot: Snapshot, pools: Sequence[PoolRules]) -> Iterator[str]:
    left = [
        key
        for key in snapshot.keys
        if key in ("unfinished", "orphaned_lanes") or (key.startswith("pool:") and key.endswith(":unfinished"))
    ]
    marked = [pool for pool in snapshot.pools if {"reviewing", "unsettled"} & snapshot.hash(f"pool:{pool}").keys()]
    if left or marked:
        yield f"unfinished: {left}, pools {marked}"
    homeless = [name for name in snapshot.of_status("queued") if not any(name in rules.waiting for rules in pools)]
    if homeless:
        yield f"waiting, but eligible nowhere: {homeless}"


class PoolRules:
    """The rules of one pool, as they are written down for people, applied to everything as of one moment."""

    def __init__(self, snapshot: Snapshot, pool: str) -> None:
        self.snapshot, self.pool, self.settings = snapshot, pool, snapshot.hash(f"pool:{pool}")
        self.capacity = snapshot.column(f"pool:{pool}", "limit")
        parts = [f"pool:{pool}:{kind}:{name}" for kind in ("policy", "group") for name, _ in snapshot.parts(pool, kind)]
        self.share_keys = {key for part in parts for key in snapshot.column(part, "reserved")}
        queued = snapshot.of_status("queued")
        eligible = {
            name: self.eligible(shape(request))
            for name, request in {lane(request): request for request in queued.values()}.items()
        }
        self.waiting = {name: request for name, request in queued.items() if eligible[lane(request)]}

    def total(self, key: str) -> int:
        """Return the capacity, also for a key that the pool does not list."""
        return self.capacity.get(key, MAX_AMOUNT if key in UNBOUNDED else 0)

    def limit(self, account: str, key: str) -> int:
        """Return the effective limit of a policy or group: one as large as the pool is none."""
        limit = self.snapshot.column(account, "limit").get(key, MAX_AMOUNT)
        return limit if limit < self.total(key) else MAX_AMOUNT

    def eligible(self, waiter: Shape) -> bool:
        """True if the waiter could be granted in an empty pool."""
        path = self.snapshot.path(self.pool, waiter.component)
        return bool(path) and all(
            amount <= self.total(key)
            and all(amount <= self.snapshot.column(account, "limit").get(key, MAX_AMOUNT) for account in path)
            and (
                not waiter.fixed or key not in self.capacity or amount <= self.snapshot.column(path[0], "reserved").get(key, 0)
            )
            for key, amount in waiter.ask.items()
        )

    def in_share(self, waiter: Shape) -> bool:
        """True if the waiter fits into its policy's unused share, on at least one share key."""
        policy = self.snapshot.path(self.pool, waiter.component)[0]
        reserved, taken = (
            self.snapshot.column(policy, "reserved"),
            self.snapshot.column(policy, "fixed" if waiter.fixed else "used"),
        )
        keys = self.share_keys & waiter.ask.keys()
        return bool(keys) and all(waiter.ask[key] <= reserved.get(key, 0) - taken.get(key, 0) for key in keys)

    def rank(self, request: Record) -> Order:
        """Return criteria 2 and 3 of the order."""
        policy = self.snapshot.hash(self.snapshot.path(self.pool, request["component"])[0])
        by = (-int(policy["priority"]), -int(request["class"]))
        return (*(by if self.settings.get("discipline") != "classes" else by[::-1]), int(request["seq"]))

    def queue_key(self, request: Record) -> Order:
        """Return the sort key of a waiter in the queue."""
        *rank, age = self.rank(request)
        band = not self.in_share(shape(request))
        return (*rank, band, age) if self.settings.get("order") == "priority_first" else (band, *rank, age)

    def blocker(self, waiter: Shape, *, bound_by_hold: bool) -> str:
        """Return the reason why the waiter cannot be granted: `limit` (or the fixed share), `capacity`, or nothing."""
        *below, pool = self.snapshot.path(self.pool, waiter.component)
        reserved, fixed = self.snapshot.column(below[0], "reserved"), self.snapshot.column(below[0], "fixed")
        for key, amount in waiter.ask.items():
            if any(self._short(account, key, amount, self.limit(account, key)) for account in below):
                return "limit"
            if waiter.fixed and key in self.capacity and fixed.get(key, 0) + amount > reserved.get(key, 0):
                return "limit"
        for key, amount in waiter.ask.items():
            if self._short(pool, key, amount, self.total(key)):
                return "capacity"
            limits = {account: self.snapshot.column(account, "limit").get(key, self.total(key)) for account in (*below, pool)}
            if bound_by_hold and any(
                self._short(account, key, amount, limit, "used", "patience_held") for account, limit in limits.items()
            ):
                return "capacity"
        return ""

    def _short(self, account: str, key: str, amount: int, limit: int, *columns: str) -> bool:
        return sum(self.snapshot.column(account, column).get(key, 0) for column in columns or ("used",)) + amount > limit

    def queue_faults(self) -> Iterator[str]:
        """Yield faults of the queue: it holds the eligible waiters in order, and the lanes are ordered by their heads."""
        expected = sorted(self.waiting, key=lambda name: self.rank(self.waiting[name]))
        queue = list(self.snapshot.zset(f"pool:{self.pool}:queue"))
        if queue != expected:
            yield f"queue of {self.pool}: {queue}, but should be {expected}"
        heads = sorted((self.queue_key(request), lane(request)) for request in self.waiting.values())
        lanes = list(dict.fromkeys(name for _, name in heads))
        here = list(self.snapshot.zset(f"pool:{self.pool}:lanes"))
        if here != lanes:
            yield f"lanes of {self.pool}: {here}, but should be {lanes}"
        shares = {lane(request) for request in self.waiting.values() if self.in_share(shape(request))}
        if shares != self.snapshot.set(f"pool:{self.pool}:in_share"):
            yield f"lanes in share of {self.pool}: {self.snapshot.set(f'pool:{self.pool}:in_share')}, but should be {shares}"

    def grantable(self) -> Iterator[str]:
        """Yield waiters that the rules allow to be granted."""
        owner = self.settings.get("patience")
        bound_after = self.queue_key(self.snapshot.requests[owner]) if owner else None
        if owner and self.blocker(shape(self.snapshot.requests[owner]), bound_by_hold=False) != "capacity":
            yield f"{owner} has a hold in {self.pool}, but it is not capacity that keeps it waiting"
        keys = {name: self.queue_key(request) for name, request in self.waiting.items()}
        for name, request in sorted(self.waiting.items(), key=lambda pair: keys[pair[0]]):
            bound_by_hold = bound_after is not None and keys[name] > bound_after
            blocker = self.blocker(shape(request), bound_by_hold=bound_by_hold)
            if not blocker:
                yield f"{request} could be granted in {self.pool}"
            if blocker == "capacity" and self.settings.get("queueing") == "strict":
                return
