"""Who may be preempted for whom by fair shares, written from the words of the rules: slow, small and obviously right.

Only the division of a pool is taken as given. Sets of victims are looked for among all subsets, so this is for small worlds.
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
"""Component → what it uses."""
SEARCHED = 12
NEVER, ORDINARY, AGGRESSIVE = 0, 1, 2
TRIGGERS = {ORDINARY: Trigger.STARVATION, AGGRESSIVE: Trigger.AGGRESSIVE_STARVATION}


@dataclass(frozen=True)
class TakeableWork:
    """Somebody who may be taken: by whom, and on which keys it lies beyond its policy's part."""

    allocation: Allocation
    level: int
    keys_beyond: frozenset[str]


class World:
    """A pool in one state: who uses how much, and who runs."""

    def __init__(self, oracle: FairOracle, uses: UsageByComponent, running: Sequence[Allocation]) -> None:
        self.oracle, self.usage, self.allocations = oracle, uses, running
        self.division: Division = divide(oracle.capacity, self._branch(oracle.snapshot.accounts["pool"]))

    def _branch(self, account: AccountSnapshot) -> Branch:
        children = [one for one in self.oracle.snapshot.accounts.values() if one.parent == account.name]
        children.sort(key=lambda one: (-one.weight, one.creation_number))
        return Branch(
            account.name,
            account.weight,
            "fifo" if account.mode == "fifo" else "fair_share",
            tuple(self._leaf(one) if one.name.startswith("policy:") else self._branch(one) for one in children),
            account.limit if account.parent is None else account.reserved,
            account.limit,
        )

    def _leaf(self, account: AccountSnapshot) -> Leaf:
        component = account.name.removeprefix("policy:")
        used, asked = self.usage[component], self.oracle.asked(component)
        demand = {key: max(used[key], asked[key]) for key in self.oracle.capacity}
        usage = {key: used[key] for key in self.oracle.capacity}
        return Leaf(account.name, account.weight, usage, demand, account.reserved, account.limit)

    def is_below(self, account: str) -> bool:
        """Whether it has less than it is due."""
        node = self.division.accounts[account]
        tolerance = self.oracle.patience(account).tolerance
        return satisfaction.is_below(node, tolerance, self.division.scale, account.startswith("policy:"))

    def part(self, account: str, key: str) -> Fraction:
        """Its fair share of a key, in units."""
        at = self.division.keys.index(key)
        return Fraction(self.division.accounts[account].fair[at] * self.oracle.capacity[key], self.division.scale)

    def pieces(self, component: str) -> Iterator[TakeableWork]:
        """What of a policy may be taken, whatever protects it."""
        account = f"policy:{component}"
        patience, node = self.oracle.patience(account), self.division.accounts[account]
        mine = [one for one in self.allocations if one.component == component]
        walk = [one for one in mine if one.checkpointed_ms is None] + [one for one in mine if one.checkpointed_ms is not None]
        blocked = satisfaction.demand_met(node.fair, node.demand, self.division.scale)
        covered = any(node.demand) and satisfaction.covers_demand(node.fair, node.demand, self.division.scale)
        before, group = Counter[str](), NEVER_TAKEN
        for one in walk:
            kept = bool(patience.protected_usage) and all(before[key] < most for key, most in patience.protected_usage.items())
            within = [
                self._holds_back(account, part, before, blocked) for part in (patience.aggressive_threshold, patience.threshold)
            ]
            if group == NEVER_TAKEN and not (kept or within[0]):
                group = AGGRESSIVELY
            if group == AGGRESSIVELY and not (kept or within[1] or covered):
                group = FREELY
            if group == FREELY:
                yield TakeableWork(one, ORDINARY, self._beyond(account, one, before, whole=True))
            elif group == AGGRESSIVELY and patience.allow_aggressive:
                yield TakeableWork(one, AGGRESSIVE, self._beyond(account, one, before, whole=False))
            before = before + Counter(one.amounts)

    def _holds_back(self, account: str, part: Fraction, before: Counter[str], blocked: Sequence[bool]) -> bool:
        keys = self.division.keys
        bound = [self.part(account, key) * part - Fraction(self.oracle.capacity[key], 10**9) for key in keys]
        return satisfaction.exceeds(bound, [before[key] for key in keys], blocked)  # type: ignore[arg-type]

    def _beyond(self, account: str, one: Allocation, before: Counter[str], *, whole: bool) -> frozenset[str]:
        threshold, found = self.oracle.patience(account).threshold, set()
        for key in set(one.amounts) & set(self.oracle.capacity):
            trifle = Fraction(self.oracle.capacity[key], 10**9)
            bound = self.part(account, key) * threshold
            if before[key] + trifle >= bound if whole else before[key] + one.amounts[key] > bound + trifle:
                found.add(key)
        return frozenset(found)

    def fits_within(self, waiter: Waiter | Allocation) -> bool:
        """Whether its policy's part has room for it."""
        used = self.usage[waiter.component]
        return all(
            used[key] + units <= self.part(f"policy:{waiter.component}", key) + Fraction(self.oracle.capacity[key], 10**9)
            for key, units in waiter.amounts.items()
            if key in self.oracle.capacity
        )


