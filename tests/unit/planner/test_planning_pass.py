"""The planning pass: shortages, holds, orphaned victims, budgets, strict queues, reasons, and the end of all preemptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.plan_steps import BorrowedCondition, Preempt
from app.planner.decisions import DECISION_SENTENCES, REFUSAL_SENTENCES, DecisionReason, Outcome, RefusalReason
from app.planner.planning_pass import PlanningPass
from tests.unit.planner.builders import NOW_MS, PoolBuilder, a_pool, after_plan, describe_steps, in_queue_order


def low_and_high(gpu: int, **terms: Any) -> PoolBuilder:
    """Return a pool in which `mid` and `high` may preempt `low`."""
    pool = a_pool(gpu=gpu).with_settings(**terms).policy("low", priority=1)
    return pool.policy("mid", priority=5).policy("high", priority=9)


# shortage


def test_leaving_units_are_counted_before_a_victim_is_chosen() -> None:
    pool = low_and_high(4).runs("a", "low", gpu=2, leaving_for="x").runs("b", "low", gpu=2)
    pool.holds("x", "high", gpu=1).waits("w", "high", gpu=1)
    assert describe_steps(pool.plan()) == []
    assert pool.reason() is DecisionReason.NO_SHORTAGE
    assert describe_steps(pool.waits("y", "high", gpu=2).plan()) == [("preempt", "y", "b")]


def test_the_same_shortage_is_not_paid_for_twice_in_one_pass() -> None:
    pool = low_and_high(7).runs("v3", "low", gpu=3, preemption_class=3).runs("v1", "low", gpu=1, preemption_class=4)
    pool.runs("v2", "low", gpu=2).runs("o", "low", gpu=1).waits("w1", "high", gpu=1).waits("w2", "high", gpu=3)
    assert describe_steps(pool.plan()) == [("preempt", "w1", "v3"), ("preempt", "w2", "v1")]


def test_each_waiter_has_its_own_stopped() -> None:
    pool = low_and_high(4).runs("a", "low", gpu=2).runs("b", "low", gpu=2)
    pool.waits("h", "high", gpu=2).waits("m", "mid", gpu=2).waits("x", "mid", gpu=2)
    plan = pool.plan()
    assert describe_steps(plan) == [("preempt", "h", "b"), ("preempt", "m", "a")]
    assert [plan.decisions[name].outcome for name in ("h", "m", "x")] == [Outcome.PREEMPTS, Outcome.PREEMPTS, Outcome.WAITS]


def test_two_waiters_do_not_claim_the_same_share() -> None:
    pool = a_pool(gpu=8).policy("low", priority=1, reserved={"gpu": 4}).policy("high", priority=9)
    pool.runs("h1", "high", gpu=4).runs("h2", "high", gpu=4).waits("w1", "low", gpu=3).waits("w2", "low", gpu=3)
    plan = pool.plan()
    assert describe_steps(plan) == [("preempt", "w1", "h2")]
    assert plan.decisions["w2"].reason is DecisionReason.NOT_ENOUGH


def test_a_hold_of_fixed_work_counts_against_the_fixed_share() -> None:
    pool = a_pool(gpu=4).policy("t", reserved={"gpu": 3}).policy("o", priority=9).runs("v", "o", gpu=4)
    pool.waits("w1", "t", gpu=2, preemptible=False).waits("w2", "t", gpu=2, preemptible=False).waits("w3", "t", gpu=1)
    plan = pool.plan()
    assert describe_steps(plan) == [("preempt", "w1", "v")]
    assert plan.decisions["w2"].reason is DecisionReason.FIXED_SHARE_USED_UP


def test_non_preemptible_work_beyond_its_share_preempts_nothing() -> None:
    pool = a_pool(gpu=4).policy("t", priority=9, reserved={"gpu": 2}).policy("o", priority=1)
    pool.runs("fixed", "t", gpu=2, preemptible=False).runs("v", "o", gpu=2)
    assert pool.waits("w", "t", gpu=1, preemptible=False).reason() is DecisionReason.FIXED_SHARE_USED_UP


def test_without_a_policy_nothing_is_asked() -> None:
    assert low_and_high(1).waits("w", "unmanaged", gpu=1).reason() is DecisionReason.NO_POLICY


# conditions that the ledger checks again


def test_a_stop_says_how_much_may_leave_until_it_rests_on_nothing() -> None:
    pool = a_pool(gpu=6).policy("a", priority=9).policy("b", priority=1, reserved={"gpu": 2})
    pool.stack_exits = {"policy:b": {"gpu": 7}}
    pool.runs("b1", "b", gpu=3).runs("b2", "b", gpu=3).waits("w", "a", gpu=3)
    assert pool.preempt_step() == Preempt(
        "w", pool.preempt_step().victims, borrowed_conditions=(BorrowedCondition("policy:b", "gpu", 7 + 4 - 1),)
    )


def test_what_an_earlier_step_moves_is_counted_in() -> None:
    pool = a_pool(gpu=6).policy("a", priority=9).policy("b", priority=1, reserved={"gpu": 2})
    pool.runs("b1", "b", gpu=2).runs("b2", "b", gpu=2).runs("b3", "b", gpu=2)
    pool.waits("w", "a", gpu=2).waits("x", "a", gpu=2).waits("y", "a", gpu=2)
    assert describe_steps(pool.plan()) == [("preempt", "w", "b3"), ("preempt", "x", "b2")]
    assert pool.preempt_step("x").borrowed_conditions == (BorrowedCondition("policy:b", "gpu", 2 + 2 - 1),)


def test_the_key_it_is_borrowed_on_by_most_is_named() -> None:
    pool = a_pool(gpu=4, mem=8, slot=1).policy("a", priority=9).policy("b", priority=1, reserved={"gpu": 1, "mem": 1})
    pool.runs("v", "b", gpu=4, mem=8, slot=1).waits("w", "a", gpu=1, mem=1)
    assert pool.preempt_step().borrowed_conditions == (BorrowedCondition("policy:b", "mem", 6),)
    pool.waiters.clear()
    assert pool.waits("w", "a", gpu=1).preempt_step().borrowed_conditions == (BorrowedCondition("policy:b", "gpu", 2),)
    pool.waiters.clear()
    assert pool.waits("w", "a", slot=1).preempt_step().borrowed_conditions == (BorrowedCondition("policy:b", "mem", 6),)


def test_a_stop_by_rank_rests_on_no_share() -> None:
    pool = low_and_high(2).runs("v", "low", gpu=2).waits("w", "high", gpu=1)
    assert (pool.preempt_step().unused_share_accounts, pool.preempt_step().reserved_accounts) == ((), ())


# orphaned victims


def orphaned_victim(gpu: int = 4, **fields: Any) -> PoolBuilder:
    """Return a pool with the orphaned victim `s`."""
    return low_and_high(gpu).runs("s", "low", gpu=2, **{"leaving_for": "", **fields})


def test_an_orphaned_victim_that_no_hold_needs_is_reprieved() -> None:
    assert describe_steps(orphaned_victim().holds("x", "high", gpu=2).plan()) == [("reprieve", "s")]


def test_a_stray_goes_on_for_the_first_hold_that_is_short_without_it() -> None:
    pool = orphaned_victim(4).runs("gone", "low", gpu=2, leaving_for="x").holds("x", "high", gpu=2)
    pool.holds("y", "mid", gpu=2).holds("z", "high", gpu=2)
    assert describe_steps(pool.plan())[0] == ("reassign", "s", "y")


def test_the_newest_stray_first_and_only_as_many_as_are_needed() -> None:
    pool = orphaned_victim(4).runs("t", "low", gpu=2, leaving_for="").holds("x", "high", gpu=2)
    assert describe_steps(pool.plan()) == [("reassign", "t", "x"), ("reprieve", "s")]


def test_an_orphaned_victim_goes_to_no_owner_that_may_not_take_it() -> None:
    pool = orphaned_victim(4).runs("v", "low", gpu=2, preemption_class=3).holds("x", "low", gpu=4).holds("y", "mid", gpu=2)
    assert describe_steps(pool.plan())[0] == ("reassign", "s", "y")
    pool = orphaned_victim(2, preemption_class=9).holds("x", "low", gpu=2)
    assert describe_steps(pool.plan()) == [("reprieve", "s"), ("end hold", "x")]


def test_what_protects_from_being_told_to_leave_does_not_matter_any_more() -> None:
    pool = orphaned_victim(2, ran_s=1).with_settings(min_runtime_s=60).holds("x", "high", gpu=2)
    assert describe_steps(pool.plan()) == [("reassign", "s", "x")]


def test_an_orphaned_victim_does_not_go_to_its_own_chain() -> None:
    pool = orphaned_victim(2, chain="c").holds("x", "high", gpu=2, chain="c")
    assert describe_steps(pool.plan()) == [("reprieve", "s"), ("end hold", "x")]


def test_a_stray_in_share_is_not_passed_on() -> None:
    pool = a_pool(gpu=4).policy("low", priority=1, reserved={"gpu": 2}).policy("high", priority=9)
    pool.runs("s", "low", gpu=2, leaving_for="").runs("v", "low", gpu=2).holds("x", "high", gpu=2)
    assert describe_steps(pool.plan()) == [("reprieve", "s"), ("preempt", "x", "v")]


def test_an_orphaned_victim_of_the_own_policy_is_reassigned_only_if_its_owner_then_lies_in_share() -> None:
    for reserved, expected in ((2, ("reassign", "s", "x")), (3, ("reassign", "s", "x")), (1, ("reassign", "s", "x"))):
        pool = a_pool(gpu=2).policy("t", reserved={"gpu": reserved}).runs("s", "t", gpu=2, leaving_for="")
        assert describe_steps(pool.holds("x", "t", gpu=2, preemption_class=6).plan())[0] == expected
    pool = a_pool(gpu=3).policy("t", reserved={"gpu": 2}).runs("s", "t", gpu=2, leaving_for="")
    pool.runs("mate", "t", gpu=1, preemption_class=9).holds("x", "t", gpu=2, preemption_class=6)
    assert describe_steps(pool.plan()) == [("reprieve", "s"), ("end hold", "x")]


def test_a_reprieved_victim_may_be_preempted_for_a_waiter() -> None:
    pool = orphaned_victim(2).waits("w", "high", gpu=2)
    assert describe_steps(pool.plan()) == [("reprieve", "s"), ("preempt", "w", "s")]


# holds


def test_a_hold_that_will_suffice_is_left_alone() -> None:
    pool = low_and_high(4).runs("v", "low", gpu=2, leaving_for="x").runs("o", "low", gpu=2).holds("x", "high", gpu=2)
    plan = pool.plan()
    assert describe_steps(plan) == []
    assert plan.decisions["x"].reason is DecisionReason.NO_SHORTAGE


def test_a_hold_that_will_not_suffice_asks_again_for_what_lacks() -> None:
    pool = low_and_high(4).runs("v", "low", gpu=1, leaving_for="x").runs("o", "low", gpu=1).runs("p", "low", gpu=2)
    assert describe_steps(pool.holds("x", "high", gpu=2).plan()) == [("preempt", "x", "p")]


def test_a_hold_that_nothing_can_fill_ends_and_its_victims_are_settled() -> None:
    pool = low_and_high(4).runs("v", "low", gpu=2, leaving_for="x").runs("top", "high", gpu=2, preemption_class=9)
    pool.holds("x", "mid", gpu=4).holds("y", "high", gpu=2)
    plan = pool.plan()
    assert describe_steps(plan) == [("end hold", "x"), ("reassign", "v", "y")]
    assert plan.decisions["x"].outcome is Outcome.ENDS
    assert plan.decisions["x"].reason is DecisionReason.NOT_ENOUGH


def test_the_victims_of_an_ended_hold_are_reprieved_if_no_hold_needs_them() -> None:
    pool = low_and_high(4).runs("v", "low", gpu=2, leaving_for="x").runs("top", "high", gpu=2, preemption_class=9)
    assert describe_steps(pool.holds("x", "mid", gpu=4).plan()) == [("end hold", "x"), ("reprieve", "v")]


def test_a_reprieved_victim_counts_again_for_later_waiters() -> None:
    pool = low_and_high(3).runs("o", "low", gpu=1).runs("v", "low", gpu=2, leaving_for="x").holds("x", "mid", gpu=9)
    assert describe_steps(pool.waits("w", "mid", gpu=3).plan()) == [
        ("end hold", "x"),
        ("reprieve", "v"),
        ("preempt", "w", "v", "o"),
    ]


def test_an_earlier_hold_that_counted_on_them_asks_again() -> None:
    # `x` counted on the units of `big` that `y` does not need. The hold of `y` can never be filled; `x` may not preempt `big`.
    pool = a_pool(gpu=6).policy("low", priority=1, limit={"gpu": 5}).policy("mid", priority=5).policy("high", priority=9)
    pool.runs("v", "low", gpu=2).runs("big", "mid", gpu=3, leaving_for="y", preemption_class=9).runs("o", "low", gpu=1)
    pool.holds("x", "mid", gpu=2).holds("y", "high", gpu=7)
    assert describe_steps(pool.plan()) == [("preempt", "x", "v"), ("end hold", "y"), ("reprieve", "big")]


def test_of_later_holds_an_owner_is_kept_only_from_what_their_victims_bring() -> None:
    pool = low_and_high(4).runs("a", "low", gpu=2, leaving_for="y").runs("b", "low", gpu=2)
    pool.holds("x", "high", gpu=2).holds("y", "mid", gpu=2)
    assert describe_steps(pool.plan()) == [("preempt", "x", "b")]
    pool = low_and_high(4).runs("b", "low", gpu=2).holds("x", "high", gpu=2).holds("y", "mid", gpu=2)
    assert describe_steps(pool.plan()) == [("preempt", "y", "b")]


def test_what_later_victims_have_brought_is_kept_from_an_earlier_owner() -> None:
    pool = low_and_high(4).runs("b", "low", gpu=2).holds("x", "high", gpu=2)
    pool.holds("y", "mid", freed_units={"pool": {"gpu": 2}}, gpu=2)
    assert describe_steps(pool.plan()) == [("preempt", "x", "b")]


def test_the_hold_of_non_preemptible_work_ends_if_its_fixed_share_is_used_up() -> None:
    pool = a_pool(gpu=4).policy("t", reserved={"gpu": 2}).policy("o").runs("f", "t", gpu=2, preemptible=False)
    pool.runs("v", "o", gpu=2, leaving_for="x").holds("x", "t", gpu=1, preemptible=False)
    assert describe_steps(pool.plan()) == [("end hold", "x"), ("reprieve", "v")]


# budgets


def test_a_pool_pauses_between_two_decisions() -> None:
    pool = low_and_high(4, backoff_s=5).runs("a", "low", gpu=2).runs("b", "low", gpu=2)
    pool.waits("w", "high", gpu=2).waits("x", "high", gpu=1)
    assert describe_steps(pool.plan()) == [("preempt", "w", "b")]
    assert pool.reason("x") is DecisionReason.BACKOFF
    pool.last_decision_ms = NOW_MS - 4999
    assert pool.reason() is DecisionReason.BACKOFF
    pool.last_decision_ms = NOW_MS - 5000
    assert pool.reason() is DecisionReason.FITS_THEN


def test_at_most_so_many_a_minute() -> None:
    pool = low_and_high(4, max_preemptions_per_minute=3)
    for name in "abcd":
        pool.runs(name, "low", gpu=1)
    pool.waits("w", "high", gpu=2).waits("x", "high", gpu=2)
    assert describe_steps(pool.plan()) == [("preempt", "w", "d", "c")]
    assert pool.reason("x") is DecisionReason.MINUTE_USED_UP
    pool.preemptions_last_minute = 3
    assert pool.reason() is DecisionReason.MINUTE_USED_UP
    pool.preemptions_last_minute = 9
    assert pool.reason() is DecisionReason.MINUTE_USED_UP


def test_what_is_left_of_a_minute_bounds_the_set() -> None:
    pool = low_and_high(4, max_preemptions_per_minute=1).runs("a", "low", gpu=2).runs("b", "low", gpu=1)
    assert describe_steps(pool.runs("c", "low", gpu=1).waits("w", "high", gpu=2).plan()) == [("preempt", "w", "a")]


@pytest.mark.parametrize(
    ("terms", "lately"), [({"backoff_s": 9}, 0), *(({"max_preemptions_per_minute": 2}, n) for n in (1, 2))]
)
def test_no_hold_ends_because_of_a_pause(terms: dict[str, int], lately: int) -> None:
    pool = low_and_high(2, **terms).runs("a", "low", gpu=1).runs("b", "low", gpu=1).holds("x", "high", gpu=2)
    pool.last_decision_ms, pool.preemptions_last_minute = NOW_MS, lately
    assert describe_steps(pool.plan()) == []
    pool.allocations[0] = replace(pool.allocations[0], preemption_class=10)
    assert describe_steps(pool.plan()) == [("end hold", "x")]


def test_what_a_whole_minute_does_not_allow_is_no_pause() -> None:
    pool = low_and_high(2, max_preemptions_per_minute=1).runs("a", "low", gpu=1).runs("b", "low", gpu=1)
    assert describe_steps(pool.holds("x", "high", gpu=2).plan()) == [("end hold", "x")]
    pool.hold_snapshots.clear()
    assert pool.waits("w", "high", gpu=2).reason() is DecisionReason.TOO_MANY


# strict queues, and waiters that prefer another pool


def test_in_a_strict_queue_no_waiter_preempts_behind_the_first_that_capacity_blocks() -> None:
    pool = low_and_high(4, queueing="strict").runs("top", "high", gpu=2, preemption_class=9).runs("v", "low", gpu=2)
    pool.waits("w", "high", gpu=4).waits("x", "high", gpu=1)
    assert describe_steps(pool.plan()) == []
    assert (pool.reason("w"), pool.reason("x")) == (DecisionReason.NOT_ENOUGH, DecisionReason.BEHIND)
    assert describe_steps(pool.with_settings(queueing="best_effort").plan()) == [("preempt", "x", "v")]


def test_a_waiter_blocked_by_a_limit_blocks_no_other_and_preempts_in_its_turn() -> None:
    pool = a_pool(gpu=4).with_settings(queueing="strict").policy("low", priority=1).policy("high", priority=9, limit={"gpu": 1})
    pool.policy("mid", priority=5).runs("h", "high", gpu=1, preemption_class=2).runs("v", "low", gpu=3)
    pool.waits("w", "high", gpu=1, preemption_class=1).waits("m", "mid", gpu=1).waits("x", "high", gpu=1)
    assert describe_steps(pool.plan()) == [("preempt", "m", "v")]
    assert pool.reason("x") is DecisionReason.BEHIND
    pool.waiters.reverse()
    assert describe_steps(pool.plan())[0] == ("preempt", "x", "h")


def test_the_owner_of_a_hold_asks_wherever_it_stands_and_blocks_those_behind_it() -> None:
    pool = low_and_high(3, queueing="strict")
    for name in "abc":
        pool.runs(name, "low", gpu=1)
    pool.holds("x", "mid", gpu=1, queue_score=2).waits("w", "high", gpu=1, queue_score=1).waits(
        "y", "mid", gpu=1, queue_score=3
    )
    plan = pool.plan()
    assert describe_steps(plan) == [("preempt", "x", "c"), ("preempt", "w", "b")]
    assert plan.decisions["y"].reason is DecisionReason.BEHIND
    pool.waiters = [replace(pool.waiters[0], queue_score=3)]
    assert describe_steps(pool.plan()) == [("preempt", "x", "c")]
    assert pool.reason() is DecisionReason.BEHIND


def test_a_waiter_that_lost_its_hold_still_stands_in_the_queue() -> None:
    pool = low_and_high(4, queueing="strict").runs("top", "high", gpu=2, preemption_class=9).runs("v", "low", gpu=2)
    pool.holds("x", "mid", gpu=4, queue_score=1).waits("w", "mid", gpu=1, queue_score=2)
    assert describe_steps(pool.plan()) == [("end hold", "x")]
    assert pool.reason() is DecisionReason.BEHIND


def test_a_waiter_that_prefers_another_pool_does_not_preempt_yet_but_blocks() -> None:
    pool = low_and_high(2).runs("v", "low", gpu=2).waits("w", "high", gpu=1).waits("x", "high", gpu=1)
    assert describe_steps(pool.plan("w")) == [("preempt", "x", "v")]
    assert pool.reason("w", "w") is DecisionReason.PREFERS_ANOTHER
    pool.with_settings(queueing="strict")
    assert describe_steps(pool.plan("w")) == []
    assert pool.reason("x", "w") is DecisionReason.BEHIND


# reasons


def test_every_code_has_its_sentence() -> None:
    assert set(DECISION_SENTENCES) == set(DecisionReason)
    assert set(REFUSAL_SENTENCES) == set(RefusalReason)


def test_verdicts_are_those_of_the_moment_of_the_decision() -> None:
    pool = low_and_high(4).runs("a", "low", gpu=1).runs("b", "low", gpu=1).runs("top", "high", gpu=2, preemption_class=10)
    pool.holds("x", "high", gpu=2).waits("w", "mid", gpu=2).waits("y", "mid", gpu=4)
    plan = pool.plan()
    assert describe_steps(plan) == [("preempt", "x", "b", "a")]
    assert [verdict.allocation for verdict in plan.decisions["w"].verdicts()] == ["top"]
    verdicts = {verdict.allocation: verdict for verdict in plan.decisions["x"].verdicts()}
    assert verdicts["a"].allowed
    assert verdicts["a"].sentence == "it may be preempted by the rule priority"
    assert verdicts["top"].sentence == "its preemption class is 10"
    assert plan.decisions["x"].sentence == "it fits when its victims have left"
    assert [verdict.sentence for verdict in plan.decisions["y"].verdicts()] == ["its preemption class is 10"]


def test_verdicts_after_orphaned_victims_and_ended_holds() -> None:
    pool = low_and_high(4).runs("s", "low", gpu=1, leaving_for="").runs("t", "low", gpu=1, leaving_for="")
    pool.runs("v", "low", gpu=2, leaving_for="x").holds("x", "mid", gpu=9).holds("y", "high", gpu=3)
    pool.waits("w", "mid", gpu=4)
    plan = pool.plan()
    kinds = {step[0] for step in describe_steps(plan)}
    assert kinds == {"reassign", "end hold", "reprieve"}
    assert plan.decisions["w"].reason is DecisionReason.NOT_ENOUGH
    assert {verdict.allocation for verdict in plan.decisions["w"].verdicts()} == {"s"}


def test_a_decision_without_a_judgement_has_no_verdicts() -> None:
    decision = low_and_high(2).waits("w", "high", gpu=1).plan().decisions["w"]
    assert (decision.reason, list(decision.verdicts())) == (DecisionReason.NO_SHORTAGE, [])


# properties

COMPONENTS = ("a", "b", "c")


@st.composite
def pools(draw: st.DrawFn) -> PoolBuilder:
    """Draw a small pool: up to three policies, some in a group, with allocations and waiters."""
    capacity = {"gpu": draw(st.integers(3, 8)), "mem": draw(st.integers(2, 6))}
    pool = PoolBuilder(capacity).with_settings(
        discipline=draw(st.sampled_from(["reserved", "classes"])),
        order=draw(st.sampled_from(["share_first", "priority_first"])),
        max_victims=draw(st.sampled_from([None, 1, 3])),
    )
    grouped = draw(st.booleans())
    if grouped:
        pool.group("g", reserved={"gpu": 2}, limit={"gpu": draw(st.integers(2, 8))})
    for component in COMPONENTS:
        inside = "g" if grouped and component != "c" else None
        reserved = {"gpu": draw(st.integers(0, 1 if inside else capacity["gpu"] // 3)), "mem": draw(st.sampled_from([0, 0, 1]))}
        pool.policy(component, inside, priority=draw(st.integers(0, 2)), reserved=reserved)
    for number in range(draw(st.integers(2, 9))):
        gpu, mem = draw(st.sampled_from([(1, 0), (2, 0), (3, 0), (1, 1), (0, 1), (2, 2)]))
        amounts = {key: units for key, units in (("gpu", gpu), ("mem", mem)) if units}
        fields = {"preemption_class": draw(st.integers(2, 8)), "preemptible": draw(st.integers(0, 5)) > 0}
        pool.waits(f"r{number}", draw(st.sampled_from(COMPONENTS)), submission_number=number, **fields, **amounts)
    pool.waiters = [waiter for waiter in pool.waiters if _eligible(pool, waiter.component, waiter.amounts, waiter.preemptible)]
    return _granted(pool, draw(st.permutations(pool.waiters)))


def _eligible(pool: PoolBuilder, component: str, amounts: Any, preemptible: bool) -> bool:
    for name in pool.path(component)[:-1]:
        limit = pool.accounts[name].get("limit", {})
        if any(units > limit.get(key, units) for key, units in amounts.items()):
            return False
    reserved = pool.accounts[f"policy:{component}"]["reserved"]
    fits = all(units <= pool.capacity.get(key, units) for key, units in amounts.items())
    return fits and (preemptible or all(units <= reserved.get(key, 0) for key, units in amounts.items() if key != "step_run"))


def _granted(pool: PoolBuilder, order: list[Any]) -> PoolBuilder:
    waiting, pool.waiters = order, []
    for waiter in waiting:
        pool.waiters.append(waiter)
        pool, _ = _quietly(pool)
    pool.waiters = in_queue_order(pool)
    return pool


def _quietly(pool: PoolBuilder) -> tuple[PoolBuilder, int]:
    """Grant the waiters that fit, without preemptions."""
    capped = replace(pool, settings=replace(pool.settings, max_preemptions_per_minute=0))
    granted, stopped = after_plan(capped)
    return replace(granted, settings=pool.settings), stopped


@given(pools())
def test_it_comes_to_rest(pool: PoolBuilder) -> None:
    # Without new submissions the number of preemptions is bounded, and then the pool is quiet. Each step leads to a grant.
    total, bound = 0, 3 * (len(pool.allocations) + len(pool.waiters)) ** 2
    while stopped := (moved := after_plan(pool))[1]:
        pool, total = moved[0], total + stopped
        assert total <= bound
    assert pool.plan().steps == ()


@given(pools())
def test_the_victims_make_it_fit_and_none_is_superfluous(pool: PoolBuilder) -> None:
    after_plan(pool)  # asserts that every waiter fits when its victims have left
    for step in pool.plan().steps[:1]:
        assert isinstance(step, Preempt)
        for victim in step.victims:
            spared = replace(
                pool, allocations=[each for each in pool.allocations if not _leaves(each.id, step, victim.request)]
            )
            if not step.reserved_accounts:
                (waiter,) = (each for each in pool.waiters if each.id == step.waiter)
                spared.waiters = [waiter]
                assert spared.plan().decisions[step.waiter].reason is not DecisionReason.NO_SHORTAGE


def _leaves(name: str, step: Preempt, spared: str) -> bool:
    return name != spared and name in {victim.request for victim in step.victims}


@given(pools(), st.integers(1, 3))
def test_equal_shapes_decided_once_are_decided_alike(pool: PoolBuilder, times: int) -> None:
    for number in range(times):
        pool.waiters += [
            replace(each, id=f"{each.id}x{number}", submission_number=each.submission_number + 50 + number)
            for each in pool.waiters
        ]
    pool.waiters = in_queue_order(pool)
    quick = pool.plan()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PlanningPass, "_is_still_refused", lambda *_: False)
        slow = pool.plan()
    assert quick.steps == slow.steps
    assert {name: decision.reason for name, decision in quick.decisions.items()} == {
        name: decision.reason for name, decision in slow.decisions.items()
    }


@given(pools(), st.randoms())
def test_the_order_of_accounts_and_allocations_does_not_matter(pool: PoolBuilder, chance: Any) -> None:
    expected = pool.plan().steps
    accounts = list(pool.accounts.items())
    chance.shuffle(accounts)
    chance.shuffle(pool.allocations)
    pool.accounts = dict(accounts)
    assert pool.plan().steps == expected
