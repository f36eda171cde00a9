"""The rules of preemption, each in small pools."""

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


def two(
    preemptor: dict[str, Any] | None = None, victim: dict[str, Any] | None = None, capacity: int = 4, **terms: Any
) -> PoolBuilder:
    """Return a pool of two policies: a request of `b` holds all of it, and `w` of `a` waits for a unit."""
    return a_pool(gpu=capacity).with_settings(**terms).policy("a", **(preemptor or {})).policy("b", **(victim or {}))


HIGH, LOW = {"priority": 9}, {"priority": 1}


# reclaim


def test_an_owner_takes_its_share_back_whatever_the_ranks() -> None:
    pool = two({**LOW, "reserved": {"gpu": 2}}, HIGH).runs("v", "b", gpu=4, preemption_class=9).waits("w", "a", gpu=2)
    assert pool.victims() == {"v": "reclaim"}


def test_beyond_its_unused_share_an_owner_reclaims_nothing() -> None:
    pool = two({**LOW, "reserved": {"gpu": 2}}, HIGH).runs("v", "b", gpu=4).waits("w", "a", gpu=3)
    assert pool.victims() == {}
    assert pool.refusals("v")["reclaim"] is RefusalReason.SHARE_NOT_UNUSED


def test_what_lies_in_share_is_not_reclaimed() -> None:
    pool = two({**LOW, "reserved": {"gpu": 2}}, {**HIGH, "reserved": {"gpu": 2}}, 3)
    pool.runs("in", "b", gpu=2).runs("out", "b", gpu=1).waits("w", "a", gpu=2)
    assert pool.victims() == {}
    assert pool.refusals("in")["reclaim"] is RefusalReason.IN_SHARE


def test_an_allocation_partly_beyond_reserved_is_borrowed() -> None:
    pool = two({**LOW, "reserved": {"gpu": 2}}, {**HIGH, "reserved": {"gpu": 2}}).runs("v", "b", gpu=4).waits("w", "a", gpu=1)
    assert pool.victims() == {"v": "reclaim"}


def test_reclaim_fits_on_all_share_keys_asked_not_only_the_short_ones() -> None:
    pool = a_pool(gpu=4, mem=9).policy("a", reserved={"gpu": 2, "mem": 1}).policy("b", priority=5)
    pool.runs("v", "b", gpu=4).waits("w", "a", gpu=1, mem=2)
    assert pool.victims() == {}
    assert pool.waits("x", "a", gpu=1, mem=1).victims("x") == {"v": "reclaim"}


def test_fixed_work_counts_only_fixed_work_against_its_unused_share() -> None:
    pool = two({**LOW, "reserved": {"gpu": 2}}, HIGH).runs("mine", "a", gpu=2, preemption_class=9).runs("v", "b", gpu=2)
    assert pool.waits("w", "a", gpu=2).victims() == {}
    assert pool.waits("x", "a", gpu=2, preemptible=False).victims("x") == {"v": "reclaim"}


def test_a_waiter_without_share_keys_reclaims_nothing() -> None:
    pool = a_pool(gpu=4, slot=1).policy("a", reserved={"gpu": 4}).policy("b", priority=9)
    pool.runs("v", "b", slot=1).waits("w", "a", slot=1)
    assert pool.victims() == {}
    assert pool.waits("x", "a", slot=1, gpu=1).victims("x") == {"v": "reclaim"}


# priority and class


@pytest.mark.parametrize(
    ("priority", "preemption_class", "taken"),
    [(8, 9, True), (9, 4, True), (9, 5, False), (9, 6, False), (10, 0, False)],
    ids=["lower priority", "lower class", "equal", "higher class", "higher priority"],
)
def test_priority_takes_from_a_strictly_lower_rank(priority: int, preemption_class: int, taken: bool) -> None:
    pool = two(HIGH, {"priority": priority}).runs("v", "b", gpu=4, preemption_class=preemption_class).waits("w", "a", gpu=1)
    assert pool.victims() == ({"v": "priority"} if taken else {})
    if not taken:
        assert pool.refusals("v")["priority"] is RefusalReason.RANK_NOT_LOWER


@pytest.mark.parametrize(("preemption_class", "taken"), [(4, True), (5, False), (6, False)])
def test_class_looks_at_the_class_alone(preemption_class: int, taken: bool) -> None:
    pool = two(LOW, HIGH, discipline="classes").runs("v", "b", gpu=4, preemption_class=preemption_class).waits("w", "a", gpu=1)
    assert pool.victims() == ({"v": "priority"} if taken else {})


