"""The set of victims under fair share: the first in order, else one that could not be preempted straight back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.domain.plan_steps import EndHold, Preempt
from app.domain.snapshot import Allocation, Waiter
from app.planner.decisions import DecisionReason
from app.planner.fair_share.rules import FairShareRules, ShareScenario
from app.planner.planning_pass import plan_pool
from tests.unit.planner.fair_share.builders import STARVING, FairShareBuilder, a_fair_share_pool


def lumps(*units: int, waits: int) -> FairShareBuilder:
    """Return ten units: six are due to `a`, which holds these allocations; four are due to `b`, which holds one; half may
    be taken."""
    pool = (
        a_fair_share_pool(gpu=10)
        .with_settings(preemption_threshold=0.5, aggressive_starvation=True)
        .policy("a", weight=3)
        .policy("b", weight=2, **STARVING)
    )
    return (
        pool.runs_several("a", *units)
        .runs_several("b", 1)
        .waits("w", "b", gpu=waits)
        .waits("x", "b", gpu=3)
        .waits("y", "a", gpu=7)
    )


def test_the_first_in_order_is_taken_if_it_may_be() -> None:
    assert set(lumps(3, 2, 1, 3, waits=4).victims()) == {"a4", "a3"}


def test_another_set_of_the_same_policy_is_taken_if_the_first_could_be_taken_back() -> None:
    # Five units less leave it below its share, and two of them would fit back; four less do not.
    assert set(lumps(3, 1, 2, 3, waits=4).victims()) == {"a4", "a2"}


def test_the_smaller_is_taken_if_the_larger_could_be_taken_back() -> None:
    pool = a_fair_share_pool(gpu=8).with_settings(preemption_threshold=0.5).policy("a", **STARVING).policy("b")
    pool.runs_several("a", 1, 1, 1).runs_several("b", 1, 1, 1, 2).waits("x", "b", gpu=4).waits(
        "y", "a", gpu=3, preemption_class=0
    )
    assert set(pool.waits("w", "a", gpu=1).victims()) == {"b3"}


def test_so_it_is_within_the_most_that_a_decision_may_have() -> None:
    pool = lumps(3, 1, 2, 3, waits=4)
    assert set(pool.with_settings(max_victims=2).victims()) == {"a4", "a2"}
    assert pool.with_settings(max_victims=1).reason() is DecisionReason.TOO_MANY


@pytest.mark.parametrize("before", [1, 99, 150])
def test_a_waiter_is_served_in_the_end_behind_any_number_of_refused_ones(before: int) -> None:
    pool = a_fair_share_pool(gpu=8, mem=10_000).with_settings(preemption_threshold=0.5).policy("a", **STARVING).policy("b")
    pool.runs_several("a", 1, 1).runs_several("b", *[1] * 6)
    for number in range(before):
        pool.waits(f"x{number}", "a", gpu=4, mem=1 + number)
    now = pool.waits("w", "a", gpu=1).snapshot()
    passes = (plan_pool(replace(now, now_ms=now.now_ms + 2000 * turn)) for turn in range(9))
    assert ("w", "b6") in {
        (step.waiter, step.victims[0].request) for each in passes for step in each.steps if isinstance(step, Preempt)
    }


def test_a_policy_without_candidates_hides_no_policy_behind_it() -> None:
    # Eight are due to each. Any victim of `b` could preempt in turn; `c` has four too many, but its allocations are older.
    pool = a_fair_share_pool(gpu=24).with_settings(preemption_threshold=0.5, fair_share_tolerance=1).policy("a", **STARVING)
    pool.policy("b").policy("c").runs_several("a", *[1] * 4).runs_several("c", *[1] * 12).runs_several("b", *[1] * 8)
    for component in "abc":
        pool.waits(f"x{component}", component, gpu=9)
    assert set(pool.waits("w", "a", gpu=4, preemption_class=6).victims()) == {"c12", "c11", "c10", "c9"}


def test_every_set_of_the_first_candidates_is_weighed() -> None:
    # `b` and `c` may lose one each, the others none: of ten candidates, that set is tried last.
    pool = a_fair_share_pool(gpu=40).with_settings(preemption_threshold=0.75, fair_share_tolerance=1).policy("a", **STARVING)
    pool.runs_several("a", *[1] * 6).waits("xa", "a", gpu=9, preemption_class=0)
    for component, units in (("b", 9), ("c", 9), ("d", 8), ("e", 8)):
        pool.policy(component).runs_several(component, *[1] * units).waits(f"x{component}", component, gpu=9)
    assert set(pool.waits("w", "a", gpu=2).victims()) == {"c9", "b9"}


def test_sets_that_take_the_same_of_the_same_are_weighed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of twelve equal allocations any seven are the same set, which is refused: one check settles all of them.
    pool = (
        a_fair_share_pool(gpu=1000)
        .with_settings(preemption_threshold=0.5, fair_share_tolerance=1)
        .policy("a", **STARVING)
        .policy("b")
    )
    pool.runs_several("a", *[1] * 450).runs_several("b", *[25] * 22)
    for number in range(3):
        pool.waits(f"w{number}", "a", gpu=175, preempted_fence=number + 1)
    now = pool.snapshot()
    weighed, after = list[str](), FairShareRules.scenario_after

    def noted(self: FairShareRules, pool: ShareScenario, waiter: Waiter, victims: Sequence[Allocation]) -> ShareScenario:
        weighed.append(waiter.id)
        return after(self, pool, waiter, victims)

    monkeypatch.setattr(FairShareRules, "scenario_after", noted)
    plan_pool(now)
    assert 1 <= len(weighed) <= 2


def test_a_hold_does_not_end_because_there_was_no_time_to_weigh(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = a_fair_share_pool(gpu=10).with_settings(preemption_threshold=0.5, aggressive_starvation=True).policy("a", weight=3)
    pool.policy("b", weight=2, **STARVING).runs_several("a", 3, 1, 2, 3).runs_several("b", 1).holds("w", "b", gpu=4).waits(
        "y", "a", gpu=7
    )
    monkeypatch.setattr(FairShareRules, "may_weigh_more", lambda *_: False)
    assert not [step for step in plan_pool(pool.snapshot()).steps if isinstance(step, EndHold)]
