"""The attempt of one waiter to preempt by fair share: its shortages and its candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from app.domain.plan_steps import Preempt, Trigger, UsageCondition, Victim
from app.domain.queue_score import MAX_AMOUNT
from app.domain.snapshot import Allocation, Waiter
from app.planner.account_tree import POLICY
from app.planner.decisions import CandidateVerdict, DecisionReason, RefusalReason
from app.planner.fair_share.rules import TRIGGERS, FairShareRules, PreemptibleWork, ShareScenario, StarvationLevel
from app.planner.preemption.candidates import Candidate
from app.planner.preemption.cost import PreemptionCosts
from app.planner.preemption.ordering import fair_share_order
from app.planner.preemption.rules import Permit
from app.planner.projection import Deficits, HoldsAhead


@dataclass(frozen=True, slots=True)
class FairShareCandidates:
    """The candidates of a waiter in order, and the units of each need that all of them would free together."""

    candidates: list[Candidate]
    units_for_needs: list[int]


class FairShareAttempt:
    """The attempt of one waiter in the present state of the pool."""

    def __init__(
        self, rules: FairShareRules, costs: PreemptionCosts, waiter: Waiter, holds_ahead: HoldsAhead, deficits: Deficits
    ) -> None:
        self.waiter = waiter
        self.set_refusal = DecisionReason.WOULD_BE_TAKEN_BACK
        self.must_weigh_sets = True
        self.policies_taking_back = frozenset[str]()
        self.excess: list[tuple[str, int]] | None = None
        self._rules = rules
        self._costs = costs
        self._tree = rules.inputs.tree
        path = self._tree.paths[waiter.component]
        self.needs = [(path.index(account), key, units) for (account, key), units in deficits.items()]
        self._scenario = rules.scenario(holds_ahead)
        self.level = rules.level(waiter.component, self._scenario)
        self._candidates: FairShareCandidates | None = None
        self._weighed_before = rules.weighed_exchanges

    @property
    def may_weigh_more(self) -> bool:
        """True if this pass may compute another exchange for the waiter."""
        return self._rules.may_weigh_more(self._weighed_before)

    def could_suffice(self) -> bool:
        """True if all candidates together cover the needs."""
        return all(
            units <= most for (_, _, units), most in zip(self.needs, self._all_candidates().units_for_needs, strict=True)
        )

    def candidates(self) -> Iterator[Candidate]:
        """Yield the candidates: 1. preemptible before aggressively preemptible 2. newest 3. id."""
        return iter(self._all_candidates().candidates)

    def units_for_needs(self, allocation: Allocation) -> list[int]:
        """Return the units of each need that an allocation would free."""
        meeting_level = self._tree.meeting_level(self.waiter.component, allocation.component)
        return [allocation.amounts.get(key, 0) if level >= meeting_level else 0 for level, key, _ in self.needs]

    def units_for_excess(self, allocation: Allocation) -> list[int]:
        """Return an empty list: no permit of this discipline depends on an excess."""
        return []

    def cost(self, allocation: Allocation) -> Fraction:
        """Return the cost of preempting an allocation."""
        return self._costs.exact(allocation)

    def allows(self, candidates: Sequence[Candidate]) -> bool:
        """True if, after the exchange, no policy of a victim is below its fair share and could preempt the waiter in turn."""
        victims = [allocation for _, allocation, _ in candidates]
        after = self._rules.scenario_after(self._scenario, self.waiter, victims)
        self.policies_taking_back = frozenset(victim.component for victim in victims if self._can_take_back(after, victim))
        return not self.policies_taking_back

    def may_take_over(self, orphan: Allocation) -> bool:
        """True if the waiter may preempt an orphaned victim."""
        if self.level is StarvationLevel.NONE or orphan.component == self.waiter.component:
            return False
        if self._rules.is_starving(POLICY + orphan.component):
            return False
        scenario = self._rules.scenario_with(self._scenario, orphan)
        return any(
            work.allocation is orphan and self._may_take(work) for work in self._preemptible_work(scenario, orphan.component)
        )

    def preempt_step(self, candidates: Sequence[Candidate]) -> Preempt:
        """Return the step that preempts these victims, with the conditions of the choice."""
        own_account = POLICY + self.waiter.component
        accounts = dict.fromkeys([own_account, *(POLICY + allocation.component for _, allocation, _ in candidates)])
        usage_conditions = []
        for account in accounts:
            for key in self._rules.inputs.capacity:
                used = self._tree.accounts[account].used.get(key, 0)
                usage_conditions.append(
                    UsageCondition(account, key, 0, used)
                    if account == own_account
                    else UsageCondition(account, key, used, MAX_AMOUNT)
                )
        return Preempt(
            waiter=self.waiter.id,
            victims=tuple(Victim(allocation.id, allocation.fence, permit.trigger) for _, allocation, permit in candidates),
            usage_conditions=tuple(usage_conditions),
        )

    def verdicts(self) -> Iterator[CandidateVerdict]:
        """Yield the answer of the rule about each allocation that is not leaving."""
        candidate_ids = {allocation.id for _, allocation, _ in self.candidates()}
        for component in self._tree.paths:
            for allocation in self._rules.projection.borrowing.running(component):
                if allocation.id in candidate_ids:
                    yield CandidateVerdict(allocation.id, "starvation", TRIGGERS[self.level], False, ())
                else:
                    yield CandidateVerdict(allocation.id, None, None, False, ((None, self._refusal(allocation)),))

    def _all_candidates(self) -> FairShareCandidates:
        """Return the candidates. They are the same for all waiters of the policy with the same short keys."""
        if self._candidates is None:
            short_keys = frozenset((level, key) for level, key, _ in self.needs)
            stays_within = self.level is StarvationLevel.AGGRESSIVE and self._stays_within_fair_share()
            signature = (self.waiter.component, self.level, stays_within, short_keys, self.waiter.chain)
            candidates = self._scenario.candidates.get(signature)
            if candidates is None:
                candidates = self._scenario.candidates[signature] = self._list_candidates()
            self._candidates = candidates
        return self._candidates

    def _list_candidates(self) -> FairShareCandidates:
        all_work = (work for component in self._tree.paths for work in self._takeable_of(component))
        ranked = [(fair_share_order(work.allocation, work.aggressive_only), work.allocation) for work in all_work]
        ranked.sort(key=lambda item: item[0])
        units_for_needs = [self.units_for_needs(allocation) for _, allocation in ranked]
        permit = Permit("starvation", TRIGGERS.get(self.level, Trigger.STARVATION))
        return FairShareCandidates(
            candidates=[(position, allocation, permit) for position, allocation in ranked],
            units_for_needs=[sum(contribution[need] for contribution in units_for_needs) for need in range(len(self.needs))],
        )

    def _takeable_of(self, component: str) -> Iterator[PreemptibleWork]:
        if (
            self.level is StarvationLevel.NONE
            or component == self.waiter.component
            or self._rules.is_starving(POLICY + component)
        ):
            return
        yield from (work for work in self._preemptible_work(self._scenario, component) if self._may_take(work))

    def _preemptible_work(self, scenario: ShareScenario, component: str) -> list[PreemptibleWork]:
        return scenario.preemptible_work(component, aggressively=self.level is StarvationLevel.AGGRESSIVE)

    def _may_take(self, work: PreemptibleWork) -> bool:
        if self.waiter.chain is not None and self.waiter.chain == work.allocation.chain:
            return False
        if not work.keys_beyond & self._short_keys(work.allocation.component):
            return False
        return not work.aggressive_only or (self.level is StarvationLevel.AGGRESSIVE and self._stays_within_fair_share())

    def _short_keys(self, component: str) -> set[str]:
        meeting_level = self._tree.meeting_level(self.waiter.component, component)
        return {key for level, key, _ in self.needs if level >= meeting_level}

    def _stays_within_fair_share(self) -> bool:
        return self._scenario.shares.fits_within(self.waiter.component, self.waiter.amounts)

    def _refusal(self, allocation: Allocation) -> RefusalReason:
        if allocation.component == self.waiter.component:
            return RefusalReason.SAME_POLICY
        if self.waiter.chain is not None and self.waiter.chain == allocation.chain:
            return RefusalReason.SAME_CHAIN
        if not set(allocation.amounts) & self._short_keys(allocation.component):
            return RefusalReason.HOLDS_NOTHING_SHORT
        if self.level is StarvationLevel.NONE:
            return RefusalReason.NOT_STARVING
        if self._rules.is_starving(POLICY + allocation.component):
            return RefusalReason.STARVES
        refusal = self._scenario.refusal(allocation)
        if refusal is not None:
            return refusal
        return (
            RefusalReason.WITHIN_FAIR_SHARE
            if self.level is StarvationLevel.ORDINARY or self._stays_within_fair_share()
            else RefusalReason.BEYOND_FAIR_SHARE
        )

    # Preemption in turn

    def _can_take_back(self, after: ShareScenario, victim: Allocation) -> bool:
        path, preemptor = self._tree.paths[victim.component][:-1], self.waiter.component
        if not any(after.shares.is_below(account) for account in path) or after.shares.is_below(POLICY + preemptor):
            return False
        shortages = self._shortages_after(after, victim)
        if not shortages:
            return False
        preemptor_work = [
            work
            for work in after.preemptible_work(preemptor, aggressively=True)
            if self._could_take(after, victim, work, shortages)
        ]
        if not preemptor_work:
            return False
        other_components = (component for component in self._tree.paths if component not in (preemptor, victim.component))
        other_work = [
            work
            for component in other_components
            if not after.shares.is_below(POLICY + component)
            for work in after.preemptible_work(component, aggressively=True)
            if self._could_take(after, victim, work, shortages)
        ]
        open_needs = dict(shortages)
        for work in (*preemptor_work, *other_work):
            meeting_level = self._tree.meeting_level(victim.component, work.allocation.component)
            for (level, key), units in open_needs.items():
                if level >= meeting_level:
                    open_needs[level, key] = units - work.allocation.amounts.get(key, 0)
        return all(units <= 0 for units in open_needs.values())

    def _could_take(
        self, after: ShareScenario, victim: Allocation, work: PreemptibleWork, shortages: dict[tuple[int, str], int]
    ) -> bool:
        if victim.chain is not None and victim.chain == work.allocation.chain:
            return False
        meeting_level = self._tree.meeting_level(victim.component, work.allocation.component)
        if not work.keys_beyond & {key for level, key in shortages if level >= meeting_level}:
            return False
        if not work.aggressive_only:
            return True
        settings = self._rules.inputs.starvation_settings[POLICY + victim.component]
        return settings.may_starve_aggressively and after.shares.fits_within(victim.component, victim.amounts)

    def _shortages_after(self, after: ShareScenario, victim: Allocation) -> dict[tuple[int, str], int]:
        """Return the shortages of the victim after the exchange: (level of its path, key) → units."""
        shortages = {}
        for level, account in enumerate(self._tree.paths[victim.component]):
            components = self._tree.components_below[account]
            for key, units in victim.amounts.items():
                limit = self._tree.limit(account, key)
                if limit is not None and key in self._rules.inputs.capacity:
                    missing = sum(after.shares.usage[component][key] for component in components) + units - limit
                    if missing > 0:
                        shortages[level, key] = missing
        return shortages
