"""The rules of preemption, written independently of the planner: slow, small and obviously right.

All values are derived from the allocations, the waiters and the holds at every question. Only the path of a component, and the
allocations and the use of an account, are remembered. Sets of victims are searched among all subsets: this is for small pools.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

from app.domain.plan_steps import Preempt, ReassignVictim, Reprieve, Trigger, Victim
from app.domain.snapshot import AccountSnapshot, Allocation, HoldSnapshot, PoolSnapshot, Waiter
from tests.properties.planner.costs import cost

METERED = {"mcpu", "memory_mb", "step_run"}
"""Unbounded in a pool that does not list them."""
BOUNDLESS = 2**53 - 1
CANDIDATES = 12
"""Over so many the search for the best set is exact."""

AccountKey = tuple[str, str]
"""An account and a key."""
Victims = Sequence[Allocation]


class Oracle:
    """Answers about one snapshot."""

    def __init__(self, snapshot: PoolSnapshot) -> None:
        self.snapshot, self.settings = snapshot, snapshot.settings
        self.share_keys = {
            key
            for name, account in snapshot.accounts.items()
            if name != "pool"
            for key, units in account.reserved.items()
            if units > 0
        }
        self.ranks_by_class = self.settings.discipline == "classes"
        self.is_priority_first = self.settings.order == "priority_first"
        self._cache: dict[tuple[str, ...], Any] = {}
        self._paths: dict[str, list[str]] = {}
        self._allocations: dict[str, list[Allocation]] = {}
        self._used: dict[tuple[str, str, bool, bool], int] = {}

    # accounts

    def path(self, request: Waiter | Allocation) -> list[str]:
        """Return the accounts that it debits, the pool's last."""
        if request.component not in self._paths:
            self._paths[request.component] = self._path(f"policy:{request.component}")
        return self._paths[request.component]

    def _path(self, policy: str) -> list[str]:
        names, above = [policy], self.snapshot.accounts[policy].parent
        while above is not None:
            names.append(above)
            above = self.snapshot.accounts[above].parent
        return names

    def policy(self, request: Waiter | Allocation) -> AccountSnapshot:
        return self.snapshot.accounts[self.path(request)[0]]

    def allocations_of(self, account: str) -> list[Allocation]:
        """Return the allocations that debit the account, in order of grant."""
        if account not in self._allocations:
            members = [request for request in self.snapshot.allocations if account in self.path(request)]
            self._allocations[account] = members
        return self._allocations[account]

    def used(self, account: str, key: str, *, fixed: bool = False, after_leaving: bool = False) -> int:
        """Return units in use; of non-preemptible work only; or as it will be when all victims have left."""
        question = (account, key, fixed, after_leaving)
        if question not in self._used:
            self._used[question] = sum(
                request.amounts.get(key, 0)
                for request in self.allocations_of(account)
                if not (fixed and request.preemptible) and not (after_leaving and request.leaving_for)
            )
        return self._used[question]

    def limit(self, account: str, key: str) -> int:
        """Return the effective limit; a limit as large as the pool is no bound."""
        total = self.snapshot.accounts["pool"].limit.get(key, BOUNDLESS if key in METERED else 0)
        if account == "pool":
            return total
        limit = self.snapshot.accounts[account].limit.get(key, BOUNDLESS)
        return limit if limit < total else BOUNDLESS

    def reserved(self, account: str, key: str) -> int:
        return self.snapshot.accounts[account].reserved.get(key, 0)

    # holds

    def hold(self, waiter: Waiter) -> HoldSnapshot | None:
        """Return the victim hold of the waiter, or None."""
        return next((hold for hold in self.snapshot.holds if hold.owner.id == waiter.id), None)

    def pending_units(self, hold: HoldSnapshot, account: str, key: str) -> int:
        """Return the units that the victims of a hold still have to free at an account."""
        return sum(
            request.amounts.get(key, 0) for request in self.allocations_of(account) if request.leaving_for == hold.owner.id
        )

    def kept_units(self, waiter: Waiter, account: str, key: str, *, after_leaving: bool = False) -> int:
        """Return the units of an account that other holds keep from the waiter; with `after_leaving`, after all victims have
        left."""
        total, binds = 0, True
        for hold in self.snapshot.holds:
            if hold.owner.id == waiter.id:
                binds = False
            elif account in self.path(hold.owner):
                units, pending = hold.owner.amounts.get(key, 0), self.pending_units(hold, account, key)
                freed = hold.freed_units.get(account, {}).get(key, 0)
                if binds:
                    total += units if after_leaving else max(0, units - pending)
                else:
                    total += min(units, freed + (pending if after_leaving else 0))
        return total

    def kept_fixed_units(self, waiter: Waiter, account: str, key: str) -> int:
        """Return the units of the fixed share that holds of other fixed work will take there."""
        total = 0
        for hold in self.snapshot.holds:
            if hold.owner.id == waiter.id:
                break
            if not hold.owner.preemptible and account in self.path(hold.owner):
                total += hold.owner.amounts.get(key, 0)
        return total

    # shortages of a waiter

    def shortages(self, waiter: Waiter) -> dict[AccountKey, int]:
        """Return the shortages of the waiter by account and key, with its hold and after all victims have left."""
        if ("short", waiter.id) not in self._cache:
            self._cache["short", waiter.id] = self._find_shortages(waiter)
        shortages: dict[AccountKey, int] = self._cache["short", waiter.id]
        return shortages

    def _find_shortages(self, waiter: Waiter) -> dict[AccountKey, int]:
        shortages = {}
        for account in self.path(waiter):
            for key, units in waiter.amounts.items():
                use = self.used(account, key, after_leaving=True) + self.kept_units(waiter, account, key, after_leaving=True)
                if (missing := use + units - self.limit(account, key)) > 0:
                    shortages[account, key] = missing
        return shortages

    def free_after_grant(self, waiter: Waiter) -> dict[AccountKey, int]:
        """Return the free units of each account of its path after a grant."""
        return {
            (account, key): self.limit(account, key) - self.used(account, key) - self.kept_units(waiter, account, key) - units
            for account in self.path(waiter)
            for key, units in waiter.amounts.items()
        }

    def blocked_by(self, waiter: Waiter) -> str:
        """Return the blocker: a limit (or the fixed share), else capacity, else ""."""
        short_accounts = {account for (account, _), left in self.free_after_grant(waiter).items() if left < 0}
        if short_accounts - {"pool"} or self.is_fixed_share_used_up(waiter):
            return "limit"
        return "capacity" if short_accounts else ""

    def is_fixed_share_used_up(self, waiter: Waiter) -> bool:
        """True if the request is not preemptible and does not fit into its policy's fixed share, with holds before it."""
        policy, listed = self.path(waiter)[0], self.snapshot.accounts["pool"].limit
        return not waiter.preemptible and any(
            self.used(policy, key, fixed=True) + self.kept_fixed_units(waiter, policy, key) + units > self.reserved(policy, key)
            for key, units in waiter.amounts.items()
            if key in listed
        )

    # shares

    def fits_unused_share(self, waiter: Waiter, account: str) -> bool:
        """True if it fits entirely into the unused share, on every share key that it asks, of which there is at least one."""
        keys = self.share_keys & set(waiter.amounts)
        return bool(keys) and all(waiter.amounts[key] <= self._unused(waiter, account, key) for key in keys)

    def _unused(self, waiter: Waiter, account: str, key: str) -> int:
        if not waiter.preemptible:
            return (
                self.reserved(account, key) - self.used(account, key, fixed=True) - self.kept_fixed_units(waiter, account, key)
            )
        return self.reserved(account, key) - self.used(account, key) - self.kept_units(waiter, account, key)

    def lies_within_reserved(self, waiter: Waiter, victims: Victims) -> bool:
        """True if it lies entirely within its policy's reserved once these, and all other victims, have left."""
        policy, keys = self.path(waiter)[0], self.share_keys & set(waiter.amounts)
        if not waiter.preemptible:
            return self.fits_unused_share(waiter, policy)
        return bool(keys) and all(
            self.used(policy, key, after_leaving=True)
            - sum(request.amounts.get(key, 0) for request in victims if policy in self.path(request))
            + self.kept_units(waiter, policy, key, after_leaving=True)
            + waiter.amounts[key]
            <= self.reserved(policy, key)
            for key in keys
        )

    def may_enter_share(self, waiter: Waiter) -> bool:
        """True if it would lie within its policy's reserved units if it were alone there."""
        policy, keys = self.path(waiter)[0], self.share_keys & set(waiter.amounts)
        return bool(keys) and all(waiter.amounts[key] <= self.reserved(policy, key) for key in keys)

    def borrowed_on(self, victim: Allocation, account: str, key: str) -> bool:
        """True if it lies at least partly beyond the account's reserved units."""
        return bool(victim.amounts.get(key)) and self.units_beyond(victim, account, key) > 0

    def units_beyond(self, victim: Allocation, account: str, key: str) -> int:
        """Return how far its upper end lies beyond the account's reserved, in the stack of allocations that are not leaving."""
        stack = [request for request in self.allocations_of(account) if request.leaving_for is None or request.id == victim.id]
        height = 0
        for request in sorted(stack, key=lambda request: self._stack_position(request, victim, account, key)):
            height += request.amounts.get(key, 0)
            if request.id == victim.id:
                break
        return height - self.reserved(account, key)

    def _stack_position(self, request: Allocation, victim: Allocation, account: str, key: str) -> tuple[int, int]:
        if not request.preemptible:
            return 0, request.fence
        policy = self.path(request)[0]
        if account == policy:
            return 2, request.fence
        beside = Oracle(self._without_leaving(victim)) if victim.leaving_for is not None else self
        return (2 if beside.borrowed_on(request, policy, key) else 1), request.fence

    def _without_leaving(self, victim: Allocation) -> PoolSnapshot:
        """Return the same pool as if the victim had not been preempted."""
        return with_leaving_for(self.snapshot, {victim.id}, None)

    def in_share(self, victim: Allocation, account: str) -> bool:
        """True if it is borrowed there on none of the share keys that it asks, of which there is at least one."""
        keys = self.share_keys & set(victim.amounts)
        return bool(keys) and not any(self.borrowed_on(victim, account, key) for key in keys)

    # the rules

    def protected(self, waiter: Waiter, victim: Allocation) -> bool:
        """True if the pool's settings or its own kind protect it from this waiter."""
        ran, settings = self.snapshot.now_ms - victim.granted_ms, self.settings
        if not victim.preemptible or victim.preemption_class == 10:
            return True
        if self.ranks_by_class and (self.policy(victim).profile == "sensitive"):
            return True
        if self.ranks_by_class and victim.checkpoint == "none" and victim.preemption_class >= 7:
            return True
        if victim.walltime_s is not None and 0 < victim.walltime_s * 1000 - ran < settings.near_completion_s * 1000:
            return True
        if ran < settings.min_runtime_s * 1000:
            return True
        return victim.chain is not None and victim.chain == waiter.chain

    def rank(self, request: Waiter | Allocation) -> tuple[int, int]:
        """Return the rank; the highest is served first."""
        rank = (self.policy(request).priority, request.preemption_class)
        return rank[::-1] if self.ranks_by_class else rank

    def outranks(self, waiter: Waiter, victim: Allocation) -> bool:
        """True if the waiter's rank is strictly higher; in `classes`, its class."""
        if self.ranks_by_class:
            return waiter.preemption_class > victim.preemption_class
        return self.rank(waiter) > self.rank(victim)

    def helps(self, waiter: Waiter, victim: Allocation) -> bool:
        """True if the victim holds units that the waiter lacks, at the account where it lacks them."""
        return any(account in self.path(victim) and victim.amounts.get(key) for account, key in self.shortages(waiter))

    def judged_accounts(self, request: Waiter | Allocation, other: Waiter | Allocation) -> set[str]:
        """Return the accounts at which shares are judged: the policy, and the child of the lowest common ancestor on its
        side."""
        path, common = self.path(request), set(self.path(other))
        if path[0] in common:
            return {path[0]}
        return {path[0], [account for account in path if account not in common][-1]}

    def is_borrowed(self, waiter: Waiter, victim: Allocation) -> bool:
        """True if the victim is borrowed for this waiter, at every account where that is judged."""
        short_keys = {key for account, key in self.shortages(waiter) if account in self.path(victim)}
        keys = {key for key in short_keys if victim.amounts.get(key)}
        return all(
            any(self.borrowed_on(victim, account, key) for key in keys & self.share_keys)
            or (bool(keys - self.share_keys) and not self.in_share(victim, account))
            for account in self.judged_accounts(victim, waiter)
        )

    def rules(self, waiter: Waiter, victim: Allocation) -> set[str]:
        """Return the rules that allow the preemption: reclaim, priority, own, own_fixed, own_within (if the whole set
        allows it)."""
        if ("rules", waiter.id, victim.id) not in self._cache:
            self._cache["rules", waiter.id, victim.id] = self._rules(waiter, victim)
        rules: set[str] = self._cache["rules", waiter.id, victim.id]
        return rules

    def _rules(self, waiter: Waiter, victim: Allocation) -> set[str]:
        if self.protected(waiter, victim) or not self.helps(waiter, victim) or self.is_fixed_share_used_up(waiter):
            return set()
        borrowed = self.is_borrowed(waiter, victim)
        service = self.ranks_by_class and self.policy(victim).profile == "service"
        if service and not borrowed:
            return set()
        own, rules = waiter.component == victim.component, set()
        fits_share = all(self.fits_unused_share(waiter, account) for account in self.judged_accounts(waiter, victim))
        if not own and borrowed and fits_share and (not self.is_priority_first or self.rank(victim) <= self.rank(waiter)):
            rules.add("reclaim")
        if self.ranks_by_class and waiter.preempted_fence is not None and victim.fence <= waiter.preempted_fence:
            return rules
        if own and not waiter.preemptible and self.fits_unused_share(waiter, self.path(waiter)[0]):
            rules |= {"own_fixed"} if self.rank(victim) <= self.rank(waiter) else set()
        if not self.outranks(waiter, victim):
            return rules
        if own and (borrowed or self.is_priority_first):
            return rules | {"own"}
        if own:
            return rules | ({"own_within"} if self.may_enter_share(waiter) else set())
        ignores_shares = self.is_priority_first or (self.ranks_by_class and waiter.preemption_class == 10)
        return rules | ({"priority"} if borrowed or ignores_shares else set())

    def trigger(self, waiter: Waiter, victim: Allocation) -> Trigger:
        """Return the trigger's name in events and metrics."""
        if waiter.preemption_class == 10:
            return Trigger.SENSITIVE
        return Trigger.RECLAIM if self.rules(waiter, victim) & {"reclaim", "own_fixed"} else Trigger.PRIORITY

    # cost

    def units(self, request: Waiter | Allocation) -> int:
        """Return the units of the cost key, at least one."""
        return max(1, request.amounts.get(self.settings.cost_key, 0))

    def cost(self, victim: Allocation) -> Fraction:
        """Return the cost of stopping the victim, in GPU-minutes; profiles belong to `classes`."""
        profile = self.policy(victim).profile if self.ranks_by_class else "batch"
        return cost(victim, self.units(victim), profile, self.snapshot.now_ms)

    def value(self, waiter: Waiter) -> Fraction | None:
        """Return the value of starting the waiter; None is no bound."""
        if not self.ranks_by_class or self.settings.value_per_class is None:
            return None
        return Fraction(self.settings.value_per_class * waiter.preemption_class * self.units(waiter))

    # sets of victims

    def candidates(self, waiter: Waiter) -> list[Allocation]:
        """Return its candidates in order."""
        running = [request for request in self.snapshot.allocations if request.leaving_for is None]
        return sorted((request for request in running if self.rules(waiter, request)), key=self._order)

    def _order(self, request: Allocation) -> tuple[object, ...]:
        if self.ranks_by_class:
            return self.cost(request), request.preemption_class, -request.fence, request.id
        return *self.rank(request), -request.fence, request.id

    def fits(self, waiter: Waiter, victims: Victims) -> bool:
        """True if the waiter lacks nothing after these have left as well."""
        return all(
            sum(request.amounts.get(key, 0) for request in victims if account in self.path(request)) >= lack
            for (account, key), lack in self.shortages(waiter).items()
        )

    def lawful(self, waiter: Waiter, victims: Victims) -> bool:
        """True if the rules allow to preempt all of these together; budgets are not judged."""
        rules = [self.rules(waiter, request) for request in victims]
        return all(rules) and ({"own_within"} not in rules or self.lies_within_reserved(waiter, victims))

    def affordable(self, waiter: Waiter, victims: Victims, max_victims: int | None) -> bool:
        """True if the number of victims and their cost are within their bounds."""
        value = self.value(waiter)
        cheap = value is None or sum((self.cost(request) for request in victims), Fraction(0)) < value
        return cheap and (max_victims is None or len(victims) <= max_victims)

    def victims_in_order(self, waiter: Waiter) -> tuple[Allocation, ...] | None:
        """Take in order until it fits, then give back in reverse every victim that is not needed."""
        victims: list[Allocation] = []
        for request in self.candidates(waiter):
            if self.fits(waiter, victims):
                break
            victims.append(request)
        if not self.fits(waiter, victims):
            return None
        for request in reversed(tuple(victims)):
            rest = [other for other in victims if other is not request]
            if self.fits(waiter, rest):
                victims = rest
        return tuple(victims)

    def allowed_sets(self, waiter: Waiter, max_victims: int | None) -> Iterator[tuple[Allocation, ...]]:
        """Yield every allowed set with which the waiter fits, best first except for cost: fewer victims, then candidate
        order."""
        first = self.candidates(waiter)[:CANDIDATES]
        sizes = range(1, len(first) + 1) if max_victims is None else range(1, min(max_victims, len(first)) + 1)
        for size in sizes:
            for victims in combinations(first, size):
                fits = self.fits(waiter, victims) and not self.superfluous(waiter, victims)
                if fits and self.lawful(waiter, victims) and self.affordable(waiter, victims, max_victims):
                    yield victims

    def best(self, waiter: Waiter, max_victims: int | None) -> tuple[Allocation, ...] | None:
        """Return the best set: fewer victims, then lower total cost, then the candidate order."""
        sets = list(self.allowed_sets(waiter, max_victims))
        return min(sets, key=lambda victims: (len(victims), sum(map(self.cost, victims))), default=None)

    def superfluous(self, waiter: Waiter, victims: Victims) -> list[Allocation]:
        """Return the victims without which it would fit all the same."""
        rests = ((request, [other for other in victims if other is not request]) for request in victims)
        return [request for request, rest in rests if self.fits(waiter, rest)]

    def choice(self, waiter: Waiter, max_victims: int | None) -> tuple[Allocation, ...] | None:
        """Return the set that must leave for the waiter; None if there is none."""
        plain = self.victims_in_order(waiter)
        if plain is not None and self.lawful(waiter, plain) and self.affordable(waiter, plain, max_victims):
            return plain
        return self.best(waiter, max_victims)

    def preempt_step(self, waiter: Waiter) -> Preempt | None:
        """Return the decision for one waiter, budgets included; None if it has to wait."""
        if not self.shortages(waiter) or self.is_fixed_share_used_up(waiter) or self.is_backing_off():
            return None
        victims = self.choice(waiter, self.max_victims())
        if not victims:
            return None
        return Preempt(
            waiter.id, tuple(Victim(request.id, request.fence, self.trigger(waiter, request)) for request in victims)
        )

    def max_victims(self) -> int | None:
        """Return the most victims of one decision now."""
        left = self.settings.max_preemptions_per_minute
        bounds = [self.settings.max_victims, None if left is None else max(0, left - self.snapshot.preemptions_last_minute)]
        return min((bound for bound in bounds if bound is not None), default=None)

    def is_backing_off(self) -> bool:
        """True if the last decision of this pool is too recent."""
        last_decision_ms = self.snapshot.last_decision_ms
        return last_decision_ms is not None and self.snapshot.now_ms < last_decision_ms + self.settings.backoff_s * 1000

    # a whole pass

    def queue(self) -> list[Waiter]:
        """Return all waiters, owners of holds too, in order: share, rank, age, id; `priority_first` swaps the first two."""
        return sorted((*self.snapshot.waiters, *(hold.owner for hold in self.snapshot.holds)), key=self._queue_key)

    def _queue_key(self, request: Waiter) -> tuple[object, ...]:
        policy, keys = self.path(request)[0], self.share_keys & set(request.amounts)
        unused = {key: self.reserved(policy, key) - self.used(policy, key, fixed=not request.preemptible) for key in keys}
        is_borrowing = 0 if keys and all(request.amounts[key] <= unused[key] for key in keys) else 1
        rank = tuple(-part for part in self.rank(request))
        first = (rank, is_borrowing) if self.is_priority_first else (is_borrowing, rank)
        return *first, request.submission_number, request.id

    def preemptors(self) -> Iterator[Waiter]:
        """Yield the waiters that may preempt: owners of holds that are short again, in their order, then the others in queue
        order.

        `strict`: none behind the first waiter that capacity blocks, except owners of holds.
        """
        yield from (hold.owner for hold in self.snapshot.holds)
        is_blocked = False
        for waiter in self.queue():
            if not is_blocked and not self.hold(waiter):
                yield waiter
            is_blocked = is_blocked or (self.settings.queueing == "strict" and self.blocked_by(waiter) == "capacity")

    def next_preemption(self, among: Callable[[Waiter], bool] = lambda _: True) -> Preempt | None:
        """Return the first decision in queue order."""
        steps = (self.preempt_step(waiter) for waiter in self.preemptors() if among(waiter))
        return next((step for step in steps if step), None)

    def next_orphan(self) -> ReassignVictim | Reprieve | None:
        """Return the step for the newest orphaned victim."""
        orphans = [request for request in self.snapshot.allocations if request.leaving_for == ""]
        for request in reversed(orphans):
            owners = (hold.owner for hold in self.snapshot.holds)
            owner = next((owner for owner in owners if self.may_take_over(owner, request)), None)
            return ReassignVictim(request.id, request.fence, owner.id) if owner else Reprieve(request.id, request.fence)
        return None

    def may_take_over(self, owner: Waiter, orphan: Allocation) -> bool:
        """True if its hold is short without the orphaned victim, which it may take."""
        rules = self.rules(owner, orphan)
        return bool(rules - {"own_within"}) or ("own_within" in rules and self.lies_within_reserved(owner, [orphan]))

    def unfillable_holds(self) -> list[Waiter]:
        """Return the owners of holds that are short and have no set of victims, however long they wait for budgets."""
        bounds = (self.settings.max_victims, self.settings.max_preemptions_per_minute)
        max_victims = min((bound for bound in bounds if bound is not None), default=None)
        owners = (hold.owner for hold in self.snapshot.holds)
        return [owner for owner in owners if self.shortages(owner) and not self.choice(owner, max_victims)]


def with_leaving_for(snapshot: PoolSnapshot, ids: Collection[str], leaving_for: str | None) -> PoolSnapshot:
    """Return the same pool with these leaving for a waiter, orphaned (empty) or not leaving (None)."""
    allocations = (
        replace(request, leaving_for=leaving_for) if request.id in ids else request for request in snapshot.allocations
    )
    return replace(snapshot, allocations=tuple(allocations))
