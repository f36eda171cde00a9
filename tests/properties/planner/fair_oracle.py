"""The rules of preemption by fair share, written independently of the planner: slow, small and obviously right.

Only the division of a pool is taken from the planner. Sets of victims are searched among all subsets, so this is for small
pools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import combinations

from app.domain.amounts import decode
from app.domain.plan_steps import Preempt, Trigger, Victim
from app.domain.snapshot import AccountSnapshot, Allocation, PoolSnapshot, Waiter
from app.planner.fair_share import satisfaction
from app.planner.fair_share.share_tree import Branch, Leaf
from app.planner.fair_share.starvation import StarvationSettings, StarvationState, StarvationStatus, next_state
from app.planner.fair_share.water_filling import Division, divide
from tests.properties.planner.oracle import Oracle

UsageByComponent = Mapping[str, Counter[str]]
"""Component → its usage."""
SEARCHED = 12
NEVER, ORDINARY, AGGRESSIVE = 0, 1, 2
TRIGGERS = {ORDINARY: Trigger.STARVATION, AGGRESSIVE: Trigger.AGGRESSIVE_STARVATION}


@dataclass(frozen=True)
class TakeableWork:
    """An allocation that may be taken: at which level, and on which keys it lies beyond its policy's fair share."""

    allocation: Allocation
    level: int
    keys_beyond: frozenset[str]


class ShareState:
    """A pool in one state: the usage of each policy, and the allocations."""

    def __init__(self, oracle: FairShareOracle, usage: UsageByComponent, running: Sequence[Allocation]) -> None:
        self.oracle, self.usage, self.allocations = oracle, usage, running
        self.division: Division = divide(oracle.capacity, self._branch(oracle.snapshot.accounts["pool"]))

    def _branch(self, account: AccountSnapshot) -> Branch:
        children = [child for child in self.oracle.snapshot.accounts.values() if child.parent == account.name]
        children.sort(key=lambda child: (-child.weight, child.creation_number))
        return Branch(
            account.name,
            account.weight,
            "fifo" if account.mode == "fifo" else "fair_share",
            tuple(self._leaf(child) if child.name.startswith("policy:") else self._branch(child) for child in children),
            account.limit if account.parent is None else account.reserved,
            account.limit,
        )

    def _leaf(self, account: AccountSnapshot) -> Leaf:
        component = account.name.removeprefix("policy:")
        used, demand_units = self.usage[component], self.oracle.demand(component)
        demand = {key: max(used[key], demand_units[key]) for key in self.oracle.capacity}
        usage = {key: used[key] for key in self.oracle.capacity}
        return Leaf(account.name, account.weight, usage, demand, account.reserved, account.limit)

    def is_below(self, account: str) -> bool:
        """True if the account has less than its fair share."""
        node = self.division.accounts[account]
        tolerance = self.oracle.starvation_settings(account).tolerance
        return satisfaction.is_below(node, tolerance, self.division.scale, account.startswith("policy:"))

    def fair_units(self, account: str, key: str) -> Fraction:
        """Return the fair share of a key, in units."""
        index = self.division.keys.index(key)
        return Fraction(self.division.accounts[account].fair[index] * self.oracle.capacity[key], self.division.scale)

    def takeable_work(self, component: str) -> Iterator[TakeableWork]:
        """Yield the allocations of a policy that may be preempted. Their protections are ignored."""
        account = f"policy:{component}"
        settings, node = self.oracle.starvation_settings(account), self.division.accounts[account]
        allocations = [allocation for allocation in self.allocations if allocation.component == component]
        walk = [allocation for allocation in allocations if allocation.checkpointed_ms is None] + [
            allocation for allocation in allocations if allocation.checkpointed_ms is not None
        ]
        keys_met = satisfaction.demand_met(node.fair, node.demand, self.division.scale)
        covered = any(node.demand) and satisfaction.covers_demand(node.fair, node.demand, self.division.scale)
        before, group = Counter[str](), NEVER_TAKEN
        for allocation in walk:
            is_protected = bool(settings.protected_usage) and all(
                before[key] < units for key, units in settings.protected_usage.items()
            )
            within = [
                self._is_within(account, part, before, keys_met) for part in (settings.aggressive_threshold, settings.threshold)
            ]
            if group == NEVER_TAKEN and not (is_protected or within[0]):
                group = AGGRESSIVELY
            if group == AGGRESSIVELY and not (is_protected or within[1] or covered):
                group = FREELY
            if group == FREELY:
                yield TakeableWork(allocation, ORDINARY, self._beyond(account, allocation, before, whole=True))
            elif group == AGGRESSIVELY and settings.allow_aggressive:
                yield TakeableWork(allocation, AGGRESSIVE, self._beyond(account, allocation, before, whole=False))
            before = before + Counter(allocation.amounts)

    def _is_within(self, account: str, part: Fraction, before: Counter[str], blocked: Sequence[bool]) -> bool:
        keys = self.division.keys
        bound = [self.fair_units(account, key) * part - Fraction(self.oracle.capacity[key], 10**9) for key in keys]
        return satisfaction.exceeds(bound, [before[key] for key in keys], blocked)  # type: ignore[arg-type]

    def _beyond(self, account: str, allocation: Allocation, before: Counter[str], *, whole: bool) -> frozenset[str]:
        threshold, keys = self.oracle.starvation_settings(account).threshold, set()
        for key in set(allocation.amounts) & set(self.oracle.capacity):
            trifle = Fraction(self.oracle.capacity[key], 10**9)
            bound = self.fair_units(account, key) * threshold
            if before[key] + trifle >= bound if whole else before[key] + allocation.amounts[key] > bound + trifle:
                keys.add(key)
        return frozenset(keys)

    def fits_within(self, waiter: Waiter | Allocation) -> bool:
        """True if its policy's fair share has room for it."""
        used = self.usage[waiter.component]
        return all(
            used[key] + units <= self.fair_units(f"policy:{waiter.component}", key) + Fraction(self.oracle.capacity[key], 10**9)
            for key, units in waiter.amounts.items()
            if key in self.oracle.capacity
        )


