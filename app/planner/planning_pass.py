"""The pass over one pool: who is stopped for whom, who goes on leaving for somebody else, who is called back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from app.domain.plan_steps import EndHold, PassOn, Publication, Reprieve, Step, Stop
from app.domain.snapshot import Allocation, Snapshot, Waiter
from app.planner.account_tree import Tree
from app.planner.borrowing import Shares
from app.planner.decisions import Decision, Outcome, Verdict, Why, WhyNot
from app.planner.fair_share.attempt import FairCase
from app.planner.fair_share.pool_shares import Ground, Parts
from app.planner.fair_share.publication import publication, states
from app.planner.fair_share.rules import Fairness, Stage
from app.planner.fair_share.starvation import State
from app.planner.preemption.attempt import Case
from app.planner.preemption.budget import Budget
from app.planner.preemption.candidates import Candidate, Court
from app.planner.preemption.cost import Costs, worth
from app.planner.preemption.over_limit import evictions, spared
from app.planner.preemption.protection import Protection
from app.planner.preemption.victim_selection import Bounds, choose
from app.planner.projection import Books, Deficits, Line, Way
from app.planner.replay import replay

Shape: TypeAlias = tuple[object, ...]
"""What of a waiter matters: equal shapes are decided alike as long as nothing moves."""

QueuePlace: TypeAlias = tuple[int, int, str]
"""Where somebody stands in the queue: 1. place 2. age 3. id."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps to take, in order, and what was decided about everybody who waits, with its reasons."""

    steps: tuple[Step, ...]
    decisions: Mapping[str, Decision]
    """Waiter, or owner of a hold → what was decided."""
    publication: Publication | None = None
    """What was found about the accounts and is to be kept, before any step is taken."""


def plan(snapshot: Snapshot, skip: Set[str] = frozenset(), until: str | None = None) -> Plan:
    """What to do in one pool. The waiters in `skip` may not ask yet: they would rather have a pool that was not judged yet.
    With `until` no waiter is heard after that one: what is decided before does not depend on it."""
    return _Pass(snapshot, skip).run(until)


@dataclass(slots=True)
class _Refused:
    """A shape that got nothing, and when."""

    version: int
    deficits: Deficits
    decision: Decision


