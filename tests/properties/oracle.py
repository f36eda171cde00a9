"""A model of the rules, written independently of the scripts: slow, small and obviously right.

It holds plain data (pools with their accounts, requests, holds, the time) and derives the accounts, the eligible pools, the
order of every queue, and the requests that may be granted now. Between two questions it remembers only the results in `Memory`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

Amounts = Mapping[str, int]

METERED = {"mcpu", "memory_mb", "step_run"}
"""Unbounded in a pool that does not list them."""
BOUNDLESS = 2**53 - 1
LIVE = {"allocated", "preempting"}
NO_OWNER = "-"
FOR_NONE = "!"
"""The beneficiary of a victim whose account is over a limit."""
WHOLE, TRIFLE = 10**12, 1000
"""The scale of a published share, and the part of it that counts as nothing."""

Place = tuple[str, str]
"""An account of a pool and a key."""


@dataclass(frozen=True)
class Account:
    """A policy or a group: its own numbers, and the account above it (None: the pool)."""

    name: str
    parent: str | None
    reserved: Amounts
    limit: Amounts
    priority: int = 0
    weight: int = 1
    fair: Amounts = field(default_factory=dict)
    """Of a policy: its fair share of each key as it was published, in parts of WHOLE; empty if none was."""
    sated: frozenset[str] = frozenset()
    """Keys on which that is all it wants."""
    settings: Mapping[str, str] = field(default_factory=dict)
    template: str = ""
    """The template of which a policy is an instance; empty if it is declared."""
    times: int = 1
    """Of a template: how often its reserved units count."""

    def promised(self) -> dict[str, int]:
        """Return the units that its parent reserves for it."""
        return {} if self.template else {key: units * self.times for key, units in self.reserved.items()}


@dataclass(frozen=True)
class Pool:
    """A pool with its accounts: `group:g`, `policy:type/name`."""

    name: str
    capacity: Amounts
    settings: Mapping[str, str]
    accounts: Mapping[str, Account]

    def policy(self, component: str) -> Account | None:
        """Return the component's policy."""
        return self.accounts.get(f"policy:{component}")

    def planned(self, component: str) -> Account | None:
        """Return the policy that the longest matching template would make; None if no template matches."""
        first = component.index("/") + 1
        patterns = (component[:last] + "*" for last in range(len(component), first - 1, -1))
        template = next(
            (self.accounts[f"policy:{pattern}"] for pattern in patterns if f"policy:{pattern}" in self.accounts), None
        )
        return template and replace(
            template, name=f"policy:{component}", template=template.name[7:], fair={}, sated=frozenset()
        )

    def path(self, component: str) -> list[str]:
        """Return the names of the accounts that a grant debits, the pool's last."""
        names, above = [], self.policy(component)
        while above:
            names.append(above.name)
            above = self.accounts[above.parent] if above.parent else None
        return [*names, "pool"]

    def total(self, key: str) -> int:
        """Return the capacity of a key."""
        return self.capacity.get(key, BOUNDLESS if key in METERED else 0)

    def limit(self, account: str, key: str) -> int:
        """Return the effective limit; a limit as large as the pool is no bound."""
        if account == "pool":
            return self.total(key)
        limit = self.accounts[account].limit.get(key, BOUNDLESS)
        return limit if limit < self.total(key) else BOUNDLESS

    def shared(self) -> set[str]:
        """Return the share keys."""
        return {key for account in self.accounts.values() for key, units in account.reserved.items() if units > 0}


@dataclass
class Request:
    """A request and its state."""

    id: str
    component: str
    amounts: Amounts
    preemptible: bool
    rank: int
    number: int
    submitted_ms: int
    walltime_s: int | None = None
    named_pools: tuple[str, ...] = ()
    """The pools that may grant it; empty is all."""
    status: str = ""
    pool: str = ""
    fence: int = 0
    granted_ms: int = 0
    retries: int = 3
    preemptions: int = 0
    failed: bool = False
    """True if it could not save its work in time before it left."""

    @cached_property
    def lane(self) -> str:
        """Return the lane in which it waits."""
        text = ",".join(f"{key}={self.amounts[key]}" for key in sorted(self.amounts))
        tail = f"|pools={','.join(self.named_pools)}" if self.named_pools else ""
        return f"{self.component}|{'p' if self.preemptible else 'f'}|{text}{tail}"


