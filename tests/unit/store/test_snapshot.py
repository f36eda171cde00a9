"""The snapshot of a pool for a decision: it shows the state of the pool, all of one moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.domain.snapshot import AccountSnapshot, Allocation, HoldSnapshot, PlannerSettings, Waiter
from app.store.plan_store import PlanStore
from app.store.snapshot_reader import UnfinishedWork
from tests.support.world import World

STEP = {"step_run": 1}


def test_without_waiters_and_victims_there_is_no_snapshot(world: World) -> None:
    assert world.plan_store.read_snapshot(world.workspace, "p") is None
    world.pool(gpu=4)
    world.policy("low")
    world.policy("high", priority=1)
    victim = world.submit("low", gpu=4)
    assert world.snapshot().is_watched  # it has changed
    world.settle()
    assert world.plan_store.read_snapshot(world.workspace, "p") is None
    waiter = world.submit("high", gpu=4)
    assert [each.id for each in world.snapshot().waiters] == [waiter.id]
    world.preempt(waiter, victim)
    world.cancel(waiter)
    assert (world.snapshot().waiters, [each.leaving_for for each in world.snapshot().allocations]) == ((), [""])
    world.reprieve(victim)
    assert world.plan_store.read_snapshot(world.workspace, "p") is None


def test_nothing_is_decided_while_work_is_left(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    for _ in range(3):
        world.submit(gpu=1)
    world.submit(gpu=1, mcpu=1)
    world.call("update_pool", chunk=1, name="p", description="", capacity="", settings='{"discipline":"classes"}')
    with pytest.raises(UnfinishedWork):
        world.snapshot()
    while world.ledger.resume_unfinished(world.workspace):
        pass
    assert len(world.snapshot().waiters) == 3


def test_it_is_what_is_there(world: World) -> None:
    world.pool(gpu=8)
    world.group("g", reserved={"gpu": 4}, limit={"gpu": 6})
    world.policy("low")
    world.policy("high", priority=3, group="g", reserved={"gpu": 3}, limit={"gpu": 7}, profile="service")
    began = world.clock.now_ms()
    low = world.submit("low", gpu=3, checkpoint="auto", checkpoint_minutes=9, walltime_s=900, preemption_class=2)
    fixed = world.submit("high", gpu=2, preemptible=False, labels={"preemption_group": "one"})
    world.clock.advance(7)
    last = world.submit("low", gpu=3)
    world.checkpoint(low, "completed")
    saved = world.clock.now_ms()
    waiter = world.submit("high", gpu=3, preemption_class=7)
    small = world.submit("low", gpu=1, labels={"preemption_group": "one"})
    world.preempt(waiter, last)
    world.clock.advance(1)
    snapshot = world.snapshot()
    assert (snapshot.pool, snapshot.now_ms, snapshot.rules_version) == (
        "p",
        world.clock.now_ms(),
        world.client.hget("pk:{test}:pool:p", "rules"),
    )
    assert (snapshot.settings, snapshot.preemptions_last_minute, snapshot.last_decision_ms, dict(snapshot.preferred_pools)) == (
        PlannerSettings(), 1, saved, {"orchestrator/low": (), "orchestrator/high": ()},
    )  # fmt: skip
    common: dict[str, Any] = {"component": "orchestrator/low", "amounts": {"gpu": 3, **STEP}, "preemptible": True}
    none: dict[str, Any] = {"checkpoint": "none", "checkpoint_minutes": None, "walltime_s": None}
    assert list(snapshot.allocations) == [
        Allocation(
            low.id, **common, fence=1, preemption_class=2, checkpoint="auto", checkpoint_minutes=9, walltime_s=900,
            granted_ms=began, checkpointed_ms=saved,
        ),
        Allocation(
            fixed.id, "orchestrator/high", {"gpu": 2, **STEP}, 2, preemptible=False, preemption_class=5, granted_ms=began,
            chain=snapshot.allocations[1].chain, **none,
        ),
        Allocation(last.id, **common, fence=3, preemption_class=5, granted_ms=saved, leaving_for=waiter.id, **none),
    ]  # fmt: skip
    assert tuple(replace(each, queue_score=0) for each in snapshot.waiters) == (
        Waiter(small.id, "orchestrator/low", {"gpu": 1, **STEP}, True, 5, small.number, snapshot.allocations[1].chain),
    )
    assert snapshot.allocations[1].chain is not None
    owner = Waiter(waiter.id, "orchestrator/high", {"gpu": 3, **STEP}, True, 7, waiter.number)
    assert tuple(replace(hold, owner=replace(hold.owner, queue_score=0)) for hold in snapshot.holds) == (
        HoldSnapshot(owner, {}),
    )
    assert snapshot.accounts["pool"].settings["fair_share_tolerance"] == "0.8"
    plain = {name: replace(account, settings={}) for name, account in snapshot.accounts.items()}
    assert plain == accounts_of_it()


def accounts_of_it() -> dict[str, AccountSnapshot]:
    """Return the accounts of that pool: one of three victims is leaving, and its freed units are kept for its owner."""
    low, high = {"gpu": 6, "step_run": 2}, {"gpu": 2, "step_run": 1}
    units = {"gpu": 3, "step_run": 1}
    return {
        "pool": AccountSnapshot("pool", None, {}, {"gpu": 8}, {"gpu": 8, "step_run": 3}, high, {"gpu": 0, "step_run": 0}, {}),
        "group:g": AccountSnapshot("group:g", "pool", {"gpu": 4}, {"gpu": 6}, high, high, units, {"gpu": 3}, creation_number=1),
        "policy:orchestrator/low": AccountSnapshot(
            "policy:orchestrator/low", "pool", {}, {}, low, {}, {}, {"gpu": 3}, creation_number=2
        ),
        "policy:orchestrator/high": AccountSnapshot(
            "policy:orchestrator/high",
            "group:g",
            {"gpu": 3},
            {"gpu": 7},
            high,
            high,
            units,
            {},
            3,
            "service",
            creation_number=3,
        ),
    }


def test_what_ever_left_a_stack_is_counted_where_there_are_shares(world: World) -> None:
    world.pool(gpu=8, tpu=1)
    world.group("g")
    world.policy("low", group="g")
    world.policy("high", priority=1, reserved={"gpu": 2})

    def back() -> dict[str, int]:
        columns = {name.partition(":")[2]: dict(account.stack_exits) for name, account in world.snapshot().accounts.items()}
        assert all(set(units) <= {"gpu"} for units in columns.values())
        return {name: units["gpu"] for name, units in columns.items() if units}

    first, other = world.submit("low", gpu=3, tpu=1), world.submit("low", gpu=5)
    waiter = world.submit("high", gpu=3)
    assert back() == {}
    world.preempt(waiter, first)
    assert back() == {"g": 3, "orchestrator/low": 3}
    world.release(first, outcome="vacated")
    assert back() == {"g": 6, "orchestrator/low": 6}, "when it was told, and when it had left"
    world.release(other)
    world.submit("high", gpu=8)
    assert back() == {"g": 11, "orchestrator/low": 11}


def test_waiters_come_in_queue_order(world: World) -> None:
    world.pool(gpu=8)
    world.policy("low")
    world.policy("mid", priority=2)
    world.policy("high", priority=3, reserved={"gpu": 2})
    world.submit("mid", gpu=8)
    asks = [("low", 1, 5), ("high", 3, 5), ("mid", 2, 9), ("mid", 1, 9), ("high", 2, 0), ("low", 1, 8), ("high", 3, 6)]
    for name, gpu, class_ in asks:
        world.submit(name, gpu=gpu, preemption_class=class_)
    assert [each.id for each in world.snapshot().waiters] == world.queue()
    world.update_pool(settings={"discipline": "classes", "order": "priority_first"})
    assert [each.id for each in world.snapshot().waiters] == world.queue()


def test_the_position_of_the_owner_of_a_hold_is_in_the_snapshot(world: World) -> None:
    world.pool(gpu=4)
    world.policy("low")
    world.policy("high", priority=1, reserved={"gpu": 2})
    victim = world.submit("low", gpu=4)
    for name, gpu in (("high", 3), ("low", 1), ("high", 2)):
        world.submit(name, gpu=gpu)
    owner = world.submit("high", gpu=4)
    world.submit("high", gpu=4, preemption_class=1)
    world.preempt(owner, victim)
    snapshot = world.snapshot()
    requests = [*snapshot.waiters, *(hold.owner for hold in snapshot.holds)]
    assert [each.id for each in sorted(requests, key=lambda each: (each.queue_score, each.submission_number))] == world.queue()


def test_of_one_shape_and_class_the_first_eight_are_shown(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    world.submit(gpu=1)
    few, many = ([world.submit(gpu=1, preemption_class=rank).id for _ in range(10)] for rank in (6, 3))
    other = world.submit(gpu=1, mcpu=1)
    assert [each.id for each in world.snapshot().waiters] == [*few[:8], other.id, *many[:8]]


def test_owners_of_holds_and_fixed_work_without_a_share_are_no_waiters(world: World) -> None:
    for pool in ("p", "q"):
        world.pool(pool, gpu=2)
        world.policy("low", pool)
        world.policy("high", pool, priority=1, reserved={"gpu": 1})
    there, here = world.submit("low", gpu=2), world.submit("low", gpu=2)
    assert (there.pool, here.pool) == ("p", "q")
    owner, other = world.submit("high", gpu=2), world.submit("high", gpu=1)
    world.preempt(owner, here, pool="q")
    for pool, owners in (("p", []), ("q", [owner.id])):
        snapshot = world.snapshot(pool)
        assert ([each.id for each in snapshot.waiters], [hold.owner.id for hold in snapshot.holds]) == ([other.id], owners)
    world.release(there)
    fixed, late = (world.submit("high", gpu=1, preemptible=False) for _ in range(2))
    assert world.status(other, fixed, late) == ["allocated", "allocated", "queued"]
    assert [each.id for each in world.snapshot().waiters] == []


def test_what_was_brought_is_shown_account_by_account(world: World) -> None:
    world.pool(gpu=8)
    world.group("g")
    world.policy("low")
    world.policy("in", group="g")
    world.policy("high", priority=1, group="g")
    outside, inside = world.submit("low", gpu=4, mcpu=5), world.submit("in", gpu=3)
    last = world.submit("low", gpu=1)
    waiter = world.submit("high", gpu=8)
    world.preempt(waiter, outside, inside, last)
    assert world.snapshot().holds[0].freed_units == {}
    world.release(inside)
    assert world.snapshot().holds[0].freed_units == {"group:g": {"gpu": 3, **STEP}, "pool": {"gpu": 3, **STEP}}
    world.release(outside, outcome="vacated")
    assert world.snapshot().holds[0].freed_units == {"group:g": {"gpu": 3, **STEP}, "pool": {"gpu": 7, "step_run": 2}}


def test_holds_come_in_the_order_in_which_they_were_given(world: World) -> None:
    world.pool(gpu=6)
    world.policy("low")
    world.policy("high", priority=1)
    victims = [world.submit("low", gpu=2) for _ in range(3)]
    waiters = [world.submit("high", gpu=2, preemption_class=rank) for rank in (3, 9, 6)]
    for waiter, victim in zip(waiters, victims, strict=True):
        world.preempt(waiter, victim)
    assert [hold.owner.id for hold in world.snapshot().holds] == [waiter.id for waiter in waiters]


def test_the_pools_that_a_component_would_rather_have(world: World) -> None:
    for name, priority in (("a", 1), ("b", 9), ("c", 5), ("p", 5)):
        world.pool(name, gpu=1)
        world.policy(pool=name, priority=priority)
        world.submit(gpu=1)
    world.policy("other")
    world.submit(gpu=1)
    world.submit("other", gpu=1)
    assert dict(world.snapshot().preferred_pools) == {"orchestrator/t": ("b", "c"), "orchestrator/other": ()}


def test_the_last_preemption_of_a_waiter_is_given_as_a_fence(world: World) -> None:
    world.pool(gpu=2, settings={"grace_s": 0})
    world.policy("low")
    world.policy("high", priority=1)
    world.pool("q", gpu=2)
    world.policy("elsewhere", "q")
    victim, _ = world.submit("low", gpu=2), world.submit("elsewhere", gpu=2)
    waiter = world.submit("high", gpu=2)
    assert [each.preempted_fence for each in world.snapshot().waiters] == [None]
    world.preempt(waiter, victim)
    assert [(each.id, each.preempted_fence) for each in world.snapshot().waiters] == [(victim.id, 2)]


@pytest.mark.parametrize(
    ("settings", "terms"),
    [
        ({}, PlannerSettings()),
        ({"discipline": "classes"}, PlannerSettings("classes", near_completion_s=300, max_victims=3)),
        ({"discipline": "classes", "near_completion_s": 0, "max_victims": 0}, PlannerSettings("classes")),
        (
            {
                "order": "priority_first", "queueing": "strict", "near_completion_s": 7, "min_runtime_s": 8, "max_victims": 9,
                "max_preemptions_per_minute": 0, "backoff_s": 10, "cost_key": "tpu", "value_per_class": 11,
            },
            PlannerSettings("reserved", "priority_first", "strict", 7, 8, 9, 0, 10, "tpu", 11),
        ),
    ],
)  # fmt: skip
def test_the_terms_are_the_settings_with_what_the_discipline_says(
    world: World, settings: dict[str, Any], terms: PlannerSettings
) -> None:
    world.pool(gpu=1, settings=settings)
    world.policy()
    world.submit(gpu=1)
    world.submit(gpu=1)
    assert world.snapshot().settings == terms


def test_the_time_of_the_server_is_used_if_no_clock_is_given(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    world.submit(gpu=1)
    world.submit(gpu=1)
    seconds, micros = (int(part) for part in world.client.time())
    snapshot = PlanStore(world.client).read_snapshot(world.workspace, "p")
    assert snapshot is not None
    assert 0 <= snapshot.now_ms - (seconds * 1000 + micros // 1000) < 60_000
