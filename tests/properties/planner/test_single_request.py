"""One request of many: the planning pass up to it, and the effects of all policies together."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from app.domain.snapshot import PoolSnapshot
from app.planner.decisions import DecisionReason
from app.planner.planning_pass import PlanningPass, plan_pool
from app.planner.preemption.attempt import PreemptionAttempt
from app.planner.preemption.candidates import CandidateIndex, PolicyCandidates
from app.planner.preemption.rules import PreemptorView
from tests.properties.planner.strategies import snapshots
from tests.unit.planner.builders import a_pool


@settings(max_examples=60, database=None, derandomize=True)
@given(snapshots())
def test_a_pass_that_ends_at_a_waiter_decides_the_same_about_it(snapshot: PoolSnapshot) -> None:
    whole = plan_pool(snapshot).decisions
    for waiter, decision in whole.items():
        decisions = plan_pool(snapshot, until=waiter).decisions
        assert decisions[waiter] == decision
        assert list(decisions[waiter].verdicts()) == list(decision.verdicts())
        assert decisions.items() <= whole.items()


def test_the_cost_of_an_attempt_grows_with_distinct_policies_and_not_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def counted(index: CandidateIndex, component: str, view: PreemptorView) -> PolicyCandidates:
        nonlocal looks
        looks += 1
        return policy_candidates(index, component, view)

    policy_candidates = CandidateIndex.policy_candidates
    monkeypatch.setattr(CandidateIndex, "policy_candidates", counted)
    policies, waiters = 100, 40
    pool = a_pool(gpu=policies).group("g")
    for number in range(policies):
        group = "g" if number % 2 else None
        pool.policy(f"c{number}", group, priority=number % 4).runs(f"r{number}", f"c{number}", gpu=1)
    for number in range(waiters):
        pool.waits(f"w{number}", f"c{number}", gpu=policies)
    decisions = pool.plan().decisions
    assert {decision.reason for decision in decisions.values()} == {DecisionReason.NOT_ENOUGH}
    assert looks < policies * waiters / 3


@settings(max_examples=60, database=None, derandomize=True)
@given(snapshots())
def test_the_total_of_all_policies_is_the_sum_of_each(snapshot: PoolSnapshot) -> None:
    planning_pass = PlanningPass(snapshot, frozenset())
    projection, index = planning_pass._projection, planning_pass._index
    for step in (None, *plan_pool(snapshot).steps):
        if step is not None:
            projection.apply([step])
        for waiter in snapshot.waiters:
            deficits = projection.deficits(waiter, projection.all_holds)
            attempt = PreemptionAttempt(index, waiter, projection.all_holds, deficits)
            open_needs = [units for _, _, units in attempt.needs]
            for component in projection.tree.paths:
                meeting_level = projection.tree.meeting_level(waiter.component, component)
                for number, (level, key, _) in enumerate(attempt.needs):
                    open_needs[number] -= attempt.policy_candidates(component).total(key) if level >= meeting_level else 0
            assert attempt.could_suffice() == (all(units <= 0 for units in open_needs)) or not deficits