@dataclass
class Hold:
    """Capacity kept for a waiter that others leave for, or have left for."""

    owner: str
    number: int
    """Its place among the victim holds of its pool: the order of time."""
    freed_units: Counter[Place]
    """The units that its victims have freed, on the accounts of the owner's path."""


@dataclass
class Memory:
    """Answers of a model that stay true, as no request changes its lane and the pools of a model stay the same."""

    used: dict[tuple[object, ...], dict[str, Counter[str]]] = field(default_factory=dict)
    """Pool, kind and holders → what they use."""
    satisfaction: dict[tuple[object, ...], int] = field(default_factory=dict)
    """Pool, component and what it uses → its ratio."""
    eligible: dict[str, list[str]] = field(default_factory=dict)
    """Lane → pools."""


@dataclass
class Model:
    """A workspace at one moment."""

    pools: dict[str, Pool]
    requests: dict[str, Request]
    holds: dict[str, str] = field(default_factory=dict)
    """The owner of the patience hold, by pool."""
    now_ms: int = 0
    unmanaged: str = "reject"
    clearings: dict[str, dict[str, Hold]] = field(default_factory=dict)
    """pool → owner → its victim hold."""
    leaving: dict[str, dict[str, str]] = field(default_factory=dict)
    """pool → victim → the owner that it leaves for; NO_OWNER if no hold needs its units any more."""
    _memory: Memory = field(default_factory=Memory, init=False, repr=False, compare=False)

    # accounts

    def holders(self, pool: str) -> list[Request]:
        """Return the requests that hold units of a pool."""
        return [request for request in self.requests.values() if request.status in LIVE and request.pool == pool]

    def used(self, pool: str, *, fixed: bool = False) -> dict[str, Counter[str]]:
        """Return the held units by account and key, at will only of fixed work; a caller must not change them."""
        holders = self.holders(pool)
        key = (pool, fixed, *(request.id for request in holders))
        if key not in self._memory.used:
            self._memory.used[key] = self._sums(pool, [request for request in holders if not (fixed and request.preemptible)])
        return self._memory.used[key]

    def _sums(self, pool: str, holders: list[Request]) -> dict[str, Counter[str]]:
        sums: dict[str, Counter[str]] = {name: Counter() for name in ("pool", *self.pools[pool].accounts)}
        for request in holders:
            for account in self.pools[pool].path(request.component):
                sums[account].update(request.amounts)
        return sums

    # eligibility

    def with_planned(self, component: str) -> Model:
        """Return the model with the policies that templates would make for a component now."""
        pools = dict(self.pools)
        for name, pool in pools.items():
            own, planned = pool.policy(component), pool.planned(component)
            if planned and (not own or own.template):
                pools[name] = replace(pool, accounts={**pool.accounts, planned.name: planned})
        return replace(self, pools=pools)

    def preferred(self, component: str) -> list[str]:
        """Return the pools in which a component has a policy, in the order in which they are tried."""
        priorities = [(policy.priority, name) for name, pool in self.pools.items() if (policy := pool.policy(component))]
        return [name for _, name in sorted(priorities, key=lambda pair: (-pair[0], pair[1]))]

    def candidates(self, request: Request) -> list[str]:
        """Return the pools that a request allows, in the same order."""
        return [name for name in self.preferred(request.component) if name in (request.named_pools or self.pools)]

    def may_run_outside(self, request: Request) -> bool:
        """True if it is granted outside of all pools: its component has no policy, and it names no pools."""
        return self.unmanaged == "allow" and not request.named_pools and not self.preferred(request.component)

    def refusals(self, pool: str, request: Request) -> list[tuple[str, str, int, int, str]]:
        """Return the reasons why the pool could never grant it: code, key, amount, bound, account. Reasons of one code are
        equal."""
        place = self.pools.get(pool)
        policy, refusals = place.policy(request.component) if place else None, []
        if place is None or policy is None:
            return [("no_policy" if place else "unknown_pool", "-", 0, 0, "pool")]
        for key, units in request.amounts.items():
            if units > place.total(key):
                code = "exceeds_capacity" if place.total(key) else "missing_key"
                refusals.append((code, key, units, place.total(key), "pool"))
            for account in place.path(request.component)[:-1]:
                bound = place.accounts[account].limit.get(key, BOUNDLESS)
                if units > bound:
                    refusals.append(("exceeds_limit", key, units, bound, account))
            if not request.preemptible and key in place.capacity and units > policy.reserved.get(key, 0):
                refusals.append(("exceeds_reserved", key, units, policy.reserved.get(key, 0), policy.name))
        return refusals

    def eligible(self, request: Request) -> list[str]:
        """Return the pools that could ever grant it, in the order in which they are tried."""
        if request.lane not in self._memory.eligible:
            pools = [name for name in self.candidates(request) if not self.refusals(name, request)]
            self._memory.eligible[request.lane] = pools
        return self._memory.eligible[request.lane]

    # order

    def is_fair(self, pool: str) -> bool:
        """True if the pool's discipline is fair share."""
        return self.pools[pool].settings["discipline"] == "fair_share"

    def satisfaction(self, pool: str, component: str) -> int:
        """Return the satisfaction of a policy in billionths; BOUNDLESS if nothing is due to it."""
        policy = self.pools[pool].policy(component)
        assert policy
        used = self.used(pool)[policy.name]
        key = (pool, component, *used.items())
        if key not in self._memory.satisfaction:
            self._memory.satisfaction[key] = self._satisfaction_of(pool, policy, used)
        return self._memory.satisfaction[key]

    def _satisfaction_of(self, pool: str, policy: Account, used: Counter[str]) -> int:
        place = self.pools[pool]
        shares = {key: Fraction(used[key], total) for key, total in place.capacity.items()}
        if not policy.fair:
            return int(max(shares.values(), default=Fraction(0)) / policy.weight * 10**9)
        parts: dict[str, Fraction] = {}
        beyond: list[Fraction] = []
        for key, due in policy.fair.items():
            has = shares.get(key, Fraction(0)) * WHOLE
            if due > TRIFLE:
                parts[key] = has / due
            if has > due + TRIFLE:
                beyond.append(has / due if due else Fraction(BOUNDLESS))
        if not parts:
            return BOUNDLESS
        unsated_parts = [part for key, part in parts.items() if key not in policy.sated]
        ratio = max(beyond) if beyond else min(parts.values())
        if not beyond and policy.fair.keys() - policy.sated:
            ratio = max(unsated_parts, default=Fraction(0))
        return min(BOUNDLESS, int(ratio * 10**9))

    def in_share(self, pool: str, request: Request) -> bool:
        """True if it fits entirely into its policy's unused share: on every share key that it asks, of which there is at
        least one."""
        place = self.pools[pool]
        policy, keys = place.policy(request.component), place.shared() & set(request.amounts)
        assert policy
        taken = self.used(pool, fixed=not request.preemptible)[policy.name]
        return bool(keys) and all(request.amounts[key] <= policy.reserved.get(key, 0) - taken[key] for key in keys)

    def rank(self, pool: str, request: Request) -> tuple[int, int]:
        """Return the rank; the smallest is served first."""
        policy = self.pools[pool].policy(request.component)
        assert policy
        rank = (-policy.priority, -request.rank)
        return rank if self.pools[pool].settings["discipline"] == "reserved" else rank[::-1]

    def order_key(self, pool: str, request: Request) -> tuple[object, ...]:
        """Return the sort key: 1. in share, 2. rank, 3. age, 4. id; `priority_first` swaps 1 and 2. With fair share: 1. the
        least satisfied policy, 2. class.
        """
        if self.is_fair(pool):
            return (self.satisfaction(pool, request.component), -request.rank, request.number, request.id)
        first, second = (0 if self.in_share(pool, request) else 1), self.rank(pool, request)
        if self.pools[pool].settings["order"] == "priority_first":
            return (second, first, request.number, request.id)
        return (first, second, request.number, request.id)

    def queue(self, pool: str) -> list[Request]:
        """Return the waiters of a pool, in order."""
        waiting = (
            request for request in self.requests.values() if request.status == "queued" and pool in self.eligible(request)
        )
        return sorted(waiting, key=lambda request: self.order_key(pool, request))

    # victim holds

    def hold(self, pool: str, request: Request) -> Hold | None:
        """Return the victim hold of a request in a pool, or None."""
        return self.clearings.get(pool, {}).get(request.id)

    def shared_path(self, pool: str, owner: str, other: str) -> list[str]:
        """Return the accounts that two components have in common."""
        other_path = self.pools[pool].path(other)
        return [account for account in self.pools[pool].path(owner) if account in other_path]

    def brings(self, pool: str, owner: Request, request: Request) -> Counter[Place]:
        """Return the units that a victim frees for an owner: those of the common accounts and keys."""
        keys = owner.amounts.keys() & request.amounts.keys()
        shared = self.shared_path(pool, owner.component, request.component)
        return Counter({(account, key): request.amounts[key] for account in shared for key in keys})

    def coming(self, pool: str, hold: Hold) -> Counter[Place]:
        """Return the units that victims still free for the owner of a hold."""
        owner, sums = self.requests[hold.owner], Counter[Place]()
        for id_, beneficiary in self.leaving.get(pool, {}).items():
            if beneficiary == hold.owner:
                sums.update(self.brings(pool, owner, self.requests[id_]))
        return sums

    def hold_units(self, pool: str, hold: Hold) -> Counter[Place]:
        """Return the units that a hold keeps now, on every account of its owner's path."""
        owner, coming = self.requests[hold.owner], self.coming(pool, hold)
        accounts = self.pools[pool].path(owner.component)
        return +Counter({(account, key): n - coming[account, key] for account in accounts for key, n in owner.amounts.items()})

    def cleared(self, pool: str) -> Counter[Place]:
        """Return the units that all victim holds of a pool keep together."""
        return sum((self.hold_units(pool, hold) for hold in self.clearings.get(pool, {}).values()), Counter[Place]())

    def bound(self, pool: str, request: Request) -> Counter[Place]:
        """Return the units that victim holds keep from a request: all, for a request without a hold. An owner loses
        nothing to its own hold, and to a later hold no more than its victims have freed.
        """
        own, sums = self.hold(pool, request), Counter[Place]()
        for hold in self.clearings.get(pool, {}).values():
            if not own or hold.number < own.number:
                sums.update(self.hold_units(pool, hold))
            elif hold.number > own.number:
                sums.update(self.hold_units(pool, hold) & hold.freed_units)
        return sums

    def will_lack(self, pool: str, request: Request) -> Iterator[Place]:
        """Yield account and key of the units that an owner will lack after all of its victims have left: earlier holds are
        full by then, later holds have the units that their victims have freed.
        """
        own, place = self.hold(pool, request), self.pools[pool]
        left = {account: Counter(units) for account, units in self.used(pool).items()}
        for id_, beneficiary in self.leaving.get(pool, {}).items():
            for account in place.path(self.requests[id_].component) if beneficiary != NO_OWNER else []:
                left[account].subtract(self.requests[id_].amounts)
        for hold in self.clearings.get(pool, {}).values():
            if hold is not own:
                owner = self.requests[hold.owner]
                later, bring = own and hold.number > own.number, hold.freed_units + self.coming(pool, hold)
                for account in place.path(owner.component):
                    for key, units in owner.amounts.items():
                        left[account][key] += min(units, bring[account, key]) if later else units
        for account in place.path(request.component):
            for key, units in request.amounts.items():
                if place.limit(account, key) - left[account][key] < units:
                    yield account, key

    # the requests that may be granted

    def rooms(self, pool: str, request: Request, held_units: Counter[Place] | None = None) -> Iterator[tuple[str, str, int]]:
        """Yield account, key and the free units after this request, less those that are held."""
        place, used = self.pools[pool], self.used(pool)
        for account in place.path(request.component):
            for key, units in request.amounts.items():
                held_amount = held_units[account, key] if held_units else 0
                yield account, key, place.limit(account, key) - used[account][key] - held_amount - units

    def blocked(self, pool: str, request: Request) -> str:
        """Return the blocker, apart from holds: a limit (or the fixed share), else capacity, else ""."""
        place = self.pools[pool]
        policy, short = place.policy(request.component), [name for name, _, left in self.rooms(pool, request) if left < 0]
        assert policy
        fixed = self.used(pool, fixed=True)[policy.name]
        listed = [] if request.preemptible else [key for key in request.amounts if key in place.capacity]
        if any(name != "pool" for name in short):
            return "limit"
        if any(fixed[key] + request.amounts[key] > policy.reserved.get(key, 0) for key in listed):
            return "limit"
        return "capacity" if short else ""

    def shadow_ms(self, pool: str, owner: Request) -> int | None:
        """Return the latest start of the owner of a hold if all promises are kept; None if it is unknown."""
        left = {(account, key): room for account, key, room in self.rooms(pool, owner)}
        promised = [request for request in self.holders(pool) if request.walltime_s]
        for request in sorted(
            promised, key=lambda request: (request.granted_ms + (request.walltime_s or 0) * 1000, request.id)
        ):
            for account in self.pools[pool].path(request.component):
                for key, units in request.amounts.items():
                    if (account, key) in left:
                        left[account, key] += units
            if min(left.values()) >= 0:
                return max(self.now_ms, request.granted_ms + (request.walltime_s or 0) * 1000)
        return None

    def cleared_away(self, pool: str, request: Request) -> set[str]:
        """Return the accounts of its path at which victim holds, or used units, block it."""
        return {account for account, _, left in self.rooms(pool, request, self.bound(pool, request)) if left < 0}

    def held_back(self, pool: str, request: Request) -> bool:
        """True if a hold blocks it: one with victims that binds it; or the patience hold, if the request is behind its owner,
        has no victim hold, needs held units, and would not end in time.
        """
        if self.cleared_away(pool, request):
            return True
        if pool not in self.holds or self.holds[pool] == request.id or self.hold(pool, request):
            return False
        owner = self.requests[self.holds[pool]]
        if self.order_key(pool, request) < self.order_key(pool, owner):
            return False
        path = self.pools[pool].path(owner.component)
        own = Counter({(account, key): units for account in path for key, units in owner.amounts.items()})
        if all(left >= 0 for _, _, left in self.rooms(pool, request, self.bound(pool, request) + own)):
            return False
        shadow = self.shadow_ms(pool, owner) if request.walltime_s else None
        return shadow is None or self.now_ms + (request.walltime_s or 0) * 1000 > shadow

    def by_capacity(self, pool: str, request: Request, *, doubt: bool = True) -> bool:
        """True if it lacks capacity: the pool's free units, less those kept for owners of victim holds. If these block
        it at another account of its path too, that counts as a limit or not: in doubt as the argument says.
        """
        short = self.cleared_away(pool, request)
        if self.blocked(pool, request) == "limit" or "pool" not in short:
            return False
        return doubt or short == {"pool"}

    def grantable(self, pool: str, *, doubt: bool = True) -> list[Request]:
        """Return the requests that may be granted in a pool now, in order; with `doubt` none passes a doubtful one of
        `by_capacity`."""
        requests, strict, line = list[Request](), self.pools[pool].settings["queueing"] == "strict", False
        for request in self.queue(pool):
            if line and not self.hold(pool, request):
                continue
            if not self.blocked(pool, request) and not self.held_back(pool, request):
                requests.append(request)
            line = line or (strict and self.by_capacity(pool, request, doubt=doubt))
        return requests
