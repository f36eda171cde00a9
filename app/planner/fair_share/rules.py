"""The preemption rule of fair share: starving policies preempt allocations of policies beyond their fair share.

A waiter may preempt if its policy, or a group above it, starves and would still be below its fair share if all holds were
filled. Its candidates are judged in the state of the pool after all victims have left (`FairShares`):

1. The candidate belongs to another policy that does not starve itself.
2. It is `preemptible`, and lies wholly beyond its policy's fair share on a short key.
3. For an aggressively starving waiter it may be `aggressively_preemptible`: it lies partly beyond that share, and the waiter
   stays within its own fair share.
4. After the exchange (all victims have left, and the waiter runs), no policy of a victim is below its fair share and could
   preempt the waiter in turn.

Fair shares change with the running allocations. So rule 4 divides the pool anew for each exchange, and a pass may compute only
a bounded number of exchanges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any, TypeAlias

from app.domain.plan_steps import Trigger
from app.domain.snapshot import Allocation, Waiter
from app.planner.account_tree import POLICY
from app.planner.decisions import RefusalReason
from app.planner.fair_share import satisfaction
from app.planner.fair_share.pool_shares import FairShares, UsageByComponent, add_usage
from app.planner.fair_share.preemptible_split import PreemptibleSplit
from app.planner.fair_share.starvation import StarvationState, StarvationStatus
from app.planner.projection import HoldsAhead, Projection

ProtectionOf: TypeAlias = Callable[[Allocation], RefusalReason | None]


class StarvationLevel(IntEnum):
    """The urgency with which a waiter may preempt."""

    NONE = 0
    ORDINARY = 1
    AGGRESSIVE = 2


LEVELS = {
    StarvationStatus.NON_STARVING: StarvationLevel.NONE,
    StarvationStatus.STARVING: StarvationLevel.ORDINARY,
    StarvationStatus.AGGRESSIVELY_STARVING: StarvationLevel.AGGRESSIVE,
}
TRIGGERS = {StarvationLevel.ORDINARY: Trigger.STARVATION, StarvationLevel.AGGRESSIVE: Trigger.AGGRESSIVE_STARVATION}


WEIGHED_POLICIES, LEAST_WEIGHED, MOST_WEIGHED = 20_000, 8, 400
"""The bounds on the exchanges of a pass: the policies of all their divisions together; the least and the most exchanges."""

HASH_MULTIPLIER = 2_654_435_761
"""A factor that spreads consecutive times over the whole range, so that each pass begins at another waiter."""


@dataclass(frozen=True, slots=True)
class PreemptibleWork:
    """An allocation that some waiter may preempt."""

    allocation: Allocation
    aggressive_only: bool
    """True if only aggressively starving policies may preempt the allocation."""
    keys_beyond: frozenset[str]
    """The keys on which the allocation lies far enough beyond its policy's fair share."""


