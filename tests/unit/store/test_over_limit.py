"""Allocations over a lowered limit: they run on for `over_limit_after_s`, then as many as are over it are evicted.

The planner decides this and Lua checks it, whatever the server is, and each decision is audited: two backends are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.domain.models import Request
from app.domain.plan_steps import EvictOverLimit, OverLimitVictim
from app.domain.snapshot import PoolSnapshot, PublishedStatus
from app.service.reconcile import Reconciler
from app.store.keys import key
from app.store.plan_store import StepResult
from tests.support.audit_findings import findings
from tests.support.world import World, full_component

pytestmark = pytest.mark.backends("fake", "embedded")

EVICT = {"discipline": "fair_share", "patience_s": None, "grace_s": 30}


def reconcile(world: World, after_s: float = 0) -> None:
    """Let time pass, and reconcile until no decision is left. An audit then finds nothing."""
    world.clock.advance(after_s)
    while Reconciler(world.plan_store, world.ledger).run(world.workspace):
        pass
    assert findings(world) == []


def published_status(world: World, account: str = "pool", pool: str = "p") -> PublishedStatus:
    """Return the published shares of an account."""
    return world.snapshot(pool, even_if_idle=True).accounts[account].published


def victim_statuses(world: World, *requests: Request) -> list[str]:
    """Return the status of each request, or `stays` if it is allocated."""
    return ["stays" if status == "allocated" else status for status in world.status(*requests)]


def four_allocations(world: World, **settings: Any) -> list[Request]:
    """Create a pool of eight that one policy holds, without waiters."""
    world.pool(gpu=8, settings={**EVICT, **settings})
    world.policy()
    return [world.submit(gpu=2) for _ in range(4)]


def test_a_shrunk_pool_has_its_newest_stopped_after_its_time_and_not_before(world: World) -> None:
    allocations = four_allocations(world)
    reconcile(world)
    assert not world.snapshot(even_if_idle=True).is_watched
    world.update_pool(gpu=5)
    reconcile(world)
    assert published_status(world).over_ms == world.clock.now_ms()
    assert world.snapshot(even_if_idle=True).is_watched, "time alone can make a decision due"
    reconcile(world, after_s=29.999)
    assert victim_statuses(world, *allocations) == ["stays"] * 4
    reconcile(world, after_s=0.001)
    assert victim_statuses(world, *allocations) == ["stays", "stays", "preempting", "preempting"]
    before = world.state()
    reconcile(world, after_s=1)
    assert world.state() == before, "present victims are counted"
    world.enforce_deadlines(30)
    assert world.used() == {"gpu": 4}
    assert world.status(*allocations) == ["allocated", "allocated", "queued", "queued"]
    reconcile(world)
    assert (published_status(world).over_ms, world.snapshot().is_watched) == (None, False)


@pytest.mark.parametrize("account", ["policy", "group"])
def test_a_lowered_limit_has_what_is_below_it_stopped(world: World, account: str) -> None:
    world.pool(gpu=8, settings=EVICT)
    world.group("g")
    for team in ("a", "b"):
        world.policy(team, group="g")
    world.policy("c")
    allocations = [world.submit(team, gpu=1) for team in ("a", "c", "a", "c", "b", "b", "c")]
    if account == "policy":
        world.policy("a", group="g", limit={"gpu": 1})
    else:
        world.group("g", limit={"gpu": 2})
    reconcile(world)
    reconcile(world, after_s=30)
    victim_indexes = {"policy": {2}, "group": {4, 5}}[account]
    assert victim_statuses(world, *allocations) == ["preempting" if index in victim_indexes else "stays" for index in range(7)]


def test_a_policy_and_its_group_over_their_limits_have_no_more_stopped_than_both_need(world: World) -> None:
    world.pool(gpu=8, settings=EVICT)
    world.group("g")
    for team in ("a", "b"):
        world.policy(team, group="g")
    allocations = [world.submit(team, gpu=1) for team in ("a", "a", "b", "a", "b")]
    world.group("g", limit={"gpu": 3})
    world.policy("a", group="g", limit={"gpu": 2})
    reconcile(world)
    reconcile(world, after_s=30)
    assert victim_statuses(world, *allocations) == ["stays", "stays", "stays", "preempting", "preempting"]


def test_only_what_suffices_is_stopped(world: World) -> None:
    # The newest come first; superfluous victims are then spared.
    world.pool(gpu=8, settings=EVICT)
    world.policy()
    allocations = [world.submit(gpu=gpu) for gpu in (4, 3, 1)]
    world.policy(limit={"gpu": 6})
    reconcile(world)
    reconcile(world, after_s=30)
    assert victim_statuses(world, *allocations) == ["stays", "preempting", "stays"]


def test_what_may_not_be_stopped_is_not_and_stays_over_the_limit(world: World) -> None:
    world.pool(gpu=4, settings=EVICT)
    world.policy(reserved={"gpu": 2})
    allocations = [world.submit(gpu=2, preemptible=False), world.submit(gpu=1), world.submit(gpu=1, preemption_class=10)]
    world.policy(reserved={"gpu": 1}, limit={"gpu": 1})
    reconcile(world)
    reconcile(world, after_s=30)
    assert victim_statuses(world, *allocations) == ["stays", "preempting", "stays"]
    world.enforce_deadlines(30)
    reconcile(world, after_s=60)
    assert victim_statuses(world, *allocations) == ["stays", "queued", "stays"]
    assert published_status(world, f"policy:{full_component('t')}").over_ms is not None


# when, and whether


@pytest.mark.parametrize(
    ("settings", "own", "stopped"),
    [
        ({}, {}, True),
        ({"over_limit": "keep"}, {}, False),
        ({"over_limit": "keep"}, {"over_limit": "evict"}, True),
        ({}, {"over_limit": "keep"}, False),
        ({"discipline": "reserved"}, {}, False),
        ({"discipline": "classes"}, {}, False),
        ({"discipline": "reserved", "over_limit": "evict"}, {}, True),
        ({"discipline": "classes", "over_limit": "keep"}, {"over_limit": "evict"}, True),
    ],
)
def test_it_is_the_nearest_that_says_whether_anything_is_stopped(
    world: World, settings: dict[str, Any], own: dict[str, Any], stopped: bool
) -> None:
    world.pool(gpu=4, settings={**EVICT, **settings})
    world.policy()
    request = world.submit(gpu=4)
    world.policy(limit={"gpu": 3}, settings=own)
    reconcile(world)
    reconcile(world, after_s=1000)
    assert victim_statuses(world, request) == ["preempting" if stopped else "stays"]
    assert (published_status(world, f"policy:{full_component('t')}").over_ms is not None) == stopped


@pytest.mark.parametrize(("of_pool", "own", "after_s"), [(0, None, 0), (90, None, 90), (90, 5, 5), (0, 60, 60)])
def test_it_is_the_nearest_that_says_how_long_it_is_left_alone(
    world: World, of_pool: int, own: int | None, after_s: int
) -> None:
    world.pool(gpu=4, settings={**EVICT, "over_limit_after_s": of_pool})
    world.policy()
    request = world.submit(gpu=4)
    world.policy(limit={"gpu": 3}, settings={"over_limit_after_s": own})
    reconcile(world)
    if after_s:
        reconcile(world, after_s=after_s - 0.001)
        assert victim_statuses(world, request) == ["stays"]
    reconcile(world, after_s=0.001)
    assert victim_statuses(world, request) == ["preempting"]


def test_raised_again_in_time_nothing_happens_and_the_next_time_counts_anew(world: World) -> None:
    allocations = four_allocations(world)
    world.update_pool(gpu=7)
    reconcile(world)
    reconcile(world, after_s=29)
    world.update_pool(gpu=8)
    reconcile(world, after_s=2)
    assert (victim_statuses(world, *allocations), published_status(world).over_ms) == (["stays"] * 4, None)
    world.update_pool(gpu=7)
    reconcile(world)
    reconcile(world, after_s=29)
    assert victim_statuses(world, *allocations) == ["stays"] * 4
    reconcile(world, after_s=1)
    assert victim_statuses(world, *allocations) == ["stays"] * 3 + ["preempting"]


def test_raised_while_they_leave_those_are_called_back_that_need_not_go(world: World) -> None:
    allocations = four_allocations(world)
    world.update_pool(gpu=4)
    reconcile(world)
    reconcile(world, after_s=30)
    assert victim_statuses(world, *allocations) == ["stays"] * 2 + ["preempting"] * 2
    world.update_pool(gpu=6)
    reconcile(world)
    assert victim_statuses(world, *allocations) == ["stays"] * 3 + ["preempting"]
    assert [event.event for event in world.events()][-1] == "reprieved"
    world.enforce_deadlines(30)
    assert world.status(*allocations) == ["allocated"] * 3 + ["queued"]


def test_a_reprieved_victim_that_left_first_has_left(world: World) -> None:
    allocations = four_allocations(world)
    world.update_pool(gpu=6)
    reconcile(world)
    reconcile(world, after_s=30)
    fence = world.get(allocations[3]).fence or 0
    world.update_pool(gpu=8)
    reconcile(world)
    assert victim_statuses(world, *allocations) == ["stays"] * 4
    world.ledger.release(world.workspace, allocations[3].id, fence, "vacated")
    assert [event.event for event in world.events()][-2:] == ["preempted", "allocated"]
    assert world.get(allocations[3]).preemptions == 1


def test_an_allocation_that_ends_in_time_saves_the_others(world: World) -> None:
    allocations = four_allocations(world)
    world.update_pool(gpu=6)
    reconcile(world)
    reconcile(world, after_s=29)
    world.release(allocations[0])
    reconcile(world, after_s=2)
    assert victim_statuses(world, *allocations[1:]) == ["stays"] * 3


def test_protections_of_a_victim_hold_for_evictions_too(world: World) -> None:
    allocations = four_allocations(world, min_runtime_s=100)
    world.update_pool(gpu=6)
    reconcile(world)
    reconcile(world, after_s=99)
    assert victim_statuses(world, *allocations) == ["stays"] * 4
    reconcile(world, after_s=1)
    assert victim_statuses(world, *allocations) == ["stays"] * 3 + ["preempting"]


def test_no_more_are_stopped_in_a_minute_than_may_be(world: World) -> None:
    allocations = four_allocations(world, max_preemptions_per_minute=1, grace_s=3600)
    world.update_pool(gpu=2)
    reconcile(world)
    reconcile(world, after_s=30)
    assert victim_statuses(world, *allocations) == ["stays"] * 3 + ["preempting"]
    reconcile(world, after_s=59.999)
    assert victim_statuses(world, *allocations) == ["stays"] * 3 + ["preempting"]
    reconcile(world, after_s=0.001)
    assert victim_statuses(world, *allocations) == ["stays"] * 2 + ["preempting"] * 2
    reconcile(world, after_s=60)
    assert victim_statuses(world, *allocations) == ["stays"] + ["preempting"] * 3


# leaving


def test_the_events_of_an_eviction_are_complete(world: World) -> None:
    allocations = four_allocations(world)
    world.update_pool(gpu=6)
    reconcile(world)
    reconcile(world, after_s=30)
    request = world.get(allocations[3])
    assert (request.status, request.reason and request.reason.code, request.preempted_by) == ("preempting", "limit", None)
    assert (request.directive, request.deadline_ms) == ("terminate", world.clock.now_ms() + 30_000)
    assert world.client.hgetall(key("pool_victims", "test", "p")) == {request.id: "!"}
    last = world.events()[-1]
    assert (last.event, last.request, last.reason, last.by) == ("preempting", request.id, "limit", None)
    assert world.ledger.read_counters(world.workspace)["preemptions|p|batch|limit"] == 1
    assert world.ledger.release(world.workspace, request.id, request.fence or 0, "vacated").status == "queued"
    back = world.get(request)
    assert (back.preemptions, back.resume, back.directive, back.pool) == (1, False, None, None)
    assert [each.event for each in back.timeline] == ["submitted", "allocated", "preempting", "preempted"]


def test_without_grace_it_is_stopped_at_once_and_stands_in_the_queue(world: World) -> None:
    allocations = four_allocations(world, grace_s=0, over_limit_after_s=0)
    world.update_pool(gpu=6)
    reconcile(world)
    assert world.status(*allocations) == ["allocated"] * 3 + ["queued"]
    assert world.client.hgetall(key("pool_victims", "test", "p")) == {}
    assert world.used() == {"gpu": 6}
    reconcile(world, after_s=100)
    world.update_pool(gpu=8)
    assert world.status(*allocations) == ["allocated"] * 4
    assert world.get(allocations[3]).reason is None


@pytest.mark.parametrize("grace_s", [0, 5])
def test_an_eviction_at_the_requeue_limit_ends_the_request(world: World, grace_s: int) -> None:
    world.pool(gpu=4, settings={**EVICT, "grace_s": grace_s, "over_limit_after_s": 0})
    world.policy()
    request = world.submit(gpu=4, retries=0)
    world.update_pool(gpu=3)
    reconcile(world)
    world.enforce_deadlines(5)
    ended = world.get(request)
    assert (ended.status, ended.reason and ended.reason.code, ended.preemptions) == ("preempted", "limit", 1)
    assert world.used() == {"gpu": 0}


def test_an_evicted_request_that_fits_nowhere_is_rejected(world: World) -> None:
    world.pool(gpu=4, settings={**EVICT, "over_limit_after_s": 0})
    world.policy()
    request = world.submit(gpu=4)
    world.update_pool(gpu=3)
    reconcile(world)
    world.enforce_deadlines(30)
    ended = world.get(request)
    assert (ended.status, ended.reason and ended.reason.code) == ("rejected", "exceeds_capacity")


def test_work_is_saved_before_it_leaves(world: World) -> None:
    world.pool(gpu=4, settings={**EVICT, "over_limit_after_s": 0, "checkpoint_timeout_s": 100})
    world.policy()
    world.submit(gpu=2)
    request = world.submit(gpu=2, checkpoint="manual")
    world.update_pool(gpu=3)
    reconcile(world)
    assert world.get(request).directive == "checkpoint"
    world.checkpoint(request, "started", seconds=20)
    world.checkpoint(request, "completed", reference="s3://there")
    ended = world.get(request)
    assert (ended.status, ended.resume, ended.checkpoint_reference) == ("queued", True, "s3://there")


def test_evicted_units_are_granted_to_an_eligible_waiter(world: World) -> None:
    # A policy's limit was lowered: what it gives back goes to others, and it waits for less.
    world.pool(gpu=4, settings={**EVICT, "over_limit_after_s": 0})
    for team in ("a", "b"):
        world.policy(team)
    allocations = [world.submit("a", gpu=2), world.submit("a", gpu=2)]
    waits = world.submit("b", gpu=2)
    world.policy("a", limit={"gpu": 2})
    reconcile(world)
    assert world.status(*allocations, waits) == ["allocated", "preempting", "queued"]
    world.enforce_deadlines(30)
    assert world.status(*allocations, waits) == ["allocated", "queued", "allocated"]
    world.release(waits)
    assert world.status(*allocations) == ["allocated", "queued"]


def test_it_is_the_same_in_a_pool_by_ranks_beside_decisions_for_waiters(world: World) -> None:
    world.pool(gpu=6, settings={"over_limit": "evict", "over_limit_after_s": 0, "patience_s": None})
    world.policy("low")
    world.policy("high", priority=1)
    allocations = [world.submit("low", gpu=2) for _ in range(3)]
    waits = world.submit("high", gpu=2)
    world.update_pool(gpu=4)
    reconcile(world)
    assert world.status(*allocations, waits) == ["allocated", "preempting", "preempting", "queued"]
    assert sorted(world.client.hvals(key("pool_victims", "test", "p"))) == sorted(["!", waits.id])
    world.enforce_deadlines(30)
    assert world.status(*allocations, waits) == ["allocated", "queued", "queued", "allocated"]


# ---- the step: stale, and nothing changed

Make = Callable[[World], StepResult]
STALE: dict[str, tuple[str, Make]] = {}


def stale_because(why: str) -> Callable[[Make], Make]:
    """Register a function that makes a step stale for this reason."""

    def note(make: Make) -> Make:
        STALE[make.__name__.strip("_").replace("_", " ")] = (why, make)
        return make

    return note


def over(world: World) -> tuple[list[Request], PoolSnapshot]:
    """Create four allocations of two units in a pool of five."""
    allocations = four_allocations(world)
    world.update_pool(gpu=5)
    return allocations, world.snapshot(even_if_idle=True)


def evict(world: World, snapshot: PoolSnapshot, *victims: Request, account: str = "pool", fence: int = 0) -> StepResult:
    """Apply the step that evicts these."""
    rows = tuple(OverLimitVictim(each.id, (world.get(each).fence or 0) + fence, account) for each in victims)
    return world.plan_store.apply_step(world.workspace, snapshot, EvictOverLimit(rows))


@stale_because("pool")
def _no_such_pool(world: World) -> StepResult:
    allocations, snapshot = over(world)
    return evict(world, replace(snapshot, pool="gone"), allocations[3])


@stale_because("rules")
def _the_rules_are_others(world: World) -> StepResult:
    allocations, snapshot = over(world)
    world.update_pool(gpu=6)
    return evict(world, snapshot, allocations[3])


@stale_because("unfinished")
def _work_is_left(world: World) -> StepResult:
    allocations, snapshot = over(world)
    for _ in range(2):
        world.submit(gpu=1)
    world.call("update_pool", chunk=1, name="p", description="", capacity="", settings='{"patience_s":"1"}')
    return evict(world, snapshot, allocations[3])


@stale_because("victim")
def _it_runs_no_more(world: World) -> StepResult:
    allocations, snapshot = over(world)
    fence = world.get(allocations[3]).fence or 0
    world.release(allocations[3])
    return world.plan_store.apply_step(
        world.workspace, snapshot, EvictOverLimit((OverLimitVictim(allocations[3].id, fence, "pool"),))
    )


@stale_because("victim")
def _it_runs_again(world: World) -> StepResult:
    allocations, snapshot = over(world)
    return evict(world, snapshot, allocations[3], fence=-1)


@stale_because("victim")
def _one_is_named_twice(world: World) -> StepResult:
    allocations, snapshot = over(world)
    return evict(world, snapshot, allocations[3], allocations[3])


@stale_because("victim")
def _it_leaves_already(world: World) -> StepResult:
    allocations, snapshot = over(world)
    assert evict(world, snapshot, allocations[3]).applied
    return evict(world, snapshot, allocations[3])


@stale_because("victim")
def _one_is_fixed(world: World) -> StepResult:
    world.pool(gpu=4, settings=EVICT)
    world.policy(reserved={"gpu": 2})
    request = world.submit(gpu=2, preemptible=False)
    world.policy(limit={"gpu": 1})
    return evict(world, world.snapshot(even_if_idle=True), request)


@stale_because("limit")
def _the_last_is_more_than_it_takes(world: World) -> StepResult:
    allocations, snapshot = over(world)
    return evict(world, snapshot, allocations[3], allocations[2], allocations[1])


@stale_because("limit")
def _others_leave_already(world: World) -> StepResult:
    allocations, snapshot = over(world)
    assert evict(world, snapshot, allocations[3], allocations[2]).applied
    return evict(world, snapshot, allocations[1])


@stale_because("limit")
def _the_account_is_not_over(world: World) -> StepResult:
    allocations, snapshot = over(world)
    return evict(world, snapshot, allocations[3], account=f"policy:{full_component('t')}")


@stale_because("limit")
def _there_is_no_such_account(world: World) -> StepResult:
    allocations, snapshot = over(world)
    return evict(world, snapshot, allocations[3], account="group:gone")


@stale_because("limit")
def _it_is_not_below_that_account(world: World) -> StepResult:
    world.pool(gpu=4, settings=EVICT)
    for team in ("a", "b"):
        world.policy(team)
    _, innocent = world.submit("a", gpu=2), world.submit("b", gpu=2)
    world.policy("a", limit={"gpu": 1})
    return evict(world, world.snapshot(even_if_idle=True), innocent, account=f"policy:{full_component('a')}")


@stale_because("budget")
def _too_many_in_a_minute(world: World) -> StepResult:
    allocations = four_allocations(world, max_preemptions_per_minute=1)
    world.update_pool(gpu=5)
    return evict(world, world.snapshot(even_if_idle=True), allocations[3], allocations[2])


@pytest.mark.parametrize(("why", "make"), STALE.values(), ids=STALE)
def test_a_step_that_does_not_hold_any_more_is_not_taken(world: World, why: str, make: Make) -> None:
    assert make(world) == StepResult(applied=False, has_progressed=False, is_unfinished=False, reason=why)


def test_a_step_that_holds_is_taken_whole(world: World) -> None:
    allocations, snapshot = over(world)
    assert evict(world, snapshot, allocations[3], allocations[2]) == StepResult(
        applied=True, has_progressed=False, is_unfinished=False, reason=""
    )
    assert victim_statuses(world, *allocations) == ["stays", "stays", "preempting", "preempting"]
