"""The oracle itself, by hand: small pools whose answer anybody can tell from the rules."""

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
    gpu: int = 8, policies: Mapping[str, Shares] | None = None, groups: Mapping[str, Shares] | None = None, **said: Any
) -> PoolLedger:
    """A pool of that many gpu; policies and groups by name, each with what was set."""
    more = said.pop("capacity", {})
    accounts = {"pool": AccountSnapshot("pool", None, {}, {"gpu": gpu, **more}, **EMPTY)}
    for kind, named in (("group", groups or {}), ("policy", policies or {})):
        for name, shares in named.items():
            full = f"{kind}:{name}"
            accounts[full] = AccountSnapshot(full, **{"parent": "pool", "reserved": {}, "limit": {}, **EMPTY, **shares})
    return PoolLedger(PlannerSettings(**said), accounts)


def ask(book: PoolLedger, component: str, gpu: int = 0, **said: Any) -> str:
    """Submit, by the id it has."""
    amounts = {**({"gpu": gpu} if gpu else {}), **said.pop("more", {})}
    id_ = book.submit(ModelRequest(component, amounts, **said))
    assert id_
    return id_


def quieten(book: PoolLedger, *, at_once: bool = True) -> None:
    """Plan and take the steps until there are none."""
    for _ in range(20):
        if not (found := plan_steps(book.snapshot())):
            return
        book.take_step(found[0], at_once=at_once)
    raise AssertionError("no end to it")


def held(book: PoolLedger) -> set[str]:
    """Who holds units and is not leaving."""
    return {one.id for one in book.allocations.values() if one.leaving_for is None}


LOW_HIGH: dict[str, Shares] = {"low": {"priority": 1}, "high": {"priority": 9}}


def test_an_owner_gets_its_share_back_from_a_borrower_of_higher_priority_and_keeps_it() -> None:
    book = a_pool(8, {"low": {"priority": 1, "reserved": {"gpu": 4}}, "high": {"priority": 100, "reserved": {"gpu": 4}}})
    kept, lost, owner = ask(book, "high", 4), ask(book, "high", 4), ask(book, "low", 4)
    (stop,) = plan_steps(book.snapshot())
    assert isinstance(stop, Preempt)
    assert [(victim.request, victim.trigger) for victim in stop.victims] == [(lost, Trigger.RECLAIM)]
    quieten(book)
    assert held(book) == {kept, owner}


def test_a_borrower_takes_nothing_from_an_owner_unless_priority_goes_first() -> None:
    for order, stopped in (("share_first", False), ("priority_first", True)):
        book = a_pool(8, {"low": {"priority": 1, "reserved": {"gpu": 8}}, "high": {"priority": 100}}, order=order)
        low, high = ask(book, "low", 8), ask(book, "high", 1)
        quieten(book)
        assert held(book) == ({high} if stopped else {low})


def test_only_what_is_borrowed_can_be_taken_and_nobody_is_stopped_when_that_is_not_enough() -> None:
    sandbox, prod = {"priority": 10, "reserved": {"gpu": 4}}, {"priority": 100, "reserved": {"gpu": 2}}
    book = a_pool(8, {"sandbox": sandbox, "prod": prod})
    first, second, third = (ask(book, "sandbox", 2) for _ in range(3))
    ask(book, "prod", 6)
    assert not plan_steps(book.snapshot())
    served = ask(book, "prod", 4)
    quieten(book)
    assert held(book) == {first, second, served}
    assert third in book.waiters


def test_a_small_one_taken_first_is_given_back() -> None:
    book = a_pool(8, LOW_HIGH)
    four, three, one, waiter = ask(book, "low", 4), ask(book, "low", 3), ask(book, "low", 1), ask(book, "high", 3)
    oracle = Oracle(book.snapshot())
    (asking,) = oracle.queue()
    assert [each.id for each in oracle.candidates(asking)] == [one, three, four]
    assert [each.id for each in oracle.choice(asking, None) or ()] == [three]
    victims = [book.allocations[one], book.allocations[three]]
    assert [each.id for each in oracle.superfluous(asking, victims)] == [one]
    quieten(book)
    assert held(book) == {four, one, waiter}


def test_others_that_do_not_hold_the_short_key_are_not_touched() -> None:
    book = a_pool(2, LOW_HIGH, capacity={"licence": 2})
    licence, gpu, waiter = ask(book, "low", more={"licence": 2}), ask(book, "low", 2), ask(book, "high", 1)
    quieten(book)
    assert held(book) == {licence, waiter}
    assert gpu in book.waiters


