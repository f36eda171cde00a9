"""A simple model of the rules, written from their words and not from the scripts: slow, small and obviously right.

It holds plain data (pools with their accounts, requests, who has a hold, the time) and answers what follows from it: accounts,
eligibility, the order of every queue, and who may be granted now. Nothing is remembered between two questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Amounts = Mapping[str, int]

METERED = {"mcpu", "memory_mb", "step_run"}
"""Unbounded in a pool that does not list them."""
BOUNDLESS = 2**53 - 1
LIVE = {"allocated", "preempting"}


@dataclass(frozen=True)
class Account:
    """A policy or a group: its own numbers and what is above it (None: the pool)."""

    name: str
    parent: str | None
    reserved: Amounts
    limit: Amounts
    priority: int = 0


@dataclass(frozen=True)
class Pool:
    """A pool with its accounts: `group:g`, `policy:type/name`."""

    name: str
    capacity: Amounts
    settings: Mapping[str, str]
    accounts: Mapping[str, Account]

    def policy(self, component: str) -> Account | None:
        """The component's policy."""
        return self.accounts.get(f"policy:{component}")

    def path(self, component: str) -> list[str]:
        """Names of the accounts a grant debits, the pool's last."""
        names, above = [], self.policy(component)
        while above:
            names.append(above.name)
            above = self.accounts[above.parent] if above.parent else None
        return [*names, "pool"]

    def total(self, key: str) -> int:
        """Its capacity of a key."""
        return self.capacity.get(key, BOUNDLESS if key in METERED else 0)

    def limit(self, account: str, key: str) -> int:
        """The limit that counts: one as large as the pool is none."""
        if account == "pool":
            return self.total(key)
        limit = self.accounts[account].limit.get(key, BOUNDLESS)
        return limit if limit < self.total(key) else BOUNDLESS

    def shared(self) -> set[str]:
        """The share keys."""
        return {key for account in self.accounts.values() for key, units in account.reserved.items() if units > 0}


@dataclass
class Request:
    """An ask and where it stands."""

    id: str
    component: str
    amounts: Amounts
    preemptible: bool
    rank: int
    number: int
    submitted_ms: int
    walltime_s: int | None = None
    status: str = ""
    pool: str = ""
    fence: int = 0
    granted_ms: int = 0

    @property
    def lane(self) -> str:
        """The shape it waits with."""
        text = ",".join(f"{key}={self.amounts[key]}" for key in sorted(self.amounts))
        return f"{self.component}|{'p' if self.preemptible else 'f'}|{text}"