class ShareScenario:
    """One state of a pool: the fair shares, the running allocations, and those that may be preempted."""

    def __init__(
        self, shares: FairShares, allocations: Mapping[str, Sequence[Allocation]], protection_of: ProtectionOf
    ) -> None:
        self.shares = shares
        self._allocations = allocations
        self._protection_of = protection_of
        self._work: dict[tuple[str, bool], list[PreemptibleWork]] = {}
        self._splits: dict[str, PreemptibleSplit] = {}
        self.candidates: dict[object, Any] = {}
        """Signature of a waiter → its candidates. Waiters with equal needs share an entry."""

    def preemptible_work(self, component: str, *, aggressively: bool) -> list[PreemptibleWork]:
        """Return the preemptible work of a policy in order of grant; with `aggressively`, the aggressively preemptible too."""
        all_work = self._work.get((component, aggressively))
        if all_work is None:
            all_work = self._work[component, aggressively] = list(self._find_preemptible_work(component, aggressively))
        return all_work

    def refusal(self, allocation: Allocation) -> RefusalReason | None:
        """Return why no waiter may preempt a running allocation; None if some waiter may."""
        protection = self._protection_of(allocation)
        if protection is not None:
            return protection
        all_work = self.preemptible_work(allocation.component, aggressively=True)
        return None if any(work.allocation is allocation for work in all_work) else RefusalReason.WITHIN_FAIR_SHARE

    def _find_preemptible_work(self, component: str, aggressively: bool) -> Iterator[PreemptibleWork]:
        allocations = self._allocations.get(component, ())
        if not allocations:
            return
        split = self._splits.get(component)
        if split is None:
            split = self._splits[component] = self.shares.split(component, allocations)
        settings = self.shares.inputs.starvation_settings[POLICY + component]
        aggressive_only = dict.fromkeys(split.preemptible, False)
        if aggressively and settings.allow_aggressive:
            aggressive_only |= dict.fromkeys(split.aggressively_preemptible, True)
        bound = self._bound(POLICY + component, settings.threshold)
        for allocation in allocations if aggressive_only else ():
            if allocation.id in aggressive_only and self._protection_of(allocation) is None:
                keys_beyond = self._beyond(
                    allocation, split.usage_before[allocation.id], bound, partly=aggressive_only[allocation.id]
                )
                if keys_beyond:
                    yield PreemptibleWork(allocation, aggressive_only[allocation.id], keys_beyond)

    def _bound(self, account: str, threshold: Fraction) -> list[int]:
        fair = self.shares.account(account).fair
        return [units * threshold.numerator // threshold.denominator for units in fair]

    def _beyond(self, allocation: Allocation, before: Sequence[int], bound: Sequence[int], *, partly: bool) -> frozenset[str]:
        slack, own = self.shares.scale // satisfaction.EQUAL_WITHIN, self.shares.share(allocation.amounts)
        rows = zip(self.shares.division.keys, before, own, bound, strict=True)
        if partly:
            return frozenset(key for key, below, units, most in rows if units and below + units > most + slack)
        return frozenset(key for key, below, units, most in rows if units and below + slack >= most)


class FairShareRules:
    """The fair shares of one pool during one pass, after each planned step."""

    def __init__(
        self, projection: Projection, shares: FairShares, states: Mapping[str, StarvationState], protection_of: ProtectionOf
    ) -> None:
        self.projection = projection
        self.inputs = shares.inputs
        self._current_shares = shares
        self._states = states
        self._protection_of = protection_of
        self._scenario: tuple[int, ShareScenario] | None = None
        self.weighed_exchanges = 0
        """The number of exchanges computed so far."""
        self._shares_by_state: dict[object, FairShares] = {}
        """State after an exchange → its fair shares."""
        self._max_weighed = max(LEAST_WEIGHED, min(MOST_WEIGHED, WEIGHED_POLICIES // max(1, len(self.inputs.tree.paths))))

    def scenario(self, holds_ahead: HoldsAhead) -> ShareScenario:
        """Return the pool after all victims have left, with the owners of these holds running."""
        if holds_ahead is not self.projection.all_holds:
            return self._build_scenario(holds_ahead)
        if self._scenario is None or self._scenario[0] != self.projection.version:
            self._scenario = self.projection.version, self._build_scenario(holds_ahead)
        return self._scenario[1]

    def is_starving(self, account: str) -> bool:
        """True if an account has been below its fair share for longer than `starvation_timeout_s`."""
        return LEVELS[self._states[account].status] is not StarvationLevel.NONE

    def level(self, component: str, scenario: ShareScenario) -> StarvationLevel:
        """Return the highest starvation level of a policy and its groups. An account counts only if it is below its fair share
        in this scenario, too."""
        path = self.inputs.tree.paths[component][:-1]
        levels = ((LEVELS[self._states[account].status], account) for account in path)
        return max(
            (level for level, account in levels if level and scenario.shares.is_below(account)), default=StarvationLevel.NONE
        )

    def may_weigh_more(self, weighed_before: int) -> bool:
        """True if this pass may compute another exchange. `weighed_before` is the count when the attempt of the waiter began:
        one waiter gets at most an eighth of all exchanges."""
        return self.weighed_exchanges < self._max_weighed and self.weighed_exchanges - weighed_before < max(
            2, self._max_weighed // 8
        )

    def waiters_in_order(self, waiters: Iterable[Waiter], now_ms: int) -> Iterator[Waiter]:
        """Yield the waiters: 1. most urgent 2. least satisfied policy 3. higher class 4. older 5. id.

        After half of the exchanges of a pass, the order continues at another waiter of the same urgency, in each pass at a
        different one. So waiters that are refused in every pass do not keep other waiters from being judged.
        """
        ordered = self._sorted_waiters(waiters)
        scenario = self.scenario(self.projection.all_holds)
        for index, waiter in enumerate(ordered):
            if self.weighed_exchanges * 2 > self._max_weighed:
                level = self._level_of(waiter, scenario)
                rest = [other for other in ordered[index:] if self._level_of(other, scenario) is level]
                first = now_ms * HASH_MULTIPLIER % 2**32 % len(rest)
                yield from rest[first:] + rest[:first] + ordered[index + len(rest) :]
                return
            yield waiter

    def _level_of(self, waiter: Waiter, scenario: ShareScenario) -> StarvationLevel:
        return self.level(waiter.component, scenario) if waiter.component in self.inputs.tree.paths else StarvationLevel.NONE

    def _sorted_waiters(self, waiters: Iterable[Waiter]) -> list[Waiter]:
        scenario = self.scenario(self.projection.all_holds)
        levels = {component: self.level(component, scenario) for component in self.inputs.tree.paths}
        satisfactions = {component: self._satisfaction(component, scenario) for component, level in levels.items() if level}
        return sorted(
            waiters,
            key=lambda waiter: (
                -levels.get(waiter.component, StarvationLevel.NONE),
                satisfactions.get(waiter.component, (1, Fraction(0))),
                -waiter.preemption_class,
                waiter.submission_number,
                waiter.id,
            ),
        )

    def scenario_after(self, scenario: ShareScenario, waiter: Waiter, victims: Sequence[Allocation]) -> ShareScenario:
        """Return the state after these victims have left and the waiter runs."""
        self.weighed_exchanges += 1
        usage = add_usage(scenario.shares.usage, waiter.component, waiter.amounts, 1)
        for victim in victims:
            usage = add_usage(usage, victim.component, victim.amounts, -1)
        components = dict.fromkeys([waiter.component, *(victim.component for victim in victims)])
        state = (scenario, tuple((component, tuple(usage[component].values())) for component in sorted(components)))
        shares = self._shares_by_state.get(state)
        if shares is None:
            shares = self._shares_by_state[state] = FairShares(self.inputs, usage)
        leaving, allocations = {victim.id for victim in victims}, self._allocations()
        for component in dict.fromkeys(victim.component for victim in victims):
            allocations[component] = [allocation for allocation in allocations[component] if allocation.id not in leaving]
        allocations[waiter.component].append(allocation_of(waiter))
        return ShareScenario(shares, allocations, self._lasting_protection)

    def scenario_with(self, scenario: ShareScenario, orphan: Allocation) -> ShareScenario:
        """Return the scenario with an orphaned victim among the running allocations. The usage of its policy includes its units
        already."""
        allocations = self._allocations()
        allocations[orphan.component] = sorted(
            [*allocations[orphan.component], orphan], key=lambda allocation: allocation.fence
        )
        return ShareScenario(scenario.shares, allocations, self._lasting_protection)

    def _lasting_protection(self, allocation: Allocation) -> RefusalReason | None:
        """Return the protection of an allocation that does not pass with time; None if there is none."""
        protection = self._protection_of(allocation)
        return None if protection in (RefusalReason.NEAR_COMPLETION, RefusalReason.JUST_STARTED) else protection

    def _build_scenario(self, holds_ahead: HoldsAhead) -> ShareScenario:
        projection, keys = self.projection, list(self.inputs.capacity)
        usage: UsageByComponent = {
            component: {key: max(0, projection.projected_use(POLICY + component, key, holds_ahead)) for key in keys}
            for component in self.inputs.tree.paths
        }
        shares = self._current_shares if usage == self._current_shares.usage else FairShares(self.inputs, usage)
        return ShareScenario(shares, self._allocations(), self._protection_of)

    def _allocations(self) -> dict[str, list[Allocation]]:
        return {component: self.projection.borrowing.running(component) for component in self.inputs.tree.paths}

    def _satisfaction(self, component: str, scenario: ShareScenario) -> tuple[int, Fraction]:
        ratio = satisfaction.satisfaction_ratio(scenario.shares.account(POLICY + component), scenario.shares.scale)
        return (1, Fraction(0)) if ratio is None else (0, ratio)


def allocation_of(waiter: Waiter) -> Allocation:
    """Return the allocation that a waiter would become, the newest of all."""
    return Allocation(
        id=waiter.id,
        component=waiter.component,
        amounts=waiter.amounts,
        fence=1 << 62,
        preemptible=waiter.preemptible,
        preemption_class=waiter.preemption_class,
        checkpoint="none",
        checkpoint_minutes=None,
        walltime_s=None,
        granted_ms=0,
        chain=waiter.chain,
    )