def test_who_is_in_share_is_not_taken_on_a_key_that_nobody_reserves() -> None:
    book = a_pool(6, {"a": {"priority": 1, "reserved": {"gpu": 4}}, "b": {"priority": 2}}, capacity={"mem": 4})
    ask(book, "b", 6, more={"mem": 1}, preemption_class=7)
    owner = ask(book, "a", 3, more={"mem": 3})
    quieten(book)
    ask(book, "b", 3, more={"mem": 2})
    quieten(book)
    assert held(book) == {owner}


def test_what_asks_none_of_the_share_keys_is_borrowed() -> None:
    book = a_pool(4, {"owner": {"priority": 1, "reserved": {"gpu": 2}}, "cpu": {"priority": 9}}, capacity={"slot": 2})
    first, second = (ask(book, "cpu", more={"slot": 1}) for _ in range(2))
    owner = ask(book, "owner", 2, more={"slot": 1})
    quieten(book)
    assert held(book) == {first, owner}
    assert second in book.waiters


def test_within_a_policy_a_higher_class_goes_before_a_lower_one_if_it_then_lies_within_the_share() -> None:
    book = a_pool(2, {"t": {"priority": 1, "reserved": {"gpu": 2}}})
    lost, kept = ask(book, "t", 1, preemption_class=4), ask(book, "t", 1, preemption_class=6)
    ask(book, "t", 1, preemption_class=4)
    served = ask(book, "t", 1, preemption_class=6)
    quieten(book)
    assert held(book) == {kept, served}
    assert lost in book.waiters


def test_own_work_in_share_does_not_give_way_to_a_mate_that_must_borrow() -> None:
    book = a_pool(4, {"high": {"priority": 9}, "t": {"priority": 1, "reserved": {"gpu": 2}}})
    ask(book, "high", 4)
    ask(book, "t", 3, preemption_class=7)
    small = ask(book, "t", 2, preemption_class=3)
    quieten(book)
    assert held(book) == {small}


def test_fixed_work_takes_its_share_at_the_limit_of_its_policy_and_nothing_beyond() -> None:
    book = a_pool(8, {"t": {"priority": 1, "reserved": {"gpu": 2}, "limit": {"gpu": 3}}})
    soft = ask(book, "t", 1)
    ask(book, "t", 2)
    fixed = ask(book, "t", 2, preemptible=False)
    (stop,) = plan_steps(book.snapshot())
    assert isinstance(stop, Preempt)
    assert [victim.trigger for victim in stop.victims] == [Trigger.RECLAIM]
    quieten(book)
    ask(book, "t", 1, preemptible=False, preemption_class=9)
    assert not plan_steps(book.snapshot())
    assert held(book) == {soft, fixed}


def test_a_team_takes_its_share_back_inside_its_department() -> None:
    groups = {"research": {"reserved": {"gpu": 6}, "limit": {"gpu": 6}}}
    team: Shares = {"parent": "group:research", "priority": 1, "reserved": {"gpu": 3}}
    book = a_pool(12, {"vision": team, "speech": team, "other": {"priority": 1, "reserved": {"gpu": 2}}}, groups)
    kept, lost, other, speech = ask(book, "vision", 3), ask(book, "vision", 3), ask(book, "other", 6), ask(book, "speech", 3)
    quieten(book)
    assert held(book) == {kept, other, speech}
    assert lost in book.waiters


def test_the_cheapest_goes_and_not_the_lowest_in_class() -> None:
    book = a_pool(2, {"t": {"priority": 1}}, discipline="classes", max_victims=3)
    dear = ask(book, "t", 1, preemption_class=1, checkpoint="manual", walltime_s=86_400)
    cheap = ask(book, "t", 1, preemption_class=3, checkpoint="auto", checkpoint_minutes=1, walltime_s=86_400)
    waiter = ask(book, "t", 1, preemption_class=8)
    oracle = Oracle(book.snapshot())
    assert [oracle.cost(book.allocations[id_]) for id_ in (dear, cheap)] == [11, 2]
    quieten(book)
    assert held(book) == {dear, waiter}
    assert not plan_steps(book.snapshot())


def test_what_a_cost_is_made_of() -> None:
    book = a_pool(2, {"t": {"profile": "training"}}, discipline="classes")
    id_ = ask(book, "t", 2, checkpoint="auto", walltime_s=6_000)
    book.now_ms += 50 * MINUTE_MS
    assert Oracle(book.snapshot()).cost(book.allocations[id_]) == 5 * 2 * 3 + 50 * 2 + 2 * 50
    book.save(id_)
    book.now_ms += 45 * MINUTE_MS
    assert Oracle(book.snapshot()).cost(book.allocations[id_]) == 30 + 45 * 2 + 2 * 1000
    book.now_ms += 10 * MINUTE_MS
    assert Oracle(book.snapshot()).cost(book.allocations[id_]) == 30 + 55 * 2


