"""The lazy streams of candidates compared with the sort keys that define their order, over random pools and their plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from app.domain.plan_steps import EvictOverLimit
from app.domain.snapshot import Allocation, PoolSnapshot, Waiter
from app.planner.fair_share.attempt import FairShareAttempt
from app.planner.fair_share.rules import StarvationLevel
from app.planner.planning_pass import PlanningPass, plan_pool
from app.planner.preemption.attempt import PreemptionAttempt
from app.planner.preemption.ordering import (
    CandidatePosition,
    classes_order,
    fair_share_order,
    over_limit_order,
    reserved_order,
)
from tests.properties.planner.strategies import snapshots
from tests.properties.planner.test_fair_oracle import random_snapshot

SOME = settings(
    max_examples=60,
    database=None,
    derandomize=True,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


def attempts(planning_pass: PlanningPass, snapshot: PoolSnapshot) -> Iterator[PreemptionAttempt | FairShareAttempt]:
    """Yield the attempt of every waiter that is short, before the plan and after each of its steps."""
    projection = planning_pass._projection
    for step in (None, *plan_pool(snapshot).steps):
        if step is not None:
            projection.apply([step])
        for waiter in (*snapshot.waiters, *(hold.owner for hold in snapshot.holds)):
            deficits = projection.deficits(waiter, projection.all_holds)
            if deficits:
                yield planning_pass._attempt(waiter, projection.all_holds, deficits)


def allowed(attempt: PreemptionAttempt | FairShareAttempt, snapshot: PoolSnapshot) -> list[Allocation]:
    """Return the allocations that a rule allows to take, in the order of the snapshot reversed."""
    ids = {verdict.allocation for verdict in attempt.verdicts() if verdict.allowed}
    return [allocation for allocation in reversed(snapshot.allocations) if allocation.id in ids]


def key_of(planning_pass: PlanningPass, snapshot: PoolSnapshot) -> Callable[[Allocation], CandidatePosition]:
    """Return the sort key of the pool's discipline."""
    if snapshot.settings.discipline == "classes":
        return lambda allocation: classes_order(allocation, planning_pass._costs.approximate(allocation))
    policy = planning_pass._projection.tree.policy
    return lambda allocation: reserved_order(allocation, policy(allocation.component).priority)


def test_candidates_are_streamed_in_the_order_of_the_key() -> None:
    most: dict[str, int] = {}

    @SOME
    @given(snapshots())
    def check(snapshot: PoolSnapshot) -> None:
        planning_pass = PlanningPass(snapshot, frozenset())
        key = key_of(planning_pass, snapshot)
        for attempt in attempts(planning_pass, snapshot):
            stream = list(attempt.candidates())
            assert [allocation for _, allocation, _ in stream] == sorted(allowed(attempt, snapshot), key=key)
            assert [position for position, _, _ in stream] == [key(allocation) for _, allocation, _ in stream]
            most[snapshot.settings.discipline] = max(most.get(snapshot.settings.discipline, 0), len(stream))

    check()
    assert min(most["reserved"], most["classes"]) >= 3, "too few candidates for the comparison to mean anything"


@pytest.mark.parametrize("crowded", [False, True], ids=["some", "many"])
def test_candidates_of_fair_share_are_in_the_order_of_the_key(crowded: bool) -> None:
    counts, levels = [], set()
    for seed in range(70):
        snapshot = random_snapshot(seed, groups=bool(seed % 2), crowded=crowded)
        planning_pass = PlanningPass(snapshot, frozenset())
        for attempt in attempts(planning_pass, snapshot):
            assert isinstance(attempt, FairShareAttempt)
            aggressive_only = _aggressive_only(planning_pass, attempt)
            expected = sorted(
                allowed(attempt, snapshot), key=lambda allocation: fair_share_order(allocation, aggressive_only[allocation.id])
            )
            stream = [allocation for _, allocation, _ in attempt.candidates()]
            assert stream == expected
            counts.append(len(stream))
            levels |= {aggressive_only[allocation.id] for allocation in stream}
    assert max(counts) >= 3
    assert levels == {False, True}


def _aggressive_only(planning_pass: PlanningPass, attempt: FairShareAttempt) -> dict[str, bool]:
    """Return, for each allocation that may be taken at all, whether only an aggressively starving waiter may."""
    rules = planning_pass._fair_share_rules
    assert rules is not None
    scenario, is_aggressive = rules.scenario(rules.projection.all_holds), attempt.level is StarvationLevel.AGGRESSIVE
    return {
        work.allocation.id: work.aggressive_only
        for component in rules.projection.tree.paths
        for work in scenario.preemptible_work(component, aggressively=is_aggressive)
    }


def test_evictions_for_a_limit_are_in_the_order_of_the_key() -> None:
    sizes = []
    for seed in range(80):
        snapshot = random_snapshot(seed, groups=True, crowded=False)
        allocations = {allocation.id: allocation for allocation in snapshot.allocations}
        for step in plan_pool(snapshot).steps:
            if isinstance(step, EvictOverLimit):
                victims = [allocations[victim.request] for victim in step.victims]
                assert victims == sorted(victims, key=over_limit_order)
                sizes.append(len(victims))
    assert max(sizes) >= 2


@given(st.permutations(range(6)))
def test_equal_criteria_fall_through_to_the_next(order: list[int]) -> None:
    # Each allocation differs from the one before in one criterion only, from the last to the first.
    chain = [_allocation("a", 5, 3), _allocation("b", 5, 3), _allocation("b", 4, 3), _allocation("b", 4, 4)]
    ranked = [(reserved_order(each, 1), classes_order(each, 1.0)) for each in chain]
    ranked += [
        (reserved_order(chain[-1], 2), classes_order(chain[-1], 2.0)),
        (reserved_order(chain[0], 3), classes_order(chain[0], 3.0)),
    ]
    assert sorted(ranked[number][0] for number in order) == [reserved for reserved, _ in ranked]
    assert sorted(ranked[number][1] for number in order) == [classes for _, classes in ranked]
    fair = [fair_share_order(each, aggressive) for aggressive in (False, True) for each in chain[:3]]
    assert sorted(fair[number] for number in order) == fair
    evictions = [over_limit_order(each) for each in chain[:3]]
    assert sorted(evictions[number] for number in order if number < 3) == evictions


def _allocation(name: str, fence: int, preemption_class: int) -> Allocation:
    waiter = Waiter(name, "t", {}, preemptible=True, preemption_class=preemption_class, submission_number=0)
    return Allocation(
        id=name,
        component=waiter.component,
        amounts=waiter.amounts,
        fence=fence,
        preemptible=True,
        preemption_class=preemption_class,
        checkpoint="none",
        checkpoint_minutes=None,
        walltime_s=None,
        granted_ms=0,
    )