NEVER_TAKEN, AGGRESSIVELY, FREELY = range(3)


class FairShareOracle(Oracle):
    """Answers about one snapshot of a pool that shares fairly."""

    def __init__(self, snapshot: PoolSnapshot) -> None:
        super().__init__(snapshot)
        self.capacity = snapshot.accounts["pool"].limit
        self.components = [name.removeprefix("policy:") for name in snapshot.accounts if name.startswith("policy:")]
        self.starvation_settings = cache(self._starvation_settings)
        self._states_by_waiter: dict[str, ShareState] = {}
        current = ShareState(self, {each: self._counter(f"policy:{each}") for each in self.components}, ())
        self.states = {name: self._state(current, account) for name, account in snapshot.accounts.items() if account.parent}

    # settings and statuses

    def _setting(self, account: AccountSnapshot, name: str) -> str | None:
        """Return the setting of the nearest account that has it."""
        ancestor: AccountSnapshot | None = account
        while ancestor is not None:
            if ancestor.settings.get(name):
                return ancestor.settings[name]
            ancestor = self.snapshot.accounts[ancestor.parent] if ancestor.parent else None
        return None

    def _softened(self, account: AccountSnapshot, name: str, usual: str, softer: object) -> Fraction:
        own = account.settings.get(name) if account.name.startswith("policy:") else None
        parent = self.snapshot.accounts[account.parent] if account.parent and own else account
        inherited = Fraction(self._setting(parent, name) or usual)
        return softer(inherited, Fraction(own)) if own else inherited  # type: ignore[operator]

    def _starvation_settings(self, name: str) -> StarvationSettings:
        account = self.snapshot.accounts[name]
        return StarvationSettings(
            tolerance=self._softened(account, "fair_share_tolerance", "0.8", min),
            timeout_s=int(self._softened(account, "starvation_timeout_s", "30", max)),
            may_starve_aggressively=bool(self._softened(account, "aggressive_starvation", "0", min)),
            aggressive_timeout_s=int(self._softened(account, "aggressive_starvation_timeout_s", "120", max)),
            threshold=Fraction(self._setting(account, "preemption_threshold") or "1"),
            aggressive_threshold=Fraction(self._setting(account, "aggressive_preemption_threshold") or "0.2"),
            allow_aggressive=(self._setting(account, "allow_aggressive_preemption") or "1") == "1",
            protected_usage=self._protected_usage(account),
        )

    def _protected_usage(self, account: AccountSnapshot) -> dict[str, int]:
        name = "non_preemptible_usage_threshold"
        own, is_policy = decode(account.settings.get(name, "")), account.name.startswith("policy:")
        if not is_policy or not own:
            return decode(self._setting(account, name) or "")
        inherited = decode(self._setting(self.snapshot.accounts[account.parent or "pool"], name) or "")
        return {key: min(amounts[key] for amounts in (own, inherited) if key in amounts) for key in {*own, *inherited}}

    def _state(self, now: ShareState, account: AccountSnapshot) -> StarvationState:
        state_before = StarvationState(
            StarvationStatus(account.published.starvation_status or "non_starving"), account.published.below_ms
        )
        queued = None
        if account.name.startswith("policy:"):
            demand = self.snapshot.demand.get(account.name.removeprefix("policy:"))
            queued = demand.requests if demand else 0
        return next_state(
            state_before, now.is_below(account.name), self.snapshot.now_ms, self.starvation_settings(account.name), queued
        )

    def starvation_level(self, account: str) -> int:
        """Return the level of starvation."""
        return {
            StarvationStatus.NON_STARVING: NEVER,
            StarvationStatus.STARVING: ORDINARY,
            StarvationStatus.AGGRESSIVELY_STARVING: AGGRESSIVE,
        }[self.states[account].status]

    # demand and use

    def demand(self, component: str) -> Counter[str]:
        """Return the usage of a policy and its queued amounts. They are the same in every state, because a victim queues
        again."""
        demand = self.snapshot.demand.get(component)
        return self._counter(f"policy:{component}") + Counter(demand.units if demand else {})

    def _counter(self, account: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for allocation in self.allocations_of(account):
            total.update(allocation.amounts)
        return total

    def state(self, waiter: Waiter) -> ShareState:
        """Return the pool when all victims have left, and the owners of holds run."""
        if waiter.id not in self._states_by_waiter:
            self._states_by_waiter[waiter.id] = self._make_state(waiter)
        return self._states_by_waiter[waiter.id]

    def _make_state(self, waiter: Waiter) -> ShareState:
        usage = {each: Counter[str]() for each in self.components}
        for allocation in self.snapshot.allocations:
            if not allocation.leaving_for:
                usage[allocation.component].update(allocation.amounts)
        for each in self.components:
            for key in self.capacity:
                usage[each][key] += self.kept_units(waiter, f"policy:{each}", key, after_leaving=True)
        return ShareState(
            self, usage, [allocation for allocation in self.snapshot.allocations if allocation.leaving_for is None]
        )

    # candidates

    def level(self, waiter: Waiter) -> int:
        """Return how urgent its demand is: its policy, or a group above it, starves and still is below its fair share."""
        state = self.state(waiter)
        return max(
            (self.starvation_level(account) for account in self.path(waiter)[:-1] if state.is_below(account)), default=NEVER
        )

    def candidates(self, waiter: Waiter) -> list[Allocation]:
        """Return its candidates in order."""
        return [work.allocation for work in self.takeable_work(waiter)]

    def takeable_work(self, waiter: Waiter) -> list[TakeableWork]:
        """Return the preemptible allocations in order, each with its conditions."""
        level, state = self.level(waiter), self.state(waiter)
        result = []
        for component in self.components:
            if component != waiter.component and not self.starvation_level(f"policy:{component}"):
                for work in state.takeable_work(component):
                    lawful = work.level <= level and (work.level == ORDINARY or state.fits_within(waiter))
                    short = {key for account, key in self.shortages(waiter) if account in self.path(work.allocation)}
                    if lawful and work.keys_beyond & short and not self.protected(waiter, work.allocation):
                        result.append(work)
        return sorted(result, key=lambda work: (work.level, -work.allocation.fence, work.allocation.id))

    # sets of victims

    def state_after(self, waiter: Waiter, victims: Sequence[Allocation]) -> ShareState:
        """Return the state of the pool after the exchange."""
        state = self.state(waiter)
        usage = {component: Counter(used) for component, used in state.usage.items()}
        usage[waiter.component].update(waiter.amounts)
        for allocation in victims:
            usage[allocation.component].subtract(allocation.amounts)
        new_allocation = Allocation(
            waiter.id, waiter.component, waiter.amounts, 2**60, waiter.preemptible, waiter.preemption_class, "none",
            None, None, self.snapshot.now_ms, chain=waiter.chain,
        )  # fmt: skip
        left = {allocation.id for allocation in victims}
        return ShareState(
            self, usage, [*(allocation for allocation in state.allocations if allocation.id not in left), new_allocation]
        )

    def victims_taking_back(self, waiter: Waiter, victims: Sequence[Allocation]) -> list[Allocation]:
        """Return the victims that could take from the waiter's policy as it would be then, once they have waited for long
        enough."""
        state = self.state_after(waiter, victims)
        return [allocation for allocation in victims if self._can_take_back(state, waiter.component, allocation)]

    def _can_take_back(self, state: ShareState, preemptor: str, victim: Allocation) -> bool:
        below = [account for account in self.path(victim)[:-1] if state.is_below(account)]
        if not below:
            return False
        level = AGGRESSIVE if any(self.starvation_settings(account).may_starve_aggressively for account in below) else ORDINARY
        short = self._shortages_after(state, victim)
        all_work = []
        for component in self.components:
            if component != victim.component and not state.is_below(f"policy:{component}"):
                for work in state.takeable_work(component):
                    lawful = work.level <= level and (work.level == ORDINARY or state.fits_within(victim))
                    helps = work.keys_beyond & {key for account, key in short if account in self.path(work.allocation)}
                    if lawful and helps and not self._is_protected(victim, work.allocation):
                        all_work.append(work.allocation)
        takeable = [allocation for allocation in all_work if allocation.component == preemptor]
        return bool(short) and any(self._is_needed(short, allocation, all_work) for allocation in takeable)

    def _is_needed(self, short: Mapping[tuple[str, str], int], allocation: Allocation, all_work: Sequence[Allocation]) -> bool:
        """True if a set with this allocation suffices, and does not without it."""
        other_allocations = [other for other in all_work if other is not allocation]
        for size in range(len(other_allocations) + 1):
            for rest in combinations(other_allocations, size):
                if self._suffices(short, (allocation, *rest)) and not self._suffices(short, rest):
                    return True
        return False

    def _suffices(self, short: Mapping[tuple[str, str], int], victims: Sequence[Allocation]) -> bool:
        return all(
            sum(allocation.amounts.get(key, 0) for allocation in victims if account in self.path(allocation)) >= units
            for (account, key), units in short.items()
        )

    def _is_protected(self, taker: Allocation, allocation: Allocation) -> bool:
        """True if it is protected at any time."""
        chained = taker.chain is not None and taker.chain == allocation.chain
        return not allocation.preemptible or allocation.preemption_class == 10 or chained

    def _shortages_after(self, state: ShareState, victim: Allocation) -> dict[tuple[str, str], int]:
        shortages = {}
        for account in self.path(victim):
            for key in set(victim.amounts) & set(self.capacity):
                used = sum(state.usage[each][key] for each in self.components if account in self.path(_of(each, victim)))
                if (missing := used + victim.amounts[key] - self.limit(account, key)) > 0:
                    shortages[account, key] = missing
        return shortages

    def lawful(self, waiter: Waiter, victims: Sequence[Allocation]) -> bool:
        """True if all of these may be preempted together."""
        allowed = self.candidates(waiter)
        return all(allocation in allowed for allocation in victims) and not self.victims_taking_back(waiter, victims)

    def all_sets(self, waiter: Waiter, max_victims: int | None) -> Iterator[tuple[Allocation, ...]]:
        """Yield every allowed set with which the waiter fits, the smallest first."""
        first = self.candidates(waiter)[:SEARCHED]
        for size in range(1, min(len(first), len(first) if max_victims is None else max_victims) + 1):
            for victims in combinations(first, size):
                if self.fits(waiter, victims) and not self.superfluous(waiter, victims) and self.lawful(waiter, victims):
                    yield victims

    # limits

    def is_over(self, account: str, key: str, leaving: Collection[str]) -> bool:
        """True if an account has been over its limit for too long, when all victims and these have left."""
        snapshot_account = self.snapshot.accounts[account]
        over_limit = self._setting(snapshot_account, "over_limit") or "evict"
        after_ms = int(self._setting(snapshot_account, "over_limit_after_s") or 30) * 1000
        if (
            over_limit == "keep"
            or self.snapshot.now_ms - (snapshot_account.published.over_ms or self.snapshot.now_ms) < after_ms
        ):
            return False
        staying = (
            allocation
            for allocation in self.allocations_of(account)
            if not allocation.leaving_for and allocation.id not in leaving
        )
        return sum(allocation.amounts.get(key, 0) for allocation in staying) > self.limit(account, key)

    # a whole pass

    def satisfaction(self, component: str, state: ShareState) -> tuple[int, Fraction]:
        """Return the satisfaction of a policy."""
        ratio = satisfaction.satisfaction_ratio(state.division.accounts[f"policy:{component}"], state.division.scale)
        return (1, Fraction(0)) if ratio is None else (0, ratio)

    def waiters_in_order(self) -> list[Waiter]:
        """Return the waiters that may preempt: the aggressive level, then the ordinary one, in each the least satisfied
        first."""
        if not self.snapshot.waiters:
            return []
        state = self.state(self.snapshot.waiters[0])
        ranked = [(self.level(allocation), allocation) for allocation in self.snapshot.waiters]
        return [
            allocation
            for _, allocation in sorted(
                ((level, allocation) for level, allocation in ranked if level),
                key=lambda each: (
                    -each[0],
                    self.satisfaction(each[1].component, state),
                    -each[1].preemption_class,
                    each[1].submission_number,
                    each[1].id,
                ),
            )
        ]

    def step(self, waiter: Waiter, victims: Sequence[Allocation]) -> Preempt:
        """Return the step that preempts these."""
        trigger = TRIGGERS[self.level(waiter)]
        return Preempt(waiter.id, tuple(Victim(allocation.id, allocation.fence, trigger) for allocation in victims))


def _of(component: str, like: Allocation) -> Allocation:
    return replace(like, component=component)