@dataclass
class Model:
    """A workspace at one moment."""

    pools: dict[str, Pool]
    requests: dict[str, Request]
    holds: dict[str, str] = field(default_factory=dict)
    """pool → who has its hold of patience."""
    now_ms: int = 0
    unmanaged: str = "reject"

    # accounts

    def holders(self, pool: str) -> list[Request]:
        """Who holds units of a pool."""
        return [one for one in self.requests.values() if one.status in LIVE and one.pool == pool]

    def used(self, pool: str, *, fixed: bool = False) -> dict[str, Counter[str]]:
        """Account → key → units held, or only those held by work that is not preemptible."""
        sums: dict[str, Counter[str]] = {name: Counter() for name in ("pool", *self.pools[pool].accounts)}
        for one in self.holders(pool):
            if not (fixed and one.preemptible):
                for account in self.pools[pool].path(one.component):
                    sums[account].update(one.amounts)
        return sums

    # eligibility

    def preferred(self, component: str) -> list[str]:
        """The pools a component has a policy in, in the order in which they are tried."""
        found = [(policy.priority, name) for name, pool in self.pools.items() if (policy := pool.policy(component))]
        return [name for _, name in sorted(found, key=lambda pair: (-pair[0], pair[1]))]

    def refusals(self, pool: str, one: Request) -> list[tuple[str, str, int, int, str]]:
        """Each reason why the pool could never grant it: code, key, asked, bound, account. Those of one code are as good."""
        place = self.pools[pool]
        policy, found = place.policy(one.component), []
        assert policy
        for key, asked in one.amounts.items():
            if asked > place.total(key):
                code = "exceeds_capacity" if place.total(key) else "missing_key"
                found.append((code, key, asked, place.total(key), "pool"))
            for account in place.path(one.component)[:-1]:
                bound = place.accounts[account].limit.get(key, BOUNDLESS)
                if asked > bound:
                    found.append(("exceeds_limit", key, asked, bound, account))
            if not one.preemptible and key in place.capacity and asked > policy.reserved.get(key, 0):
                found.append(("exceeds_reserved", key, asked, policy.reserved.get(key, 0), policy.name))
        return found

    def eligible(self, one: Request) -> list[str]:
        """The pools that may ever grant it, in the order in which they are tried."""
        return [name for name in self.preferred(one.component) if not self.refusals(name, one)]

    # order

    def in_share(self, pool: str, one: Request) -> bool:
        """Whether it fits entirely into its policy's unused share: on every share key it asks, of which there must be one."""
        place = self.pools[pool]
        policy, keys = place.policy(one.component), place.shared() & set(one.amounts)
        assert policy
        taken = self.used(pool, fixed=not one.preemptible)[policy.name]
        return bool(keys) and all(one.amounts[key] <= policy.reserved.get(key, 0) - taken[key] for key in keys)

    def rank(self, pool: str, one: Request) -> tuple[int, int]:
        """The smaller the sooner."""
        policy = self.pools[pool].policy(one.component)
        assert policy
        rank = (-policy.priority, -one.rank)
        return rank if self.pools[pool].settings["discipline"] == "reserved" else rank[::-1]

    def order_key(self, pool: str, one: Request) -> tuple[object, ...]:
        """1. in share, 2. rank, 3. age, 4. id; `priority_first` swaps 1 and 2."""
        first, second = (0 if self.in_share(pool, one) else 1), self.rank(pool, one)
        if self.pools[pool].settings["order"] == "priority_first":
            return (second, first, one.number, one.id)
        return (first, second, one.number, one.id)

    def queue(self, pool: str) -> list[Request]:
        """Who waits for a pool, in order."""
        waiting = (one for one in self.requests.values() if one.status == "queued" and pool in self.eligible(one))
        return sorted(waiting, key=lambda one: self.order_key(pool, one))

    # who may be granted

    def rooms(self, pool: str, one: Request, against: Request | None = None) -> Iterator[tuple[str, str, int]]:
        """Account, key and what is left of it beyond the ask, less what is held for somebody whom it must not pass."""
        place, used = self.pools[pool], self.used(pool)
        kept = set(place.path(against.component)) if against else set()
        for account in place.path(one.component):
            for key, asked in one.amounts.items():
                held = against.amounts.get(key, 0) if against and account in kept else 0
                yield account, key, place.limit(account, key) - used[account][key] - held - asked

    def blocked(self, pool: str, one: Request) -> str:
        """What keeps it, holds apart: a limit (or its fixed share), else capacity, else nothing."""
        place = self.pools[pool]
        policy, short = place.policy(one.component), [name for name, _, left in self.rooms(pool, one) if left < 0]
        assert policy
        fixed = self.used(pool, fixed=True)[policy.name]
        listed = [] if one.preemptible else [key for key in one.amounts if key in place.capacity]
        if any(name != "pool" for name in short):
            return "limit"
        if any(fixed[key] + one.amounts[key] > policy.reserved.get(key, 0) for key in listed):
            return "limit"
        return "capacity" if short else ""

    def shadow_ms(self, pool: str, owner: Request) -> int | None:
        """When the owner of a hold can start at the latest if all promises are kept; None if nobody knows."""
        left = {(account, key): room for account, key, room in self.rooms(pool, owner)}
        promised = [one for one in self.holders(pool) if one.walltime_s]
        for one in sorted(promised, key=lambda one: (one.granted_ms + (one.walltime_s or 0) * 1000, one.id)):
            for account in self.pools[pool].path(one.component):
                for key, units in one.amounts.items():
                    if (account, key) in left:
                        left[account, key] += units
            if min(left.values()) >= 0:
                return max(self.now_ms, one.granted_ms + (one.walltime_s or 0) * 1000)
        return None

    def held_back(self, pool: str, one: Request) -> bool:
        """Whether the hold of patience keeps it: it stands behind the owner, needs what is held, and would not end in time."""
        if pool not in self.holds or self.holds[pool] == one.id:
            return False
        owner = self.requests[self.holds[pool]]
        if self.order_key(pool, one) < self.order_key(pool, owner):
            return False
        if all(left >= 0 for _, _, left in self.rooms(pool, one, owner)):
            return False
        shadow = self.shadow_ms(pool, owner) if one.walltime_s else None
        return shadow is None or self.now_ms + (one.walltime_s or 0) * 1000 > shadow

    def grantable(self, pool: str) -> list[Request]:
        """Who may be granted in a pool right now, in order."""
        found, strict = [], self.pools[pool].settings["queueing"] == "strict"
        for one in self.queue(pool):
            blocked = self.blocked(pool, one)
            if strict and blocked == "capacity":
                break
            if not blocked and not self.held_back(pool, one):
                found.append(one)
        return found
