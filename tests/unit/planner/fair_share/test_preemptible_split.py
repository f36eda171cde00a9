"""The split of a leaf's running work into protected and preemptible allocations."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from app.domain.amounts import Amounts
from app.domain.snapshot import Allocation
from app.planner.fair_share.preemptible_split import PreemptibleSplit, split_allocations
from app.planner.fair_share.share_tree import Branch, Leaf
from app.planner.fair_share.starvation import StarvationSettings
from app.planner.fair_share.water_filling import Division, divide
from tests.unit.planner.fair_share.leaves import allocations

HALVES = StarvationSettings(aggressive_threshold=Fraction(1, 2))
GPU = {"gpu": 1}


def _divided(running: list[Allocation], capacity: Amounts, waiting: Amounts) -> Division:
    usage = {key: sum(allocation.amounts.get(key, 0) for allocation in running) for key in capacity}
    demand = {key: units + waiting.get(key, 0) for key, units in usage.items()}
    return divide(capacity, Branch("pool", children=(Leaf("x", usage=usage, demand=demand),)))


def _split(
    running: list[Allocation], capacity: Amounts, waiting: Amounts, patience: StarvationSettings = HALVES
) -> PreemptibleSplit:
    division = _divided(running, capacity, waiting)
    return split_allocations(running, division.accounts["x"], division, patience)


def _counts(split: PreemptibleSplit) -> tuple[int, int, int]:
    return len(split.non_preemptible), len(split.aggressively_preemptible), len(split.preemptible)


def test_in_three_parts() -> None:
    amounts = {"gpu": 1, "cpu": 1, "memory": 10}
    split = _split(
        allocations(*[amounts] * 150), {"gpu": 100, "cpu": 100, "memory": 1000}, {"gpu": 10, "cpu": 10, "memory": 100}
    )
    assert _counts(split) == (50, 50, 50)
    assert split.non_preemptible[0] == "r0"
    assert split.preemptible[-1] == "r149"


def test_nothing_runs() -> None:
    assert _counts(_split([], {"gpu": 4}, {"gpu": 4})) == (0, 0, 0)


def test_the_one_that_crosses_a_bound_is_protected() -> None:
    # The fair share is 10, the bounds are 5 and 10: the allocations that start at 4 and at 8 cross a bound.
    split = _split(allocations(*[{"gpu": 4}] * 4), {"gpu": 10}, {})
    assert (split.non_preemptible, split.aggressively_preemptible, split.preemptible) == (("r0", "r1"), ("r2",), ("r3",))


def test_a_fair_share_that_covers_the_demand_protects_all_but_from_the_aggressive() -> None:
    assert _counts(_split(allocations(*[GPU] * 4), {"gpu": 10}, {})) == (2, 2, 0)
    assert _counts(_split(allocations(*[GPU] * 4), {"gpu": 10}, {}, StarvationSettings(threshold=Fraction(0)))) == (1, 3, 0)


def test_without_aggressive_preemption_what_only_it_could_take_is_protected() -> None:
    patience = StarvationSettings(aggressive_threshold=Fraction(1, 2), allow_aggressive=False)
    assert _counts(_split(allocations(*[GPU] * 15), {"gpu": 10}, {}, patience)) == (10, 0, 5)


def test_what_completed_a_checkpoint_goes_first() -> None:
    split = _split(allocations(*[GPU] * 15, checkpointed=frozenset({0, 3})), {"gpu": 10}, {})
    assert split.preemptible == ("r12", "r13", "r14", "r0", "r3")
    assert list(split.usage_before)[-2:] == ["r0", "r3"]


def test_usage_before_each_in_the_order_of_the_walk() -> None:
    running = allocations({"gpu": 1}, {"gpu": 2, "cpu": 4}, {"cpu": 1}, checkpointed=frozenset({0}))
    division = _divided(running, {"gpu": 10, "cpu": 10}, {})
    split = split_allocations(running, division.accounts["x"], division, HALVES)
    tenths = {name: [Fraction(share * 10, division.scale) for share in shares] for name, shares in split.usage_before.items()}
    assert tenths == {"r1": [0, 0], "r2": [4, 2], "r0": [5, 2]}


@pytest.mark.parametrize(
    ("protects", "expected"),
    [
        pytest.param({}, (5, 5, 5), id="nothing"),
        pytest.param({"gpu": 3}, (5, 5, 5), id="less than the bound"),
        pytest.param({"gpu": 7}, (7, 3, 5), id="more than the first bound"),
        pytest.param({"gpu": 12}, (12, 0, 3), id="more than both"),
        pytest.param({"gpu": 12, "cpu": 16}, (8, 2, 5), id="the scarcer key counts"),
        pytest.param({"gpu": 0}, (5, 5, 5), id="a key of which nothing is protected"),
        pytest.param({"slots": 1}, (15, 0, 0), id="a key that is not in use"),
    ],
)
def test_protected_usage_is_non_preemptible(protects: dict[str, int], expected: tuple[int, int, int]) -> None:
    patience = StarvationSettings(aggressive_threshold=Fraction(1, 2), protected_usage=protects)
    assert _counts(_split(allocations(*[{"gpu": 1, "cpu": 2}] * 15), {"gpu": 10, "cpu": 20}, {}, patience)) == expected


def test_a_key_of_which_all_that_is_wanted_is_due_does_not_count() -> None:
    # All the cpu is due and held from the start, so the bounds are those of the gpus.
    running = allocations({"gpu": 1, "cpu": 8}, *[GPU] * 14)
    assert _counts(_split(running, {"gpu": 10, "cpu": 20}, {"gpu": 5})) == (5, 5, 5)


def test_what_is_protected_from_the_aggressive_is_protected_from_all() -> None:
    patience = StarvationSettings(threshold=Fraction(1, 5), aggressive_threshold=Fraction(1, 2))
    assert _counts(_split(allocations(*[GPU] * 15), {"gpu": 10}, {}, patience)) == (5, 0, 10)


@pytest.mark.parametrize("rounded", [0, 1, -1])
def test_bounds_are_not_crossed_by_rounding(rounded: int) -> None:
    # A third of 99 is 33: the 33rd is protected, the next is not.
    running = allocations(*[GPU] * 60)
    tree = Branch("pool", children=(Leaf("x", usage={"gpu": 60}, demand={"gpu": 99}), Leaf("y", weight=2, demand={"gpu": 99})))
    division = divide({"gpu": 99}, tree)
    node = replace(division.accounts["x"], fair=(division.scale // 3 + rounded,))
    assert _counts(split_allocations(running, node, division, StarvationSettings()))[2] == 60 - 33
