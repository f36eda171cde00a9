"""Without new requests, preemptions end from any state: each served its waiter, and then the pool is quiet.

Random pools with a history are planned for: victims leave at once or later, one by one and in any order, and queue again
without bound.
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
from tests.properties.planner.strategies import ledgers
from tests.properties.planner.test_oracle import a_pool, submit

LONGER = int(os.environ.get("HISTORIES") or 0)
PHASES = (Phase.generate, Phase.shrink) if LONGER else (Phase.generate,)
"""To cut down what fails takes minutes."""
MAX_PREEMPTIONS = 100
"""Preemptions in a pool of a dozen allocations and half as many waiters, after which it should long have been quiet."""
QUIET_ROUNDS = 4
"""Rounds in which nothing may happen, some minutes apart: time alone lifts budgets and protections."""

Planner = Callable[[PoolSnapshot], Sequence[PlanStep]]
choices = st.lists(st.integers(0, 11), min_size=1, max_size=40)


@dataclass
class QuiescenceRun:
    """A pool left to itself."""

    ledger: PoolLedger
    planner: Planner
    leaves_at_once: bool
    choices: Sequence[int]
    unserved_waiters: list[str] = field(default_factory=list)
    """Waiters with victims that have not been granted since."""
    affected_by_reprieve: set[str] = field(default_factory=set)
    """The unserved waiters that may have counted on a victim that was reprieved."""
    preemption_pairs: list[tuple[str, str]] = field(default_factory=list)
    """(Waiter, victim) of every preemption."""

    def run(self) -> None:
        """Run until nothing has happened for some rounds."""
        quiet_rounds, round_number = 0, 0
        while quiet_rounds < QUIET_ROUNDS:
            happened = self._plan() or self._leave(self.choices[round_number % len(self.choices)])
            self._forget_served_waiters()
            round_number, quiet_rounds = round_number + 1, 0 if happened else quiet_rounds + 1
            self.ledger.now_ms += (1 if happened else 3) * MINUTE_MS
            assert len(self.preemption_pairs) <= MAX_PREEMPTIONS, f"no end to it: {self.preemption_pairs}"
        assert not self.ledger.holds, f"unfillable holds: {self.ledger.holds}"
        assert not self.unserved_waiters, f"stopped in vain for {self.unserved_waiters}"
        assert not list(self._find_circles()), f"they stop each other in circles: {self.preemption_pairs}"

    def _find_circles(self) -> Iterator[tuple[str, str]]:
        """Yield pairs in which each preempted the other, and the first did so again."""
        for pair in set(self.preemption_pairs):
            turns = [candidate for candidate in self.preemption_pairs if set(candidate) == set(pair)]
            if any(turns[index - 1] == turns[index + 1] != turns[index] for index in range(1, len(turns) - 1)):
                yield pair

    def _plan(self) -> bool:
        """Apply the steps until one is stale because of a grant; the first one never is."""
        steps = self.planner(self.ledger.snapshot())
        for index, step in enumerate(steps):
            if isinstance(step, Preempt):
                fault = self._find_fault(step)
                assert index > 0 or not fault, f"{fault}: {step}"
                if fault:
                    break
                self._record_preemptions(step)
            self._check_hold_ends(step)
            self.ledger.take_step(step, leaves_at_once=self.leaves_at_once)
            if self.leaves_at_once:  # the world is another one now
                break
        return bool(steps)

    def _check_hold_ends(self, step: PlanStep) -> None:
        """Check that only a waiter that counted on a reprieved victim preempted in vain."""
        if isinstance(step, Reprieve):
            self.affected_by_reprieve |= set(self.unserved_waiters)
        if isinstance(step, EndHold) and step.owner in self.unserved_waiters:
            assert step.owner in self.affected_by_reprieve, f"others leave for {step.owner} in vain"
            self.unserved_waiters.remove(step.owner)

    def _find_fault(self, step: Preempt) -> str:
        """Return the rule that the decision breaks, or ""."""
        now = self.ledger.snapshot()
        oracle, ids = Oracle(now), {victim.request for victim in step.victims}
        waiter = next((request for request in oracle.queue() if request.id == step.waiter), None)
        victims = [request for request in now.allocations if request.id in ids and request.leaving_for is None]
        if not waiter or len(victims) < len(ids) or self.ledger.is_stale(step):
            return "stale"
        if Oracle(after_step(now, step)).shortages(waiter):
            return "not enough"
        return "superfluous" if oracle.superfluous(waiter, victims) else ""

    def _record_preemptions(self, step: Preempt) -> None:
        self.preemption_pairs += [(step.waiter, victim.request) for victim in step.victims]
        if step.waiter not in self.unserved_waiters:
            self.unserved_waiters.append(step.waiter)

    def _leave(self, choice: int) -> bool:
        leaving = sorted(allocation.id for allocation in self.ledger.allocations.values() if allocation.leaving_for is not None)
        if leaving:
            self.ledger.leave(leaving[choice % len(leaving)])
        return bool(leaving)

    def _forget_served_waiters(self) -> None:
        self.unserved_waiters = [id_ for id_ in self.unserved_waiters if id_ in self.ledger.waiters]


def plan_steps_of(snapshot: PoolSnapshot) -> Sequence[PlanStep]:
    """Return the steps of the planner under test."""
    return plan_pool(snapshot).steps


@pytest.mark.timeout(24 * 3600 if LONGER else 120)
@settings(
    max_examples=LONGER or 80,
    database=None,
    derandomize=not LONGER,
    phases=PHASES,
    suppress_health_check=list(HealthCheck),
)
@given(ledgers(), st.booleans(), choices)
def test_a_pool_left_to_itself_becomes_quiet(ledger: PoolLedger, leaves_at_once: bool, order: list[int]) -> None:
    QuiescenceRun(ledger, plan_steps_of, leaves_at_once, order).run()


def test_an_owner_still_has_its_unused_share_when_the_last_victim_has_left() -> None:
    ledger = a_pool(5, {"a": {"priority": 0, "reserved": {"gpu": 4}}, "b": {"priority": 1}})
    submit(ledger, "a", 1)
    submit(ledger, "b", 4)
    submit(ledger, "a", 4, preemption_class=9)
    submit(ledger, "a", 1)
    QuiescenceRun(ledger, plan_steps_of, leaves_at_once=False, choices=[0]).run()
