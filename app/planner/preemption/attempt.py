"""The attempt of one waiter to preempt: its shortages, its view of each policy, and its candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial

from app.domain.plan_steps import BorrowedCondition, Preempt, Victim
from app.domain.queue_score import CLASS_COUNT
from app.domain.snapshot import Allocation, Waiter
from app.planner.decisions import CandidateVerdict, DecisionReason, RefusalReason
from app.planner.preemption.candidates import Candidate, CandidateIndex, PolicyCandidates
from app.planner.preemption.protection import SENSITIVE_CLASS
from app.planner.preemption.rules import Permit, PreemptorView, RuleAnswers, ask_rules, list_permits, permit_preference
from app.planner.projection import Deficits, HoldsAhead


class PreemptionAttempt:
    """The attempt of one waiter in the present state of the pool."""

    def __init__(self, index: CandidateIndex, waiter: Waiter, holds_ahead: HoldsAhead, deficits: Deficits) -> None:
        self.index = index
        self.waiter = waiter
        self.deficits = deficits
        self._tree = index.projection.tree
        self._borrowing = index.projection.borrowing
        self._policy = self._tree.policy(waiter.component)
        self.set_refusal = DecisionReason.NOT_WITHIN
        self.policies_taking_back = frozenset[str]()
        self.must_weigh_sets, self.may_weigh_more = False, True
        self.path = self._tree.paths[waiter.component]
        self.needs = [(self.path.index(account), key, units) for (account, key), units in deficits.items()]
        """(Level of its path, key, units) of each shortage."""
        self.excess = index.projection.excess_over_reserved(waiter, holds_ahead)
        """Per share key, the units that have to leave the waiter's own policy so that the waiter lies within its reserved
        amounts."""
        self._fits_unused_share = [
            index.projection.fits_unused_share(waiter, account, holds_ahead) for account in self.path[:-1]
        ]
        self._views: dict[tuple[int, int, int], PreemptorView] = {}
        self._candidates: dict[str, PolicyCandidates] = {}
        self._listed_candidates: list[Candidate] = []
        self._candidate_stream: Iterator[Candidate] | None = None

    def preemptor_view(self, component: str) -> PreemptorView:
        """Return the properties of the waiter that the rules may know about one policy."""
        meeting_level = self._tree.meeting_level(self.waiter.component, component)
        borrow_level = self._tree.meeting_level(component, self.waiter.component) - 1
        return self._view(meeting_level, max(0, borrow_level), self._tree.policy(component).priority)

    def _view(self, meeting_level: int, borrow_level: int, priority: int) -> PreemptorView:
        view = self._views.get((meeting_level, borrow_level, priority))
        if view is None:
            view = self._views[meeting_level, borrow_level, priority] = self._build_view(meeting_level, borrow_level, priority)
        return view

    def _build_view(self, meeting_level: int, borrow_level: int, priority: int) -> PreemptorView:
        waiter, same_policy = self.waiter, meeting_level == 0
        classes_below, classes_not_above = self._class_bounds(priority)
        levels = (0,) if same_policy else (0, meeting_level - 1)
        return PreemptorView(
            same_policy=same_policy,
            borrow_level=borrow_level,
            short_keys=self._borrowing.mask(key for level, key, _ in self.needs if level >= meeting_level),
            fits_unused_share=all(self._fits_unused_share[own_level] for own_level in levels),
            may_enter_share=same_policy and self.excess is not None,
            classes_below=classes_below,
            classes_not_above=classes_not_above,
            is_fixed=same_policy and not waiter.preemptible,
            ignores_shares=self.index.ranks_by_class and waiter.preemption_class == SENSITIVE_CLASS,
            is_sensitive=waiter.preemption_class == SENSITIVE_CLASS,
            granted_after=waiter.preempted_fence if self.index.ranks_by_class else None,
            chain=waiter.chain if waiter.chain in self.index.chains else None,
        )

    def _class_bounds(self, priority: int) -> tuple[int, int]:
        """Return two bounds on the preemption class of an allocation of a policy. Below the first it ranks lower than the
        waiter, below the second not higher."""
        own_class, own_priority = self.waiter.preemption_class, self._policy.priority
        if self.index.ranks_by_class:
            return own_class, own_class + 1 if priority <= own_priority else own_class
        if priority != own_priority:
            return (CLASS_COUNT, CLASS_COUNT) if priority < own_priority else (0, 0)
        return own_class, own_class + 1

    def could_suffice(self) -> bool:
        """True if all candidates together cover the needs. Conditions on candidates of the waiter's own policy are ignored."""
        open_needs = list(self.needs)
        for meeting_level, total in self._totals():
            open_needs = [
                (level, key, short - total(key) if level >= meeting_level else short) for level, key, short in open_needs
            ]
            open_needs = [need for need in open_needs if need[2] > 0]
            if not open_needs:
                return True
        return False

    def _totals(self) -> Iterator[tuple[int, Callable[[str], int]]]:
        """Yield the units of all candidates in the waiter's own policy, and in each set of policies for which the waiter has
        the same view.

        Each item is the level where the paths meet, and a function from key to units.
        """
        yield 0, self.policy_candidates(self.waiter.component).total
        for meeting_level in range(1, len(self.path)):
            for distance, priority in self.index.policies_by_distance_and_priority(self.path[meeting_level]):
                yield meeting_level, partial(self._total, meeting_level, distance, priority)

    def _total(self, meeting_level: int, distance: int, priority: int, key: str) -> int:
        """Return the units of all candidates in the policies of one distance and priority. Policies that the waiter meets
        further down its path are left out."""
        index, view = self.index, self._view(meeting_level, distance, priority)
        total = index.total(self.path[meeting_level], (distance, priority), view, key)
        if meeting_level > 1:
            return total - index.total(self.path[meeting_level - 1], (distance - 1, priority), view, key)
        if distance == 0 and priority == self._policy.priority:
            return total - index.policy_candidates(self.waiter.component, view).total(key)
        return total

    def policy_candidates(self, component: str) -> PolicyCandidates:
        """Return the candidates of a policy."""
        candidates = self._candidates.get(component)
        if candidates is None:
            candidates = self._candidates[component] = self.index.policy_candidates(component, self.preemptor_view(component))
        return candidates

    def candidates(self) -> Iterator[Candidate]:
        """Yield the candidates in order. They are computed only as far as they are read."""
        if self._candidate_stream is None:
            self._candidate_stream = self.index.candidates(self.policy_candidates)
        number = 0
        while True:
            if number == len(self._listed_candidates):
                candidate = next(self._candidate_stream, None)
                if candidate is None:
                    return
                self._listed_candidates.append(candidate)
            yield self._listed_candidates[number]
            number += 1

    def units_for_needs(self, allocation: Allocation) -> list[int]:
        """Return the units of each need that an allocation would free."""
        meeting_level = self._tree.meeting_level(self.waiter.component, allocation.component)
        return [allocation.amounts.get(key, 0) if level >= meeting_level else 0 for level, key, _ in self.needs]

    def units_for_excess(self, allocation: Allocation) -> list[int]:
        """Return the units of each excess over the policy's reserved amounts that an allocation would free."""
        is_own = allocation.component == self.waiter.component
        return [allocation.amounts.get(key, 0) if is_own else 0 for key, _ in self.excess or ()]

    def cost(self, allocation: Allocation) -> Fraction:
        """Return the cost of preempting an allocation."""
        return self.index.costs.exact(allocation)

    def allows(self, victims: Sequence[Candidate]) -> bool:
        """True if the condition of each conditional candidate holds when all these victims have left."""
        if not any(permit.requires_entering_share for _, _, permit in victims):
            return True
        excess = [units for _, units in self.excess or ()]
        for _, allocation, _ in victims:
            excess = [units - freed for units, freed in zip(excess, self.units_for_excess(allocation), strict=True)]
        return all(units <= 0 for units in excess)

    def may_take_over(self, orphan: Allocation) -> bool:
        """True if the waiter may preempt an orphaned victim."""
        traits = self._borrowing.traits_if_reprieved(orphan)
        permits = list_permits(self.index.rules, self.preemptor_view(orphan.component), traits)
        valid_permits = (permit for permit in permits if permit.granted_after is None or orphan.fence > permit.granted_after)
        return any(self.allows([((0, 0, 0), orphan, permit)]) for permit in valid_permits)

    def preempt_step(self, victims: Sequence[Candidate]) -> Preempt:
        """Return the step that preempts these victims, with the conditions of the choice."""
        unused_share_accounts = (
            account
            for _, allocation, permit in victims
            if permit.requires_unused_share
            for account in self.unused_share_accounts(allocation)
        )
        borrowed_conditions = (
            condition
            for _, allocation, permit in victims
            if permit.requires_borrowed
            for condition in self.borrowed_conditions(allocation)
        )
        enters_share = any(permit.requires_entering_share for _, _, permit in victims)
        return Preempt(
            waiter=self.waiter.id,
            victims=tuple(Victim(allocation.id, allocation.fence, permit.trigger) for _, allocation, permit in victims),
            unused_share_accounts=tuple(dict.fromkeys(unused_share_accounts)),
            reserved_accounts=self.path[:1] if enters_share else (),
            borrowed_conditions=tuple(borrowed_conditions),
        )

    def unused_share_accounts(self, allocation: Allocation) -> tuple[str, str]:
        """Return the accounts whose unused shares the waiter has to fit if it reclaims from an allocation."""
        return self.path[0], self.path[max(0, self._tree.meeting_level(self.waiter.component, allocation.component) - 1)]

    def borrowed_conditions(self, allocation: Allocation) -> Iterator[BorrowedCondition]:
        """Yield one condition for each account at which the allocation has to be borrowed, with the key that has the most
        borrowed units."""
        view = self.preemptor_view(allocation.component)
        path = self._tree.paths[allocation.component]
        keys = self._borrowing.mask(allocation.amounts)
        any_key = bool(view.short_keys & keys & ~self._borrowing.share_keys)
        for account in dict.fromkeys((path[0], path[view.borrow_level])):
            units_beyond = self._borrowing.units_beyond_reserved(allocation, account)
            largest_first = [
                (-units, key) for key, units in units_beyond.items() if any_key or view.short_keys & self._borrowing.mask([key])
            ]
            if largest_first:
                units, key = min(largest_first)
                yield BorrowedCondition(account, key, self.index.projection.stack_exits(account, key) - units - 1)

    def verdicts(self) -> Iterator[CandidateVerdict]:
        """Yield the answers of the rules about each allocation that is not leaving."""
        for component in self._tree.paths:
            for allocation_class in self._borrowing.policy_allocations(component).classes:
                answers = ask_rules(self.index.rules, self.preemptor_view(component), allocation_class.traits)
                yield from (_verdict(allocation, answers) for allocation in allocation_class.members.values())


def _verdict(allocation: Allocation, answers: RuleAnswers | RefusalReason) -> CandidateVerdict:
    if isinstance(answers, RefusalReason):
        return CandidateVerdict(allocation.id, None, None, False, ((None, answers),))
    permits = [answer for _, answer in answers if isinstance(answer, Permit)]
    for permit in sorted(permits, key=permit_preference):
        if permit.granted_after is None or allocation.fence > permit.granted_after:
            return CandidateVerdict(allocation.id, permit.rule, permit.trigger, permit.requires_entering_share, ())
    refusals = ((rule.name, RefusalReason.GRANTED_BEFORE if isinstance(answer, Permit) else answer) for rule, answer in answers)
    return CandidateVerdict(allocation.id, None, None, False, tuple(refusals))
