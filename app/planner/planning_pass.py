"""The planning pass over one pool: the victims of each waiter, and the new owners of orphaned victims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from app.domain.plan_steps import EndHold, PlanStep, Preempt, Publication, ReassignVictim, Reprieve
from app.domain.snapshot import Allocation, PoolSnapshot, Waiter
from app.planner.account_tree import AccountTree
from app.planner.borrowing import BorrowingIndex
from app.planner.decisions import CandidateVerdict, Decision, DecisionReason, Outcome, RefusalReason
from app.planner.fair_share.attempt import FairShareAttempt
from app.planner.fair_share.pool_shares import FairShareInputs, FairShares
from app.planner.fair_share.publication import build_publication, starvation_states
from app.planner.fair_share.rules import FairShareRules, StarvationLevel
from app.planner.fair_share.starvation import StarvationState
from app.planner.preemption.attempt import PreemptionAttempt
from app.planner.preemption.budget import PreemptionBudget
from app.planner.preemption.candidates import Candidate, CandidateIndex
from app.planner.preemption.cost import PreemptionCosts, waiter_value
from app.planner.preemption.over_limit import find_cancelable_evictions, plan_evictions
from app.planner.preemption.protection import Protection
from app.planner.preemption.victim_selection import VictimBounds, choose_victims
from app.planner.projection import Deficits, HoldsAhead, Projection, VictimHold

Shape: TypeAlias = tuple[object, ...]
"""The properties of a waiter that a decision depends on: until a step is planned, equal shapes get equal decisions."""

Attempt: TypeAlias = PreemptionAttempt | FairShareAttempt

QueueSortKey: TypeAlias = tuple[int, int, str]
"""The order of waiters: 1. queue score 2. submission number 3. id."""


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The steps to apply, in order, and the decision about every waiter with its reason."""

    steps: tuple[PlanStep, ...]
    decisions: Mapping[str, Decision]
    """Id of a waiter, or of the owner of a hold → its decision."""
    publication: Publication | None = None
    """The statuses to publish before the first step is applied."""


def plan_pool(snapshot: PoolSnapshot, skip: Set[str] = frozenset(), until: str | None = None) -> PoolPlan:
    """Return the plan for one pool. The waiters in `skip` do not preempt yet: they prefer a pool that this reconcile pass has
    not decided yet. Waiters after `until` are not judged, which changes no earlier decision."""
    return PlanningPass(snapshot, skip).run(until)


@dataclass(slots=True)
class _Refusal:
    """The decision that a shape preempts nothing, and the state that it was based on."""

    version: int
    deficits: Deficits
    decision: Decision


