"""The clock of Redis is set back by an hour: each deadline comes at its old distance, without a wait for the hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.models import Request
from app.domain.specs import RequestSpec
from app.domain.tasks import TaskSpec
from app.service.availability import Availability
from app.service.cleanup import Cleanup
from app.store.audit import AuditStore
from app.store.availability import AvailabilityStore
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.task_outbox import TaskStore
from app.store.workspaces import WorkspaceRegistry
from tests.support.world import World

HOUR_S = 3600
CLAIM_S, START_S, TRIES = 30, 60, 3


def clean_up(world: World) -> int:
    """Clean up until no time is left that may lie too far ahead; return the number of calls."""
    calls = 1
    while world.ledger.clean_up(world.workspace).times_left:
        calls += 1
    return calls


def set_back(world: World, after_s: float = 0) -> None:
    """Set the clock back by an hour some time after the last cleanup; the next cleanup finds it."""
    clean_up(world)
    world.clock.advance(after_s)
    world.clock.set_back(HOUR_S)
    clean_up(world)


def lease_left_s(world: World, request: Request) -> float | None:
    end_ms = world.get(request).lease_expires_ms
    return None if end_ms is None else (end_ms - world.clock.now_ms()) / 1000


def test_a_lease_is_cut_and_one_without_an_end_stays(world: World) -> None:
    world.pool(gpu=4)
    world.policy()
    a_minute, a_day = world.submit(gpu=1, lease_s=60), world.submit(gpu=1, lease_s=86_400)
    endless = world.submit(gpu=1, lease_s=None)
    set_back(world, after_s=10)
    assert [lease_left_s(world, each) for each in (a_minute, a_day, endless)] == [60, 86_400, None]
    world.pass_time(61)
    assert world.status(a_minute, a_day, endless) == ["expired", "allocated", "allocated"]


def test_the_first_cleanup_at_all_finds_it_too(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    held, waiting = world.submit(gpu=1, lease_s=60), world.submit(gpu=1, queue_ttl_s=60)
    world.clock.set_back(HOUR_S)
    world.pass_time(0)
    world.pass_time(61)
    assert world.status(held) == ["expired"]
    assert world.status(waiting) in (["expired"], ["allocated"])


def test_the_time_until_a_waiter_expires_is_cut(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    world.submit(gpu=1)
    waiters = world.submit(gpu=1, queue_ttl_s=600), world.submit(gpu=1, queue_ttl_s=None)
    set_back(world)
    world.pass_time(601)
    assert world.status(*waiters) == ["expired", "queued"]


def test_each_cleanup_examines_a_bounded_part(world: World) -> None:
    world.pool(gpu=100)
    world.policy()
    world.limits = world.ledger._limits = type(world.limits)(chunk=3)
    requests = [world.submit(gpu=1, lease_s=60 if each % 2 else 86_400) for each in range(20)]
    endless = [world.submit(gpu=1, lease_s=None) for _ in range(20)]
    clean_up(world)
    world.clock.set_back(HOUR_S)
    first = world.ledger.clean_up(world.workspace)
    assert (first.cut_times <= 3, first.times_left) == (True, 1)
    calls = clean_up(world)
    assert calls <= (20 + 40) / 3 + 5, "20 leases and 40 grants, three a call"
    world.clock.advance(61)
    while world.ledger.clean_up(world.workspace).expired_leases:
        pass
    assert world.status(*requests) == ["allocated", "expired"] * 10
    assert set(world.status(*endless)) == {"allocated"}


def test_a_heartbeat_meanwhile_is_as_good(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    held = world.submit(gpu=1, lease_s=60)
    clean_up(world)
    world.clock.set_back(HOUR_S)
    world.heartbeat(held)
    clean_up(world)
    assert lease_left_s(world, held) == 60


@pytest.mark.parametrize("step", ["checkpoint", "terminate"])
def test_the_deadline_of_a_victim_is_cut(world: World, step: str) -> None:
    world.pool(gpu=1, settings={"grace_s": 30, "checkpoint_timeout_s": 100})
    world.policy()
    world.policy("u", priority=1)
    victim = world.submit(gpu=1, checkpoint="auto" if step == "checkpoint" else "none")
    waiter = world.submit("u", gpu=1)
    world.preempt(waiter, victim)
    assert world.get(victim).directive == step
    set_back(world, after_s=5)
    time_s = 100 if step == "checkpoint" else 30
    assert world.get(victim).deadline_ms == world.clock.now_ms() + 1000 * time_s
    assert world.enforce_deadlines(time_s - 1) == 0
    assert world.enforce_deadlines(2) == 1
    if step == "checkpoint":
        assert world.enforce_deadlines(30) == 1
    assert world.status(waiter) == ["allocated"]


def test_a_promised_end_counts_from_now(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 5})
    world.policy()
    holder = world.submit(gpu=3, walltime_s=100)
    set_back(world)
    assert world.get(holder).granted_ms == world.clock.now_ms()
    end_ms = world.client.zscore(key("pool_walltime_ends", world.workspace, "p"), holder.id)
    assert end_ms == world.clock.now_ms() + 100_000


def test_patience_is_lost_in_its_time(world: World) -> None:
    world.pool(gpu=2, settings={"patience_s": 300})
    world.policy()
    world.submit(gpu=1)
    waiter = world.submit(gpu=2)
    set_back(world, after_s=100)
    world.pass_time(290)
    assert world.get_pool().holds == ()
    world.pass_time(20)
    assert [hold.request for hold in world.get_pool().holds] == [waiter.id]


def test_a_jump_that_no_worker_noticed_ends_what_had_an_end_in_it(world: World) -> None:
    # as after an hour without a heartbeat: the sums agree, and the work goes on when the clock is set back
    world.pool(gpu=3)
    world.policy()
    lapsing, endless = world.submit(gpu=1, lease_s=60), world.submit(gpu=1, lease_s=None)
    world.pass_time(0)
    world.clock.advance(HOUR_S)
    renewed = world.submit(gpu=1, lease_s=60)
    world.pass_time(0)
    assert world.status(lapsing, endless, renewed) == ["expired", "allocated", "allocated"]
    set_back(world)
    assert lease_left_s(world, renewed) == 60
    assert world.used() == {"gpu": 2}
    assert world.heartbeat(renewed).lease_expires_ms == world.clock.now_ms() + 60_000
    assert world.status(world.submit(gpu=1)) == ["allocated"]
    assert [*AuditStore(world.client, world.clock).check_requests(world.workspace, repair=False)] == []


class Worker:
    """A worker that cleans up, with a monotonic clock of its own."""

    def __init__(self, world: World) -> None:
        self.world, self.monotonic_s = world, 100.0
        availability = Availability(AvailabilityStore(world.client, world.clock))
        self.cleanup = Cleanup(world.ledger, WorkspaceRegistry(world.client), availability, lambda: self.monotonic_s)
        self.run()

    def run(self, after_s: float = 2, clock_moves_s: float | None = None) -> None:
        """Clean up after some time, by which the clock of Redis moves too unless another number is given."""
        self.monotonic_s += after_s
        moves_s = after_s if clock_moves_s is None else clock_moves_s
        if moves_s < 0:
            self.world.clock.set_back(-moves_s)
        else:
            self.world.clock.advance(moves_s)
        self.cleanup.run(self.world.workspace)


@pytest.mark.parametrize("chunk", [1, 200])
def test_no_lease_ends_by_a_jump_of_the_clock(world: World, chunk: int) -> None:
    world.pool(gpu=3)
    world.policy()
    world.limits = world.ledger._limits = type(world.limits)(chunk=chunk)
    held = [world.submit(gpu=1, lease_s=60) for _ in range(3)]
    waiters = world.submit(gpu=1, queue_ttl_s=600), world.submit(gpu=1, queue_ttl_s=20)
    worker, other = Worker(world), Worker(world)
    worker.run(clock_moves_s=HOUR_S)
    other.run()
    assert (world.status(*held), world.status(*waiters)) == (["allocated"] * 3, ["queued"] * 2)
    worker.run(after_s=19)
    assert world.status(*waiters) == ["queued", "expired"]
    worker.run(clock_moves_s=-HOUR_S)
    worker.run(after_s=59)
    world.heartbeat(held[0])
    worker.run(after_s=10)
    assert world.status(*held) == ["allocated", "expired", "expired"]


def test_a_long_pause_of_the_workers_is_no_jump(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    held = world.submit(gpu=1, lease_s=60)
    worker = Worker(world)
    worker.run(after_s=HOUR_S)
    assert world.status(held) == ["expired"]


# ---- tasks


@pytest.fixture
def tasks(world: World) -> TaskStore:
    world.pool(gpu=1)
    world.policy()
    return TaskStore(world.client, world.clock)


def park(world: World, tasks: TaskStore, task: str, **fields: Any) -> None:
    spec = RequestSpec(component="t", resources={"gpu": 1})
    tasks.park_task(world.workspace, TaskSpec(task=task, request=spec, name="train", message={"id": task}, **fields))


def take(world: World, tasks: TaskStore) -> list[str]:
    batch = tasks.take_outbox(world.workspace, CLAIM_S, START_S, TRIES)
    return [dispatch.task for dispatch in batch.dispatches]


def test_a_claim_and_a_pause_of_the_outbox_are_cut(world: World, tasks: TaskStore) -> None:
    park(world, tasks, "a")
    assert take(world, tasks) == ["a"]
    world.clock.set_back(HOUR_S)
    assert take(world, tasks) == []
    world.clock.advance(61)
    assert take(world, tasks) == ["a"]


def test_the_time_to_start_is_cut(world: World, tasks: TaskStore) -> None:
    park(world, tasks, "a")
    batch = tasks.take_outbox(world.workspace, CLAIM_S, START_S, TRIES)
    tasks.mark_dispatched(world.workspace, batch.dispatches, START_S)
    world.clock.set_back(HOUR_S)
    assert take(world, tasks) == []
    world.clock.advance(START_S + 1)
    assert take(world, tasks) == ["a"]


def test_a_task_that_came_back_is_due_in_time_and_a_time_of_day_stays(world: World, tasks: TaskStore) -> None:
    due = datetime.fromtimestamp(world.clock.now_ms() / 1000, UTC) + timedelta(hours=2)
    park(world, tasks, "by-day", not_before=due)
    park(world, tasks, "back")
    world.client.hset(key("task", world.workspace, "back"), "returned", "2")
    world.client.zadd(key("delayed", world.workspace), {"back": world.clock.now_ms() + 60_000})
    set_back(world)
    due_ms = world.client.zmscore(key("delayed", world.workspace), ["by-day", "back"])
    assert due_ms == [due.timestamp() * 1000, world.clock.now_ms() + 900_000]


# ---- job locks


@pytest.mark.parametrize("job", ["cleanup", "reconcile"])
def test_a_lock_lasts_no_longer_than_its_time(client: RedisClient, world: World, job: str) -> None:
    world.ledger.take_job_lock(world.workspace, job, "dead", HOUR_S)
    world.pool(gpu=1)
    world.policy()
    for _ in range(2):
        world.submit(gpu=1)
    if job == "cleanup":
        assert not world.ledger.take_job_lock(world.workspace, job, "living", 10)
    else:
        assert world.call("begin_reconcile", token="living", ttl_ms=10_000, why="tick").tag == "held"
    assert 9_000 < client.pttl(key("job_lock", world.workspace, job)) <= 10_000