@pytest.mark.parametrize("discipline", ["reserved", "classes"])
def test_rank_takes_only_what_is_borrowed(discipline: str) -> None:
    pool = two(HIGH, {**LOW, "reserved": {"gpu": 4}}, discipline=discipline).runs("v", "b", gpu=4)
    pool.waits("w", "a", gpu=1, preemption_class=9)
    assert pool.victims() == {}
    assert RefusalReason.IN_SHARE in pool.refusals("v").values()


def test_class_ten_takes_what_is_in_share_as_well_in_classes_alone() -> None:
    for discipline, expected in (("classes", {"v": "sensitive"}), ("reserved", {})):
        pool = two(HIGH, {**LOW, "reserved": {"gpu": 4}}, discipline=discipline).runs("v", "b", gpu=4)
        assert pool.waits("w", "a", gpu=1, preemption_class=10).victims() == expected


def test_rank_alone_decides_in_a_pool_without_reservations() -> None:
    assert two(HIGH, LOW).runs("v", "b", gpu=4).waits("w", "a", gpu=4).victims() == {"v": "priority"}
    assert two(LOW, HIGH).runs("v", "b", gpu=4).waits("w", "a", gpu=4).victims() == {}


# own


def own(reserved: int, waiter: int = 6, units: int = 1, **terms: Any) -> PoolBuilder:
    """Return a full pool of one policy: two requests of class 5 run, and one of another class waits for a unit."""
    pool = a_pool(gpu=2 * units).with_settings(**terms).policy("t", reserved={"gpu": reserved})
    return pool.runs("old", "t", gpu=units).runs("new", "t", gpu=units).waits("w", "t", gpu=1, preemption_class=waiter)


@pytest.mark.parametrize("discipline", ["reserved", "classes"])
@pytest.mark.parametrize(("waiter", "taken"), [(4, False), (5, False), (6, True)])
def test_own_takes_from_a_strictly_lower_class_of_its_policy(discipline: str, waiter: int, taken: bool) -> None:
    assert own(0, waiter, discipline=discipline).victims() == ({"new": "priority"} if taken else {})


def test_own_takes_what_is_in_share_only_if_it_then_lies_in_share_itself() -> None:
    pool = own(2)
    assert pool.victims() == {"new": "priority"}
    assert pool.preempt_step().reserved_accounts == ("policy:t",)
    pool = a_pool(gpu=2).policy("t", reserved={"gpu": 1}).runs("old", "t", gpu=1).runs("new", "t", gpu=1, preemption_class=9)
    assert pool.waits("w", "t", gpu=1, preemption_class=6).victims() == {}
    assert pool.reason() is DecisionReason.NOT_WITHIN


def test_own_takes_what_is_borrowed_without_that_condition() -> None:
    pool = own(1)
    assert pool.victims() == {"new": "priority"}
    assert pool.preempt_step().reserved_accounts == ()


@pytest.mark.parametrize(("mine", "taken"), [(4, False), (5, True), (6, True)])
def test_non_preemptible_work_takes_its_fixed_share_from_work_that_does_not_rank_higher(mine: int, taken: bool) -> None:
    pool = a_pool(gpu=2).policy("t", reserved={"gpu": 2}).runs("v", "t", gpu=2)
    pool.waits("w", "t", gpu=2, preemptible=False, preemption_class=mine)
    assert pool.victims() == ({"v": "reclaim"} if taken else {})
    if taken:
        assert pool.preempt_step().unused_share_accounts == ("policy:t",)


def test_own_is_about_the_own_policy_and_the_others_are_not() -> None:
    pool = two(LOW, LOW).runs("mine", "a", gpu=2).runs("theirs", "b", gpu=2).waits("w", "a", gpu=4)
    assert pool.refusals("mine") == {
        "reclaim": RefusalReason.SAME_POLICY,
        "priority": RefusalReason.SAME_POLICY,
        "own": RefusalReason.RANK_NOT_LOWER,
    }
    assert pool.refusals("theirs")["own"] is RefusalReason.OTHER_POLICY


# preempted waiters, in classes


@pytest.mark.parametrize("component", ["a", "b"], ids=["own", "class"])
def test_a_preempted_one_takes_by_rank_only_what_was_granted_after(component: str) -> None:
    pool = two(discipline="classes").runs("before", component, gpu=2).runs("after", component, gpu=2)
    pool.waits("w", "a", gpu=2, preemption_class=9, preempted_fence=1)
    assert pool.victims() == {"after": "priority"}
    assert RefusalReason.GRANTED_BEFORE in pool.refusals("before").values()
    pool.waiters.clear()
    assert pool.waits("x", "a", gpu=3, preemption_class=9, preempted_fence=1).victims("x") == {}


