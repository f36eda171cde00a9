"""The oracle itself, by hand: small pools whose outcome is obvious from the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.domain.plan_steps import EndHold, Preempt, ReassignVictim, Reprieve, Trigger
from app.domain.snapshot import AccountSnapshot, PlannerSettings
from tests.properties.planner.costs import MINUTE_MS
from tests.properties.planner.ledger_model import ModelRequest, PoolLedger
from tests.properties.planner.oracle import Oracle
from tests.properties.planner.oracle_passes import plan_steps

Shares = Mapping[str, Any]
EMPTY: dict[str, Any] = {"used": {}, "used_fixed": {}, "units_on_hold": {}, "stack_exits": {}}


def a_pool(
    gpu: int = 8, policies: Mapping[str, Shares] | None = None, groups: Mapping[str, Shares] | None = None, **settings: Any
) -> PoolLedger:
    """Return a pool of this many gpu; policies and groups by name, each with its settings."""
    more = settings.pop("capacity", {})
    accounts = {"pool": AccountSnapshot("pool", None, {}, {"gpu": gpu, **more}, **EMPTY)}
    for kind, named in (("group", groups or {}), ("policy", policies or {})):
        for name, shares in named.items():
            full = f"{kind}:{name}"
            accounts[full] = AccountSnapshot(full, **{"parent": "pool", "reserved": {}, "limit": {}, **EMPTY, **shares})
    return PoolLedger(PlannerSettings(**settings), accounts)


def submit(ledger: PoolLedger, component: str, gpu: int = 0, **fields: Any) -> str:
    """Submit, by the id it has."""
    amounts = {**({"gpu": gpu} if gpu else {}), **fields.pop("more", {})}
    id_ = ledger.submit(ModelRequest(component, amounts, **fields))
    assert id_
    return id_


def plan_until_quiet(ledger: PoolLedger, *, leaves_at_once: bool = True) -> None:
    """Plan and take the steps until there are none."""
    for _ in range(20):
        if not (steps := plan_steps(ledger.snapshot())):
            return
        ledger.take_step(steps[0], leaves_at_once=leaves_at_once)
    raise AssertionError("no end to it")


def running_ids(ledger: PoolLedger) -> set[str]:
    """Return the requests that hold units and are not preempted."""
    return {allocation.id for allocation in ledger.allocations.values() if allocation.leaving_for is None}


LOW_HIGH: dict[str, Shares] = {"low": {"priority": 1}, "high": {"priority": 9}}


def test_an_owner_gets_its_share_back_from_a_borrower_of_higher_priority_and_keeps_it() -> None:
    ledger = a_pool(8, {"low": {"priority": 1, "reserved": {"gpu": 4}}, "high": {"priority": 100, "reserved": {"gpu": 4}}})
    in_share, borrowed, owner = submit(ledger, "high", 4), submit(ledger, "high", 4), submit(ledger, "low", 4)
    (stop,) = plan_steps(ledger.snapshot())
    assert isinstance(stop, Preempt)
    assert [(victim.request, victim.trigger) for victim in stop.victims] == [(borrowed, Trigger.RECLAIM)]
    plan_until_quiet(ledger)
    assert running_ids(ledger) == {in_share, owner}


def test_a_borrower_takes_nothing_from_an_owner_unless_priority_goes_first() -> None:
    for order, stopped in (("share_first", False), ("priority_first", True)):
        ledger = a_pool(8, {"low": {"priority": 1, "reserved": {"gpu": 8}}, "high": {"priority": 100}}, order=order)
        low, high = submit(ledger, "low", 8), submit(ledger, "high", 1)
        plan_until_quiet(ledger)
        assert running_ids(ledger) == ({high} if stopped else {low})


def test_only_borrowed_work_is_taken_and_none_if_that_is_not_enough() -> None:
    sandbox, prod = {"priority": 10, "reserved": {"gpu": 4}}, {"priority": 100, "reserved": {"gpu": 2}}
    ledger = a_pool(8, {"sandbox": sandbox, "prod": prod})
    first, second, third = (submit(ledger, "sandbox", 2) for _ in range(3))
    submit(ledger, "prod", 6)
    assert not plan_steps(ledger.snapshot())
    served = submit(ledger, "prod", 4)
    plan_until_quiet(ledger)
    assert running_ids(ledger) == {first, second, served}
    assert third in ledger.waiters


def test_a_small_one_taken_first_is_given_back() -> None:
    ledger = a_pool(8, LOW_HIGH)
    four, three, small, waiter = (
        submit(ledger, "low", 4),
        submit(ledger, "low", 3),
        submit(ledger, "low", 1),
        submit(ledger, "high", 3),
    )
    oracle = Oracle(ledger.snapshot())
    (asking,) = oracle.queue()
    assert [each.id for each in oracle.candidates(asking)] == [small, three, four]
    assert [each.id for each in oracle.choice(asking, None) or ()] == [three]
    victims = [ledger.allocations[small], ledger.allocations[three]]
    assert [each.id for each in oracle.superfluous(asking, victims)] == [small]
    plan_until_quiet(ledger)
    assert running_ids(ledger) == {four, small, waiter}


def test_others_that_do_not_hold_the_short_key_are_not_touched() -> None:
    ledger = a_pool(2, LOW_HIGH, capacity={"licence": 2})
    licence, gpu, waiter = submit(ledger, "low", more={"licence": 2}), submit(ledger, "low", 2), submit(ledger, "high", 1)
    plan_until_quiet(ledger)
    assert running_ids(ledger) == {licence, waiter}
    assert gpu in ledger.waiters


def test_work_in_share_is_not_taken_on_a_key_without_reservations() -> None:
    ledger = a_pool(6, {"a": {"priority": 1, "reserved": {"gpu": 4}}, "b": {"priority": 2}}, capacity={"mem": 4})
    submit(ledger, "b", 6, more={"mem": 1}, preemption_class=7)
    owner = submit(ledger, "a", 3, more={"mem": 3})
    plan_until_quiet(ledger)
    submit(ledger, "b", 3, more={"mem": 2})
    plan_until_quiet(ledger)
    assert running_ids(ledger) == {owner}


def test_what_asks_none_of_the_share_keys_is_borrowed() -> None:
    ledger = a_pool(4, {"owner": {"priority": 1, "reserved": {"gpu": 2}}, "cpu": {"priority": 9}}, capacity={"slot": 2})
    first, second = (submit(ledger, "cpu", more={"slot": 1}) for _ in range(2))
    owner = submit(ledger, "owner", 2, more={"slot": 1})
    plan_until_quiet(ledger)
    assert running_ids(ledger) == {first, owner}
    assert second in ledger.waiters


def test_within_a_policy_a_higher_class_goes_before_a_lower_one_if_it_then_lies_within_the_share() -> None:
    ledger = a_pool(2, {"t": {"priority": 1, "reserved": {"gpu": 2}}})
    lower, higher = submit(ledger, "t", 1, preemption_class=4), submit(ledger, "t", 1, preemption_class=6)
    submit(ledger, "t", 1, preemption_class=4)
    served = submit(ledger, "t", 1, preemption_class=6)
    plan_until_quiet(ledger)
    assert running_ids(ledger) == {higher, served}
    assert lower in ledger.waiters


def test_own_work_in_share_does_not_give_way_to_a_mate_that_must_borrow() -> None:
    ledger = a_pool(4, {"high": {"priority": 9}, "t": {"priority": 1, "reserved": {"gpu": 2}}})
    submit(ledger, "high", 4)
    submit(ledger, "t", 3, preemption_class=7)
    small = submit(ledger, "t", 2, preemption_class=3)
    plan_until_quiet(ledger)
    assert running_ids(ledger) == {small}


def test_fixed_work_takes_its_share_at_the_limit_of_its_policy_and_nothing_beyond() -> None:
    ledger = a_pool(8, {"t": {"priority": 1, "reserved": {"gpu": 2}, "limit": {"gpu": 3}}})
    soft = submit(ledger, "t", 1)
    submit(ledger, "t", 2)
    fixed = submit(ledger, "t", 2, preemptible=False)
    (stop,) = plan_steps(ledger.snapshot())
    assert isinstance(stop, Preempt)
    assert [victim.trigger for victim in stop.victims] == [Trigger.RECLAIM]
    plan_until_quiet(ledger)
    submit(ledger, "t", 1, preemptible=False, preemption_class=9)
    assert not plan_steps(ledger.snapshot())
    assert running_ids(ledger) == {soft, fixed}


def test_a_team_takes_its_share_back_inside_its_department() -> None:
    groups = {"research": {"reserved": {"gpu": 6}, "limit": {"gpu": 6}}}
    team: Shares = {"parent": "group:research", "priority": 1, "reserved": {"gpu": 3}}
    ledger = a_pool(12, {"vision": team, "speech": team, "other": {"priority": 1, "reserved": {"gpu": 2}}}, groups)
    older, newer, other, speech = (
        submit(ledger, "vision", 3),
        submit(ledger, "vision", 3),
        submit(ledger, "other", 6),
        submit(ledger, "speech", 3),
    )
    plan_until_quiet(ledger)
    assert running_ids(ledger) == {older, other, speech}
    assert newer in ledger.waiters


def test_the_cheapest_goes_and_not_the_lowest_in_class() -> None:
    ledger = a_pool(2, {"t": {"priority": 1}}, discipline="classes", max_victims=3)
    dear = submit(ledger, "t", 1, preemption_class=1, checkpoint="manual", walltime_s=86_400)
    cheap = submit(ledger, "t", 1, preemption_class=3, checkpoint="auto", checkpoint_minutes=1, walltime_s=86_400)
    waiter = submit(ledger, "t", 1, preemption_class=8)
    oracle = Oracle(ledger.snapshot())
    assert [oracle.cost(ledger.allocations[id_]) for id_ in (dear, cheap)] == [11, 2]
    plan_until_quiet(ledger)
    assert running_ids(ledger) == {dear, waiter}
    assert not plan_steps(ledger.snapshot())


def test_what_a_cost_is_made_of() -> None:
    ledger = a_pool(2, {"t": {"profile": "training"}}, discipline="classes")
    id_ = submit(ledger, "t", 2, checkpoint="auto", walltime_s=6_000)
    ledger.now_ms += 50 * MINUTE_MS
    assert Oracle(ledger.snapshot()).cost(ledger.allocations[id_]) == 5 * 2 * 3 + 50 * 2 + 2 * 50
    ledger.save(id_)
    ledger.now_ms += 45 * MINUTE_MS
    assert Oracle(ledger.snapshot()).cost(ledger.allocations[id_]) == 30 + 45 * 2 + 2 * 1000
    ledger.now_ms += 10 * MINUTE_MS
    assert Oracle(ledger.snapshot()).cost(ledger.allocations[id_]) == 30 + 55 * 2


def test_one_large_victim_instead_of_four_small_ones_or_none() -> None:
    for large, most, stopped in ((4, 3, 1), (0, 3, 0), (0, 4, 4)):
        ledger = a_pool(4 + large, {"t": {}}, discipline="classes", max_victims=most)
        if large:
            submit(ledger, "t", large, preemption_class=2, checkpoint="manual")
        for _ in range(4):
            submit(ledger, "t", 1, preemption_class=1, checkpoint="auto")
        waiter = submit(ledger, "t", 4, preemption_class=8)
        steps = plan_steps(ledger.snapshot())
        assert [len(step.victims) for step in steps if isinstance(step, Preempt)] == ([stopped] if stopped else [])
        assert waiter in ledger.waiters


def test_a_preempted_one_takes_by_class_only_from_what_was_granted_after() -> None:
    ledger = a_pool(2, {"t": {}}, discipline="classes")
    dear = submit(ledger, "t", 1, preemption_class=1, checkpoint="manual")
    submit(ledger, "t", 1, preemption_class=3)
    waiter = submit(ledger, "t", 1, preemption_class=8)
    plan_until_quiet(ledger)
    assert running_ids(ledger) == {dear, waiter}


def test_a_service_is_taken_from_borrowed_ground_only() -> None:
    policies: dict[str, Shares] = {"svc": {"reserved": {"gpu": 2}, "profile": "service"}, "home": {"reserved": {"gpu": 2}}}
    ledger = a_pool(4, policies, discipline="classes", max_victims=3)
    in_share, borrowed = (submit(ledger, "svc", 2, preemption_class=6, checkpoint="auto") for _ in range(2))
    home = submit(ledger, "home", 2, preemption_class=2)
    plan_until_quiet(ledger)
    assert running_ids(ledger) == {in_share, home}
    dearer = submit(ledger, "home", 2, preemption_class=9, checkpoint="auto")
    plan_until_quiet(ledger)
    assert running_ids(ledger) == {in_share, dearer}
    assert borrowed in ledger.waiters


def test_several_waiters_are_served_each_by_its_own_victims() -> None:
    ledger = a_pool(6, LOW_HIGH)
    first, second, third = (submit(ledger, "low", 2) for _ in range(3))
    older, newer = submit(ledger, "high", 2), submit(ledger, "high", 2)
    for step in plan_steps(ledger.snapshot()):
        ledger.take_step(step)
    assert not plan_steps(ledger.snapshot())
    assert {id_: each.leaving_for for id_, each in ledger.allocations.items()} == {first: None, second: newer, third: older}
    ledger.leave(second)
    assert running_ids(ledger) == {first, newer}
    ledger.leave(third)
    assert running_ids(ledger) == {first, newer, older}


def test_two_waiters_of_one_policy_do_not_claim_the_same_share() -> None:
    ledger = a_pool(8, {"low": {"priority": 1, "reserved": {"gpu": 4}}, "high": {"priority": 9}})
    in_share = submit(ledger, "high", 4)
    submit(ledger, "high", 4)
    submit(ledger, "low", 3)
    submit(ledger, "low", 3)
    for step in plan_steps(ledger.snapshot()):
        ledger.take_step(step)
    assert running_ids(ledger) == {in_share}
    assert len(ledger.holds) == 1


def test_what_one_no_longer_needs_goes_on_leaving_for_the_other_that_counted_on_it() -> None:
    ledger = a_pool(7, LOW_HIGH)
    large, small = submit(ledger, "low", 3, preemption_class=3), submit(ledger, "low", 1, preemption_class=4)
    older, ended = submit(ledger, "low", 2, preemption_class=6), submit(ledger, "low", 1, preemption_class=7)
    first, second = submit(ledger, "high", 1), submit(ledger, "high", 3)
    for step in plan_steps(ledger.snapshot()):
        ledger.take_step(step)
    assert {id_: each.leaving_for for id_, each in ledger.allocations.items() if each.leaving_for} == {
        large: first,
        small: second,
    }
    ledger.leave(small)
    assert not plan_steps(ledger.snapshot())
    ledger.release(ended)
    assert running_ids(ledger) == {older, first}
    assert plan_steps(ledger.snapshot()) == [ReassignVictim(large, 1, second)]


def test_orphaned_victims_are_reprieved_and_an_unfillable_hold_ends() -> None:
    ledger = a_pool(4, {**LOW_HIGH, "peer": {"priority": 9}})
    low = submit(ledger, "low", 4)
    waiter = submit(ledger, "high", 4)
    for step in plan_steps(ledger.snapshot()):
        ledger.take_step(step)
    copy = PoolLedger(**vars(ledger))
    copy.waiters, copy.allocations, copy.holds = dict(ledger.waiters), dict(ledger.allocations), list(ledger.holds)
    copy.cancel(waiter)
    assert plan_steps(copy.snapshot()) == [Reprieve(low, 1)]
    shrunk = replace(ledger.accounts["pool"], limit={"gpu": 3})
    ledger.accounts["pool"] = shrunk
    assert plan_steps(ledger.snapshot())[0] == EndHold(waiter)