def test_one_large_one_instead_of_four_small_ones_or_nobody() -> None:
    for large, most, stopped in ((4, 3, 1), (0, 3, 0), (0, 4, 4)):
        book = a_pool(4 + large, {"t": {}}, discipline="classes", max_victims=most)
        if large:
            ask(book, "t", large, preemption_class=2, checkpoint="manual")
        for _ in range(4):
            ask(book, "t", 1, preemption_class=1, checkpoint="auto")
        waiter = ask(book, "t", 4, preemption_class=8)
        found = plan_steps(book.snapshot())
        assert [len(step.victims) for step in found if isinstance(step, Preempt)] == ([stopped] if stopped else [])
        assert waiter in book.waiters


def test_a_preempted_one_takes_by_class_only_from_what_was_granted_after() -> None:
    book = a_pool(2, {"t": {}}, discipline="classes")
    dear = ask(book, "t", 1, preemption_class=1, checkpoint="manual")
    ask(book, "t", 1, preemption_class=3)
    waiter = ask(book, "t", 1, preemption_class=8)
    quieten(book)
    assert held(book) == {dear, waiter}


def test_a_service_is_taken_from_borrowed_ground_only() -> None:
    policies: dict[str, Shares] = {"svc": {"reserved": {"gpu": 2}, "profile": "service"}, "home": {"reserved": {"gpu": 2}}}
    book = a_pool(4, policies, discipline="classes", max_victims=3)
    kept, lost = (ask(book, "svc", 2, preemption_class=6, checkpoint="auto") for _ in range(2))
    home = ask(book, "home", 2, preemption_class=2)
    quieten(book)
    assert held(book) == {kept, home}
    dearer = ask(book, "home", 2, preemption_class=9, checkpoint="auto")
    quieten(book)
    assert held(book) == {kept, dearer}
    assert lost in book.waiters


def test_several_waiters_are_served_each_by_who_left_for_it() -> None:
    book = a_pool(6, LOW_HIGH)
    first, second, third = (ask(book, "low", 2) for _ in range(3))
    one, other = ask(book, "high", 2), ask(book, "high", 2)
    for step in plan_steps(book.snapshot()):
        book.take_step(step)
    assert not plan_steps(book.snapshot())
    assert {id_: each.leaving_for for id_, each in book.allocations.items()} == {first: None, second: other, third: one}
    book.leave(second)
    assert held(book) == {first, other}
    book.leave(third)
    assert held(book) == {first, other, one}


def test_two_waiters_of_one_policy_do_not_claim_the_same_share() -> None:
    book = a_pool(8, {"low": {"priority": 1, "reserved": {"gpu": 4}}, "high": {"priority": 9}})
    kept = ask(book, "high", 4)
    ask(book, "high", 4)
    ask(book, "low", 3)
    ask(book, "low", 3)
    for step in plan_steps(book.snapshot()):
        book.take_step(step)
    assert held(book) == {kept}
    assert len(book.holds) == 1


def test_what_one_no_longer_needs_goes_on_leaving_for_the_other_that_counted_on_it() -> None:
    book = a_pool(7, LOW_HIGH)
    large, small = ask(book, "low", 3, preemption_class=3), ask(book, "low", 1, preemption_class=4)
    kept, ended = ask(book, "low", 2, preemption_class=6), ask(book, "low", 1, preemption_class=7)
    first, second = ask(book, "high", 1), ask(book, "high", 3)
    for step in plan_steps(book.snapshot()):
        book.take_step(step)
    assert {id_: each.leaving_for for id_, each in book.allocations.items() if each.leaving_for} == {large: first, small: second}
    book.leave(small)
    assert not plan_steps(book.snapshot())
    book.release(ended)
    assert held(book) == {kept, first}
    assert plan_steps(book.snapshot()) == [ReassignVictim(large, 1, second)]


def test_those_who_leave_for_nobody_are_called_back_and_a_hold_nobody_can_fill_ends() -> None:
    book = a_pool(4, {**LOW_HIGH, "peer": {"priority": 9}})
    low = ask(book, "low", 4)
    waiter = ask(book, "high", 4)
    for step in plan_steps(book.snapshot()):
        book.take_step(step)
    gone = PoolLedger(**vars(book))
    gone.waiters, gone.allocations, gone.holds = dict(book.waiters), dict(book.allocations), list(book.holds)
    gone.cancel(waiter)
    assert plan_steps(gone.snapshot()) == [Reprieve(low, 1)]
    shrunk = replace(book.accounts["pool"], limit={"gpu": 3})
    book.accounts["pool"] = shrunk
    assert plan_steps(book.snapshot())[0] == EndHold(waiter)
