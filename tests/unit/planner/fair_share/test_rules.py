"""The rules of preemption by fair share, each in small pools."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.plan_steps import UsageCondition
from app.domain.queue_score import MAX_AMOUNT
from app.domain.snapshot import PolicyDemand
from app.planner.decisions import DecisionReason, RefusalReason
from tests.unit.planner.fair_share.builders import AGGRESSIVE, STARVING, FairShareBuilder, a_fair_share_pool, starving


def full(preemptor: dict[str, Any] | None = None, victim: dict[str, Any] | None = None, **terms: Any) -> FairShareBuilder:
    """Return a pool of four units, all held one by one by `b`; `w` of `a`, to which one unit is due, waits for it."""
    pool = (
        a_fair_share_pool(gpu=4)
        .with_settings(**terms)
        .policy("a", **(STARVING if preemptor is None else preemptor))
        .policy("b", **(victim or {}))
    )
    return pool.runs_several("b", 1, 1, 1, 1).waits("w", "a", gpu=1)


def half(threshold: float | str = 1, **numbers: Any) -> FairShareBuilder:
    """Return a pool of eight units, due to `a` and `b` by halves; `b` holds all of them, `a` waits for as many."""
    pool = a_fair_share_pool(gpu=8).with_settings(preemption_threshold=threshold, aggressive_starvation=True)
    return pool.policy("a", **(AGGRESSIVE | numbers)).policy("b")


# the waiters that may preempt


def test_a_starving_policy_takes_what_lies_beyond_another_fair_share() -> None:
    assert full().victims() == {"b4": "starvation"}


@pytest.mark.parametrize(("below_s", "taken"), [(0, False), (30, False), (31, True)])
def test_a_policy_below_its_fair_share_starves_after_the_timeout(below_s: int, taken: bool) -> None:
    pool = full({"below_s": below_s})
    assert pool.victims() == ({"b4": "starvation"} if taken else {})
    if not taken:
        assert pool.reason() is DecisionReason.NOT_STARVING
        assert pool.refusals("b4") == {None: RefusalReason.NOT_STARVING}


def test_a_policy_below_for_the_first_time_does_not_starve_yet() -> None:
    pool = full({}, starvation_timeout_s=0)
    assert pool.reason() is DecisionReason.NOT_STARVING
    assert full({"below_s": 1}, starvation_timeout_s=0).victims() == {"b4": "starvation"}


def test_a_policy_with_its_fair_share_stops_starving_at_once() -> None:
    pool = a_fair_share_pool(gpu=4).policy("a", **STARVING).policy("b").runs_several("a", 1, 1).runs_several("b", 1, 1)
    assert pool.waits("w", "a", gpu=1).waits("v", "b", gpu=1).reason() is DecisionReason.NOT_STARVING


def test_the_tolerance_does_not_count_for_a_policy_due_its_whole_demand() -> None:
    # Five are due to each. With four it is below nine tenths of its share only if its share is less than its demand.

    def pool(tolerance: float, gpu: int) -> FairShareBuilder:
        pool = a_fair_share_pool(gpu=10).with_settings(fair_share_tolerance=tolerance).policy("a", **STARVING).policy("b")
        return (
            pool.runs_several("a", 1, 1, 1, 1)
            .runs_several("b", 1, 1, 1, 1, 1, 1)
            .waits("v", "b", gpu=4)
            .waits("w", "a", gpu=gpu)
        )

    assert pool(0.8, 2).reason() is DecisionReason.NOT_STARVING
    assert pool(0.81, 2).reason() is DecisionReason.NOT_ENOUGH
    assert pool(0.8, 1).victims() == {"b6": "starvation"}


def test_a_waiter_is_as_urgent_as_a_group_above_it() -> None:
    pool = a_fair_share_pool(gpu=4).group("g", **STARVING).policy("a", "g").policy("b").runs_several("b", 1, 1, 1, 1)
    assert pool.waits("w", "a", gpu=1).victims() == {"b4": "starvation"}
    again = (
        a_fair_share_pool(gpu=4)
        .with_settings(aggressive_starvation=True)
        .group("g", **AGGRESSIVE)
        .policy("a", "g", **STARVING)
        .policy("b")
    )
    assert again.runs_several("b", 1, 1, 1, 1).waits("w", "a", gpu=1).victims() == {"b4": "aggressive_starvation"}


def test_a_group_that_starves_does_not_shelter_those_below_it() -> None:
    # Only a policy that starves itself is spared.
    pool = a_fair_share_pool(gpu=12).group("g", **STARVING).policy("a", "g", **STARVING).policy("b", "g").policy("c")
    pool.runs_several("b", 1, 1, 1, 1).runs_several("c", *[1] * 8).waits("w", "a", gpu=3)
    assert set(pool.victims()) == {"c8", "c7", "b4"}


def test_its_own_policy_is_spared() -> None:
    pool = a_fair_share_pool(gpu=4).policy("a", **STARVING).policy("b").runs_several("a", 1).runs_several("b", 1, 1, 1)
    pool.waits("w", "a", gpu=1).waits("v", "b", gpu=4)
    assert pool.refusals("a1") == {None: RefusalReason.SAME_POLICY}
    assert pool.victims() == {"b3": "starvation"}


def test_a_policy_that_starves_is_spared() -> None:
    # Four are due to each. One unit is protected, the second is not.

    def pool(**own: Any) -> FairShareBuilder:
        pool = (
            a_fair_share_pool(gpu=12)
            .with_settings(preemption_threshold=0.25)
            .policy("a", **STARVING)
            .policy("b", **own)
            .policy("c")
        )
        return pool.runs_several("c", *[1] * 10).runs_several("b", 1, 1).waits("w", "a", gpu=4).waits("x", "b", gpu=3)

    assert pool(**STARVING).victims() == {f"c{number}": "starvation" for number in (10, 9, 8, 7)}
    assert pool(**STARVING).refusals("b2") == {None: RefusalReason.STARVES}
    assert pool().refusals("b2") == {}


@pytest.mark.parametrize(
    ("ask", "terms", "why"),
    [
        ({"preemptible": False}, {}, RefusalReason.FIXED),
        ({"preemption_class": 10}, {}, RefusalReason.CLASS_TEN),
        ({"ran_s": 59}, {"min_runtime_s": 60}, RefusalReason.JUST_STARTED),
        ({"ran_s": 60, "walltime_s": 100}, {"near_completion_s": 60}, RefusalReason.NEAR_COMPLETION),
        ({"chain": "x"}, {}, RefusalReason.SAME_CHAIN),
    ],
    ids=["fixed", "class 10", "just started", "near its end", "of the same chain"],
)
def test_the_protected_are_spared(ask: dict[str, Any], terms: dict[str, Any], why: RefusalReason) -> None:
    pool = a_fair_share_pool(gpu=4).with_settings(**terms).policy("a", **STARVING).policy("b", reserved={"gpu": 1})
    pool.runs_several("b", 1, 1, 1).runs("v", "b", gpu=1, **ask).waits("w", "a", gpu=1, chain="x")
    assert pool.victims() == {}
    assert pool.refusals("v") == {None: why}


@pytest.mark.parametrize("ask", [{"checkpoint": "none", "preemption_class": 9}, {"ran_s": 3599, "walltime_s": 3600}])
def test_what_only_other_disciplines_protect_is_taken(ask: dict[str, Any]) -> None:
    pool = a_fair_share_pool(gpu=4).policy("a", **STARVING).policy("b", profile="sensitive").runs_several("b", 1, 1, 1)
    assert pool.runs("v", "b", gpu=1, **ask).waits("w", "a", gpu=1, preemption_class=0).victims() == {"v": "starvation"}


def test_neither_priority_nor_reserved_gives_a_right_by_itself() -> None:
    pool = full({"priority": 9, "reserved": {"gpu": 4}}, {"priority": 1})
    assert pool.reason() is DecisionReason.NOT_STARVING


def test_a_non_preemptible_waiter_needs_its_fixed_share() -> None:
    pool = a_fair_share_pool(gpu=4).policy("a", reserved={"gpu": 1}, **STARVING).policy("b").runs_several("b", 1, 1, 1, 1)
    assert pool.waits("w", "a", gpu=1, preemptible=False).victims() == {"b4": "starvation"}
    assert pool.waits("x", "a", gpu=2, preemptible=False).reason("x") is DecisionReason.FIXED_SHARE_USED_UP


def test_a_waiter_that_fits_once_victims_have_left_takes_nothing() -> None:
    pool = a_fair_share_pool(gpu=4).policy("a", **STARVING).policy("b").runs_several("b", 1, 1, 1)
    assert pool.waits("w", "a", gpu=1).reason() is DecisionReason.NO_SHORTAGE


# ordinarily preemptible allocations


def test_what_lies_within_the_fair_share_is_spared() -> None:
    pool = full()
    assert pool.refusals("b3") == {None: RefusalReason.WITHIN_FAIR_SHARE}


def test_all_or_nothing() -> None:
    assert (
        half(starvation_timeout_s=30).runs_several("b", 1, 1, 1, 1, 1, 1, 1, 1).waits("w", "a", gpu=5).reason()
        is DecisionReason.NOT_ENOUGH
    )


def test_what_lies_only_partly_beyond_the_fair_share_is_spared() -> None:
    pool = a_fair_share_pool(gpu=4).policy("a", **STARVING).policy("b").runs_several("b", 2, 2).waits("w", "a", gpu=1)
    assert pool.reason() is DecisionReason.NOT_ENOUGH
    assert pool.refusals("b2") == {None: RefusalReason.WITHIN_FAIR_SHARE}


def test_what_completed_a_checkpoint_lies_on_top() -> None:
    pool = (
        a_fair_share_pool(gpu=4)
        .policy("a", **STARVING)
        .policy("b")
        .runs("saved", "b", gpu=1, saved_s=5)
        .runs_several("b", 1, 1, 1)
    )
    assert pool.waits("w", "a", gpu=1).victims() == {"saved": "starvation"}


def test_it_lies_beyond_on_a_short_key() -> None:
    # It lies beyond its policy's share of the memory only, and a gpu is short.
    pool = a_fair_share_pool(gpu=4, mem=8).policy("a", **STARVING).policy("b").policy("c")
    pool.runs("b1", "b", gpu=1, mem=4).runs("b2", "b", gpu=1, mem=4).runs_several("c", 1, 1).waits("x", "c", gpu=2).waits(
        "y", "b", mem=4
    )
    assert pool.waits("w", "a", gpu=1).reason() is DecisionReason.NOT_ENOUGH
    assert pool.refusals("b2") == {None: RefusalReason.WITHIN_FAIR_SHARE}
    assert pool.waits("v", "a", gpu=1, mem=1).victims("v") == {"b2": "starvation"}


@pytest.mark.parametrize(("threshold", "taken"), [(0.5, 4), (1, 4), (1.5, 2), (2, 0)])
def test_the_threshold_says_what_lies_beyond(threshold: float, taken: int) -> None:
    # Four are due to each; a threshold above one half lets the victims preempt in turn.
    pool = half(threshold).with_settings(aggressive_starvation=False).runs_several("b", *[1] * 8)
    for number in range(8):
        pool.waits(f"w{number}", "a", gpu=1)
    allowed = {v.allocation for v in pool.plan().decisions["w0"].verdicts() if v.allowed}
    assert allowed == {f"b{8 - n}" for n in range(taken if threshold >= 1 else 6)}


def test_nothing_is_taken_of_a_policy_due_its_whole_demand() -> None:
    pool = (
        a_fair_share_pool(gpu=4)
        .policy("a", **STARVING)
        .policy("b", reserved={"gpu": 2})
        .policy("c")
        .runs_several("b", 1, 1)
        .runs_several("c", 1, 1)
    )
    assert set(pool.waits("w", "a", gpu=1).refusals("b2").values()) == {RefusalReason.WITHIN_FAIR_SHARE}


def test_protected_usage_is_never_taken() -> None:
    pool = full(non_preemptible_usage_threshold={"gpu": 4})
    assert pool.reason() is DecisionReason.NOT_ENOUGH
    assert full(non_preemptible_usage_threshold={"gpu": 3}).victims() == {"b4": "starvation"}
    assert full(victim={"non_preemptible_usage_threshold": {"gpu": 3}}, non_preemptible_usage_threshold={"gpu": 4}).victims()


# aggressively preemptible allocations


def lumps(waiter: int = 1, **victim: Any) -> FairShareBuilder:
    """Return a pool in which `b` holds all eight units as one allocation; four are due to it."""
    return half().policy("b", **victim).runs_several("b", 8).waits("w", "a", gpu=waiter).waits("x", "a", gpu=4)


def test_an_aggressively_starving_policy_takes_what_lies_partly_beyond() -> None:
    assert lumps(4).victims() == {}  # all of it is protected, as it began below a fifth of what is due
    pool = half().runs_several("b", 2, 6).waits("w", "a", gpu=4)
    assert pool.victims() == {"b2": "aggressive_starvation"}


def test_a_starving_policy_does_not_take_what_lies_partly_beyond() -> None:
    pool = a_fair_share_pool(gpu=8).policy("a", **starving(3600)).policy("b").runs_several("b", 2, 6).waits("w", "a", gpu=4)
    assert pool.reason() is DecisionReason.NOT_ENOUGH


def test_its_waiter_lies_within_its_own_fair_share_then() -> None:
    pool = half().runs_several("b", 2, 6).waits("w", "a", gpu=5).waits("x", "a", gpu=4)
    assert pool.reason("w") is DecisionReason.NOT_ENOUGH
    assert pool.refusals("b2", "w") == {None: RefusalReason.BEYOND_FAIR_SHARE}
    assert pool.victims("x") == {"b2": "aggressive_starvation"}


def test_what_began_below_a_fifth_of_what_is_due_is_never_taken() -> None:
    pool = half().runs_several("b", 1, 7).waits("w", "a", gpu=4)
    assert pool.victims() == {"b2": "aggressive_starvation"}
    assert half().runs_several("b", 8).waits("w", "a", gpu=4).reason() is DecisionReason.NOT_ENOUGH
    assert (
        half(aggressive_preemption_threshold=1)
        .with_settings(aggressive_preemption_threshold=0.3)
        .runs_several("b", 1, 7)
        .waits("w", "a", gpu=4)
        .reason()
        is DecisionReason.NOT_ENOUGH
    )


@pytest.mark.parametrize(
    ("pool", "group", "policy", "taken"),
    [
        (True, {}, {}, True),
        (False, {}, {}, False),
        (True, {"allow_aggressive_preemption": False}, {}, False),
        (True, {}, {"allow_aggressive_preemption": False}, False),
        (False, {"allow_aggressive_preemption": True}, {}, True),
        (True, {"allow_aggressive_preemption": False}, {"allow_aggressive_preemption": True}, True),
    ],
)
def test_where_it_is_not_allowed_nothing_is_taken_aggressively(
    pool: bool, group: dict[str, Any], policy: dict[str, Any], taken: bool
) -> None:
    builder = (
        a_fair_share_pool(gpu=8)
        .with_settings(aggressive_starvation=True, allow_aggressive_preemption=pool)
        .policy("a", **AGGRESSIVE)
    )
    builder.group("g", **group).policy("b", "g", **policy).runs_several("b", 2, 6).waits("w", "a", gpu=4)
    assert bool(builder.victims()) is taken


def test_no_policy_starves_aggressively_without_the_setting() -> None:
    pool = half().with_settings(aggressive_starvation=False).runs_several("b", 2, 1, 1, 2, 2).waits("w", "a", gpu=4)
    assert pool.victims() == {"b5": "starvation", "b4": "starvation"}


def test_the_preemptible_go_before_the_aggressively_preemptible_and_the_newest_first() -> None:
    pool = a_fair_share_pool(gpu=12).with_settings(aggressive_starvation=True).policy("a", **AGGRESSIVE).policy("b").policy("c")
    pool.runs_several("c", 3, 2).runs_several("b", 2, 1, 1, 1, 1).waits("w", "a", gpu=4).waits("v", "c", gpu=1)
    assert list(pool.victims()) == ["b5", "c2"]


# order of the waiters


def two_starve(**numbers: Any) -> FairShareBuilder:
    """Return a pool in which `a` and `b` starve and `c` holds all units; three are due to each."""
    pool = a_fair_share_pool(gpu=9).with_settings(backoff_s=0, aggressive_starvation=True)
    return pool.policy("a", **(STARVING | numbers)).policy("b", **STARVING).policy("c")


def test_one_is_served_by_preemption_in_a_pass() -> None:
    pool = two_starve().runs_several("c", *[1] * 9).waits("w", "a", gpu=2).waits("x", "b", gpu=2).waits("y", "a", gpu=1)
    assert pool.steps() == [("preempt", "w", "c9", "c8")]
    assert {pool.reason("x"), pool.reason("y")} == {DecisionReason.ONE_AT_A_TIME}


def test_over_both_stages() -> None:
    pool = two_starve(**AGGRESSIVE).runs_several("c", *[1] * 9).waits("x", "b", gpu=2).waits("w", "a", gpu=2)
    assert pool.steps() == [("preempt", "w", "c9", "c8")]
    assert pool.reason("x") is DecisionReason.ONE_AT_A_TIME


def test_the_aggressive_stage_goes_first_however_satisfied() -> None:
    pool = (
        two_starve(**AGGRESSIVE).runs_several("a", 1).runs_several("c", *[1] * 8).waits("x", "b", gpu=2).waits("w", "a", gpu=2)
    )
    assert [step[:2] for step in pool.steps()] == [("preempt", "w")]


def test_a_waiter_that_cannot_be_served_leaves_the_turn_to_the_next_level() -> None:
    pool = two_starve(**AGGRESSIVE).runs_several("c", *[1] * 9).waits("x", "b", gpu=2).waits("w", "a", gpu=7)
    assert pool.steps() == [("preempt", "x", "c9", "c8")]
    assert pool.reason("w") is DecisionReason.NOT_ENOUGH


def test_the_least_satisfied_policy_goes_first() -> None:
    pool = two_starve().runs_several("a", 1).runs_several("c", *[1] * 8).waits("w", "a", gpu=2).waits("x", "b", gpu=2)
    assert [step[:2] for step in pool.steps()] == [("preempt", "x")]


def test_of_a_policy_the_higher_class_goes_first_then_the_older() -> None:
    pool = two_starve().runs_several("c", *[1] * 9).waits("w", "a", gpu=1).waits("x", "a", gpu=1, preemption_class=6)
    assert [step[:2] for step in pool.steps()] == [("preempt", "x")]
    again = two_starve().runs_several("c", *[1] * 9).waits("w", "a", gpu=1).waits("x", "a", gpu=1)
    assert [step[:2] for step in again.steps()] == [("preempt", "w")]


def test_one_that_cannot_be_served_does_not_keep_the_others_of_its_policy() -> None:
    pool = two_starve().runs_several("c", *[1] * 9).waits("w", "a", gpu=9).waits("x", "a", gpu=2)
    assert pool.steps() == [("preempt", "x", "c9", "c8")]


# the set


def test_those_that_turn_out_superfluous_are_given_back() -> None:
    # Allocations of four, three and one; two units are short: the newest two are taken, and the larger alone suffices.
    pool = a_fair_share_pool(gpu=8).policy("a", **STARVING).policy("b").policy("c").runs_several("b", 4, 3, 1)
    assert pool.waits("w", "a", gpu=2).waits("x", "c", gpu=4).victims() == {"b2": "starvation"}


def test_no_more_are_taken_than_suffice_with_what_is_free() -> None:
    pool = a_fair_share_pool(gpu=8).policy("a", **STARVING).policy("b").runs_several("b", *[1] * 7).waits("w", "a", gpu=3)
    assert pool.victims() == {"b7": "starvation", "b6": "starvation"}


def test_a_decision_has_so_many_victims_at_most() -> None:
    pool = (
        half().with_settings(max_victims=2).runs_several("b", 1, 1, 1, 1, 2, 1, 1).waits("w", "a", gpu=3).waits("x", "a", gpu=1)
    )
    assert set(pool.victims()) == {"b5", "b7"}
    assert pool.with_settings(max_victims=1).reason() is DecisionReason.TOO_MANY


@pytest.mark.parametrize(
    ("last_minute", "why"),
    [(0, DecisionReason.FITS_THEN), (1, DecisionReason.MINUTE_USED_UP), (2, DecisionReason.MINUTE_USED_UP)],
)
def test_a_minute_has_so_many_victims_at_most(last_minute: int, why: DecisionReason) -> None:
    pool = half().with_settings(max_preemptions_per_minute=2).runs_several("b", *[1] * 8).waits("w", "a", gpu=2)
    pool.preemptions_last_minute = last_minute
    assert pool.reason() is why


@pytest.mark.parametrize(("since_ms", "why"), [(4999, DecisionReason.BACKOFF), (5000, DecisionReason.FITS_THEN)])
def test_the_pool_pauses_between_two_decisions(since_ms: int, why: DecisionReason) -> None:
    pool = full(backoff_s=5)
    pool.last_decision_ms = pool.snapshot().now_ms - since_ms
    assert pool.reason() is why


def takes_back(demand: int = 2, **terms: Any) -> FairShareBuilder:
    """Return four units, due by halves; `a` holds one and waits for two, `b` holds three; a starving account may take half
    a share."""
    pool = a_fair_share_pool(gpu=4).with_settings(preemption_threshold=0.5, **terms).policy("a", **STARVING).policy("b")
    return pool.runs_several("a", 1).runs_several("b", 1, 1, 1).waits("w", "a", gpu=demand)


def test_a_set_is_refused_that_could_be_taken_straight_back() -> None:
    pool = takes_back()
    assert pool.reason() is DecisionReason.WOULD_BE_TAKEN_BACK
    assert pool.refusals("b3") == {}  # each by itself may be taken


def test_a_smaller_one_is_not() -> None:
    pool = takes_back(1).waits("x", "a", gpu=1)
    assert pool.victims() == {"b3": "starvation"}


def test_one_that_could_be_taken_back_is_left_for_one_that_could_not() -> None:
    # `b` would lose too much; `c` has more than its share, but its newest allocation is older.
    pool = (
        a_fair_share_pool(gpu=8)
        .with_settings(preemption_threshold=0.5)
        .policy("a", **STARVING)
        .policy("c")
        .policy("b", weight=2)
    )
    pool.runs_several("c", 1, 1, 1, 1).runs_several("b", 1, 1, 1, 1).waits("w", "a", gpu=2)
    stopped = pool.victims()
    assert set(stopped) == {"c4", "c3"}


@pytest.mark.parametrize(
    ("coming", "why"), [(1, DecisionReason.FITS_THEN), (2, DecisionReason.FITS_THEN), (3, DecisionReason.NOT_STARVING)]
)
def test_what_earlier_holds_will_bring_counts_as_its_own(coming: int, why: DecisionReason) -> None:
    # Three units are due to it; victims and waiters are as before.
    pool = two_starve().runs_several("c", *[1] * (9 - coming))
    for number in range(coming):
        pool.runs(f"l{number}", "c", gpu=1, leaving_for="h")
    pool.hidden_demand["b"] = PolicyDemand(1, {"gpu": 3})
    assert pool.holds("h", "a", gpu=coming).waits("w", "a", gpu=1).reason() is why


def test_also_for_a_group() -> None:
    # Units that leave for one policy count for its group; the other policy of the group is still below its own share.

    def pool(**own: Any) -> FairShareBuilder:
        pool = a_fair_share_pool(gpu=8).group("g", **STARVING).policy("a", "g").policy("b", "g", **own).policy("c")
        pool.runs_several("c", *[1] * 4)
        for number in range(4):
            pool.runs(f"l{number}", "c", gpu=1, leaving_for="h")
        return pool.holds("h", "a", gpu=4).waits("w", "b", gpu=1)

    assert pool().reason() is DecisionReason.NOT_STARVING
    assert pool(**STARVING).reason() in (DecisionReason.NOT_ENOUGH, DecisionReason.WOULD_BE_TAKEN_BACK)


# the step


def test_a_step_rests_on_the_use_of_both_sides() -> None:
    stop = full().preempt_step()
    assert set(stop.usage_conditions) == {
        UsageCondition("policy:a", "gpu", 0, 0),
        UsageCondition("policy:b", "gpu", 4, MAX_AMOUNT),
    }
    assert (stop.unused_share_accounts, stop.reserved_accounts, stop.borrowed_conditions) == ((), (), ())