NEVER_TAKEN, AGGRESSIVELY, FREELY = range(3)


class FairOracle(Oracle):
    """Answers about one snapshot of a pool that shares fairly."""

    def __init__(self, snapshot: PoolSnapshot) -> None:
        super().__init__(snapshot)
        self.capacity = snapshot.accounts["pool"].limit
        self.components = [name.removeprefix("policy:") for name in snapshot.accounts if name.startswith("policy:")]
        self.patience = cache(self._patience)
        self._worlds: dict[str, World] = {}
        now = World(self, {each: self._counter(f"policy:{each}") for each in self.components}, ())
        self.found = {name: self._state(now, account) for name, account in snapshot.accounts.items() if account.parent}

    # settings and statuses

    def _said(self, account: AccountSnapshot, name: str) -> str | None:
        """What the nearest account that says it does."""
        at: AccountSnapshot | None = account
        while at is not None:
            if at.settings.get(name):
                return at.settings[name]
            at = self.snapshot.accounts[at.parent] if at.parent else None
        return None

    def _softened(self, account: AccountSnapshot, name: str, usual: str, softer: object) -> Fraction:
        own = account.settings.get(name) if account.name.startswith("policy:") else None
        above = self.snapshot.accounts[account.parent] if account.parent and own else account
        inherited = Fraction(self._said(above, name) or usual)
        return softer(inherited, Fraction(own)) if own else inherited  # type: ignore[operator]

    def _patience(self, name: str) -> StarvationSettings:
        account = self.snapshot.accounts[name]
        return StarvationSettings(
            tolerance=self._softened(account, "fair_share_tolerance", "0.8", min),
            timeout_s=int(self._softened(account, "starvation_timeout_s", "30", max)),
            may_starve_aggressively=bool(self._softened(account, "aggressive_starvation", "0", min)),
            aggressive_timeout_s=int(self._softened(account, "aggressive_starvation_timeout_s", "120", max)),
            threshold=Fraction(self._said(account, "preemption_threshold") or "1"),
            aggressive_threshold=Fraction(self._said(account, "aggressive_preemption_threshold") or "0.2"),
            allow_aggressive=(self._said(account, "allow_aggressive_preemption") or "1") == "1",
            protected_usage=self._protects(account),
        )

    def _protects(self, account: AccountSnapshot) -> dict[str, int]:
        name = "non_preemptible_usage_threshold"
        own, is_policy = decode(account.settings.get(name, "")), account.name.startswith("policy:")
        if not is_policy or not own:
            return decode(self._said(account, name) or "")
        above = decode(self._said(self.snapshot.accounts[account.parent or "pool"], name) or "")
        return {key: min(one[key] for one in (own, above) if key in one) for key in {*own, *above}}

    def _state(self, now: World, account: AccountSnapshot) -> StarvationState:
        kept = StarvationState(
            StarvationStatus(account.published.starvation_status or "non_starving"), account.published.below_ms
        )
        queued = None
        if account.name.startswith("policy:"):
            demand = self.snapshot.demand.get(account.name.removeprefix("policy:"))
            queued = demand.requests if demand else 0
        return next_state(kept, now.is_below(account.name), self.snapshot.now_ms, self.patience(account.name), queued)

    def urgency(self, account: str) -> int:
        """How it starves."""
        return {
            StarvationStatus.NON_STARVING: NEVER,
            StarvationStatus.STARVING: ORDINARY,
            StarvationStatus.AGGRESSIVELY_STARVING: AGGRESSIVE,
        }[self.found[account].status]

    # demand and use

    def asked(self, component: str) -> Counter[str]:
        """What a policy uses and what waits there; the same in whatever state, as who is stopped asks again."""
        demand = self.snapshot.demand.get(component)
        return self._counter(f"policy:{component}") + Counter(demand.units if demand else {})

    def _counter(self, account: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for one in self.allocations_of(account):
            total.update(one.amounts)
        return total

    def world(self, asker: Waiter) -> World:
        """The pool when all who leave for somebody have left, and who has a hold has what that is for."""
        if asker.id not in self._worlds:
            self._worlds[asker.id] = self._world(asker)
        return self._worlds[asker.id]

    def _world(self, asker: Waiter) -> World:
        uses = {each: Counter[str]() for each in self.components}
        for one in self.snapshot.allocations:
            if not one.leaving_for:
                uses[one.component].update(one.amounts)
        for each in self.components:
            for key in self.capacity:
                uses[each][key] += self.kept_units(asker, f"policy:{each}", key, then=True)
        return World(self, uses, [one for one in self.snapshot.allocations if one.leaving_for is None])

    # who may take what

    def stage(self, waiter: Waiter) -> int:
        """How urgent its want is: as its policy or a group above it starves, if that still is below its part."""
        world = self.world(waiter)
        return max((self.urgency(account) for account in self.path(waiter)[:-1] if world.is_below(account)), default=NEVER)

    def candidates(self, waiter: Waiter) -> list[Allocation]:
        """Those it may take, the first to go first."""
        return [piece.allocation for piece in self.takable(waiter)]

    def takable(self, waiter: Waiter) -> list[TakeableWork]:
        """The same, with what may be taken of each."""
        stage, world = self.stage(waiter), self.world(waiter)
        found = []
        for component in self.components:
            if component != waiter.component and not self.urgency(f"policy:{component}"):
                for piece in world.pieces(component):
                    lawful = piece.level <= stage and (piece.level == ORDINARY or world.fits_within(waiter))
                    short = {key for account, key in self.shortages(waiter) if account in self.path(piece.allocation)}
                    if lawful and piece.keys_beyond & short and not self.protected(waiter, piece.allocation):
                        found.append(piece)
        return sorted(found, key=lambda piece: (piece.level, -piece.allocation.fence, piece.allocation.id))

    # sets of victims

    def after(self, waiter: Waiter, victims: Sequence[Allocation]) -> World:
        """The pool after the exchange."""
        world = self.world(waiter)
        uses = {component: Counter(used) for component, used in world.usage.items()}
        uses[waiter.component].update(waiter.amounts)
        for one in victims:
            uses[one.component].subtract(one.amounts)
        granted = Allocation(
            waiter.id, waiter.component, waiter.amounts, 2**60, waiter.preemptible, waiter.preemption_class, "none",
            None, None, self.snapshot.now_ms, chain=waiter.chain,
        )  # fmt: skip
        gone = {one.id for one in victims}
        return World(self, uses, [*(one for one in world.allocations if one.id not in gone), granted])

    def takers_back(self, waiter: Waiter, victims: Sequence[Allocation]) -> list[Allocation]:
        """Those victims who could take from the waiter's policy as it would be then, once they have waited for long enough."""
        world = self.after(waiter, victims)
        return [one for one in victims if self._takes_back(world, waiter.component, one)]

    def _takes_back(self, world: World, holder: str, victim: Allocation) -> bool:
        below = [account for account in self.path(victim)[:-1] if world.is_below(account)]
        if not below:
            return False
        stage = AGGRESSIVE if any(self.patience(account).may_starve_aggressively for account in below) else ORDINARY
        short = self._short_then(world, victim)
        pieces = []
        for component in self.components:
            if component != victim.component and not world.is_below(f"policy:{component}"):
                for piece in world.pieces(component):
                    lawful = piece.level <= stage and (piece.level == ORDINARY or world.fits_within(victim))
                    helps = piece.keys_beyond & {key for account, key in short if account in self.path(piece.allocation)}
                    if lawful and helps and not self._spared(victim, piece.allocation):
                        pieces.append(piece.allocation)
        mine = [one for one in pieces if one.component == holder]
        return bool(short) and any(self._needs(short, one, pieces) for one in mine)

    def _needs(self, short: Mapping[tuple[str, str], int], one: Allocation, pieces: Sequence[Allocation]) -> bool:
        """Whether there is a set with this one in it that suffices, and does not without it."""
        others = [other for other in pieces if other is not one]
        for size in range(len(others) + 1):
            for rest in combinations(others, size):
                if self._suffices(short, (one, *rest)) and not self._suffices(short, rest):
                    return True
        return False

    def _suffices(self, short: Mapping[tuple[str, str], int], victims: Sequence[Allocation]) -> bool:
        return all(
            sum(one.amounts.get(key, 0) for one in victims if account in self.path(one)) >= units
            for (account, key), units in short.items()
        )

    def _spared(self, taker: Allocation, one: Allocation) -> bool:
        """Whether it is protected whatever time it is."""
        chained = taker.chain is not None and taker.chain == one.chain
        return not one.preemptible or one.preemption_class == 10 or chained

    def _short_then(self, world: World, victim: Allocation) -> dict[tuple[str, str], int]:
        found = {}
        for account in self.path(victim):
            for key in set(victim.amounts) & set(self.capacity):
                used = sum(world.usage[each][key] for each in self.components if account in self.path(_of(each, victim)))
                if (lack := used + victim.amounts[key] - self.limit(account, key)) > 0:
                    found[account, key] = lack
        return found

    def lawful(self, waiter: Waiter, victims: Sequence[Allocation]) -> bool:
        """Whether all of these may be taken together."""
        allowed = self.candidates(waiter)
        return all(one in allowed for one in victims) and not self.takers_back(waiter, victims)

    def all_sets(self, waiter: Waiter, most: int | None) -> Iterator[tuple[Allocation, ...]]:
        """Every set that is allowed and makes it fit, the smallest first."""
        first = self.candidates(waiter)[:SEARCHED]
        for size in range(1, min(len(first), len(first) if most is None else most) + 1):
            for chosen in combinations(first, size):
                if self.fits(waiter, chosen) and not self.superfluous(waiter, chosen) and self.lawful(waiter, chosen):
                    yield chosen

    # limits

    def is_over(self, account: str, key: str, gone: Collection[str]) -> bool:
        """Whether an account has more of a key than it may for too long, when all who leave have left, and these."""
        at = self.snapshot.accounts[account]
        said = self._said(at, "over_limit") or "evict"
        after_ms = int(self._said(at, "over_limit_after_s") or 30) * 1000
        if said == "keep" or self.snapshot.now_ms - (at.published.over_ms or self.snapshot.now_ms) < after_ms:
            return False
        staying = (one for one in self.allocations_of(account) if not one.leaving_for and one.id not in gone)
        return sum(one.amounts.get(key, 0) for one in staying) > self.limit(account, key)

    # a whole pass

    def satisfaction(self, component: str, world: World) -> tuple[int, Fraction]:
        """How much of its part a policy has."""
        ratio = satisfaction.satisfaction_ratio(world.division.accounts[f"policy:{component}"], world.division.scale)
        return (1, Fraction(0)) if ratio is None else (0, ratio)

    def in_turn(self) -> list[Waiter]:
        """Who may ask, in order: the aggressive stage, then the ordinary one, in each the least satisfied first."""
        if not self.snapshot.waiters:
            return []
        world = self.world(self.snapshot.waiters[0])
        ranked = [(self.stage(one), one) for one in self.snapshot.waiters]
        return [
            one
            for _, one in sorted(
                ((stage, one) for stage, one in ranked if stage),
                key=lambda each: (
                    -each[0],
                    self.satisfaction(each[1].component, world),
                    -each[1].preemption_class,
                    each[1].submission_number,
                    each[1].id,
                ),
            )
        ]

    def step(self, waiter: Waiter, victims: Sequence[Allocation]) -> Preempt:
        """The step that has these stopped."""
        trigger = TRIGGERS[self.stage(waiter)]
        return Preempt(waiter.id, tuple(Victim(one.id, one.fence, trigger) for one in victims))


def _of(component: str, like: Allocation) -> Allocation:
    return replace(like, component=component)