class _Pass:
    def __init__(self, snapshot: Snapshot, skip: Set[str]) -> None:
        self._snapshot = snapshot
        self._terms = snapshot.terms
        self._skip = skip
        tree = Tree(snapshot.accounts)
        owners = (hold.owner for hold in snapshot.holds)
        chains = frozenset(each.chain for each in (*snapshot.waiters, *owners) if each.chain is not None)
        guard = self._guard = Protection(snapshot.terms, snapshot.now_ms).of
        profiles = self._profiles = {component: tree.policy(component).profile for component in tree.paths}
        self._books = Books(snapshot, tree, Shares(snapshot, tree, guard, chains))
        self._costs = Costs(snapshot.terms, snapshot.now_ms, profiles)
        self._court = Court(snapshot, self._books, self._costs)
        self._found: Mapping[str, State] = {}
        self._parts: Parts | None = None
        self._fairness: Fairness | None = None
        if snapshot.terms.discipline == "fair_share":
            ground = Ground(snapshot, tree)
            self._parts = Parts(ground, ground.used)
            self._found = states(snapshot, self._parts)
            self._fairness = Fairness(self._books, self._parts, self._found, self._protects)
        self._budget = Budget(snapshot)
        self._refused: dict[Shape, _Refused] = {}
        self._behind: Set[str] = frozenset()
        """Strict queueing with fair share: who stands behind one that is, in the order of the queue."""
        self._is_line_closed = False
        """Strict queueing: a waiter was blocked by the pool's capacity."""
        self._blocked_owner: QueuePlace | None = None
        """Strict queueing: where the first owner of a hold stands that is."""
        self._lost: list[Waiter] = []
        """Whose hold ended in this pass: they wait on without it."""
        self._steps: list[Step] = []
        self._decisions: dict[str, Decision] = {}

    def run(self, until: str | None = None) -> Plan:
        """The pass."""
        # 1. Those who are leaving for nobody any more go on for the next who needs them, or are called back.
        self._settle_strays()
        # 2. What is over a limit leaves, for nobody.
        self._settle_limits()
        # 3. Holds that will not suffice ask again; one that nothing can fill ends, and its victims are settled as in 1.
        while any(self._fill(way, line) for way, line in self._books.in_line()):
            self._settle_strays()
        # 4. The others ask, in queue order; with fair share the most urgent first, until one of them is served.
        if self._terms.queueing == "strict":
            self._blocked_owner = self._first_blocked_owner()
        for waiter in self._in_order() if until not in self._decisions else ():
            self._decisions[waiter.id] = self._hear(waiter)
            if waiter.id == until:
                break
        found = publication(self._snapshot, self._books.tree, self._parts, self._found)
        return Plan(tuple(self._steps), self._decisions, found)

    # 1. Strays

    def _settle_strays(self) -> None:
        """The newest first: to the first hold that is short without it and whose owner may take it; else it is called back."""
        books, age = self._books, self._books.shares.age
        short = list(self._short_owners()) if books.strays else []
        for stray in sorted(books.strays.values(), key=lambda stray: -age[stray.id]):
            heir = self._heir(stray, short)
            if heir is None:
                books.reprieve(stray)
                self._steps.append(Reprieve(stray.id, stray.fence))
            else:
                books.pass_on(stray, heir)
                self._steps.append(PassOn(stray.id, stray.fence, heir.owner.id))
                short = list(self._short_owners())

    def _short_owners(self) -> Iterator[tuple[Way, Case | FairCase]]:
        for way, line in self._books.in_line():
            deficits = self._books.deficits(way.owner, line)
            if deficits and not self._books.is_fixed_share_used_up(way.owner, line):
                yield way, self._case(way.owner, line, deficits)

    def _heir(self, stray: Allocation, short: list[tuple[Way, Case | FairCase]]) -> Way | None:
        return next((way for way, case in short if case.may_have(stray)), None)

    # 2. Limits

    def _settle_limits(self) -> None:
        for holder in spared(self._snapshot, self._books):
            self._books.stay(holder)
            self._steps.append(Reprieve(holder.id, holder.fence))
        step = evictions(self._snapshot, self._books, self._protects, self._budget.this_minute)
        if step is not None:
            replay(self._books, self._snapshot, [step])
            self._budget.count(len(step.victims))
            self._steps.append(step)

    def _protects(self, holder: Allocation) -> WhyNot | None:
        return self._guard(holder, self._profiles[holder.component])

    # 3. Holds

    def _fill(self, way: Way, line: Line) -> bool:
        """Let the owner of a hold that will not suffice ask again. Says whether the hold ended and left strays behind."""
        owner = way.owner
        decision = self._ask(owner, line)
        if decision.why in _HOPELESS or (decision.why in _LATER and not self._could_ever(owner, line)):
            self._books.end_hold(way)
            self._lost.append(owner)
            self._steps.append(EndHold(owner.id))
            decision = Decision(owner.id, Outcome.ENDS, decision.why, decision.explain)
        known = self._decisions.get(owner.id)
        if known is None or decision.outcome is not Outcome.WAITS:
            self._decisions[owner.id] = decision
        return decision.outcome is Outcome.ENDS and bool(way.leaving)

    def _could_ever(self, owner: Waiter, line: Line) -> bool:
        """Whether there is a set of victims if the pool's pauses are left aside."""
        case = self._case(owner, line, self._books.deficits(owner, line))
        chosen = choose(case, Bounds(self._budget.ever, worth(self._terms, owner)))
        return chosen is Why.NOT_WEIGHED or not isinstance(chosen, Why)

    # 4. Waiters

    def _in_order(self) -> Iterable[Waiter]:
        waiters = self._snapshot.waiters
        if self._fairness is None:
            return waiters
        if self._terms.queueing == "strict":
            self._behind = frozenset(waiter.id for waiter in waiters if self._is_known(waiter) and self._stands_behind(waiter))
        return self._fairness.in_order(waiters, self._snapshot.now_ms)

    def _is_known(self, waiter: Waiter) -> bool:
        return waiter.component in self._books.tree.paths

    def _hear(self, waiter: Waiter) -> Decision:
        if not self._is_known(waiter):
            return _waits(waiter, Why.NO_POLICY)
        if self._is_behind(waiter):
            return _waits(waiter, Why.BEHIND)
        if waiter.id in self._skip:
            return _waits(waiter, Why.PREFERS_ANOTHER)
        return self._ask_once(waiter)

    def _is_behind(self, waiter: Waiter) -> bool:
        if self._terms.queueing != "strict":
            return False
        return waiter.id in self._behind if self._fairness else self._stands_behind(waiter)

    def _stands_behind(self, waiter: Waiter) -> bool:
        """Strict queueing: whether one before it, maybe the owner of a hold, is blocked by the pool's capacity."""
        line = self._snapshot.line
        if line is not None and waiter.place > line:
            return True
        if self._is_line_closed or (self._blocked_owner is not None and self._blocked_owner < _in_queue(waiter)):
            return True
        self._is_line_closed = self._blocks(waiter, self._books.end)
        return False

    def _first_blocked_owner(self) -> QueuePlace | None:
        owners = [_in_queue(way.owner) for way, line in self._books.in_line() if self._blocks(way.owner, line)]
        losers = [_in_queue(owner) for owner in self._lost if self._blocks(owner, self._books.end)]
        return min(owners + losers, default=None)

    def _blocks(self, waiter: Waiter, line: Line) -> bool:
        """Whether it is the pool's capacity that keeps it at present; whom a limit or its fixed share keeps blocks nobody."""
        return self._books.lacks_capacity(waiter, line) and not self._books.is_kept_by_limit(waiter)

    def _ask_once(self, waiter: Waiter) -> Decision:
        """Decide about a shape once as long as nothing moves that could help it."""
        shape = (
            waiter.component,
            frozenset(waiter.amounts.items()),
            waiter.preemptible,
            waiter.preemption_class,
            waiter.chain,
            None if self._fairness else waiter.preempted_fence,
        )
        books, refused = self._books, self._refused.get(shape)
        if refused is not None and self._is_still_refused(refused, waiter):
            return Decision(waiter.id, refused.decision.outcome, refused.decision.why, refused.decision.explain)
        decision = self._ask(waiter, books.end)
        if decision.outcome is Outcome.WAITS:
            self._refused[shape] = _Refused(books.version, books.deficits(waiter, books.end), decision)
        return decision

    def _is_still_refused(self, refused: _Refused, waiter: Waiter) -> bool:
        """Nothing moved; or too little could be taken, and without groups there is ever less of it as others are stopped."""
        if refused.version == self._books.version:
            return True
        if refused.decision.why is not Why.NOT_ENOUGH or self._books.tree.grouped:
            return False
        now = self._books.deficits(waiter, self._books.end)
        return now.keys() == refused.deficits.keys() and all(now[at] >= units for at, units in refused.deficits.items())

    # An ask

    def _ask(self, waiter: Waiter, line: Line) -> Decision:
        books = self._books
        if books.is_fixed_share_used_up(waiter, line):
            return _waits(waiter, Why.FIXED_SHARE_USED_UP)
        deficits = books.deficits(waiter, line)
        if not deficits:
            return _waits(waiter, Why.NO_SHORTAGE)
        if self._budget.is_pausing:
            return _waits(waiter, Why.BACKOFF)
        if self._budget.this_minute == 0:
            return _waits(waiter, Why.MINUTE_USED_UP)
        explain = partial(_explained, self._snapshot, self._steps, len(self._steps), waiter)
        case = self._case(waiter, line, deficits)
        if isinstance(case, FairCase) and (why := self._keeps(case)):
            return Decision(waiter.id, Outcome.WAITS, why, explain)
        chosen = choose(case, Bounds(self._budget.most, worth(self._terms, waiter)))
        if chosen is Why.TOO_MANY and self._budget.most != self._budget.ever and self._could_ever(waiter, line):
            chosen = Why.MINUTE_USED_UP
        if isinstance(chosen, Why):
            return Decision(waiter.id, Outcome.WAITS, chosen, explain)
        self._stop(case, chosen)
        return Decision(waiter.id, Outcome.STOPS, Why.FITS_THEN, explain)

    def _keeps(self, case: FairCase) -> Why | None:
        """With fair share: why it may not take anything, whatever there is."""
        if case.stage is Stage.NONE:
            return Why.NOT_STARVING
        if any(isinstance(step, Stop) for step in self._steps):
            return Why.ONE_AT_A_TIME
        return None if case.may_weigh else Why.NOT_WEIGHED

    def _case(self, waiter: Waiter, line: Line, deficits: Deficits) -> Case | FairCase:
        if self._fairness is not None:
            return FairCase(self._fairness, self._costs, waiter, line, deficits)
        return Case(self._court, waiter, line, deficits)

    def _stop(self, case: Case | FairCase, chosen: tuple[Candidate, ...]) -> None:
        self._steps.append(case.stop(chosen))
        self._budget.spend(len(chosen))
        self._books.stop(case.waiter, [holder for _, holder, _ in chosen])

    # Explaining

    def verdicts(self, steps: Sequence[Step], waiter: Waiter) -> Iterator[Verdict]:
        """What the rules say when these steps are taken and a waiter, or the owner of a hold, asks."""
        replay(self._books, self._snapshot, steps)
        places = (line for way, line in self._books.in_line() if way.owner.id == waiter.id)
        line = next(places, self._books.end)
        return self._case(waiter, line, self._books.deficits(waiter, line)).verdicts()


def _explained(snapshot: Snapshot, steps: Sequence[Step], so_far: int, waiter: Waiter) -> Iterator[Verdict]:
    return _Pass(snapshot, frozenset()).verdicts(steps[:so_far], waiter)


_LATER = frozenset({Why.BACKOFF, Why.MINUTE_USED_UP, Why.ONE_AT_A_TIME, Why.NOT_WEIGHED})
"""What passes with time."""

_HOPELESS = frozenset(
    {
        Why.FIXED_SHARE_USED_UP,
        Why.NOT_ENOUGH,
        Why.TOO_MANY,
        Why.NOT_WITHIN,
        Why.TOO_DEAR,
        Why.NOT_STARVING,
        Why.WOULD_BE_TAKEN_BACK,
    }
)
"""What ends a hold that will not suffice."""


def _in_queue(waiter: Waiter) -> QueuePlace:
    return waiter.place, waiter.number, waiter.id


def _waits(waiter: Waiter, why: Why) -> Decision:
    return Decision(waiter.id, Outcome.WAITS, why)
