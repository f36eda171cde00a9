"""The choice of victims: order, superfluous victims, other sets, bounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.ledger_limits import MAX_VICTIM_HOLDS
from app.planner.decisions import DecisionReason
from app.planner.preemption.subset_search import SubsetSearch
from tests.unit.planner.builders import MINUTE_MS, NOW_MS, PoolBuilder, a_pool


def low_and_high(gpu: int, **terms: Any) -> PoolBuilder:
    """Return a pool in which `high` may preempt `low`."""
    return a_pool(gpu=gpu).with_settings(**terms).policy("low", priority=1).policy("high", priority=9)


def full(*units: int, **terms: Any) -> PoolBuilder:
    """Return a pool full of `low`: v0, v1, … with these units each."""
    pool = low_and_high(sum(units), **terms)
    for number, gpu in enumerate(units):
        pool.runs(f"v{number}", "low", gpu=gpu)
    return pool


# order of candidates


def test_reserved_takes_the_lowest_rank_then_the_newest() -> None:
    pool = a_pool(gpu=6).policy("a", priority=1).policy("b", priority=2).policy("w", priority=3)
    pool.runs("b4", "b", gpu=1, preemption_class=4).runs("a5", "a", gpu=1).runs("a4", "a", gpu=1, preemption_class=4)
    pool.runs("a4new", "a", gpu=1, preemption_class=4).runs("b5", "b", gpu=1).runs("b4new", "b", gpu=1, preemption_class=4)
    assert list(pool.waits("w", "w", gpu=6).victims()) == ["a4new", "a4", "a5", "b4new", "b4", "b5"]


def test_equal_fences_go_by_id() -> None:
    pool = low_and_high(2).runs("y", "low", gpu=1, fence=1).runs("x", "low", gpu=1, fence=1).waits("w", "high", gpu=1)
    assert pool.victims() == {"x": "priority"}


def test_classes_takes_the_cheapest_then_the_lowest_class_then_the_newest() -> None:
    pool = a_pool(gpu=5).with_settings(discipline="classes").policy("t")
    pool.runs("dear", "t", gpu=1, preemption_class=1, checkpoint="manual").runs("c3", "t", gpu=1, preemption_class=3)
    pool.runs("c2", "t", gpu=1, preemption_class=2).runs("c2new", "t", gpu=1, preemption_class=2)
    pool.runs("cheap", "t", gpu=1, preemption_class=4, checkpoint="manual", saved_s=60)
    assert list(pool.waits("w", "t", gpu=5, preemption_class=9).victims()) == ["cheap", "c2new", "c2", "c3", "dear"]


@given(st.permutations(range(6)), st.sampled_from(["reserved", "classes"]))
def test_the_order_of_what_is_seen_does_not_matter(order: list[int], discipline: str) -> None:
    pool = full(1, 2, 1, 2, 1, 1, discipline=discipline).waits("w", "high", gpu=4, preemption_class=6)
    expected = pool.plan().steps
    pool.allocations = [pool.allocations[place] for place in order]
    assert pool.plan().steps == expected


# free first, taking, giving back


def test_free_units_first() -> None:
    pool = full(1, 1)
    pool.capacity = {"gpu": 4}
    assert pool.waits("w", "high", gpu=3).victims() == {"v1": "priority"}


def test_a_small_one_taken_first_is_given_back() -> None:
    assert full(4, 3, 1).waits("w", "high", gpu=3).victims() == {"v1": "priority"}


def test_all_or_nothing() -> None:
    pool = low_and_high(4).runs("fixed", "high", gpu=2, preemption_class=9).runs("v", "low", gpu=2).waits("w", "high", gpu=3)
    assert pool.victims() == {}
    assert pool.reason() is DecisionReason.NOT_ENOUGH


def test_only_allocations_with_a_short_key_are_candidates() -> None:
    pool = a_pool(gpu=2, lic=2).policy("low", priority=1).policy("high", priority=9)
    pool.runs("gpu", "low", gpu=2).runs("lic", "low", lic=2).waits("w", "high", gpu=1)
    assert pool.victims() == {"gpu": "priority"}


def test_several_keys_need_several_victims() -> None:
    pool = a_pool(gpu=2, lic=2).policy("low", priority=1).policy("high", priority=9)
    pool.runs("both", "low", gpu=1, lic=1).runs("gpu", "low", gpu=1).runs("lic", "low", lic=1).waits("w", "high", gpu=2, lic=2)
    assert set(pool.victims()) == {"both", "gpu", "lic"}
    pool.waiters.clear()
    assert set(pool.waits("w", "high", gpu=1, lic=1).victims()) == {"gpu", "lic"}


def test_at_a_limit_the_victims_come_from_inside_that_account() -> None:
    pool = a_pool(gpu=8).group("g", limit={"gpu": 4}).policy("a", "g", priority=9).policy("b", "g", priority=1).policy("c")
    pool.runs("in", "b", gpu=3).runs("out", "c", gpu=3).waits("w", "a", gpu=2)
    assert pool.victims() == {"in": "priority"}
    pool.accounts["policy:a"]["limit"] = {"gpu": 1}
    pool.waiters.clear()
    pool.runs("mine", "a", gpu=1, preemption_class=1).waits("w", "a", gpu=1)
    assert pool.victims() == {"mine": "priority"}


def test_a_limit_as_large_as_the_pool_is_none() -> None:
    pool = a_pool(gpu=4).policy("a", priority=9, limit={"gpu": 4}).policy("b", priority=1)
    pool.runs("mine", "a", gpu=2, preemption_class=9).runs("v", "b", gpu=2).waits("w", "a", gpu=2)
    assert pool.victims() == {"v": "priority"}


def test_unlisted_keys_are_unbounded_or_none() -> None:
    pool = full(1).waits("w", "high", mcpu=9000, memory_mb=9000)
    assert pool.reason() is DecisionReason.NO_SHORTAGE
    assert full(1).waits("w", "high", tpu=1).reason() is DecisionReason.NOT_ENOUGH


# the most victims


def test_one_large_instead_of_four_small() -> None:
    pool = full(4, 1, 1, 1, 1, max_victims=3).waits("w", "high", gpu=4)
    assert pool.victims() == {"v0": "priority"}


def test_too_many_makes_it_wait() -> None:
    pool = full(1, 1, 1, 1, max_victims=2).waits("w", "high", gpu=3)
    assert pool.reason() is DecisionReason.TOO_MANY
    assert full(1, 1, 1, 1, max_victims=3).waits("w", "high", gpu=3).reason() is DecisionReason.FITS_THEN


def test_other_sets_are_looked_for_among_the_first_twelve() -> None:
    assert full(2, *[1] * 11, max_victims=1).waits("w", "high", gpu=2).victims() == {"v0": "priority"}
    assert full(2, *[1] * 12, max_victims=1).waits("w", "high", gpu=2).reason() is DecisionReason.TOO_MANY


def test_other_sets_fewer_then_cheaper_then_by_the_order_of_candidates() -> None:
    pool = full(2, 2, 2, 1, 1, 1, 1, max_victims=2).waits("w", "high", gpu=4)
    assert list(pool.victims()) == ["v2", "v1"]
    pool.allocations[0] = PoolBuilder({}).runs("v0", "low", gpu=2, ran_s=60).allocations[0]
    assert list(pool.victims()) == ["v2", "v0"]
    pool.waiters.clear()
    assert list(pool.with_settings(max_victims=1).waits("w", "high", gpu=2).victims()) == ["v0"]


# the condition of own


def test_another_set_where_the_condition_of_own_forbids_the_first() -> None:
    pool = a_pool(gpu=4).policy("t", priority=1, reserved={"gpu": 1}).policy("o", priority=1)
    pool.runs("mine", "t", gpu=1, preemption_class=4).runs("o1", "o", gpu=1).runs("o2", "o", gpu=2)
    pool.waits("w", "t", gpu=3, preemption_class=6)
    assert pool.victims() == {"o2": "priority", "o1": "priority"}


def test_unconditional_candidates_are_taken_if_conditional_ones_are_refused() -> None:
    pool = a_pool(gpu=4).policy("t", priority=1, reserved={"gpu": 1}).policy("o", priority=1)
    pool.runs("mine", "t", gpu=1, preemption_class=4).runs("theirs", "o", gpu=3).waits("w", "t", gpu=3, preemption_class=6)
    assert pool.victims() == {"theirs": "priority"}


def test_without_a_condition_more_than_twelve_may_be_taken() -> None:
    pool = a_pool(gpu=9, slot=16).policy("t", reserved={"gpu": 2}).policy("o")
    pool.runs("mate", "t", gpu=1, preemption_class=9).runs("mine", "t", gpu=1, slot=1, preemption_class=1)
    for number in range(15):
        pool.runs(f"o{number}", "o", slot=1, preemption_class=4)
    pool.waits("w", "t", gpu=2, slot=15, preemption_class=6)
    # `mine` comes first, but lies in share, and `w` would not
    assert set(pool.victims()) == {f"o{number}" for number in range(15)}


def test_no_allocation_is_preempted_only_for_the_waiter_to_lie_in_share() -> None:
    pool = a_pool(gpu=5).policy("t", reserved={"gpu": 4}).runs("a", "t", gpu=1).runs("b", "t", gpu=1).runs("c", "t", gpu=1)
    pool.runs("d", "t", gpu=2, preemption_class=9).waits("w", "t", gpu=2, preemption_class=6)
    assert pool.victims() == {}, "two make it fit, and a third would only bring it below the reserved"
    assert pool.reason() is DecisionReason.NOT_WITHIN


# the highest cost


def test_classes_preempts_only_below_the_waiters_value() -> None:
    pool = a_pool(gpu=1).with_settings(discipline="classes", value_per_class=10).policy("t").runs("v", "t", gpu=1, ran_s=3599)
    pool.waits("w", "t", gpu=1, preemption_class=6)
    assert pool.victims() == {"v": "priority"}
    pool.allocations[0] = a_pool().runs("v", "t", gpu=1, ran_s=3600).allocations[0]
    assert pool.reason() is DecisionReason.TOO_DEAR
    assert pool.with_settings(discipline="reserved").reason() is DecisionReason.FITS_THEN


def test_a_cheaper_set_is_looked_for_before_it_is_refused() -> None:
    pool = a_pool(gpu=4).with_settings(discipline="classes", value_per_class=10).policy("t")
    pool.runs("a", "t", gpu=1, ran_s=1800, preemption_class=1).runs("b", "t", gpu=1, ran_s=1860, preemption_class=1)
    pool.runs("c", "t", gpu=2, ran_s=1000, preemption_class=1).waits("w", "t", gpu=2, preemption_class=3)
    # a and b come first and cost 61 minutes, c alone costs 33
    assert pool.victims() == {"c": "priority"}


# whole pools


def borrowers() -> PoolBuilder:
    """Return a pool of which `low` and `high` own half each, and `high` holds all."""
    pool = a_pool(gpu=8).policy("low", priority=1, reserved={"gpu": 4}).policy("high", priority=100, reserved={"gpu": 4})
    return pool.runs("h1", "high", gpu=4).runs("h2", "high", gpu=4)


def sandbox() -> PoolBuilder:
    """Return a pool in which `sandbox` borrows two units."""
    pool = a_pool(gpu=8).policy("sandbox", priority=10, reserved={"gpu": 4}).policy("prod", priority=100, reserved={"gpu": 2})
    return pool.runs("s1", "sandbox", gpu=2).runs("s2", "sandbox", gpu=2).runs("s3", "sandbox", gpu=2)


def beside_fixed() -> PoolBuilder:
    """Return a pool in which three of four units are fixed."""
    pool = a_pool(gpu=4).policy("low", priority=1, reserved={"gpu": 3}).policy("high", priority=9)
    return pool.runs("fixed", "low", gpu=3, preemptible=False).runs("soft", "low", gpu=1)


def classes_4_and_6(**numbers: Any) -> PoolBuilder:
    """Return a pool with a request of class 4 and one of class 6 under one policy."""
    pool = a_pool(gpu=8 if "limit" in numbers else 2).policy("t", priority=9, **numbers).policy("o", priority=1)
    return pool.runs("a", "t", gpu=1, preemption_class=4).runs("b", "t", gpu=1, preemption_class=6)


def at_the_fixed_limit() -> PoolBuilder:
    """Return a pool with a policy at its limit of three, two of them its own."""
    pool = a_pool(gpu=8).policy("t", priority=1, reserved={"gpu": 2}, limit={"gpu": 3})
    return pool.runs("soft1", "t", gpu=1).runs("soft2", "t", gpu=2)


def two_below() -> PoolBuilder:
    """Return a pool with an owner of two units that holds three, and a borrower."""
    return a_pool(gpu=4).policy("a", priority=2).policy("b", priority=1, reserved={"gpu": 2})


def mem_in_share() -> PoolBuilder:
    """Return a pool in which a request in share holds units that no policy reserves."""
    pool = a_pool(gpu=6, mem=4).policy("a", priority=1, reserved={"gpu": 4}).policy("b", priority=2)
    return pool.runs("a3", "a", gpu=3, mem=3)


def home_and_service() -> PoolBuilder:
    """Return a pool in which a service holds its own two units and the two of `home`."""
    pool = a_pool(gpu=4).with_settings(discipline="classes").policy("home", priority=1, reserved={"gpu": 2})
    pool.policy("svc", priority=1, reserved={"gpu": 2}, profile="service")
    pool.runs("v1", "svc", gpu=2, preemption_class=6, checkpoint="auto")
    return pool.runs("v2", "svc", gpu=2, preemption_class=6, checkpoint="auto")


def home_is_back() -> PoolBuilder:
    """Return the same pool after `home` has reclaimed its two units."""
    pool = home_and_service()
    pool.allocations.pop()
    return pool.runs("h", "home", gpu=2, preemption_class=2)


def of_a_day(**ask: Any) -> dict[str, Any]:
    """Return the fields of a request for one unit, just started, for a day."""
    return {"gpu": 1, "ran_s": 0, "walltime_s": 86400, **ask}


def dear_and_cheap() -> PoolBuilder:
    """Return a pool in which the victim of lower class costs more."""
    pool = a_pool(gpu=2).with_settings(discipline="classes").policy("t")
    pool.runs("dear", "t", **of_a_day(preemption_class=1, checkpoint="manual"))
    return pool.runs("cheap", "t", **of_a_day(preemption_class=3, checkpoint="auto", checkpoint_minutes=1))


def hard_and_ending() -> PoolBuilder:
    """Return a pool with a victim that cannot be saved, and one that ends soon."""
    pool = a_pool(gpu=2).with_settings(discipline="classes", near_completion_s=300).policy("t")
    pool.runs("hard", "t", gpu=1, preemption_class=7)
    return pool.runs("ending", "t", gpu=1, ran_s=1, preemption_class=1, checkpoint="auto", walltime_s=200)


SITUATIONS: list[tuple[PoolBuilder, str, dict[str, Any], list[str]]] = [
    (borrowers(), "low", {"gpu": 4}, ["h2"]),
    (sandbox(), "prod", {"gpu": 6}, []),
    (sandbox(), "prod", {"gpu": 4}, ["s3"]),
    (beside_fixed(), "high", {"gpu": 2}, []),
    (beside_fixed(), "high", {"gpu": 1}, ["soft"]),
    (classes_4_and_6(reserved={"gpu": 2}), "t", {"gpu": 1, "preemption_class": 4}, []),
    (classes_4_and_6(reserved={"gpu": 2}), "t", {"gpu": 1, "preemption_class": 6}, ["a"]),
    (classes_4_and_6(limit={"gpu": 2}).runs("o", "o", gpu=2), "t", {"gpu": 1, "preemption_class": 4}, []),
    (classes_4_and_6(limit={"gpu": 2}).runs("o", "o", gpu=2), "t", {"gpu": 1, "preemption_class": 6}, ["a"]),
    (at_the_fixed_limit(), "t", {"gpu": 2, "preemptible": False}, ["soft2"]),
    (at_the_fixed_limit(), "t", {"gpu": 3, "preemptible": False, "preemption_class": 9}, []),
    (two_below().runs("b3", "b", gpu=3), "a", {"gpu": 4}, ["b3"]),
    (two_below().runs("a4", "a", gpu=4), "b", {"gpu": 3}, []),
    (two_below().runs("a4", "a", gpu=4), "b", {"gpu": 1}, ["a4"]),
    (two_below().runs("b2", "b", gpu=2, preemption_class=3).runs("a2", "a", gpu=2), "b", {"gpu": 3, "preemption_class": 7}, []),
    (mem_in_share(), "b", {"gpu": 3, "mem": 2}, []),
    (home_and_service(), "home", {"gpu": 2, "preemption_class": 2}, ["v2"]),
    (home_is_back(), "home", {"gpu": 2, "preemption_class": 9}, ["h"]),
    (dear_and_cheap(), "t", {"gpu": 1, "preemption_class": 8}, ["cheap"]),
    (hard_and_ending(), "t", {"gpu": 1, "preemption_class": 9}, []),
]


@pytest.mark.parametrize(("pool", "component", "ask", "stopped"), SITUATIONS)
def test_situations(pool: PoolBuilder, component: str, ask: dict[str, Any], stopped: list[str]) -> None:
    assert list(replace(pool, waiters=[]).waits("w", component, **ask).victims()) == stopped


# properties


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=9),
    st.integers(1, 12),
    st.sampled_from([None, 1, 2, 3]),
    st.sampled_from(["reserved", "classes"]),
)
def test_no_victim_is_superfluous_and_no_is_said_only_when_there_is_no_set(
    allocations: list[tuple[int, int, int]], gpu_asked: int, max_victims: int | None, discipline: str
) -> None:
    pool = low_and_high(sum(gpu for gpu, *_ in allocations), max_victims=max_victims, discipline=discipline)
    for number, (gpu, preemption_class, ran) in enumerate(allocations):
        pool.runs(f"v{number}", "low", gpu=gpu, preemption_class=preemption_class, ran_s=60 * ran)
    victims = pool.waits("w", "high", gpu=gpu_asked, preemption_class=4).victims()
    units = {f"v{number}": gpu for number, (gpu, *_) in enumerate(allocations)}
    sets = [names for size in range(1, (max_victims or 9) + 1) for names in combinations(units, size)]
    works = [names for names in sets if sum(units[name] for name in names) >= gpu_asked]
    assert bool(victims) == bool(works)
    assert len(victims) <= (max_victims or 9)
    for name in victims:
        assert sum(units[other] for other in victims) - units[name] < gpu_asked


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=7), st.tuples(st.integers(-1, 6), st.integers(-1, 6)))
def test_the_search_finds_every_set_and_no_other(contributions: list[tuple[int, int]], needs: tuple[int, int]) -> None:
    sets = SubsetSearch(range(len(contributions)), contributions, needs)
    for size in range(1, len(contributions) + 1):
        covering = [
            names
            for names in combinations(range(len(contributions)), size)
            if all(sum(contributions[name][need] for name in names) >= needs[need] for need in (0, 1))
        ]
        assert list(sets.of_size(size)) == covering


@pytest.mark.parametrize("discipline", ["reserved", "classes"])
def test_it_stays_quick_with_many(discipline: str) -> None:
    # No time is measured here: quadratic work would exceed the timeout.
    pool = low_and_high(30_000, discipline=discipline)
    for number in range(30_000):
        pool.allocations.append(full(1).allocations[0].__class__(**_many(number)))
    for number in range(300):
        pool.waits(f"w{number}", "high", gpu=1 + number % 3, preemption_class=9)
    assert len(pool.plan().steps) == MAX_VICTIM_HOLDS


def _many(number: int) -> dict[str, Any]:
    return {
        "id": f"v{number}",
        "component": "low",
        "amounts": {"gpu": 1},
        "fence": number,
        "preemptible": True,
        "preemption_class": number % 7,
        "checkpoint": "none",
        "checkpoint_minutes": None,
        "walltime_s": None,
        "granted_ms": NOW_MS - number * MINUTE_MS // 1000,
    }


def test_of_two_that_suffice_the_second_is_not_preempted_only_for_the_waiter_to_lie_in_share() -> None:
    pool = a_pool(gpu=5).policy("t", reserved={"gpu": 4}).runs("two", "t", gpu=2).runs("one", "t", gpu=1)
    pool.runs("safe", "t", gpu=2, preemption_class=9).waits("w", "t", gpu=2, preemption_class=6)
    assert pool.victims() == {}
    assert pool.reason() is DecisionReason.NOT_WITHIN