class PlanningPass:
    def __init__(self, snapshot: PoolSnapshot, skip: Set[str]) -> None:
        self._snapshot = snapshot
        self._settings = snapshot.settings
        self._skip = skip
        tree = AccountTree(snapshot.accounts)
        owners = (hold.owner for hold in snapshot.holds)
        chains = frozenset(each.chain for each in (*snapshot.waiters, *owners) if each.chain is not None)
        find_protection = self._find_protection = Protection(snapshot.settings, snapshot.now_ms).reason
        profiles = self._profiles = {component: tree.policy(component).profile for component in tree.paths}
        self._projection = Projection(snapshot, tree, BorrowingIndex(snapshot, tree, find_protection, chains))
        self._costs = PreemptionCosts(snapshot.settings, snapshot.now_ms, profiles)
        self._index = CandidateIndex(snapshot, self._projection, self._costs)
        self._starvation: Mapping[str, StarvationState] = {}
        self._shares: FairShares | None = None
        self._fair_share_rules: FairShareRules | None = None
        if snapshot.settings.discipline == "fair_share":
            inputs = FairShareInputs(snapshot, tree)
            self._shares = FairShares(inputs, inputs.usage)
            self._starvation = starvation_states(snapshot, self._shares)
            self._fair_share_rules = FairShareRules(self._projection, self._shares, self._starvation, self._protection_of)
        self._budget = PreemptionBudget(snapshot)
        self._refusals: dict[Shape, _Refusal] = {}
        self._waiters_behind: Set[str] = frozenset()
        """Strict queueing with fair share: the waiters behind a blocked waiter, in the order of the queue."""
        self._is_queue_blocked = False
        """Strict queueing: True if the pool's capacity blocks a waiter."""
        self._first_blocked_key: QueueSortKey | None = None
        """Strict queueing: the place in the queue of the first owner of a hold that capacity blocks."""
        self._owners_without_hold: list[Waiter] = []
        """The owners whose hold ended in this pass. They wait on without a hold."""
        self._steps: list[PlanStep] = []
        self._decisions: dict[str, Decision] = {}

    def run(self, until: str | None = None) -> PoolPlan:
        """Return the plan of the pool. Waiters after `until` are not judged."""
        # 1. Reassign each orphaned victim to the next hold that needs it, or reprieve it.
        self._settle_orphaned_victims()
        # 2. Evict the use beyond a limit, without a waiter.
        self._settle_over_limit()
        # 3. Let the owners of holds that do not suffice preempt again. End a hold that cannot be filled; its victims are
        # orphaned.
        while any(self._refill_or_end_hold(hold, holds_ahead) for hold, holds_ahead in self._projection.holds_in_order()):
            self._settle_orphaned_victims()
        # 4. Let the waiters preempt in queue order; with fair share the most urgent first, until one waiter is served.
        if self._settings.queueing == "strict":
            self._first_blocked_key = self._find_first_blocked_owner()
        for waiter in self._waiters_in_order() if until not in self._decisions else ():
            self._decisions[waiter.id] = self._judge(waiter)
            if waiter.id == until:
                break
        publication = build_publication(self._snapshot, self._projection.tree, self._shares, self._starvation)
        return PoolPlan(tuple(self._steps), self._decisions, publication)

    # 1. Orphaned victims

    def _settle_orphaned_victims(self) -> None:
        """Give each orphaned victim, the newest first, to the first hold that needs its units and whose owner may preempt it.
        Reprieve the victim if there is no such hold."""
        projection, grant_order = self._projection, self._projection.borrowing.grant_order
        short_attempts = list(self._owners_short()) if projection.orphaned_victims else []
        for orphan in sorted(projection.orphaned_victims.values(), key=lambda orphan: -grant_order[orphan.id]):
            hold = self._next_hold_needing(orphan, short_attempts)
            if hold is None:
                projection.reprieve(orphan)
                self._steps.append(Reprieve(orphan.id, orphan.fence))
            else:
                projection.reassign(orphan, hold)
                self._steps.append(ReassignVictim(orphan.id, orphan.fence, hold.owner.id))
                short_attempts = list(self._owners_short())

    def _owners_short(self) -> Iterator[tuple[VictimHold, Attempt]]:
        for hold, holds_ahead in self._projection.holds_in_order():
            deficits = self._projection.deficits(hold.owner, holds_ahead)
            if deficits and not self._projection.is_fixed_share_used_up(hold.owner, holds_ahead):
                yield hold, self._attempt(hold.owner, holds_ahead, deficits)

    def _next_hold_needing(self, orphan: Allocation, short_attempts: list[tuple[VictimHold, Attempt]]) -> VictimHold | None:
        return next((hold for hold, attempt in short_attempts if attempt.may_take_over(orphan)), None)

    # 2. Limits

    def _settle_over_limit(self) -> None:
        for allocation in find_cancelable_evictions(self._snapshot, self._projection):
            self._projection.cancel_eviction(allocation)
            self._steps.append(Reprieve(allocation.id, allocation.fence))
        step = plan_evictions(self._snapshot, self._projection, self._protection_of, self._budget.left_this_minute)
        if step is not None:
            self._projection.apply([step])
            self._budget.count_evictions(len(step.victims))
            self._steps.append(step)

    def _protection_of(self, allocation: Allocation) -> RefusalReason | None:
        return self._find_protection(allocation, self._profiles[allocation.component])

    # 3. Holds

    def _refill_or_end_hold(self, hold: VictimHold, holds_ahead: HoldsAhead) -> bool:
        """Let the owner of a hold that does not suffice preempt again. Return True if the hold ended with orphaned victims."""
        owner = hold.owner
        decision = self._decide(owner, holds_ahead)
        if decision.reason in _ENDS_HOLD or (
            decision.reason in _PASSES_WITH_TIME and not self._has_victims_without_pauses(owner, holds_ahead)
        ):
            self._projection.end_hold(hold)
            self._owners_without_hold.append(owner)
            self._steps.append(EndHold(owner.id))
            decision = Decision(owner.id, Outcome.ENDS, decision.reason, decision.list_verdicts)
        earlier_decision = self._decisions.get(owner.id)
        if earlier_decision is None or decision.outcome is not Outcome.WAITS:
            self._decisions[owner.id] = decision
        return decision.outcome is Outcome.ENDS and bool(hold.victims)

    def _has_victims_without_pauses(self, owner: Waiter, holds_ahead: HoldsAhead) -> bool:
        """True if the owner could preempt a set of victims but for backoff and the preemptions of the last minute."""
        attempt = self._attempt(owner, holds_ahead, self._projection.deficits(owner, holds_ahead))
        choice = choose_victims(attempt, VictimBounds(self._budget.max_victims_ever, waiter_value(self._settings, owner)))
        return choice is DecisionReason.NOT_WEIGHED or not isinstance(choice, DecisionReason)

    # 4. Waiters

    def _waiters_in_order(self) -> Iterable[Waiter]:
        waiters = self._snapshot.waiters
        if self._fair_share_rules is None:
            return waiters
        if self._settings.queueing == "strict":
            self._waiters_behind = frozenset(
                waiter.id for waiter in waiters if self._has_policy(waiter) and self._is_behind_blocked(waiter)
            )
        return self._fair_share_rules.waiters_in_order(waiters, self._snapshot.now_ms)

    def _has_policy(self, waiter: Waiter) -> bool:
        return waiter.component in self._projection.tree.paths

    def _judge(self, waiter: Waiter) -> Decision:
        if not self._has_policy(waiter):
            return _wait_decision(waiter, DecisionReason.NO_POLICY)
        if self._must_not_pass(waiter):
            return _wait_decision(waiter, DecisionReason.BEHIND)
        if waiter.id in self._skip:
            return _wait_decision(waiter, DecisionReason.PREFERS_ANOTHER)
        return self._decide_once_per_shape(waiter)

    def _must_not_pass(self, waiter: Waiter) -> bool:
        if self._settings.queueing != "strict":
            return False
        return waiter.id in self._waiters_behind if self._fair_share_rules else self._is_behind_blocked(waiter)

    def _is_behind_blocked(self, waiter: Waiter) -> bool:
        """True if the queue is strict and the pool's capacity blocks an earlier request or an owner of a hold."""
        first_blocked_score = self._snapshot.first_blocked_score
        if first_blocked_score is not None and waiter.queue_score > first_blocked_score:
            return True
        if self._is_queue_blocked or (
            self._first_blocked_key is not None and self._first_blocked_key < _queue_sort_key(waiter)
        ):
            return True
        self._is_queue_blocked = self._is_blocked_by_capacity(waiter, self._projection.all_holds)
        return False

    def _find_first_blocked_owner(self) -> QueueSortKey | None:
        is_blocked, projection = self._is_blocked_by_capacity, self._projection
        owners = [hold.owner for hold, holds_ahead in projection.holds_in_order() if is_blocked(hold.owner, holds_ahead)]
        owners += [owner for owner in self._owners_without_hold if is_blocked(owner, projection.all_holds)]
        return min(map(_queue_sort_key, owners), default=None)

    def _is_blocked_by_capacity(self, waiter: Waiter, holds_ahead: HoldsAhead) -> bool:
        """True if the pool's capacity blocks the waiter now. A waiter that a limit or its fixed share blocks is not counted,
        because it does not block other waiters."""
        return self._projection.lacks_capacity(waiter, holds_ahead) and not self._projection.is_blocked_by_limit(waiter)

    def _decide_once_per_shape(self, waiter: Waiter) -> Decision:
        """Return the decision about a waiter; waiters of one shape are decided once, until a step could change the decision."""
        shape = (
            waiter.component,
            frozenset(waiter.amounts.items()),
            waiter.preemptible,
            waiter.preemption_class,
            waiter.chain,
            None if self._fair_share_rules else waiter.preempted_fence,
        )
        projection, refusal = self._projection, self._refusals.get(shape)
        if refusal is not None and self._is_still_refused(refusal, waiter):
            return Decision(waiter.id, refusal.decision.outcome, refusal.decision.reason, refusal.decision.list_verdicts)
        decision = self._decide(waiter, projection.all_holds)
        if decision.outcome is Outcome.WAITS:
            self._refusals[shape] = _Refusal(projection.version, projection.deficits(waiter, projection.all_holds), decision)
        return decision

    def _is_still_refused(self, refusal: _Refusal, waiter: Waiter) -> bool:
        """True if no step was planned since the refusal, or if all candidates together still do not suffice. Without groups,
        preemptions by other waiters only reduce the units of the candidates."""
        if refusal.version == self._projection.version:
            return True
        if refusal.decision.reason is not DecisionReason.NOT_ENOUGH or self._projection.tree.has_groups:
            return False
        deficits = self._projection.deficits(waiter, self._projection.all_holds)
        return deficits.keys() == refusal.deficits.keys() and all(
            deficits[account_key] >= units for account_key, units in refusal.deficits.items()
        )

    # The decision about one waiter

    def _decide(self, waiter: Waiter, holds_ahead: HoldsAhead) -> Decision:
        projection = self._projection
        if projection.is_fixed_share_used_up(waiter, holds_ahead):
            return _wait_decision(waiter, DecisionReason.FIXED_SHARE_USED_UP)
        deficits = projection.deficits(waiter, holds_ahead)
        if not deficits:
            return _wait_decision(waiter, DecisionReason.NO_SHORTAGE)
        if reason := self._budget.refusal(other_holds=len(projection.holds.keys() - {waiter.id})):
            return _wait_decision(waiter, reason)
        list_verdicts = partial(_candidate_verdicts, self._snapshot, self._steps, len(self._steps), waiter)
        attempt = self._attempt(waiter, holds_ahead, deficits)
        if isinstance(attempt, FairShareAttempt) and (refusal := self._fair_share_refusal(attempt)):
            return Decision(waiter.id, Outcome.WAITS, refusal, list_verdicts)
        choice = choose_victims(attempt, VictimBounds(self._budget.max_victims_now, waiter_value(self._settings, waiter)))
        if (
            choice is DecisionReason.TOO_MANY
            and self._budget.max_victims_now != self._budget.max_victims_ever
            and self._has_victims_without_pauses(waiter, holds_ahead)
        ):
            choice = DecisionReason.MINUTE_USED_UP
        if isinstance(choice, DecisionReason):
            return Decision(waiter.id, Outcome.WAITS, choice, list_verdicts)
        self._preempt(attempt, choice)
        return Decision(waiter.id, Outcome.PREEMPTS, DecisionReason.FITS_THEN, list_verdicts)

    def _fair_share_refusal(self, attempt: FairShareAttempt) -> DecisionReason | None:
        """Return why the fair-share rules allow the waiter no victim at all; None if they may allow some."""
        if attempt.level is StarvationLevel.NONE:
            return DecisionReason.NOT_STARVING
        if any(isinstance(step, Preempt) for step in self._steps):
            return DecisionReason.ONE_AT_A_TIME
        return None if attempt.may_weigh_more else DecisionReason.NOT_WEIGHED

    def _attempt(self, waiter: Waiter, holds_ahead: HoldsAhead, deficits: Deficits) -> Attempt:
        if self._fair_share_rules is not None:
            return FairShareAttempt(self._fair_share_rules, self._costs, waiter, holds_ahead, deficits)
        return PreemptionAttempt(self._index, waiter, holds_ahead, deficits)

    def _preempt(self, attempt: Attempt, victims: tuple[Candidate, ...]) -> None:
        self._steps.append(attempt.preempt_step(victims))
        self._budget.count_decision(len(victims))
        self._projection.preempt(attempt.waiter, [allocation for _, allocation, _ in victims])

    # Explanations

    def verdicts(self, steps: Sequence[PlanStep], waiter: Waiter) -> Iterator[CandidateVerdict]:
        """Return the answers of the rules for a waiter, or for the owner of a hold, after these steps."""
        self._projection.apply(steps)
        positions = (holds_ahead for hold, holds_ahead in self._projection.holds_in_order() if hold.owner.id == waiter.id)
        holds_ahead = next(positions, self._projection.all_holds)
        return self._attempt(waiter, holds_ahead, self._projection.deficits(waiter, holds_ahead)).verdicts()


