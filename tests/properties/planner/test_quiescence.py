"""From any state, with nobody new: the preemptions come to an end, each served its waiter, and then the pool is quiet.

Random pools with a past are planned for and left to themselves: those who leave do so at once, or later, one by one and in any
order, and queue again without bound.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from app.domain.plan_steps import EndHold, PlanStep, Preempt, Reprieve
from app.domain.snapshot import PoolSnapshot
from app.planner.planning_pass import plan_pool
from tests.properties.planner.costs import MINUTE_MS
from tests.properties.planner.ledger_model import PoolLedger
from tests.properties.planner.oracle import Oracle
from tests.properties.planner.oracle_passes import after_step
from tests.properties.planner.strategies import books
from tests.properties.planner.test_oracle import a_pool, ask

LONGER = int(os.environ.get("HISTORIES") or 0)
PHASES = (Phase.generate, Phase.shrink) if LONGER else (Phase.generate,)
"""To cut down what fails takes minutes."""
MOST = 100
"""Preemptions in a pool of a dozen holders and half as many waiters, after which it should long have been quiet."""
CALM = 4
"""Rounds in which nothing may happen, some minutes apart: time alone lifts budgets and protections."""

Planner = Callable[[PoolSnapshot], Sequence[PlanStep]]
choices = st.lists(st.integers(0, 11), min_size=1, max_size=40)


@dataclass
class Ending:
    """A pool left to itself."""

    book: PoolLedger
    planner: Planner
    at_once: bool
    choices: Sequence[int]
    owed: list[str] = field(default_factory=list)
    """Waiters for whom somebody was told to leave, and who have not been granted since."""
    shaken: set[str] = field(default_factory=set)
    """Those of them who may have counted on somebody that was called back."""
    pairs: list[tuple[str, str]] = field(default_factory=list)
    """Who was told to leave for whom."""

    def run(self) -> None:
        """Until nothing has happened for some rounds."""
        calm, turn = 0, 0
        while calm < CALM:
            happened = self._plan() or self._leave(self.choices[turn % len(self.choices)])
            self._settle_debts()
            turn, calm = turn + 1, 0 if happened else calm + 1
            self.book.now_ms += (1 if happened else 3) * MINUTE_MS
            assert len(self.pairs) <= MOST, f"no end to it: {self.pairs}"
        assert not self.book.holds, f"holds that nobody fills: {self.book.holds}"
        assert not self.owed, f"stopped in vain for {self.owed}"
        assert not list(self._circles()), f"they stop each other in circles: {self.pairs}"

    def _circles(self) -> Iterator[tuple[str, str]]:
        """Pairs of whom one stopped the other, was stopped by it and stopped it again."""
        for pair in set(self.pairs):
            turns = [one for one in self.pairs if set(one) == set(pair)]
            if any(turns[at - 1] == turns[at + 1] != turns[at] for at in range(1, len(turns) - 1)):
                yield pair

    def _plan(self) -> bool:
        """Take the steps, until one is stale because somebody was granted meanwhile; the first one never is."""
        steps = self.planner(self.book.snapshot())
        for at, step in enumerate(steps):
            if isinstance(step, Preempt):
                wrong = self._wrong(step)
                assert at > 0 or not wrong, f"{wrong}: {step}"
                if wrong:
                    break
                self._owe(step)
            self._note(step)
            self.book.take_step(step, at_once=self.at_once)
            if self.at_once:  # the world is another one now
                break
        return bool(steps)

    def _note(self, step: PlanStep) -> None:
        """Only who counted on somebody that was called back may have had others leave in vain."""
        if isinstance(step, Reprieve):
            self.shaken |= set(self.owed)
        if isinstance(step, EndHold) and step.owner in self.owed:
            assert step.owner in self.shaken, f"others leave for {step.owner} in vain"
            self.owed.remove(step.owner)

    def _wrong(self, step: Preempt) -> str:
        """Why the decision may not be taken."""
        now = self.book.snapshot()
        oracle, ids = Oracle(now), {victim.request for victim in step.victims}
        waiter = next((one for one in oracle.queue() if one.id == step.waiter), None)
        victims = [one for one in now.allocations if one.id in ids and one.leaving_for is None]
        if not waiter or len(victims) < len(ids) or self.book.is_stale(step):
            return "stale"
        if Oracle(after_step(now, step)).shortages(waiter):
            return "not enough"
        return "superfluous" if oracle.superfluous(waiter, victims) else ""

    def _owe(self, step: Preempt) -> None:
        self.pairs += [(step.waiter, victim.request) for victim in step.victims]
        if step.waiter not in self.owed:
            self.owed.append(step.waiter)

    def _leave(self, choice: int) -> bool:
        leaving = sorted(one.id for one in self.book.allocations.values() if one.leaving_for is not None)
        if leaving:
            self.book.leave(leaving[choice % len(leaving)])
        return bool(leaving)

    def _settle_debts(self) -> None:
        self.owed = [id_ for id_ in self.owed if id_ in self.book.waiters]


def planned(snapshot: PoolSnapshot) -> Sequence[PlanStep]:
    """The planner that is tested."""
    return plan_pool(snapshot).steps


@pytest.mark.timeout(24 * 3600 if LONGER else 120)
@settings(
    max_examples=LONGER or 120,
    deadline=None,
    database=None,
    derandomize=not LONGER,
    phases=PHASES,
    suppress_health_check=list(HealthCheck),
)
@given(books(), st.booleans(), choices)
def test_a_pool_left_to_itself_becomes_quiet(book: PoolLedger, at_once: bool, order: list[int]) -> None:
    Ending(book, planned, at_once, order).run()


def test_one_who_takes_its_own_share_still_has_it_when_the_last_has_left() -> None:
    book = a_pool(5, {"a": {"priority": 0, "reserved": {"gpu": 4}}, "b": {"priority": 1}})
    ask(book, "a", 1)
    ask(book, "b", 4)
    ask(book, "a", 4, preemption_class=9)
    ask(book, "a", 1)
    Ending(book, planned, at_once=False, choices=[0]).run()
