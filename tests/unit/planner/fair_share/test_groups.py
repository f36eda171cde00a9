"""Fair shares with groups, guarantees, limits, several keys, holds of others and strict queueing: the rules as small pools."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.plan_steps import UsageCondition
from app.domain.queue_score import MAX_AMOUNT
from app.planner.decisions import DecisionReason, RefusalReason
from tests.unit.planner.fair_share.builders import AGGRESSIVE, STARVING, FairShareBuilder, a_fair_share_pool

# guarantees and weights


def test_what_is_guaranteed_comes_on_top() -> None:
    # Six of eight units are due to `a`: its reserved four, and half of the rest.
    pool = (
        a_fair_share_pool(gpu=8)
        .policy("a", reserved={"gpu": 4}, **STARVING)
        .policy("b")
        .runs_several("a", 1, 1, 1)
        .runs_several("b", 1, 1, 1, 1, 1)
    )
    assert set(pool.waits("w", "a", gpu=3).victims()) == {"b5", "b4", "b3"}
    assert pool.waits("x", "a", gpu=4).reason("x") is DecisionReason.NOT_STARVING  # once the three are its own


def test_what_is_guaranteed_to_others_is_spared() -> None:
    pool = a_fair_share_pool(gpu=8).policy("a", **STARVING).policy("b", reserved={"gpu": 6}).runs_several("b", *[1] * 8)
    assert set(pool.waits("w", "a", gpu=1).victims()) == {"b8"}
    whole = a_fair_share_pool(gpu=8).policy("a", **STARVING).policy("b", reserved={"gpu": 8}).runs_several("b", *[1] * 8)
    assert whole.waits("w", "a", gpu=1).reason() is DecisionReason.NOT_STARVING


@pytest.mark.parametrize(("weight", "taken"), [(1, {"b4", "b3"}), (3, {"b4", "b3", "b2"})])
def test_a_weight_says_how_much_is_due(weight: int, taken: set[str]) -> None:
    pool = a_fair_share_pool(gpu=4).policy("a", weight=weight, **STARVING).policy("b").runs_several("b", 1, 1, 1, 1)
    assert set(pool.waits("w", "a", gpu=len(taken)).waits("x", "a", gpu=4).victims()) == taken


# groups


def two_groups(**numbers: Any) -> FairShareBuilder:
    """Return eight units, due by halves to a group of `a` and `b` and a group of `c`."""
    return (
        a_fair_share_pool(gpu=8).group("g", **numbers).group("h").policy("a", "g", **STARVING).policy("b", "g").policy("c", "h")
    )


def test_a_policy_starves_inside_its_group() -> None:
    # Its group has its fair share, so another policy of the group has more than its own.
    pool = (
        two_groups().runs_several("b", 1, 1, 1, 1).runs_several("c", 1, 1, 1, 1).waits("w", "a", gpu=2).waits("x", "c", gpu=4)
    )
    assert set(pool.victims()) == {"b4", "b3"}


def test_what_a_group_lacks_comes_from_outside() -> None:
    pool = two_groups().runs_several("b", 1, 1).runs_several("c", *[1] * 6).waits("w", "a", gpu=2).waits("x", "b", gpu=2)
    assert set(pool.victims()) == {"c6", "c5"}


def test_at_a_limit_of_its_group_victims_come_from_inside() -> None:
    # `c` has more than its fair share as well, and a newer allocation.
    pool = two_groups(limit={"gpu": 4}).policy("d", "h").runs_several("b", 1, 1, 1, 1).runs_several("c", 1, 1, 1, 1, 1)
    pool.capacity = {"gpu": 10}
    pool.waits("x", "d", gpu=4).waits("w", "a", gpu=1)
    assert pool.victims() == {"b4": "starvation"}
    assert pool.refusals("c5") == {None: RefusalReason.HOLDS_NOTHING_SHORT}


def test_no_allocation_is_taken_at_the_limit_of_the_own_policy() -> None:
    pool = (
        a_fair_share_pool(gpu=4)
        .policy("a", limit={"gpu": 1}, **STARVING)
        .policy("b")
        .runs_several("a", 1)
        .runs_several("b", 1, 1, 1)
    )
    assert pool.waits("w", "a", gpu=1).victims() == {}


def test_a_group_serves_one_after_the_other() -> None:
    # The first policy in turn is due all that is due to its group; a later one is due the rest.
    for mode, taken in (("fair_share", {"b4", "b3"}), ("fifo", {"b4", "b3", "b2", "b1"})):
        pool = (
            a_fair_share_pool(gpu=8)
            .with_settings(aggressive_starvation=True)
            .group("g", mode=mode)
            .policy("a", "g", weight=2, **AGGRESSIVE)
        )
        pool.policy("b", "g", weight=2 if mode == "fair_share" else 1).policy("c").runs_several("b", 1, 1, 1, 1).runs_several(
            "c", 1, 1, 1, 1
        )
        pool.waits("w", "a", gpu=len(taken)).waits("x", "c", gpu=4).waits("y", "a", gpu=4)
        assert set(pool.victims()) == taken, mode


def test_of_equal_weights_the_eldest_is_the_first_in_turn() -> None:
    pool = (
        a_fair_share_pool(gpu=4)
        .group("g", mode="fifo")
        .policy("b", "g")
        .policy("a", "g", **STARVING)
        .runs_several("b", 1, 1, 1, 1)
    )
    assert pool.waits("w", "a", gpu=1).waits("x", "b", gpu=1).reason() is DecisionReason.NOT_STARVING
    turned = (
        a_fair_share_pool(gpu=4)
        .group("g", mode="fifo")
        .policy("a", "g", **STARVING)
        .policy("b", "g")
        .runs_several("b", 1, 1, 1, 1)
    )
    assert turned.waits("w", "a", gpu=1).waits("x", "b", gpu=1).victims() == {"b4": "starvation"}


def test_a_set_is_refused_after_which_a_group_could_take_back() -> None:
    # Two of `c` lie beyond three quarters of its share; without them its group has less than its share.
    pool = a_fair_share_pool(gpu=8).with_settings(preemption_threshold=0.5).policy("a", **STARVING)
    pool.group("h", fair_share_tolerance=1).policy("c", "h", fair_share_tolerance=0.1)
    pool.runs_several("a", 1, 1).runs_several("c", *[1] * 6).waits("x", "c", gpu=2)
    assert pool.waits("w", "a", gpu=3).reason() is DecisionReason.WOULD_BE_TAKEN_BACK
    assert set(pool.waits("y", "a", gpu=2).victims("y")) == {"c6", "c5"}


# several keys


def test_every_short_key_is_taken_from_the_policies_that_hold_it() -> None:
    pool = a_fair_share_pool(gpu=8, mem=8).policy("a", **STARVING).policy("b").policy("c")
    for number in range(8):
        pool.runs(f"b{number}", "b", gpu=1).runs(f"c{number}", "c", mem=1)
    pool.waits("x", "b", gpu=4).waits("y", "c", mem=4)
    assert set(pool.waits("w", "a", gpu=2, mem=1).victims()) == {"b7", "b6", "c7"}


def test_a_key_that_the_pool_does_not_list_is_nothing_that_is_shared() -> None:
    pool = (
        a_fair_share_pool(gpu=4)
        .policy("a", **STARVING)
        .policy("b")
        .runs_several("b", 1, 1, 1, 1, mcpu=500)
        .waits("w", "a", gpu=1, mcpu=9000)
    )
    assert pool.victims() == {"b4": "starvation"}
    assert {use.key for use in pool.preempt_step().usage_conditions} == {"gpu"}


# strict queueing


def test_in_strict_queueing_no_waiter_preempts_behind_one_that_capacity_blocks() -> None:
    pool = a_fair_share_pool(gpu=8).with_settings(queueing="strict").policy("a", **STARVING).policy("b").policy("c", **STARVING)
    pool.runs_several("b", *[1] * 8).waits("x", "c", gpu=8).waits("w", "a", gpu=1)
    assert (pool.reason("x"), pool.reason("w")) == (DecisionReason.NOT_ENOUGH, DecisionReason.BEHIND)
    assert pool.with_settings(queueing="best_effort").victims() == {"b8": "starvation"}


def test_the_first_in_the_queue_asks_though_another_is_more_urgent() -> None:
    pool = a_fair_share_pool(gpu=8).with_settings(queueing="strict", aggressive_starvation=True)
    pool.policy("a", **AGGRESSIVE).policy("b").policy("c", **STARVING).runs_several("b", *[1] * 8)
    assert pool.waits("x", "c", gpu=1).waits("w", "a", gpu=1).steps() == [("preempt", "x", "b8")]


# holds


def cleared(brings: int, **numbers: Any) -> FairShareBuilder:
    """Return a pool of eight units: half is due to `a`, the owner of a hold for three; this many of `b` leave for it."""
    pool = a_fair_share_pool(gpu=8).policy("a", **(STARVING | numbers)).policy("b").runs_several("b", *[1] * (8 - brings))
    for number in range(brings):
        pool.runs(f"l{number}", "b", gpu=1, leaving_for="h")
    return pool.holds("h", "a", gpu=3)


def test_a_hold_that_suffices_takes_no_more() -> None:
    assert cleared(3).steps() == []


def test_a_hold_that_does_not_suffice_takes_more() -> None:
    assert cleared(1).steps() == [("preempt", "h", "b7", "b6")]


def test_a_hold_goes_before_those_without() -> None:
    pool = cleared(1).policy("c", **STARVING).waits("w", "c", gpu=1)
    assert [step[:2] for step in pool.steps()] == [("preempt", "h")]
    assert pool.reason() is DecisionReason.ONE_AT_A_TIME


def test_an_unfillable_hold_ends_and_its_victims_are_reprieved() -> None:
    pool = (
        a_fair_share_pool(gpu=4)
        .policy("a", **STARVING)
        .policy("b")
        .runs_several("b", 1, 1, 1)
        .runs("l", "b", gpu=1, leaving_for="h")
    )
    assert pool.holds("h", "a", gpu=3).steps() == [("end hold", "h"), ("reprieve", "l")]


def test_an_insufficient_hold_ends_if_its_owner_starves_no_longer() -> None:
    pool = a_fair_share_pool(gpu=4).policy("a").policy("b").runs_several("b", 1, 1, 1).runs("l", "b", gpu=1, leaving_for="h")
    assert pool.holds("h", "a", gpu=2).steps() == [("end hold", "h"), ("reprieve", "l")]
    enough = a_fair_share_pool(gpu=4).policy("a").policy("b").runs_several("b", 1, 1, 1).runs("l", "b", gpu=1, leaving_for="h")
    assert enough.holds("h", "a", gpu=1).steps() == []


def test_a_hold_waits_out_the_pause() -> None:
    pool = cleared(1).with_settings(backoff_s=5)
    pool.last_decision_ms = pool.snapshot().now_ms - 1000
    assert pool.steps() == []


def test_an_orphaned_victim_is_reassigned_to_a_short_hold() -> None:
    pool = cleared(2).runs("stray", "b", gpu=1, leaving_for="")
    pool.capacity = {"gpu": 9}
    assert pool.steps()[0] == ("reassign", "stray", "h")


def test_an_orphaned_victim_is_reprieved_if_no_owner_may_take_it() -> None:
    within = cleared(3).policy("c").runs("stray", "c", gpu=1, leaving_for="")
    within.capacity = {"gpu": 9}
    assert within.steps() == [("reprieve", "stray")]
    pool = cleared(2).policy("c").runs("stray", "c", gpu=1, leaving_for="")
    pool.capacity = {"gpu": 9}
    assert pool.steps() == [("reprieve", "stray"), ("preempt", "h", "b6")]


def test_a_hold_counts_for_the_fair_shares_of_other_waiters() -> None:
    # When the hold of three is filled, `b` has five units, all within its fair share.
    pool = cleared(3).policy("c", **STARVING).waits("w", "c", gpu=2)
    assert set(pool.victims()) == {"b5", "b4"}
    assert cleared(3).policy("c", **STARVING).waits("w", "c", gpu=3).reason() is DecisionReason.NOT_ENOUGH


# the step


def test_a_step_rests_on_the_use_of_its_own_and_of_all_victims() -> None:
    # The waiter's policy must not use more by then, and the victims' policies not less.
    pool = (
        a_fair_share_pool(gpu=8, mem=4)
        .policy("a", **STARVING)
        .policy("b")
        .policy("c")
        .runs_several("a", 1)
        .runs_several("b", 1, 1, 1)
    )
    pool.runs_several("c", 1, 1, 1, 1).waits("w", "a", gpu=1).waits("x", "c", gpu=4)
    assert pool.preempt_step().usage_conditions == (
        UsageCondition("policy:a", "gpu", 0, 1),
        UsageCondition("policy:a", "mem", 0, 0),
        UsageCondition("policy:c", "gpu", 4, MAX_AMOUNT),
        UsageCondition("policy:c", "mem", 0, MAX_AMOUNT),
    )
