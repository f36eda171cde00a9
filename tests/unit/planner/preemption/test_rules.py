"""Who may take from whom: every sentence of the rules, as small pools."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.planner.account_tree import AccountTree
from app.planner.borrowing import BorrowingIndex
from app.planner.decisions import DecisionReason, RefusalReason
from app.planner.preemption.protection import Protection
from tests.unit.planner.builders import PoolBuilder, a_pool


def two(taker: dict[str, Any] | None = None, holder: dict[str, Any] | None = None, capacity: int = 4, **terms: Any) -> PoolBuilder:
    """A pool of two policies: somebody of `b` holds all of it, and `w` of `a` waits for a unit."""
    return a_pool(gpu=capacity).with_settings(**terms).policy("a", **(taker or {})).policy("b", **(holder or {}))


HIGH, LOW = {"priority": 9}, {"priority": 1}


# reclaim


def test_an_owner_takes_its_share_back_whatever_the_ranks() -> None:
    scene = two({**LOW, "reserved": {"gpu": 2}}, HIGH).runs("v", "b", gpu=4, preemption_class=9).waits("w", "a", gpu=2)
    assert scene.victims() == {"v": "reclaim"}


def test_beyond_its_unused_share_an_owner_reclaims_nothing() -> None:
    scene = two({**LOW, "reserved": {"gpu": 2}}, HIGH).runs("v", "b", gpu=4).waits("w", "a", gpu=3)
    assert scene.victims() == {}
    assert scene.refusals("v")["reclaim"] is RefusalReason.SHARE_NOT_UNUSED


def test_what_lies_in_share_is_not_reclaimed() -> None:
    scene = two({**LOW, "reserved": {"gpu": 2}}, {**HIGH, "reserved": {"gpu": 2}}, 3)
    scene.runs("in", "b", gpu=2).runs("out", "b", gpu=1).waits("w", "a", gpu=2)
    assert scene.victims() == {}
    assert scene.refusals("in")["reclaim"] is RefusalReason.IN_SHARE


def test_an_allocation_partly_beyond_reserved_is_borrowed() -> None:
    scene = two({**LOW, "reserved": {"gpu": 2}}, {**HIGH, "reserved": {"gpu": 2}}).runs("v", "b", gpu=4).waits("w", "a", gpu=1)
    assert scene.victims() == {"v": "reclaim"}


def test_reclaim_fits_on_all_share_keys_asked_not_only_the_short_ones() -> None:
    scene = a_pool(gpu=4, mem=9).policy("a", reserved={"gpu": 2, "mem": 1}).policy("b", priority=5)
    scene.runs("v", "b", gpu=4).waits("w", "a", gpu=1, mem=2)
    assert scene.victims() == {}
    assert scene.waits("x", "a", gpu=1, mem=1).victims("x") == {"v": "reclaim"}


def test_fixed_work_counts_only_fixed_work_against_its_unused_share() -> None:
    scene = two({**LOW, "reserved": {"gpu": 2}}, HIGH).runs("mine", "a", gpu=2, preemption_class=9).runs("v", "b", gpu=2)
    assert scene.waits("w", "a", gpu=2).victims() == {}
    assert scene.waits("x", "a", gpu=2, preemptible=False).victims("x") == {"v": "reclaim"}


def test_who_asks_no_share_key_reclaims_nothing() -> None:
    scene = a_pool(gpu=4, slot=1).policy("a", reserved={"gpu": 4}).policy("b", priority=9)
    scene.runs("v", "b", slot=1).waits("w", "a", slot=1)
    assert scene.victims() == {}
    assert scene.waits("x", "a", slot=1, gpu=1).victims("x") == {"v": "reclaim"}


# priority and class


@pytest.mark.parametrize(
    ("priority", "preemption_class", "taken"),
    [(8, 9, True), (9, 4, True), (9, 5, False), (9, 6, False), (10, 0, False)],
    ids=["lower priority", "lower class", "equal", "higher class", "higher priority"],
)
def test_priority_takes_from_a_strictly_lower_rank(priority: int, preemption_class: int, taken: bool) -> None:
    scene = two(HIGH, {"priority": priority}).runs("v", "b", gpu=4, preemption_class=preemption_class).waits("w", "a", gpu=1)
    assert scene.victims() == ({"v": "priority"} if taken else {})
    if not taken:
        assert scene.refusals("v")["priority"] is RefusalReason.RANK_NOT_LOWER


@pytest.mark.parametrize(("preemption_class", "taken"), [(4, True), (5, False), (6, False)])
def test_class_looks_at_the_class_alone(preemption_class: int, taken: bool) -> None:
    scene = two(LOW, HIGH, discipline="classes").runs("v", "b", gpu=4, preemption_class=preemption_class).waits("w", "a", gpu=1)
    assert scene.victims() == ({"v": "priority"} if taken else {})


@pytest.mark.parametrize("discipline", ["reserved", "classes"])
def test_rank_takes_only_what_is_borrowed(discipline: str) -> None:
    scene = two(HIGH, {**LOW, "reserved": {"gpu": 4}}, discipline=discipline).runs("v", "b", gpu=4)
    scene.waits("w", "a", gpu=1, preemption_class=9)
    assert scene.victims() == {}
    assert RefusalReason.IN_SHARE in scene.refusals("v").values()


def test_class_ten_takes_what_is_in_share_as_well_in_classes_alone() -> None:
    for discipline, expected in (("classes", {"v": "sensitive"}), ("reserved", {})):
        scene = two(HIGH, {**LOW, "reserved": {"gpu": 4}}, discipline=discipline).runs("v", "b", gpu=4)
        assert scene.waits("w", "a", gpu=1, preemption_class=10).victims() == expected


def test_where_nobody_reserves_anything_rank_alone_decides() -> None:
    assert two(HIGH, LOW).runs("v", "b", gpu=4).waits("w", "a", gpu=4).victims() == {"v": "priority"}
    assert two(LOW, HIGH).runs("v", "b", gpu=4).waits("w", "a", gpu=4).victims() == {}


# own


def own(reserved: int, waiter: int = 6, held: int = 1, **terms: Any) -> PoolBuilder:
    """One policy: two of class 5 run, and a class waits for a unit; the pool is full."""
    scene = a_pool(gpu=2 * held).with_settings(**terms).policy("t", reserved={"gpu": reserved})
    return scene.runs("old", "t", gpu=held).runs("new", "t", gpu=held).waits("w", "t", gpu=1, preemption_class=waiter)


@pytest.mark.parametrize("discipline", ["reserved", "classes"])
@pytest.mark.parametrize(("waiter", "taken"), [(4, False), (5, False), (6, True)])
def test_own_takes_from_a_strictly_lower_class_of_its_policy(discipline: str, waiter: int, taken: bool) -> None:
    assert own(0, waiter, discipline=discipline).victims() == ({"new": "priority"} if taken else {})


def test_own_takes_what_is_in_share_only_if_it_then_lies_in_share_itself() -> None:
    scene = own(2)
    assert scene.victims() == {"new": "priority"}
    assert scene.preempt_step().reserved_accounts == ("policy:t",)
    scene = a_pool(gpu=2).policy("t", reserved={"gpu": 1}).runs("old", "t", gpu=1).runs("new", "t", gpu=1, preemption_class=9)
    assert scene.waits("w", "t", gpu=1, preemption_class=6).victims() == {}
    assert scene.reason() is DecisionReason.NOT_WITHIN


def test_own_takes_what_is_borrowed_without_that_condition() -> None:
    scene = own(1)
    assert scene.victims() == {"new": "priority"}
    assert scene.preempt_step().reserved_accounts == ()


@pytest.mark.parametrize(("mine", "taken"), [(4, False), (5, True), (6, True)])
def test_fixed_work_takes_its_fixed_share_from_those_who_do_not_rank_higher(mine: int, taken: bool) -> None:
    scene = a_pool(gpu=2).policy("t", reserved={"gpu": 2}).runs("v", "t", gpu=2)
    scene.waits("w", "t", gpu=2, preemptible=False, preemption_class=mine)
    assert scene.victims() == ({"v": "reclaim"} if taken else {})
    if taken:
        assert scene.preempt_step().unused_share_accounts == ("policy:t",)


def test_own_is_about_the_own_policy_and_the_others_are_not() -> None:
    scene = two(LOW, LOW).runs("mine", "a", gpu=2).runs("theirs", "b", gpu=2).waits("w", "a", gpu=4)
    assert scene.refusals("mine") == {
        "reclaim": RefusalReason.SAME_POLICY,
        "priority": RefusalReason.SAME_POLICY,
        "own": RefusalReason.RANK_NOT_LOWER,
    }
    assert scene.refusals("theirs")["own"] is RefusalReason.OTHER_POLICY


# those who were preempted, in classes


@pytest.mark.parametrize("component", ["a", "b"], ids=["own", "class"])
def test_a_preempted_one_takes_by_rank_only_what_was_granted_after(component: str) -> None:
    scene = two(discipline="classes").runs("before", component, gpu=2).runs("after", component, gpu=2)
    scene.waits("w", "a", gpu=2, preemption_class=9, preempted_fence=1)
    assert scene.victims() == {"after": "priority"}
    assert RefusalReason.GRANTED_BEFORE in scene.refusals("before").values()
    scene.waiters.clear()
    assert scene.waits("x", "a", gpu=3, preemption_class=9, preempted_fence=1).victims("x") == {}


def test_a_preempted_one_reclaims_its_share_from_anybody() -> None:
    scene = two({"reserved": {"gpu": 2}}, discipline="classes").runs("v", "b", gpu=4)
    assert scene.waits("w", "a", gpu=2, preemption_class=9, preempted_fence=1).victims() == {"v": "reclaim"}


def test_in_reserved_it_does_not_matter_who_was_preempted() -> None:
    assert two(HIGH, LOW).runs("v", "b", gpu=4).waits("w", "a", gpu=2, preempted_fence=1).victims() == {"v": "priority"}


# priority_first


def test_priority_first_drops_borrowed_from_rank() -> None:
    scene = two(HIGH, {**LOW, "reserved": {"gpu": 4}}, order="priority_first").runs("v", "b", gpu=4).waits("w", "a", gpu=1)
    assert scene.victims() == {"v": "priority"}
    assert scene.preempt_step().borrowed_conditions == ()


def test_priority_first_drops_borrowed_from_own() -> None:
    scene = a_pool(gpu=2).with_settings(order="priority_first").policy("t", reserved={"gpu": 1})
    scene.runs("v", "t", gpu=1).runs("same", "t", gpu=1, preemption_class=6)
    assert scene.waits("w", "t", gpu=1, preemption_class=6).victims() == {"v": "priority"}


@pytest.mark.parametrize(
    ("discipline", "priority", "preemption_class", "taken"),
    [
        ("reserved", 5, 5, True),
        ("reserved", 5, 6, False),
        ("reserved", 6, 0, False),
        ("reserved", 4, 9, True),
        ("classes", 5, 5, True),
        ("classes", 6, 5, False),
        ("classes", 6, 4, True),
        ("classes", 4, 6, False),
    ],
)
def test_priority_first_reclaims_only_from_equal_or_lower_rank(
    discipline: str, priority: int, preemption_class: int, taken: bool
) -> None:
    scene = two({"priority": 5, "reserved": {"gpu": 2}}, {"priority": priority}, order="priority_first", discipline=discipline)
    scene.runs("v", "b", gpu=4, preemption_class=preemption_class).waits("w", "a", gpu=2)
    assert scene.victims() == ({"v": "reclaim"} if taken else {})
    if not taken:
        assert scene.refusals("v")["reclaim"] is RefusalReason.RANK_HIGHER


# profiles


def test_a_service_gives_only_what_it_borrowed_even_to_class_ten() -> None:
    service = {"reserved": {"gpu": 2}, "profile": "service"}
    scene = two(HIGH, service, discipline="classes").runs("in", "b", gpu=2).runs("out", "b", gpu=2)
    assert scene.waits("w", "a", gpu=2, preemption_class=10).victims() == {"out": "sensitive"}
    scene.waiters.clear()
    assert scene.waits("w", "a", gpu=4, preemption_class=10).victims() == {}
    assert scene.refusals("in")["class"] is RefusalReason.SERVICE_IN_SHARE
    assert scene.with_settings(order="priority_first").victims() == {}


def test_a_service_gives_nothing_in_share_to_its_own_policy_either() -> None:
    scene = own(2, 9, discipline="classes")
    scene.accounts["policy:t"]["profile"] = "service"
    assert scene.victims() == {}
    scene.waiters.clear()
    assert scene.waits("w", "t", gpu=2, preemptible=False, preemption_class=9).victims() == {}
    assert set(scene.refusals("new").values()) == {RefusalReason.SAME_POLICY, RefusalReason.SERVICE_IN_SHARE}


def test_a_sensitive_profile_is_never_a_victim_and_profiles_count_in_classes_only() -> None:
    for profile in ("sensitive", "service"):
        for discipline, expected in (("classes", {}), ("reserved", {"v": "priority"})):
            holder = {**LOW, "reserved": {"gpu": 4}, "profile": profile}
            scene = two(HIGH, holder, order="priority_first", discipline=discipline)
            assert scene.runs("v", "b", gpu=4).waits("w", "a", gpu=1, preemption_class=9).victims() == expected


# protected


@pytest.mark.parametrize(
    ("terms", "holder", "why"),
    [
        ({}, {"preemptible": False}, RefusalReason.FIXED),
        ({}, {"preemption_class": 10}, RefusalReason.CLASS_TEN),
        ({"discipline": "classes"}, {"preemption_class": 7}, RefusalReason.NO_CHECKPOINT),
        ({"discipline": "classes"}, {"preemption_class": 7, "checkpoint": "manual"}, None),
        ({"discipline": "classes"}, {"preemption_class": 6}, None),
        ({}, {"preemption_class": 7}, None),
        ({"near_completion_s": 300}, {"walltime_s": 3899}, RefusalReason.NEAR_COMPLETION),
        ({"near_completion_s": 300}, {"walltime_s": 3900}, None),
        ({"near_completion_s": 300}, {"walltime_s": 3600}, RefusalReason.NEAR_COMPLETION),
        ({"near_completion_s": 300}, {"walltime_s": 3599}, None),
        ({}, {"walltime_s": 3601}, None),
        ({"min_runtime_s": 3601}, {}, RefusalReason.JUST_STARTED),
        ({"min_runtime_s": 3600}, {}, None),
        ({}, {"chain": "x"}, RefusalReason.SAME_CHAIN),
        ({}, {"chain": "y"}, None),
    ],
)
def test_the_protected(terms: dict[str, Any], holder: dict[str, Any], why: RefusalReason | None) -> None:
    reserved = {"gpu": 4} if not holder.get("preemptible", True) else {}
    scene = two(HIGH, {**LOW, "reserved": reserved}, **terms).runs("v", "b", gpu=4, **holder)
    scene.waits("w", "a", gpu=1, preemption_class=9, chain="x")
    assert scene.victims() == ({} if why else {"v": "priority"})
    if why:
        assert scene.refusals("v") == {None: why}


def test_no_chain_is_no_chain_in_common() -> None:
    assert two(HIGH, LOW).runs("v", "b", gpu=4).waits("w", "a", gpu=1).victims() == {"v": "priority"}


def test_class_ten_is_not_even_reclaimed() -> None:
    scene = two({"reserved": {"gpu": 4}}, LOW).runs("v", "b", gpu=4, preemption_class=10).waits("w", "a", gpu=1)
    assert scene.victims() == {}


# triggers


@pytest.mark.parametrize(
    ("waiter", "trigger"), [({"preemption_class": 10}, "sensitive"), ({}, "reclaim"), ({"preemption_class": 9}, "reclaim")]
)
def test_where_several_rules_allow_it(waiter: dict[str, Any], trigger: str) -> None:
    scene = two({**HIGH, "reserved": {"gpu": 2}}, LOW).runs("v", "b", gpu=4).waits("w", "a", gpu=2, **waiter)
    assert scene.victims() == {"v": trigger}


# the stack


def test_the_stack_has_fixed_work_first_then_the_order_of_grant() -> None:
    scene = two(HIGH, {**LOW, "reserved": {"gpu": 3}}, 6).runs("one", "b", gpu=2).runs("two", "b", gpu=2)
    scene.runs("fixed", "b", gpu=2, preemptible=False).waits("w", "a", gpu=4)
    assert scene.victims() == {"one": "priority", "two": "priority"}
    assert [rests.max_stack_exits for rests in scene.preempt_step().borrowed_conditions] == [2, 0]


def test_those_who_are_leaving_are_not_in_the_stack() -> None:
    scene = two(HIGH, {**LOW, "reserved": {"gpu": 2}}, 4).runs("gone", "b", gpu=2, leaving_for="x").runs("v", "b", gpu=2)
    scene.holds("x", "a", gpu=2).waits("w", "a", gpu=2)
    assert scene.victims() == {}
    assert scene.refusals("v")["priority"] is RefusalReason.IN_SHARE


# share keys


def test_a_key_nobody_reserves_is_taken_from_who_is_not_in_share() -> None:
    scene = a_pool(gpu=4, slot=2).policy("a", priority=9).policy("b", reserved={"gpu": 2})
    scene.runs("in", "b", gpu=2, slot=1).runs("out", "b", gpu=1, slot=1).waits("w", "a", slot=1)
    assert scene.victims() == {"out": "priority"}
    scene.waiters.clear()
    assert scene.waits("w", "a", slot=2).victims() == {}


def test_who_asks_no_share_key_is_never_in_share() -> None:
    scene = a_pool(gpu=4, slot=1).policy("a", priority=9).policy("b", reserved={"gpu": 4}).runs("v", "b", slot=1)
    scene.waits("w", "a", slot=1)
    assert scene.victims() == {"v": "priority"}
    assert scene.preempt_step().borrowed_conditions == ()


def test_borrowed_on_a_key_that_is_not_short_does_not_count() -> None:
    scene = a_pool(gpu=4, mem=9).policy("a", priority=9).policy("b", reserved={"gpu": 4, "mem": 1})
    scene.runs("v", "b", gpu=4, mem=5).waits("w", "a", gpu=1)
    assert scene.victims() == {}


# groups


def departments(**terms: Any) -> PoolBuilder:
    """Two departments of half a pool each, with two teams each."""
    scene = a_pool(gpu=8).with_settings(**terms).group("x", reserved={"gpu": 4}).group("y", reserved={"gpu": 4})
    return (
        scene.policy("x1", "x", priority=1, reserved={"gpu": 2})
        .policy("x2", "x", priority=1, reserved={"gpu": 2})
        .policy("y1", "y", priority=9, reserved={"gpu": 2})
        .policy("y2", "y", priority=9, reserved={"gpu": 2})
    )


def test_what_a_team_borrows_within_its_departments_share_is_not_borrowed_from_another() -> None:
    scene = departments().runs("v", "x1", gpu=4).runs("o", "y1", gpu=4).waits("w", "y2", gpu=2)
    assert scene.victims() == {"o": "reclaim"}
    assert scene.refusals("v") == {
        "reclaim": RefusalReason.SHARE_NOT_UNUSED,
        "priority": RefusalReason.IN_SHARE,
        "own": RefusalReason.OTHER_POLICY,
    }


def test_inside_a_department_its_own_side_is_the_team() -> None:
    scene = departments().runs("v", "x1", gpu=4).runs("o", "y1", gpu=4).waits("w", "x2", gpu=2)
    assert scene.victims() == {"v": "reclaim"}
    assert scene.preempt_step().unused_share_accounts == ("policy:x2",)


def test_across_departments_both_the_team_and_the_department_need_an_unused_share() -> None:
    scene = departments().runs("x", "x1", gpu=2).runs("v", "y1", gpu=6).waits("w", "x2", gpu=2)
    assert scene.victims() == {"v": "reclaim"}
    assert scene.preempt_step().unused_share_accounts == ("policy:x2", "group:x")
    assert [rests.account for rests in scene.preempt_step().borrowed_conditions] == ["policy:y1", "group:y"]


def test_in_a_group_what_is_in_share_at_its_policy_comes_before_the_order_of_grant() -> None:
    scene = departments().runs("early", "y1", gpu=4).runs("late", "y2", gpu=2).runs("o", "x1", gpu=2)
    assert scene.waits("w", "x2", gpu=2).victims() == {"early": "reclaim"}


# the stacks move with those who leave and come back


@given(st.data())
def test_stacks_moved_along_are_stacks_made_anew(data: st.DataObject) -> None:
    scene = departments(discipline="classes").policy("z", reserved={"gpu": 3, "mem": 1})
    scene.capacity = {"gpu": 99, "mem": 99}
    some = st.tuples(st.sampled_from(["x1", "x2", "y1", "y2", "z"]), st.integers(0, 3), st.integers(0, 2), st.booleans())
    for number, (component, gpu, mem, fixed) in enumerate(data.draw(st.lists(some, min_size=1, max_size=14))):
        amounts = {key: units for key, units in (("gpu", gpu), ("mem", mem)) if units}
        scene.runs(f"r{number:02}", component, preemptible=not fixed, **amounts)
    shares, gone = _shares(scene), set[str]()
    for name in data.draw(st.lists(st.sampled_from([each.id for each in scene.allocations]), max_size=20)):
        holder = next(each for each in scene.allocations if each.id == name)
        (shares.restore if name in gone else shares.remove)(holder)
        gone ^= {name}
    scene.allocations = [each for each in scene.allocations if each.id not in gone]
    anew = _shares(scene)
    for holder in scene.allocations:
        now, made = shares.class_of[holder.id].traits, anew.class_of[holder.id].traits
        assert now == made
        for account in scene.path(holder.component)[:-1]:
            assert shares.units_beyond_reserved(holder, account) == anew.units_beyond_reserved(holder, account)
    for component in ("x1", "x2", "y1", "y2", "z"):
        members = {name: kind for kind in shares.policy_allocations(component).classes for name in kind.members}
        assert members == {each.id: shares.class_of[each.id] for each in scene.allocations if each.component == component}


def _shares(scene: PoolBuilder) -> BorrowingIndex:
    snapshot = scene.snapshot()
    tree = AccountTree(snapshot.accounts)
    shares = BorrowingIndex(snapshot, tree, Protection(snapshot.settings, snapshot.now_ms).reason, frozenset())
    for component in tree.paths:
        shares.policy_allocations(component)
    return shares