def test_a_preempted_request_reclaims_its_share_from_any_policy() -> None:
    pool = two({"reserved": {"gpu": 2}}, discipline="classes").runs("v", "b", gpu=4)
    assert pool.waits("w", "a", gpu=2, preemption_class=9, preempted_fence=1).victims() == {"v": "reclaim"}


def test_in_reserved_an_earlier_preemption_does_not_matter() -> None:
    assert two(HIGH, LOW).runs("v", "b", gpu=4).waits("w", "a", gpu=2, preempted_fence=1).victims() == {"v": "priority"}


# priority_first


def test_priority_first_drops_borrowed_from_rank() -> None:
    pool = two(HIGH, {**LOW, "reserved": {"gpu": 4}}, order="priority_first").runs("v", "b", gpu=4).waits("w", "a", gpu=1)
    assert pool.victims() == {"v": "priority"}
    assert pool.preempt_step().borrowed_conditions == ()


def test_priority_first_drops_borrowed_from_own() -> None:
    pool = a_pool(gpu=2).with_settings(order="priority_first").policy("t", reserved={"gpu": 1})
    pool.runs("v", "t", gpu=1).runs("same", "t", gpu=1, preemption_class=6)
    assert pool.waits("w", "t", gpu=1, preemption_class=6).victims() == {"v": "priority"}


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
    pool = two({"priority": 5, "reserved": {"gpu": 2}}, {"priority": priority}, order="priority_first", discipline=discipline)
    pool.runs("v", "b", gpu=4, preemption_class=preemption_class).waits("w", "a", gpu=2)
    assert pool.victims() == ({"v": "reclaim"} if taken else {})
    if not taken:
        assert pool.refusals("v")["reclaim"] is RefusalReason.RANK_HIGHER


# profiles


def test_a_service_gives_only_what_it_borrowed_even_to_class_ten() -> None:
    service = {"reserved": {"gpu": 2}, "profile": "service"}
    pool = two(HIGH, service, discipline="classes").runs("in", "b", gpu=2).runs("out", "b", gpu=2)
    assert pool.waits("w", "a", gpu=2, preemption_class=10).victims() == {"out": "sensitive"}
    pool.waiters.clear()
    assert pool.waits("w", "a", gpu=4, preemption_class=10).victims() == {}
    assert pool.refusals("in")["class"] is RefusalReason.SERVICE_IN_SHARE
    assert pool.with_settings(order="priority_first").victims() == {}


def test_a_service_gives_nothing_in_share_to_its_own_policy_either() -> None:
    pool = own(2, 9, discipline="classes")
    pool.accounts["policy:t"]["profile"] = "service"
    assert pool.victims() == {}
    pool.waiters.clear()
    assert pool.waits("w", "t", gpu=2, preemptible=False, preemption_class=9).victims() == {}
    assert set(pool.refusals("new").values()) == {RefusalReason.SAME_POLICY, RefusalReason.SERVICE_IN_SHARE}


def test_a_sensitive_profile_is_never_a_victim_and_profiles_count_in_classes_only() -> None:
    for profile in ("sensitive", "service"):
        for discipline, expected in (("classes", {}), ("reserved", {"v": "priority"})):
            victim = {**LOW, "reserved": {"gpu": 4}, "profile": profile}
            pool = two(HIGH, victim, order="priority_first", discipline=discipline)
            assert pool.runs("v", "b", gpu=4).waits("w", "a", gpu=1, preemption_class=9).victims() == expected


# protected


