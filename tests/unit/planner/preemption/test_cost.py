"""The cost of preempting an allocation, part by part."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from app.domain.snapshot import PlannerSettings, Waiter
from app.planner.preemption.cost import PreemptionCosts, waiter_value
from tests.unit.planner.builders import NOW_MS, a_pool

CLASSES = PlannerSettings(discipline="classes")


def cost(*, terms: PlannerSettings = CLASSES, profile: str = "batch", ran_s: int = 600, **ask: Any) -> Fraction:
    """Return the cost of a victim that has run for ten minutes with these amounts, by default a unit of gpu."""
    (victim,) = a_pool().runs("v", "t", ran_s=ran_s, **{"gpu": 1, **ask}).allocations
    costs = PreemptionCosts(terms, NOW_MS, {"t": profile})
    assert costs.approximate(victim) == float(costs.exact(victim))
    return costs.exact(victim)


@pytest.mark.parametrize(
    ("victim", "expected"),
    [
        ({"checkpoint": "none"}, 10),
        ({"checkpoint": "auto"}, 5 + 10),
        ({"checkpoint": "auto", "checkpoint_minutes": 2}, 2 + 10),
        ({"checkpoint": "manual"}, 10 + 10),
        ({"checkpoint": "manual", "checkpoint_minutes": 2}, 10 + 10),
        ({"checkpoint": "none", "checkpoint_minutes": 2}, 10),
    ],
)
def test_the_checkpoint_and_the_run_since_the_start_if_none_was_reported(victim: dict[str, Any], expected: int) -> None:
    assert cost(**victim) == expected


@pytest.mark.parametrize(("checkpoint", "expected"), [("auto", 5 + 3), ("manual", 10 + 3), ("none", 10)])
def test_only_what_ran_since_the_last_checkpoint_is_lost(checkpoint: str, expected: int) -> None:
    assert cost(checkpoint=checkpoint, saved_s=180) == expected


def test_one_that_never_reports_is_not_cheaper() -> None:
    assert cost(checkpoint="auto") > cost(checkpoint="auto", saved_s=60)


@pytest.mark.parametrize(
    ("ran_s", "expected"),
    [
        (0, 1),
        (99, 1 + Fraction(99, 60)),
        (100, 10 + Fraction(100, 60)),
        (500, 50 + Fraction(500, 60)),
        (900, 90 + Fraction(900, 60)),
        (901, 1000 + Fraction(901, 60)),
        (999, 1000 + Fraction(999, 60)),
        (1000, Fraction(1000, 60)),
        (2000, Fraction(2000, 60)),
    ],
)
def test_what_the_rest_of_a_walltime_of_a_thousand_seconds_is_worth(ran_s: int, expected: Fraction) -> None:
    assert cost(ran_s=ran_s, walltime_s=1000) == expected


@pytest.mark.parametrize(("amounts", "expected"), [({"gpu": 3}, 3), ({"gpu": 0, "tpu": 7}, 1), ({"gpu": 1, "tpu": 7}, 1)])
def test_everything_counts_for_each_unit_of_the_cost_key_at_least_one(amounts: dict[str, Any], expected: int) -> None:
    each = 5 + 10 + Fraction(100 * 600, 1000)
    assert cost(checkpoint="auto", walltime_s=1000, **amounts) == expected * each


def test_the_cost_key_is_a_setting() -> None:
    assert cost(terms=PlannerSettings(discipline="classes", cost_key="tpu"), tpu=7) == 70


@pytest.mark.parametrize(
    ("profile", "expected"), [("batch", 75), ("service", 75), ("training", 85), ("interactive", Fraction(75, 2))]
)
def test_profiles(profile: str, expected: Fraction) -> None:
    assert cost(profile=profile, checkpoint="auto", walltime_s=1000) == expected


def test_profiles_count_in_classes_only() -> None:
    assert cost(terms=PlannerSettings(), profile="training", checkpoint="auto") == 15
    assert cost(terms=PlannerSettings(), profile="interactive", checkpoint="auto") == 15


def test_equal_costs_are_equal_to_the_last_digit() -> None:
    allocation = a_pool().runs("a", "t", gpu=3, ran_s=7).allocations[0]
    other = a_pool().runs("b", "t", gpu=1, ran_s=21).allocations[0]
    costs = PreemptionCosts(CLASSES, NOW_MS, {"t": "batch"})
    assert costs.approximate(allocation) == costs.approximate(other)


def test_a_grant_later_than_now_costs_nothing_less_than_nothing() -> None:
    assert cost(ran_s=-5) == 0


@pytest.mark.parametrize(
    ("terms", "amounts", "expected"),
    [
        (PlannerSettings(discipline="classes", value_per_class=10), {"gpu": 2}, 10 * 6 * 2),
        (PlannerSettings(discipline="classes", value_per_class=10), {"tpu": 2}, 10 * 6),
        (PlannerSettings(discipline="classes", value_per_class=0), {"gpu": 2}, 0),
        (PlannerSettings(discipline="classes"), {"gpu": 2}, None),
        (PlannerSettings(value_per_class=10), {"gpu": 2}, None),
    ],
)
def test_what_a_waiter_is_worth(terms: PlannerSettings, amounts: dict[str, int], expected: int | None) -> None:
    assert waiter_value(terms, Waiter("w", "t", amounts, True, 6, 1)) == expected
