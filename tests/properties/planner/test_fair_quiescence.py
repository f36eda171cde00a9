"""With fair share and no new requests, preemptions end from any state: each served its waiter, and then the pool is quiet.

Random pools with a history are planned while time passes: shares are published, and victims leave at once or later, one by
one and in any order, and queue again without bound.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from app.domain.plan_steps import EndHold, EvictOverLimit, PlanStep, Preempt, Reprieve
from app.planner.planning_pass import plan_pool
from tests.properties.planner.fair_ledger_model import FairShareLedger
from tests.properties.planner.fair_strategies import SECOND_MS, HistoryGenerator, PoolHistory, apply_operation

LONGER = int(os.environ.get("HISTORIES") or 0)
FIRST = int(os.environ.get("FIRST", 0))
MAX_PREEMPTIONS = 60
"""Preemptions in a pool of a dozen allocations and half as many waiters, after which it should long have been quiet."""
QUIET_S = 1800
"""The time, in seconds, in which nothing may happen: time alone ends pauses and makes accounts starve."""
STEPS_S = (1, 4, 13, 40, 120)


@dataclass
class FairShareQuiescenceRun:
    """A pool left to itself."""

    ledger: FairShareLedger
    leaves_at_once: bool
    choices: list[int]
    unserved_waiters: list[str] = field(default_factory=list)
    """Waiters with victims that have not been granted since."""
    affected_by_reprieve: set[str] = field(default_factory=set)
    """The unserved waiters that may have counted on a victim that was reprieved."""
    preemption_pairs: list[tuple[str, str]] = field(default_factory=list)
    """(Waiter, victim) of every preemption."""

    def run(self) -> None:
        """Run until nothing has happened for long enough."""
        non_preemptible = {allocation.id for allocation in self.ledger.allocations.values() if not allocation.preemptible}
        quiet_s, round_number = 0, 0
        while quiet_s < QUIET_S:
            happened = self._plan() or self._leave(self.choices[round_number % len(self.choices)])
            self.unserved_waiters = [id_ for id_ in self.unserved_waiters if id_ in self.ledger.waiters]
            step_s = STEPS_S[self.choices[round_number % len(self.choices)] % len(STEPS_S)] if quiet_s < 130 else 300
            round_number, quiet_s = round_number + 1, 0 if happened else quiet_s + step_s
            self.ledger.now_ms += step_s * SECOND_MS
            assert len(self.preemption_pairs) + self.ledger.eviction_count <= MAX_PREEMPTIONS, (
                f"no end to it: {self.preemption_pairs}"
            )
        assert non_preemptible <= set(self.ledger.allocations), "fixed work was touched"
        assert not self.ledger.holds, f"unfillable holds: {self.ledger.holds}"
        assert not self.unserved_waiters, f"stopped in vain for {self.unserved_waiters}"
        assert not list(self.find_circles()), f"they stop each other in circles: {self.preemption_pairs}"

    def find_circles(self) -> Iterator[tuple[str, str]]:
        """Yield pairs in which each preempted the other, and the first did so again."""
        for pair in set(self.preemption_pairs):
            turns = [candidate for candidate in self.preemption_pairs if set(candidate) == set(pair)]
            if any(turns[index - 1] == turns[index + 1] != turns[index] for index in range(1, len(turns) - 1)):
                yield pair

    def _plan(self) -> bool:
        """Publish the shares, and apply steps until one is stale because of a grant; the first one never is."""
        plan = plan_pool(self.ledger.snapshot())
        running = set(self.ledger.allocations)
        self.ledger.publish(plan.publication)
        assert sum(isinstance(step, Preempt) for step in plan.steps) <= 1
        for index, step in enumerate(plan.steps):
            fault = self.ledger.refusal(step)
            assert index > 0 or not fault or running != set(self.ledger.allocations), f"{fault}: {step}"
            if fault:
                break
            self._check_step(step)
            self.ledger.take_step(step, leaves_at_once=self.leaves_at_once)
            if self.leaves_at_once:
                break
        return bool(plan.steps) or running != set(self.ledger.allocations)

    def _check_step(self, step: PlanStep) -> None:
        """Check that only a waiter that counted on a reprieved victim preempted in vain."""
        if isinstance(step, Preempt):
            assert all(self.ledger.allocations[victim.request].preemptible for victim in step.victims)
            self.preemption_pairs += [(step.waiter, victim.request) for victim in step.victims]
            self.unserved_waiters += [step.waiter] if step.waiter not in self.unserved_waiters else []
        if isinstance(step, EvictOverLimit):
            self.affected_by_reprieve |= set(self.unserved_waiters)
        if isinstance(step, Reprieve):
            self.affected_by_reprieve |= set(self.unserved_waiters)
        if isinstance(step, EndHold) and step.owner in self.unserved_waiters:
            assert step.owner in self.affected_by_reprieve, f"others leave for {step.owner} in vain"
            self.unserved_waiters.remove(step.owner)

    def _leave(self, choice: int) -> bool:
        leaving = sorted(allocation.id for allocation in self.ledger.allocations.values() if allocation.leaving_for is not None)
        if leaving:
            self.ledger.leave(leaving[choice % len(leaving)])
        return bool(leaving)


def run_until_quiet(history: PoolHistory) -> FairShareQuiescenceRun:
    """Run a pool with its history until it is quiet."""
    ledger = history.new_ledger()
    for operation in history.operations:
        apply_operation(ledger, operation, plan_pool)
    run = FairShareQuiescenceRun(ledger, history.leaves_at_once, history.choices)
    run.run()
    return run


@pytest.mark.timeout(24 * 3600 if LONGER else 120)
@pytest.mark.parametrize("kind", ["flat", "grouped", "plain", "crowded", "crowded and grouped"])
def test_a_pool_left_to_itself_becomes_quiet(kind: str) -> None:
    for seed in range(FIRST, FIRST + (LONGER or 55)):
        generator = HistoryGenerator(
            seed, groups=kind not in ("flat", "crowded"), plain=kind == "plain", crowded="crowded" in kind
        )
        try:
            run_until_quiet(generator.history())
        except AssertionError as error:
            raise AssertionError(f"{kind} {seed}: {error}") from error
