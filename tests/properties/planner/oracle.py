"""Who may be preempted for whom, written from the words of the rules and not from the planner: slow, small and obviously right.

Everything is derived anew from the allocations, the waiters and the holds at every question. Sets of victims are looked for
among all subsets, so this is for small worlds.
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

    # accounts

    def path(self, one: Waiter | Allocation) -> list[str]:
        """The accounts that it debits, the pool's last."""
        names, above = list[str](), self.snapshot.accounts[f"policy:{one.component}"].parent
        names.append(f"policy:{one.component}")
        while above is not None:
            names.append(above)
            above = self.snapshot.accounts[above].parent
        return names

    def policy(self, one: Waiter | Allocation) -> AccountSnapshot:
        """Its policy."""
        return self.snapshot.accounts[self.path(one)[0]]

    def allocations_of(self, account: str) -> list[Allocation]:
        """The allocations that debit it, in order of grant."""
        return [one for one in self.snapshot.allocations if account in self.path(one)]

    def used(self, account: str, key: str, *, fixed: bool = False, then: bool = False) -> int:
        """Units in use; of fixed work only; or as it will be when all who leave for somebody have left."""
        return sum(
            one.amounts.get(key, 0)
            for one in self.allocations_of(account)
            if not (fixed and one.preemptible) and not (then and one.leaving_for)
        )

    def limit(self, account: str, key: str) -> int:
        """The limit that counts; one as large as the pool is none."""
        total = self.snapshot.accounts["pool"].limit.get(key, BOUNDLESS if key in METERED else 0)
        if account == "pool":
            return total
        limit = self.snapshot.accounts[account].limit.get(key, BOUNDLESS)
        return limit if limit < total else BOUNDLESS

    def reserved(self, account: str, key: str) -> int:
        """Its reserved of a key."""
        return self.snapshot.accounts[account].reserved.get(key, 0)

    # holds

    def hold(self, waiter: Waiter) -> HoldSnapshot | None:
        """Its hold with victims."""
        return next((hold for hold in self.snapshot.holds if hold.owner.id == waiter.id), None)

    def pending_units(self, hold: HoldSnapshot, account: str, key: str) -> int:
        """What those who are leaving for its owner will bring there."""
        return sum(one.amounts.get(key, 0) for one in self.allocations_of(account) if one.leaving_for == hold.owner.id)

    def kept_units(self, waiter: Waiter, account: str, key: str, *, then: bool = False) -> int:
        """What the holds of others keep from it there; then: when all who leave for somebody have left."""
        total, binds = 0, True
        for hold in self.snapshot.holds:
            if hold.owner.id == waiter.id:
                binds = False
            elif account in self.path(hold.owner):
                asked, coming = hold.owner.amounts.get(key, 0), self.pending_units(hold, account, key)
                brought = hold.freed_units.get(account, {}).get(key, 0)
                if binds:
                    total += asked if then else max(0, asked - coming)
                else:
                    total += min(asked, brought + (coming if then else 0))
        return total

    def kept_fixed_units(self, waiter: Waiter, account: str, key: str) -> int:
        """What the holds of fixed work will take of the fixed share there, before it or beside it."""
        total = 0
        for hold in self.snapshot.holds:
            if hold.owner.id == waiter.id:
                break
            if not hold.owner.preemptible and account in self.path(hold.owner):
                total += hold.owner.amounts.get(key, 0)
        return total

    # what a waiter lacks

    def shortages(self, waiter: Waiter) -> dict[AccountKey, int]:
        """What it lacks where, once it has its hold and all who leave for somebody have left."""
        if ("short", waiter.id) not in self._cache:
            self._cache["short", waiter.id] = self._find_shortages(waiter)
        known: dict[AccountKey, int] = self._cache["short", waiter.id]
        return known

    def _find_shortages(self, waiter: Waiter) -> dict[AccountKey, int]:
        found = {}
        for account in self.path(waiter):
            for key, asked in waiter.amounts.items():
                use = self.used(account, key, then=True) + self.kept_units(waiter, account, key, then=True)
                if (lack := use + asked - self.limit(account, key)) > 0:
                    found[account, key] = lack
        return found

    def free_after_grant(self, waiter: Waiter) -> dict[AccountKey, int]:
        """What is left of each account of its path if it were granted now."""
        return {
            (account, key): self.limit(account, key) - self.used(account, key) - self.kept_units(waiter, account, key) - asked
            for account in self.path(waiter)
            for key, asked in waiter.amounts.items()
        }

    def blocked_by(self, waiter: Waiter) -> str:
        """What keeps it now: a limit (or its fixed share), else capacity, else nothing."""
        lacking = {account for (account, _), left in self.free_after_grant(waiter).items() if left < 0}
        if lacking - {"pool"} or self.is_fixed_share_used_up(waiter):
            return "limit"
        return "capacity" if lacking else ""

    def is_fixed_share_used_up(self, waiter: Waiter) -> bool:
        """Whether it is not preemptible and its policy's fixed share does not reach for it, holds before it included."""
        policy, listed = self.path(waiter)[0], self.snapshot.accounts["pool"].limit
        return not waiter.preemptible and any(
            self.used(policy, key, fixed=True) + self.kept_fixed_units(waiter, policy, key) + asked > self.reserved(policy, key)
            for key, asked in waiter.amounts.items()
            if key in listed
        )

    # shares

    def fits_unused_share(self, waiter: Waiter, account: str) -> bool:
        """Whether it fits entirely into the unused share, on every share key it asks, of which there must be one."""
        asked = self.share_keys & set(waiter.amounts)
        return bool(asked) and all(waiter.amounts[key] <= self._unused(waiter, account, key) for key in asked)

    def _unused(self, waiter: Waiter, account: str, key: str) -> int:
        if not waiter.preemptible:
            return self.reserved(account, key) - self.used(account, key, fixed=True) - self.kept_fixed_units(waiter, account, key)
        return self.reserved(account, key) - self.used(account, key) - self.kept_units(waiter, account, key)

    def lies_within_reserved(self, waiter: Waiter, victims: Victims) -> bool:
        """Whether it lies entirely within its policy's reserved once these, and all who leave already, have left."""
        policy, asked = self.path(waiter)[0], self.share_keys & set(waiter.amounts)
        if not waiter.preemptible:
            return self.fits_unused_share(waiter, policy)
        return bool(asked) and all(
            self.used(policy, key, then=True)
            - sum(one.amounts.get(key, 0) for one in victims if policy in self.path(one))
            + self.kept_units(waiter, policy, key, then=True)
            + waiter.amounts[key]
            <= self.reserved(policy, key)
            for key in asked
        )

    def may_enter_share(self, waiter: Waiter) -> bool:
        """Whether it would lie within its policy's reserved if it were alone there."""
        policy, asked = self.path(waiter)[0], self.share_keys & set(waiter.amounts)
        return bool(asked) and all(waiter.amounts[key] <= self.reserved(policy, key) for key in asked)

    def borrowed_on(self, victim: Allocation, account: str, key: str) -> bool:
        """Whether it lies at least partly beyond the account's reserved."""
        return bool(victim.amounts.get(key)) and self.units_beyond(victim, account, key) > 0

    def units_beyond(self, victim: Allocation, account: str, key: str) -> int:
        """How far its upper end lies beyond the account's reserved, in the stack of those who are not leaving."""
        stack = [one for one in self.allocations_of(account) if one.leaving_for is None or one.id == victim.id]
        height = 0
        for one in sorted(stack, key=lambda one: self._stack_position(one, victim, account, key)):
            height += one.amounts.get(key, 0)
            if one.id == victim.id:
                break
        return height - self.reserved(account, key)

    def _stack_position(self, one: Allocation, victim: Allocation, account: str, key: str) -> tuple[int, int]:
        if not one.preemptible:
            return 0, one.fence
        policy = self.path(one)[0]
        if account == policy:
            return 2, one.fence
        beside = Oracle(self._without_leaving(victim)) if victim.leaving_for is not None else self
        return (2 if beside.borrowed_on(one, policy, key) else 1), one.fence

    def _without_leaving(self, victim: Allocation) -> PoolSnapshot:
        """The same, had the victim not been told to leave."""
        return with_leaving_for(self.snapshot, {victim.id}, None)

    def in_share(self, victim: Allocation, account: str) -> bool:
        """Whether it is borrowed there on none of the share keys it asks, of which there must be one."""
        asked = self.share_keys & set(victim.amounts)
        return bool(asked) and not any(self.borrowed_on(victim, account, key) for key in asked)

    # the rules

    def protected(self, waiter: Waiter, victim: Allocation) -> bool:
        """Whether the pool's settings or its own nature keep it from being a victim of this one."""
        ran, terms = self.snapshot.now_ms - victim.granted_ms, self.settings
        if not victim.preemptible or victim.preemption_class == 10:
            return True
        if self.ranks_by_class and (self.policy(victim).profile == "sensitive"):
            return True
        if self.ranks_by_class and victim.checkpoint == "none" and victim.preemption_class >= 7:
            return True
        if victim.walltime_s is not None and 0 < victim.walltime_s * 1000 - ran < terms.near_completion_s * 1000:
            return True
        if ran < terms.min_runtime_s * 1000:
            return True
        return victim.chain is not None and victim.chain == waiter.chain

    def rank(self, one: Waiter | Allocation) -> tuple[int, int]:
        """The higher the more."""
        rank = (self.policy(one).priority, one.preemption_class)
        return rank[::-1] if self.ranks_by_class else rank

    def outranks(self, waiter: Waiter, victim: Allocation) -> bool:
        """Whether its rank is strictly higher; in `classes`, its class."""
        if self.ranks_by_class:
            return waiter.preemption_class > victim.preemption_class
        return self.rank(waiter) > self.rank(victim)

    def helps(self, waiter: Waiter, victim: Allocation) -> bool:
        """Whether it holds something that the waiter lacks where it is lacking."""
        return any(account in self.path(victim) and victim.amounts.get(key) for account, key in self.shortages(waiter))

    def judged_accounts(self, one: Waiter | Allocation, other: Waiter | Allocation) -> set[str]:
        """The accounts at which shares are judged: its policy, and the child of the lowest common ancestor on its side."""
        mine, common = self.path(one), set(self.path(other))
        if mine[0] in common:
            return {mine[0]}
        return {mine[0], [account for account in mine if account not in common][-1]}

    def is_borrowed(self, waiter: Waiter, victim: Allocation) -> bool:
        """Whether it is borrowed, seen from this waiter, at every account where that is judged."""
        lacking = {key for account, key in self.shortages(waiter) if account in self.path(victim)}
        held = {key for key in lacking if victim.amounts.get(key)}
        return all(
            any(self.borrowed_on(victim, account, key) for key in held & self.share_keys)
            or (bool(held - self.share_keys) and not self.in_share(victim, account))
            for account in self.judged_accounts(victim, waiter)
        )

    def rules(self, waiter: Waiter, victim: Allocation) -> set[str]:
        """The rules by which it may be taken: reclaim, priority, own, own_fixed, own_within (if the whole set allows it)."""
        if ("rules", waiter.id, victim.id) not in self._cache:
            self._cache["rules", waiter.id, victim.id] = self._rules(waiter, victim)
        known: set[str] = self._cache["rules", waiter.id, victim.id]
        return known

    def _rules(self, waiter: Waiter, victim: Allocation) -> set[str]:
        if self.protected(waiter, victim) or not self.helps(waiter, victim) or self.is_fixed_share_used_up(waiter):
            return set()
        borrowed = self.is_borrowed(waiter, victim)
        service = self.ranks_by_class and self.policy(victim).profile == "service"
        if service and not borrowed:
            return set()
        own, found = waiter.component == victim.component, set()
        owner = all(self.fits_unused_share(waiter, account) for account in self.judged_accounts(waiter, victim))
        if not own and borrowed and owner and (not self.is_priority_first or self.rank(victim) <= self.rank(waiter)):
            found.add("reclaim")
        if self.ranks_by_class and waiter.preempted_fence is not None and victim.fence <= waiter.preempted_fence:
            return found
        if own and not waiter.preemptible and self.fits_unused_share(waiter, self.path(waiter)[0]):
            found |= {"own_fixed"} if self.rank(victim) <= self.rank(waiter) else set()
        if not self.outranks(waiter, victim):
            return found
        if own and (borrowed or self.is_priority_first):
            return found | {"own"}
        if own:
            return found | ({"own_within"} if self.may_enter_share(waiter) else set())
        whatever = self.is_priority_first or (self.ranks_by_class and waiter.preemption_class == 10)
        return found | ({"priority"} if borrowed or whatever else set())

    def trigger(self, waiter: Waiter, victim: Allocation) -> Trigger:
        """Its name in events and metrics."""
        if waiter.preemption_class == 10:
            return Trigger.SENSITIVE
        return Trigger.RECLAIM if self.rules(waiter, victim) & {"reclaim", "own_fixed"} else Trigger.PRIORITY

    # cost

    def units(self, one: Waiter | Allocation) -> int:
        """Units of the cost key, at least one."""
        return max(1, one.amounts.get(self.settings.cost_key, 0))

    def cost(self, victim: Allocation) -> Fraction:
        """What it costs to stop it, in GPU-minutes; profiles are of `classes`."""
        profile = self.policy(victim).profile if self.ranks_by_class else "batch"
        return cost(victim, self.units(victim), profile, self.snapshot.now_ms)

    def value(self, waiter: Waiter) -> Fraction | None:
        """What it is worth to start the waiter; None is no bound."""
        if not self.ranks_by_class or self.settings.value_per_class is None:
            return None
        return Fraction(self.settings.value_per_class * waiter.preemption_class * self.units(waiter))

    # sets of victims

    def candidates(self, waiter: Waiter) -> list[Allocation]:
        """Those that may be taken, the first to go first."""
        running = [one for one in self.snapshot.allocations if one.leaving_for is None]
        return sorted((one for one in running if self.rules(waiter, one)), key=self._order)

    def _order(self, one: Allocation) -> tuple[object, ...]:
        if self.ranks_by_class:
            return self.cost(one), one.preemption_class, -one.fence, one.id
        return *self.rank(one), -one.fence, one.id

    def fits(self, waiter: Waiter, victims: Victims) -> bool:
        """Whether it lacks nothing once these have left as well."""
        return all(
            sum(one.amounts.get(key, 0) for one in victims if account in self.path(one)) >= lack
            for (account, key), lack in self.shortages(waiter).items()
        )

    def lawful(self, waiter: Waiter, victims: Victims) -> bool:
        """Whether the rules allow to take all of these together; budgets apart."""
        rules = [self.rules(waiter, one) for one in victims]
        return all(rules) and ({"own_within"} not in rules or self.lies_within_reserved(waiter, victims))

    def affordable(self, waiter: Waiter, victims: Victims, most: int | None) -> bool:
        """Whether the number of victims and their cost are within their bounds."""
        value = self.value(waiter)
        cheap = value is None or sum((self.cost(one) for one in victims), Fraction(0)) < value
        return cheap and (most is None or len(victims) <= most)

    def victims_in_order(self, waiter: Waiter) -> tuple[Allocation, ...] | None:
        """Take in order until it fits, then give back in reverse every one that is not needed."""
        taken: list[Allocation] = []
        for one in self.candidates(waiter):
            if self.fits(waiter, taken):
                break
            taken.append(one)
        if not self.fits(waiter, taken):
            return None
        for one in reversed(tuple(taken)):
            rest = [other for other in taken if other is not one]
            if self.fits(waiter, rest):
                taken = rest
        return tuple(taken)

    def allowed_sets(self, waiter: Waiter, most: int | None) -> Iterator[tuple[Allocation, ...]]:
        """Every set that is allowed and makes it fit, the best first but for cost: fewer victims, candidate order."""
        first = self.candidates(waiter)[:CANDIDATES]
        sizes = range(1, len(first) + 1) if most is None else range(1, min(most, len(first)) + 1)
        for size in sizes:
            for chosen in combinations(first, size):
                fits = self.fits(waiter, chosen) and not self.superfluous(waiter, chosen)
                if fits and self.lawful(waiter, chosen) and self.affordable(waiter, chosen, most):
                    yield chosen

    def best(self, waiter: Waiter, most: int | None) -> tuple[Allocation, ...] | None:
        """Fewer victims, then lower total cost, then the candidate order."""
        found = list(self.allowed_sets(waiter, most))
        return min(found, key=lambda chosen: (len(chosen), sum(map(self.cost, chosen))), default=None)

    def superfluous(self, waiter: Waiter, victims: Victims) -> list[Allocation]:
        """Those without whom it would fit all the same."""
        rests = ((one, [other for other in victims if other is not one]) for one in victims)
        return [one for one, rest in rests if self.fits(waiter, rest)]

    def choice(self, waiter: Waiter, most: int | None) -> tuple[Allocation, ...] | None:
        """The set that has to leave for it; None if there is none."""
        plain = self.victims_in_order(waiter)
        if plain is not None and self.lawful(waiter, plain) and self.affordable(waiter, plain, most):
            return plain
        return self.best(waiter, most)

    def preempt_step(self, waiter: Waiter) -> Preempt | None:
        """The decision for one waiter, budgets included; None: it has to wait, or its way is being cleared."""
        if not self.shortages(waiter) or self.is_fixed_share_used_up(waiter) or self.is_backing_off():
            return None
        chosen = self.choice(waiter, self.max_victims())
        if not chosen:
            return None
        return Preempt(waiter.id, tuple(Victim(one.id, one.fence, self.trigger(waiter, one)) for one in chosen))

    def max_victims(self) -> int | None:
        """How many may be stopped by one decision now."""
        left = self.settings.max_preemptions_per_minute
        bounds = [self.settings.max_victims, None if left is None else max(0, left - self.snapshot.preemptions_last_minute)]
        return min((bound for bound in bounds if bound is not None), default=None)

    def is_backing_off(self) -> bool:
        """Whether the last decision of this pool is too recent."""
        decided = self.snapshot.last_decision_ms
        return decided is not None and self.snapshot.now_ms < decided + self.settings.backoff_s * 1000

    # a whole pass

    def queue(self) -> list[Waiter]:
        """Everybody who waits, owners of holds too, in order: share, rank, age, id; `priority_first` swaps the first two."""
        return sorted((*self.snapshot.waiters, *(hold.owner for hold in self.snapshot.holds)), key=self._queue_key)

    def _queue_key(self, one: Waiter) -> tuple[object, ...]:
        policy, asked = self.path(one)[0], self.share_keys & set(one.amounts)
        unused = {key: self.reserved(policy, key) - self.used(policy, key, fixed=not one.preemptible) for key in asked}
        band = 0 if asked and all(one.amounts[key] <= unused[key] for key in asked) else 1
        rank = tuple(-part for part in self.rank(one))
        first = (rank, band) if self.is_priority_first else (band, rank)
        return *first, one.submission_number, one.id

    def preemptors(self) -> Iterator[Waiter]:
        """Who may ask: owners of holds that are short again, in their order, then the others in queue order.

        `strict`: nobody asks behind the first one that is blocked by capacity, but for owners of holds.
        """
        yield from (hold.owner for hold in self.snapshot.holds)
        barred = False
        for waiter in self.queue():
            if not barred and not self.hold(waiter):
                yield waiter
            barred = barred or (self.settings.queueing == "strict" and self.blocked_by(waiter) == "capacity")

    def next_preemption(self, among: Callable[[Waiter], bool] = lambda _: True) -> Preempt | None:
        """The first decision in queue order."""
        stops = (self.preempt_step(waiter) for waiter in self.preemptors() if among(waiter))
        return next((stop for stop in stops if stop), None)

    def next_orphan(self) -> ReassignVictim | Reprieve | None:
        """What becomes of the newest of those who are leaving for nobody any more."""
        strays = [one for one in self.snapshot.allocations if one.leaving_for == ""]
        for one in reversed(strays):
            owners = (hold.owner for hold in self.snapshot.holds)
            owner = next((owner for owner in owners if self.may_take_over(owner, one)), None)
            return ReassignVictim(one.id, one.fence, owner.id) if owner else Reprieve(one.id, one.fence)
        return None

    def may_take_over(self, owner: Waiter, stray: Allocation) -> bool:
        """Whether its hold is short without the stray, which it may take."""
        rules = self.rules(owner, stray)
        return bool(rules - {"own_within"}) or ("own_within" in rules and self.lies_within_reserved(owner, [stray]))

    def unfillable_holds(self) -> list[Waiter]:
        """Owners of holds that are short, and for whom no set exists, however long they wait for budgets."""
        bounds = (self.settings.max_victims, self.settings.max_preemptions_per_minute)
        most = min((bound for bound in bounds if bound is not None), default=None)
        owners = (hold.owner for hold in self.snapshot.holds)
        return [owner for owner in owners if self.shortages(owner) and not self.choice(owner, most)]


def with_leaving_for(snapshot: PoolSnapshot, ids: Collection[str], leaving_for: str | None) -> PoolSnapshot:
    """The same, with these leaving for somebody, for nobody (empty) or not at all (None)."""
    changed = (replace(one, leaving_for=leaving_for) if one.id in ids else one for one in snapshot.allocations)
    return replace(snapshot, allocations=tuple(changed))