@pytest.mark.parametrize(
    ("terms", "victim", "why"),
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
def test_the_protected(terms: dict[str, Any], victim: dict[str, Any], why: RefusalReason | None) -> None:
    reserved = {"gpu": 4} if not victim.get("preemptible", True) else {}
    pool = two(HIGH, {**LOW, "reserved": reserved}, **terms).runs("v", "b", gpu=4, **victim)
    pool.waits("w", "a", gpu=1, preemption_class=9, chain="x")
    assert pool.victims() == ({} if why else {"v": "priority"})
    if why:
        assert pool.refusals("v") == {None: why}


def test_no_chain_is_no_chain_in_common() -> None:
    assert two(HIGH, LOW).runs("v", "b", gpu=4).waits("w", "a", gpu=1).victims() == {"v": "priority"}


def test_class_ten_is_not_even_reclaimed() -> None:
    pool = two({"reserved": {"gpu": 4}}, LOW).runs("v", "b", gpu=4, preemption_class=10).waits("w", "a", gpu=1)
    assert pool.victims() == {}


# triggers


@pytest.mark.parametrize(
    ("waiter", "trigger"), [({"preemption_class": 10}, "sensitive"), ({}, "reclaim"), ({"preemption_class": 9}, "reclaim")]
)
def test_where_several_rules_allow_it(waiter: dict[str, Any], trigger: str) -> None:
    pool = two({**HIGH, "reserved": {"gpu": 2}}, LOW).runs("v", "b", gpu=4).waits("w", "a", gpu=2, **waiter)
    assert pool.victims() == {"v": trigger}


# the stack


def test_the_stack_has_fixed_work_first_then_the_order_of_grant() -> None:
    pool = two(HIGH, {**LOW, "reserved": {"gpu": 3}}, 6).runs("one", "b", gpu=2).runs("two", "b", gpu=2)
    pool.runs("fixed", "b", gpu=2, preemptible=False).waits("w", "a", gpu=4)
    assert pool.victims() == {"one": "priority", "two": "priority"}
    assert [rests.max_stack_exits for rests in pool.preempt_step().borrowed_conditions] == [2, 0]


def test_victims_are_not_in_the_stack() -> None:
    pool = two(HIGH, {**LOW, "reserved": {"gpu": 2}}, 4).runs("gone", "b", gpu=2, leaving_for="x").runs("v", "b", gpu=2)
    pool.holds("x", "a", gpu=2).waits("w", "a", gpu=2)
    assert pool.victims() == {}
    assert pool.refusals("v")["priority"] is RefusalReason.IN_SHARE


# share keys


def test_a_key_without_reservations_is_taken_from_what_is_not_in_share() -> None:
    pool = a_pool(gpu=4, slot=2).policy("a", priority=9).policy("b", reserved={"gpu": 2})
    pool.runs("in", "b", gpu=2, slot=1).runs("out", "b", gpu=1, slot=1).waits("w", "a", slot=1)
    assert pool.victims() == {"out": "priority"}
    pool.waiters.clear()
    assert pool.waits("w", "a", slot=2).victims() == {}


def test_an_allocation_without_share_keys_is_never_in_share() -> None:
    pool = a_pool(gpu=4, slot=1).policy("a", priority=9).policy("b", reserved={"gpu": 4}).runs("v", "b", slot=1)
    pool.waits("w", "a", slot=1)
    assert pool.victims() == {"v": "priority"}
    assert pool.preempt_step().borrowed_conditions == ()


def test_borrowed_on_a_key_that_is_not_short_does_not_count() -> None:
    pool = a_pool(gpu=4, mem=9).policy("a", priority=9).policy("b", reserved={"gpu": 4, "mem": 1})
    pool.runs("v", "b", gpu=4, mem=5).waits("w", "a", gpu=1)
    assert pool.victims() == {}


# groups


def departments(**terms: Any) -> PoolBuilder:
    """Return two departments with half of a pool each, and two teams in each."""
    pool = a_pool(gpu=8).with_settings(**terms).group("x", reserved={"gpu": 4}).group("y", reserved={"gpu": 4})
    return (
        pool.policy("x1", "x", priority=1, reserved={"gpu": 2})
        .policy("x2", "x", priority=1, reserved={"gpu": 2})
        .policy("y1", "y", priority=9, reserved={"gpu": 2})
        .policy("y2", "y", priority=9, reserved={"gpu": 2})
    )


def test_what_a_team_borrows_within_its_departments_share_is_not_borrowed_from_another() -> None:
    pool = departments().runs("v", "x1", gpu=4).runs("o", "y1", gpu=4).waits("w", "y2", gpu=2)
    assert pool.victims() == {"o": "reclaim"}
    assert pool.refusals("v") == {
        "reclaim": RefusalReason.SHARE_NOT_UNUSED,
        "priority": RefusalReason.IN_SHARE,
        "own": RefusalReason.OTHER_POLICY,
    }


def test_inside_a_department_its_own_side_is_the_team() -> None:
    pool = departments().runs("v", "x1", gpu=4).runs("o", "y1", gpu=4).waits("w", "x2", gpu=2)
    assert pool.victims() == {"v": "reclaim"}
    assert pool.preempt_step().unused_share_accounts == ("policy:x2",)


def test_across_departments_both_the_team_and_the_department_need_an_unused_share() -> None:
    pool = departments().runs("x", "x1", gpu=2).runs("v", "y1", gpu=6).waits("w", "x2", gpu=2)
    assert pool.victims() == {"v": "reclaim"}
    assert pool.preempt_step().unused_share_accounts == ("policy:x2", "group:x")
    assert [rests.account for rests in pool.preempt_step().borrowed_conditions] == ["policy:y1", "group:y"]


def test_in_a_group_what_is_in_share_at_its_policy_comes_before_the_order_of_grant() -> None:
    pool = departments().runs("early", "y1", gpu=4).runs("late", "y2", gpu=2).runs("o", "x1", gpu=2)
    assert pool.waits("w", "x2", gpu=2).victims() == {"early": "reclaim"}


# the stacks move with requests that leave and return


@given(st.data())
def test_stacks_moved_along_are_stacks_made_anew(data: st.DataObject) -> None:
    pool = departments(discipline="classes").policy("z", reserved={"gpu": 3, "mem": 1})
    pool.capacity = {"gpu": 99, "mem": 99}
    toggles = st.tuples(st.sampled_from(["x1", "x2", "y1", "y2", "z"]), st.integers(0, 3), st.integers(0, 2), st.booleans())
    for number, (component, gpu, mem, fixed) in enumerate(data.draw(st.lists(toggles, min_size=1, max_size=14))):
        amounts = {key: units for key, units in (("gpu", gpu), ("mem", mem)) if units}
        pool.runs(f"r{number:02}", component, preemptible=not fixed, **amounts)
    shares, removed = _shares(pool), set[str]()
    for name in data.draw(st.lists(st.sampled_from([each.id for each in pool.allocations]), max_size=20)):
        allocation = next(each for each in pool.allocations if each.id == name)
        (shares.restore if name in removed else shares.remove)(allocation)
        removed ^= {name}
    pool.allocations = [each for each in pool.allocations if each.id not in removed]
    anew = _shares(pool)
    for allocation in pool.allocations:
        now, made = shares.class_of[allocation.id].traits, anew.class_of[allocation.id].traits
        assert now == made
        for account in pool.path(allocation.component)[:-1]:
            assert shares.units_beyond_reserved(allocation, account) == anew.units_beyond_reserved(allocation, account)
    for component in ("x1", "x2", "y1", "y2", "z"):
        members = {name: kind for kind in shares.policy_allocations(component).classes for name in kind.members}
        assert members == {each.id: shares.class_of[each.id] for each in pool.allocations if each.component == component}


def _shares(pool: PoolBuilder) -> BorrowingIndex:
    snapshot = pool.snapshot()
    tree = AccountTree(snapshot.accounts)
    shares = BorrowingIndex(snapshot, tree, Protection(snapshot.settings, snapshot.now_ms).reason, frozenset())
    for component in tree.paths:
        shares.policy_allocations(component)
    return shares


# shares that are unused, keys that are short


def test_preemptible_work_takes_nothing_of_equal_rank_for_its_unused_share() -> None:
    pool = a_pool(gpu=4).policy("t", reserved={"gpu": 2}).policy("o").runs("mine", "t", gpu=1)
    pool.runs("safe", "o", gpu=3, preemption_class=10)
    assert pool.waits("w", "t", gpu=1).victims() == {}


def test_an_allocation_without_a_short_key_is_refused_for_that() -> None:
    pool = a_pool(gpu=2, lic=2).policy("low", priority=1).policy("high", priority=9)
    pool.runs("gpu", "low", gpu=2).runs("lic", "low", lic=2).waits("w", "high", gpu=1)
    assert pool.refusals("lic") == {None: RefusalReason.HOLDS_NOTHING_SHORT}


def test_in_a_group_only_what_is_in_share_on_every_key_comes_first() -> None:
    both = {"gpu": 2, "mem": 2}
    pool = a_pool(gpu=8, mem=4).group("x", reserved=both).group("y", reserved=both).policy("x1", "x", reserved=both)
    pool.policy("y1", "y", reserved={"gpu": 2}).policy("y2", "y", reserved=both)
    pool.runs("early", "y1", gpu=2, mem=2).runs("late", "y2", gpu=2, mem=2).waits("w", "x1", gpu=1, mem=2)
    assert pool.victims() == {"early": "reclaim"}
