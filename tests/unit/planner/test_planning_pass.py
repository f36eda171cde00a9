"""The pass: who is short of what, holds, strays, budgets, strict queues, reasons; and that it comes to rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.plan_steps import BorrowedCondition, Preempt
from app.planner.decisions import DECISION_SENTENCES, REFUSAL_SENTENCES, DecisionReason, Outcome, RefusalReason
from app.planner.planning_pass import PlanningPass
from tests.unit.planner.builders import NOW_MS, PoolBuilder, a_pool, after_plan, in_queue_order, describe_steps


def low_and_high(gpu: int, **terms: Any) -> PoolBuilder:
    """Those of `low` may be taken by those of `mid` and `high`."""
    scene = a_pool(gpu=gpu).with_settings(**terms).policy("low", priority=1)
    return scene.policy("mid", priority=5).policy("high", priority=9)


# shortage


def test_what_is_leaving_is_counted_before_anybody_is_chosen() -> None:
    scene = low_and_high(4).runs("a", "low", gpu=2, leaving_for="x").runs("b", "low", gpu=2)
    scene.holds("x", "high", gpu=1).waits("w", "high", gpu=1)
    assert describe_steps(scene.plan()) == []
    assert scene.reason() is DecisionReason.NO_SHORTAGE
    assert describe_steps(scene.waits("y", "high", gpu=2).plan()) == [("stop", "y", "b")]


def test_the_same_shortage_is_not_paid_for_twice_in_one_pass() -> None:
    scene = low_and_high(7).runs("v3", "low", gpu=3, preemption_class=3).runs("v1", "low", gpu=1, preemption_class=4)
    scene.runs("v2", "low", gpu=2).runs("o", "low", gpu=1).waits("w1", "high", gpu=1).waits("w2", "high", gpu=3)
    assert describe_steps(scene.plan()) == [("stop", "w1", "v3"), ("stop", "w2", "v1")]


def test_each_waiter_has_its_own_stopped() -> None:
    scene = low_and_high(4).runs("a", "low", gpu=2).runs("b", "low", gpu=2)
    scene.waits("h", "high", gpu=2).waits("m", "mid", gpu=2).waits("x", "mid", gpu=2)
    plan = scene.plan()
    assert describe_steps(plan) == [("stop", "h", "b"), ("stop", "m", "a")]
    assert [plan.decisions[name].outcome for name in ("h", "m", "x")] == [Outcome.PREEMPTS, Outcome.PREEMPTS, Outcome.WAITS]


def test_two_waiters_do_not_claim_the_same_share() -> None:
    scene = a_pool(gpu=8).policy("low", priority=1, reserved={"gpu": 4}).policy("high", priority=9)
    scene.runs("h1", "high", gpu=4).runs("h2", "high", gpu=4).waits("w1", "low", gpu=3).waits("w2", "low", gpu=3)
    plan = scene.plan()
    assert describe_steps(plan) == [("stop", "w1", "h2")]
    assert plan.decisions["w2"].reason is DecisionReason.NOT_ENOUGH


def test_a_hold_of_fixed_work_counts_against_the_fixed_share() -> None:
    scene = a_pool(gpu=4).policy("t", reserved={"gpu": 3}).policy("o", priority=9).runs("v", "o", gpu=4)
    scene.waits("w1", "t", gpu=2, preemptible=False).waits("w2", "t", gpu=2, preemptible=False).waits("w3", "t", gpu=1)
    plan = scene.plan()
    assert describe_steps(plan) == [("stop", "w1", "v")]
    assert plan.decisions["w2"].reason is DecisionReason.FIXED_SHARE_USED_UP


def test_fixed_work_beyond_its_share_stops_nobody() -> None:
    scene = a_pool(gpu=4).policy("t", priority=9, reserved={"gpu": 2}).policy("o", priority=1)
    scene.runs("fixed", "t", gpu=2, preemptible=False).runs("v", "o", gpu=2)
    assert scene.waits("w", "t", gpu=1, preemptible=False).reason() is DecisionReason.FIXED_SHARE_USED_UP


def test_without_a_policy_nothing_is_asked() -> None:
    assert low_and_high(1).waits("w", "nobody", gpu=1).reason() is DecisionReason.NO_POLICY


# what the ledger checks again


def test_a_stop_says_how_much_may_leave_until_it_rests_on_nothing() -> None:
    scene = a_pool(gpu=6).policy("a", priority=9).policy("b", priority=1, reserved={"gpu": 2})
    scene.stack_exits = {"policy:b": {"gpu": 7}}
    scene.runs("b1", "b", gpu=3).runs("b2", "b", gpu=3).waits("w", "a", gpu=3)
    assert scene.preempt_step() == Preempt(
        "w", scene.preempt_step().victims, borrowed_conditions=(BorrowedCondition("policy:b", "gpu", 7 + 4 - 1),)
    )


def test_what_an_earlier_step_moves_is_counted_in() -> None:
    scene = a_pool(gpu=6).policy("a", priority=9).policy("b", priority=1, reserved={"gpu": 2})
    scene.runs("b1", "b", gpu=2).runs("b2", "b", gpu=2).runs("b3", "b", gpu=2)
    scene.waits("w", "a", gpu=2).waits("x", "a", gpu=2).waits("y", "a", gpu=2)
    assert describe_steps(scene.plan()) == [("stop", "w", "b3"), ("stop", "x", "b2")]
    assert scene.preempt_step("x").borrowed_conditions == (BorrowedCondition("policy:b", "gpu", 2 + 2 - 1),)


def test_the_key_it_is_borrowed_on_by_most_is_named() -> None:
    scene = a_pool(gpu=4, mem=8, slot=1).policy("a", priority=9).policy("b", priority=1, reserved={"gpu": 1, "mem": 1})
    scene.runs("v", "b", gpu=4, mem=8, slot=1).waits("w", "a", gpu=1, mem=1)
    assert scene.preempt_step().borrowed_conditions == (BorrowedCondition("policy:b", "mem", 6),)
    scene.waiters.clear()
    assert scene.waits("w", "a", gpu=1).preempt_step().borrowed_conditions == (BorrowedCondition("policy:b", "gpu", 2),)
    scene.waiters.clear()
    assert scene.waits("w", "a", slot=1).preempt_step().borrowed_conditions == (BorrowedCondition("policy:b", "mem", 6),)


def test_a_stop_by_rank_rests_on_no_share() -> None:
    scene = low_and_high(2).runs("v", "low", gpu=2).waits("w", "high", gpu=1)
    assert (scene.preempt_step().unused_share_accounts, scene.preempt_step().reserved_accounts) == ((), ())


# strays


def stray(gpu: int = 4, **fields: Any) -> PoolBuilder:
    """`s` is leaving for nobody any more."""
    return low_and_high(gpu).runs("s", "low", gpu=2, **{"leaving_for": "", **fields})


def test_a_stray_nobody_needs_is_called_back() -> None:
    assert describe_steps(stray().holds("x", "high", gpu=2).plan()) == [("reprieve", "s")]


def test_a_stray_goes_on_for_the_first_hold_that_is_short_without_it() -> None:
    scene = stray(4).runs("gone", "low", gpu=2, leaving_for="x").holds("x", "high", gpu=2)
    scene.holds("y", "mid", gpu=2).holds("z", "high", gpu=2)
    assert describe_steps(scene.plan())[0] == ("pass on", "s", "y")


def test_the_newest_stray_first_and_only_as_many_as_are_needed() -> None:
    scene = stray(4).runs("t", "low", gpu=2, leaving_for="").holds("x", "high", gpu=2)
    assert describe_steps(scene.plan()) == [("pass on", "t", "x"), ("reprieve", "s")]


def test_a_stray_goes_to_nobody_who_may_not_take_it() -> None:
    scene = stray(4).runs("v", "low", gpu=2, preemption_class=3).holds("x", "low", gpu=4).holds("y", "mid", gpu=2)
    assert describe_steps(scene.plan())[0] == ("pass on", "s", "y")
    scene = stray(2, preemption_class=9).holds("x", "low", gpu=2)
    assert describe_steps(scene.plan()) == [("reprieve", "s"), ("end", "x")]


def test_what_protects_from_being_told_to_leave_does_not_matter_any_more() -> None:
    scene = stray(2, ran_s=1).with_settings(min_runtime_s=60).holds("x", "high", gpu=2)
    assert describe_steps(scene.plan()) == [("pass on", "s", "x")]


def test_a_stray_of_its_own_chain_goes_to_nobody() -> None:
    scene = stray(2, chain="c").holds("x", "high", gpu=2, chain="c")
    assert describe_steps(scene.plan()) == [("reprieve", "s"), ("end", "x")]


def test_a_stray_in_share_is_not_passed_on() -> None:
    scene = a_pool(gpu=4).policy("low", priority=1, reserved={"gpu": 2}).policy("high", priority=9)
    scene.runs("s", "low", gpu=2, leaving_for="").runs("v", "low", gpu=2).holds("x", "high", gpu=2)
    assert describe_steps(scene.plan()) == [("reprieve", "s"), ("stop", "x", "v")]


def test_a_stray_of_the_own_policy_is_passed_on_only_if_the_owner_then_lies_in_share() -> None:
    for reserved, expected in ((2, ("pass on", "s", "x")), (3, ("pass on", "s", "x")), (1, ("pass on", "s", "x"))):
        scene = a_pool(gpu=2).policy("t", reserved={"gpu": reserved}).runs("s", "t", gpu=2, leaving_for="")
        assert describe_steps(scene.holds("x", "t", gpu=2, preemption_class=6).plan())[0] == expected
    scene = a_pool(gpu=3).policy("t", reserved={"gpu": 2}).runs("s", "t", gpu=2, leaving_for="")
    scene.runs("mate", "t", gpu=1, preemption_class=9).holds("x", "t", gpu=2, preemption_class=6)
    assert describe_steps(scene.plan()) == [("reprieve", "s"), ("end", "x")]


def test_who_was_called_back_may_be_stopped_for_a_waiter() -> None:
    scene = stray(2).waits("w", "high", gpu=2)
    assert describe_steps(scene.plan()) == [("reprieve", "s"), ("stop", "w", "s")]


# holds


def test_a_hold_that_will_suffice_is_left_alone() -> None:
    scene = low_and_high(4).runs("v", "low", gpu=2, leaving_for="x").runs("o", "low", gpu=2).holds("x", "high", gpu=2)
    plan = scene.plan()
    assert describe_steps(plan) == []
    assert plan.decisions["x"].reason is DecisionReason.NO_SHORTAGE


def test_a_hold_that_will_not_suffice_asks_again_for_what_lacks() -> None:
    scene = low_and_high(4).runs("v", "low", gpu=1, leaving_for="x").runs("o", "low", gpu=1).runs("p", "low", gpu=2)
    assert describe_steps(scene.holds("x", "high", gpu=2).plan()) == [("stop", "x", "p")]


def test_a_hold_that_nothing_can_fill_ends_and_its_victims_are_settled() -> None:
    scene = low_and_high(4).runs("v", "low", gpu=2, leaving_for="x").runs("top", "high", gpu=2, preemption_class=9)
    scene.holds("x", "mid", gpu=4).holds("y", "high", gpu=2)
    plan = scene.plan()
    assert describe_steps(plan) == [("end", "x"), ("pass on", "v", "y")]
    assert plan.decisions["x"].outcome is Outcome.ENDS
    assert plan.decisions["x"].reason is DecisionReason.NOT_ENOUGH


def test_the_victims_of_a_hold_that_ended_are_called_back_if_nobody_needs_them() -> None:
    scene = low_and_high(4).runs("v", "low", gpu=2, leaving_for="x").runs("top", "high", gpu=2, preemption_class=9)
    assert describe_steps(scene.holds("x", "mid", gpu=4).plan()) == [("end", "x"), ("reprieve", "v")]


def test_who_was_called_back_counts_again_for_those_who_ask_later() -> None:
    scene = low_and_high(3).runs("o", "low", gpu=1).runs("v", "low", gpu=2, leaving_for="x").holds("x", "mid", gpu=9)
    assert describe_steps(scene.waits("w", "mid", gpu=3).plan()) == [("end", "x"), ("reprieve", "v"), ("stop", "w", "v", "o")]


def test_an_earlier_hold_that_counted_on_them_asks_again() -> None:
    """`x` counted on what `big` brings beyond the need of `y`; `y` can never be filled, and `x` may not take `big`."""
    scene = a_pool(gpu=6).policy("low", priority=1, limit={"gpu": 5}).policy("mid", priority=5).policy("high", priority=9)
    scene.runs("v", "low", gpu=2).runs("big", "mid", gpu=3, leaving_for="y", preemption_class=9).runs("o", "low", gpu=1)
    scene.holds("x", "mid", gpu=2).holds("y", "high", gpu=7)
    assert describe_steps(scene.plan()) == [("stop", "x", "v"), ("end", "y"), ("reprieve", "big")]


def test_of_later_holds_an_owner_is_kept_only_from_what_their_victims_bring() -> None:
    scene = low_and_high(4).runs("a", "low", gpu=2, leaving_for="y").runs("b", "low", gpu=2)
    scene.holds("x", "high", gpu=2).holds("y", "mid", gpu=2)
    assert describe_steps(scene.plan()) == [("stop", "x", "b")]
    scene = low_and_high(4).runs("b", "low", gpu=2).holds("x", "high", gpu=2).holds("y", "mid", gpu=2)
    assert describe_steps(scene.plan()) == [("stop", "y", "b")]


def test_what_later_victims_have_brought_is_kept_from_an_earlier_owner() -> None:
    scene = low_and_high(4).runs("b", "low", gpu=2).holds("x", "high", gpu=2)
    scene.holds("y", "mid", brought={"pool": {"gpu": 2}}, gpu=2)
    assert describe_steps(scene.plan()) == [("stop", "x", "b")]


def test_the_hold_of_fixed_work_whose_share_is_used_up_ends() -> None:
    scene = a_pool(gpu=4).policy("t", reserved={"gpu": 2}).policy("o").runs("f", "t", gpu=2, preemptible=False)
    scene.runs("v", "o", gpu=2, leaving_for="x").holds("x", "t", gpu=1, preemptible=False)
    assert describe_steps(scene.plan()) == [("end", "x"), ("reprieve", "v")]


# budgets


def test_a_pool_pauses_between_two_decisions() -> None:
    scene = low_and_high(4, backoff_s=5).runs("a", "low", gpu=2).runs("b", "low", gpu=2)
    scene.waits("w", "high", gpu=2).waits("x", "high", gpu=1)
    assert describe_steps(scene.plan()) == [("stop", "w", "b")]
    assert scene.reason("x") is DecisionReason.BACKOFF
    scene.last_decision_ms = NOW_MS - 4999
    assert scene.reason() is DecisionReason.BACKOFF
    scene.last_decision_ms = NOW_MS - 5000
    assert scene.reason() is DecisionReason.FITS_THEN


def test_at_most_so_many_a_minute() -> None:
    scene = low_and_high(4, max_preemptions_per_minute=3)
    for name in "abcd":
        scene.runs(name, "low", gpu=1)
    scene.waits("w", "high", gpu=2).waits("x", "high", gpu=2)
    assert describe_steps(scene.plan()) == [("stop", "w", "d", "c")]
    assert scene.reason("x") is DecisionReason.MINUTE_USED_UP
    scene.preemptions_last_minute = 3
    assert scene.reason() is DecisionReason.MINUTE_USED_UP
    scene.preemptions_last_minute = 9
    assert scene.reason() is DecisionReason.MINUTE_USED_UP


def test_what_is_left_of_a_minute_bounds_the_set() -> None:
    scene = low_and_high(4, max_preemptions_per_minute=1).runs("a", "low", gpu=2).runs("b", "low", gpu=1)
    assert describe_steps(scene.runs("c", "low", gpu=1).waits("w", "high", gpu=2).plan()) == [("stop", "w", "a")]


@pytest.mark.parametrize(
    ("terms", "lately"), [({"backoff_s": 9}, 0), *(({"max_preemptions_per_minute": 2}, n) for n in (1, 2))]
)
def test_no_hold_ends_because_of_a_pause(terms: dict[str, int], lately: int) -> None:
    scene = low_and_high(2, **terms).runs("a", "low", gpu=1).runs("b", "low", gpu=1).holds("x", "high", gpu=2)
    scene.last_decision_ms, scene.preemptions_last_minute = NOW_MS, lately
    assert describe_steps(scene.plan()) == []
    scene.allocations[0] = replace(scene.allocations[0], preemption_class=10)
    assert describe_steps(scene.plan()) == [("end", "x")]


def test_what_a_whole_minute_does_not_allow_is_no_pause() -> None:
    scene = low_and_high(2, max_preemptions_per_minute=1).runs("a", "low", gpu=1).runs("b", "low", gpu=1)
    assert describe_steps(scene.holds("x", "high", gpu=2).plan()) == [("end", "x")]
    scene.hold_snapshots.clear()
    assert scene.waits("w", "high", gpu=2).reason() is DecisionReason.TOO_MANY


# strict queues, and those who would rather have another pool


def test_in_a_strict_queue_nobody_asks_behind_the_first_that_lacks_capacity() -> None:
    scene = low_and_high(4, queueing="strict").runs("top", "high", gpu=2, preemption_class=9).runs("v", "low", gpu=2)
    scene.waits("w", "high", gpu=4).waits("x", "high", gpu=1)
    assert describe_steps(scene.plan()) == []
    assert (scene.reason("w"), scene.reason("x")) == (DecisionReason.NOT_ENOUGH, DecisionReason.BEHIND)
    assert describe_steps(scene.with_settings(queueing="best_effort").plan()) == [("stop", "x", "v")]


def test_who_is_kept_by_a_limit_blocks_nobody_and_asks_in_its_turn() -> None:
    scene = a_pool(gpu=4).with_settings(queueing="strict").policy("low", priority=1).policy("high", priority=9, limit={"gpu": 1})
    scene.policy("mid", priority=5).runs("h", "high", gpu=1, preemption_class=2).runs("v", "low", gpu=3)
    scene.waits("w", "high", gpu=1, preemption_class=1).waits("m", "mid", gpu=1).waits("x", "high", gpu=1)
    assert describe_steps(scene.plan()) == [("stop", "m", "v")]
    assert scene.reason("x") is DecisionReason.BEHIND
    scene.waiters.reverse()
    assert describe_steps(scene.plan())[0] == ("stop", "x", "h")


def test_the_owner_of_a_hold_asks_wherever_it_stands_and_blocks_those_behind_it() -> None:
    scene = low_and_high(3, queueing="strict")
    for name in "abc":
        scene.runs(name, "low", gpu=1)
    scene.holds("x", "mid", gpu=1, queue_position=2).waits("w", "high", gpu=1, queue_position=1).waits("y", "mid", gpu=1, queue_position=3)
    plan = scene.plan()
    assert describe_steps(plan) == [("stop", "x", "c"), ("stop", "w", "b")]
    assert plan.decisions["y"].reason is DecisionReason.BEHIND
    scene.waiters = [replace(scene.waiters[0], queue_position=3)]
    assert describe_steps(scene.plan()) == [("stop", "x", "c")]
    assert scene.reason() is DecisionReason.BEHIND


def test_who_has_just_lost_its_hold_still_stands_in_the_queue() -> None:
    scene = low_and_high(4, queueing="strict").runs("top", "high", gpu=2, preemption_class=9).runs("v", "low", gpu=2)
    scene.holds("x", "mid", gpu=4, queue_position=1).waits("w", "mid", gpu=1, queue_position=2)
    assert describe_steps(scene.plan()) == [("end", "x")]
    assert scene.reason() is DecisionReason.BEHIND


def test_who_prefers_another_pool_does_not_ask_yet_but_is_blocked_all_the_same() -> None:
    scene = low_and_high(2).runs("v", "low", gpu=2).waits("w", "high", gpu=1).waits("x", "high", gpu=1)
    assert describe_steps(scene.plan("w")) == [("stop", "x", "v")]
    assert scene.reason("w", "w") is DecisionReason.PREFERS_ANOTHER
    scene.with_settings(queueing="strict")
    assert describe_steps(scene.plan("w")) == []
    assert scene.reason("x", "w") is DecisionReason.BEHIND


# reasons


def test_every_code_has_its_sentence() -> None:
    assert set(DECISION_SENTENCES) == set(DecisionReason)
    assert set(REFUSAL_SENTENCES) == set(RefusalReason)


def test_verdicts_are_those_of_the_moment_of_the_decision() -> None:
    scene = low_and_high(4).runs("a", "low", gpu=1).runs("b", "low", gpu=1).runs("top", "high", gpu=2, preemption_class=10)
    scene.holds("x", "high", gpu=2).waits("w", "mid", gpu=2).waits("y", "mid", gpu=4)
    plan = scene.plan()
    assert describe_steps(plan) == [("stop", "x", "b", "a")]
    assert [verdict.allocation for verdict in plan.decisions["w"].verdicts()] == ["top"]
    verdicts = {verdict.allocation: verdict for verdict in plan.decisions["x"].verdicts()}
    assert verdicts["a"].allowed
    assert verdicts["a"].sentence == "it may be taken by priority"
    assert verdicts["top"].sentence == "its preemption class is 10"
    assert plan.decisions["x"].sentence == "it fits when those who are stopped for it have left"
    assert [verdict.sentence for verdict in plan.decisions["y"].verdicts()] == ["its preemption class is 10"]


def test_verdicts_after_strays_and_ended_holds() -> None:
    scene = low_and_high(4).runs("s", "low", gpu=1, leaving_for="").runs("t", "low", gpu=1, leaving_for="")
    scene.runs("v", "low", gpu=2, leaving_for="x").holds("x", "mid", gpu=9).holds("y", "high", gpu=3)
    scene.waits("w", "mid", gpu=4)
    plan = scene.plan()
    kinds = {step[0] for step in describe_steps(plan)}
    assert kinds == {"pass on", "end", "reprieve"}
    assert plan.decisions["w"].reason is DecisionReason.NOT_ENOUGH
    assert {verdict.allocation for verdict in plan.decisions["w"].verdicts()} == {"s"}


def test_a_decision_without_a_judgement_has_no_verdicts() -> None:
    decision = low_and_high(2).waits("w", "high", gpu=1).plan().decisions["w"]
    assert (decision.reason, list(decision.verdicts())) == (DecisionReason.NO_SHORTAGE, [])


# properties

COMPONENTS = ("a", "b", "c")


@st.composite
def pools(draw: st.DrawFn) -> PoolBuilder:
    """Small pools: up to three policies, some in a group, and who runs and waits in them."""
    capacity = {"gpu": draw(st.integers(3, 8)), "mem": draw(st.integers(2, 6))}
    scene = PoolBuilder(capacity).with_settings(
        discipline=draw(st.sampled_from(["reserved", "classes"])),
        order=draw(st.sampled_from(["share_first", "priority_first"])),
        max_victims=draw(st.sampled_from([None, 1, 3])),
    )
    grouped = draw(st.booleans())
    if grouped:
        scene.group("g", reserved={"gpu": 2}, limit={"gpu": draw(st.integers(2, 8))})
    for component in COMPONENTS:
        inside = "g" if grouped and component != "c" else None
        reserved = {"gpu": draw(st.integers(0, 1 if inside else capacity["gpu"] // 3)), "mem": draw(st.sampled_from([0, 0, 1]))}
        scene.policy(component, inside, priority=draw(st.integers(0, 2)), reserved=reserved)
    for number in range(draw(st.integers(2, 9))):
        gpu, mem = draw(st.sampled_from([(1, 0), (2, 0), (3, 0), (1, 1), (0, 1), (2, 2)]))
        amounts = {key: units for key, units in (("gpu", gpu), ("mem", mem)) if units}
        fields = {"preemption_class": draw(st.integers(2, 8)), "preemptible": draw(st.integers(0, 5)) > 0}
        scene.waits(f"r{number}", draw(st.sampled_from(COMPONENTS)), submission_number=number, **fields, **amounts)
    scene.waiters = [
        waiter for waiter in scene.waiters if _eligible(scene, waiter.component, waiter.amounts, waiter.preemptible)
    ]
    return _granted(scene, draw(st.permutations(scene.waiters)))


def _eligible(scene: PoolBuilder, component: str, amounts: Any, preemptible: bool) -> bool:
    for name in scene.path(component)[:-1]:
        limit = scene.accounts[name].get("limit", {})
        if any(units > limit.get(key, units) for key, units in amounts.items()):
            return False
    reserved = scene.accounts[f"policy:{component}"]["reserved"]
    fits = all(units <= scene.capacity.get(key, units) for key, units in amounts.items())
    return fits and (preemptible or all(units <= reserved.get(key, 0) for key, units in amounts.items() if key != "step_run"))


def _granted(scene: PoolBuilder, order: list[Any]) -> PoolBuilder:
    waiting, scene.waiters = order, []
    for waiter in waiting:
        scene.waiters.append(waiter)
        scene, _ = _quietly(scene)
    scene.waiters = in_queue_order(scene)
    return scene


def _quietly(scene: PoolBuilder) -> tuple[PoolBuilder, int]:
    """Grants what fits and preempts nobody."""
    capped = replace(scene, settings=replace(scene.settings, max_preemptions_per_minute=0))
    granted, stopped = after_plan(capped)
    return replace(granted, settings=scene.settings), stopped


@settings(deadline=None)
@given(pools())
def test_it_comes_to_rest(scene: PoolBuilder) -> None:
    """Without new submissions the number of preemptions is bounded, and then the pool is quiet. Each step leads to a grant."""
    total, bound = 0, 3 * (len(scene.allocations) + len(scene.waiters)) ** 2
    while stopped := (moved := after_plan(scene))[1]:
        scene, total = moved[0], total + stopped
        assert total <= bound
    assert scene.plan().steps == ()


@settings(deadline=None)
@given(pools())
def test_what_was_stopped_makes_it_fit_and_nobody_was_stopped_in_vain(scene: PoolBuilder) -> None:
    after_plan(scene)  # asserts that every waiter fits when its victims have left
    for step in scene.plan().steps[:1]:
        assert isinstance(step, Preempt)
        for victim in step.victims:
            spared = replace(scene, allocations=[each for each in scene.allocations if not _leaves(each.id, step, victim.request)])
            if not step.reserved_accounts:
                (waiter,) = (each for each in scene.waiters if each.id == step.waiter)
                spared.waiters = [waiter]
                assert spared.plan().decisions[step.waiter].reason is not DecisionReason.NO_SHORTAGE


def _leaves(name: str, step: Preempt, spared: str) -> bool:
    return name != spared and name in {victim.request for victim in step.victims}


@settings(deadline=None)
@given(pools(), st.integers(1, 3))
def test_equal_shapes_decided_once_are_decided_alike(scene: PoolBuilder, times: int) -> None:
    for number in range(times):
        scene.waiters += [
            replace(each, id=f"{each.id}x{number}", submission_number=each.submission_number + 50 + number) for each in scene.waiters
        ]
    scene.waiters = in_queue_order(scene)
    quick = scene.plan()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PlanningPass, "_is_still_refused", lambda *_: False)
        slow = scene.plan()
    assert quick.steps == slow.steps
    assert {name: decision.reason for name, decision in quick.decisions.items()} == {
        name: decision.reason for name, decision in slow.decisions.items()
    }


@settings(deadline=None)
@given(pools(), st.randoms())
def test_the_order_of_accounts_and_allocations_does_not_matter(scene: PoolBuilder, chance: Any) -> None:
    expected = scene.plan().steps
    accounts = list(scene.accounts.items())
    chance.shuffle(accounts)
    chance.shuffle(scene.allocations)
    scene.accounts = dict(accounts)
    assert scene.plan().steps == expected