def _candidate_verdicts(
    snapshot: PoolSnapshot, steps: Sequence[PlanStep], step_count: int, waiter: Waiter
) -> Iterator[CandidateVerdict]:
    return PlanningPass(snapshot, frozenset()).verdicts(steps[:step_count], waiter)


_PASSES_WITH_TIME = frozenset(
    {DecisionReason.BACKOFF, DecisionReason.MINUTE_USED_UP, DecisionReason.ONE_AT_A_TIME, DecisionReason.NOT_WEIGHED}
)
"""The reasons that end by themselves, so that the hold may be filled later."""

_ENDS_HOLD = frozenset(
    {
        DecisionReason.FIXED_SHARE_USED_UP,
        DecisionReason.NOT_ENOUGH,
        DecisionReason.TOO_MANY,
        DecisionReason.NOT_WITHIN,
        DecisionReason.TOO_DEAR,
        DecisionReason.NOT_STARVING,
        DecisionReason.WOULD_BE_TAKEN_BACK,
    }
)
"""The reasons that end a hold that does not suffice."""


def _queue_sort_key(waiter: Waiter) -> QueueSortKey:
    return waiter.queue_score, waiter.submission_number, waiter.id


def _wait_decision(waiter: Waiter, reason: DecisionReason) -> Decision:
    return Decision(waiter.id, Outcome.WAITS, reason)
