"""Estimates of a pool's queue: from promised walltimes, measured run times, and preemptions."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from app.domain.explanations import Estimate
from app.domain.models import Request
from app.domain.snapshot import PoolSnapshot
from app.service.estimates import JUST_QUEUED, MAX_AGE_S, EstimateResult, Estimator
from app.service.reconcile import Reconciler
from app.store.keys import key
from app.store.queries import QueryStore
from app.store.queue_status import QueueStatusStore
from app.store.snapshot_reader import UnfinishedWork
from tests.support.world import World


class Here:
    """A pool of 2 gpu with estimates of its queue, and a clock that the test moves."""

    def __init__(self, world: World) -> None:
        self.world, self.now_s = world, 0.0
        lists, standings = QueryStore(world.client), QueueStatusStore(world.client, world.clock)
        self.foreseeing = Estimator(world.plan_store, world.ledger, lists, standings, lambda: self.now_s)
        world.pool(gpu=2)
        world.policy("t")

    def estimate(self, request: Request, pool: str = "p") -> Estimate | None:
        """Return a new estimate of a request's start."""
        self.now_s += 100
        return self.foreseeing.list_estimates(self.world.workspace, pool).get(request.id)

    def get_result(self, request: Request, position: int = 1) -> EstimateResult:
        """Return the estimate, or the reason why there is none."""
        return self.foreseeing.get(self.world.workspace, "p", request.id, position)

    def counted(self, component: str = "orchestrator/t") -> dict[str, dict[int, int]]:
        """Return the recorded run times."""
        return QueueStatusStore(self.world.client).read_run_times(self.world.workspace, "p", [component])

    def passes(self, seconds: float) -> None:
        """Let time pass, and reconcile."""
        self.world.clock.advance(seconds)
        Reconciler(self.world.plan_store, self.world.ledger).run(self.world.workspace)


@pytest.fixture
def here(world: World) -> Here:
    return Here(world)


def test_a_walltime_bounds_the_start(here: Here) -> None:
    here.world.submit(gpu=2, walltime_s=100)
    here.world.clock.advance(40)
    estimate = here.estimate(here.world.submit(gpu=2))
    assert estimate
    assert estimate.latest_ms is not None
    assert here.world.clock.now_ms() <= estimate.earliest_ms <= estimate.latest_ms <= here.world.clock.now_ms() + 60_000
    assert estimate.basis == "1 promised walltime"


def test_in_a_strict_pool_a_request_starts_only_after_the_first_of_the_line(here: Here) -> None:
    world = here.world
    world.update_pool(settings={"queueing": "strict"})
    world.submit(gpu=1, walltime_s=100)
    world.submit(gpu=2, walltime_s=50)
    world.clock.advance(40)
    estimate = here.estimate(world.submit(gpu=1))
    assert estimate
    assert estimate.earliest_ms > world.clock.now_ms()


def test_what_ended_by_itself_is_measured_and_what_was_stopped_is_not(here: Here) -> None:
    world = here.world
    for _ in range(6):
        allocation = world.submit(gpu=2)
        world.clock.advance(100)
        world.release(allocation)
    world.submit(gpu=2)
    waits = world.submit(gpu=2)
    estimate = here.estimate(waits)
    assert estimate
    assert estimate.latest_ms is not None
    assert abs(estimate.likely_ms - world.clock.now_ms() - 100_000) < 20_000
    assert estimate.basis == "6 run times measured in this pool"
    world.policy("high", priority=5)
    world.submit("high", gpu=2)
    Reconciler(world.plan_store, world.ledger).run(world.workspace)
    world.clock.advance(31)
    Reconciler(world.plan_store, world.ledger).run(world.workspace)
    again = here.estimate(waits)
    assert again
    assert again.basis == "6 run times measured in this pool"


def test_a_victim_has_left_by_its_deadline(here: Here) -> None:
    world = here.world
    world.policy("high", priority=5)
    world.submit("t", gpu=2)
    waits = world.submit("high", gpu=2)
    assert here.estimate(waits) is None, "nothing is known"
    Reconciler(world.plan_store, world.ledger).run(world.workspace)
    estimate = here.estimate(waits)
    assert estimate
    assert estimate.latest_ms == world.clock.now_ms() + 32_000
    assert estimate.basis == "1 deadline of a victim"
    world.submit("t", "q", gpu=1, walltime_s=100)
    assert (later := here.estimate(waits))
    assert later.basis == "1 promised walltime and 1 deadline of a victim"


def test_what_was_worked_out_is_told_again_for_a_while(here: Here) -> None:
    here.world.submit(gpu=2, walltime_s=100)
    waits = here.world.submit(gpu=2)
    first = here.estimate(waits)
    here.world.clock.advance(50)
    assert here.foreseeing.list_estimates(here.world.workspace, "p").get(waits.id) is first
    assert here.estimate(waits) != first


def test_a_victim_has_left_by_its_last_deadline_despite_extensions(here: Here) -> None:
    # It reports its checkpoint just before each deadline, and in the end it is forced.
    world = here.world
    world.update_pool("p", {"checkpoint_timeout_s": 100, "max_deferral_s": 60, "grace_s": 20}, gpu=2)
    world.policy("high", priority=5)
    holder = world.submit("t", gpu=2, checkpoint="auto")
    waits = world.submit("high", gpu=2)
    here.passes(0)
    bounds, began = [], world.clock.now_ms()
    for says in (("progress",), ("defer", "defer"), ()):
        estimate = here.estimate(waits)
        assert estimate
        assert estimate.latest_ms
        bounds.append(estimate.latest_ms)
        for say in says:
            world.checkpoint(holder, say, 40)
        here.passes(((world.get(holder).deadline_ms or 0) - world.clock.now_ms()) / 1000 + 1)
    granted = world.get(waits).granted_ms
    assert granted
    assert granted - began >= 1000 * (100 + 50 + 60 + 20)
    assert all(granted <= bound for bound in bounds), (granted, bounds)
    assert bounds[0] - began < 1000 * (100 + 50 + 60 + 20 + 10)


def test_what_was_dropped_or_lapsed_or_told_to_leave_has_not_ended_by_itself(here: Here) -> None:
    world = here.world
    world.drop(world.submit(gpu=2))
    world.submit(gpu=2, lease_s=10)
    world.pass_time(11)
    allocation = world.submit(gpu=2)
    world.policy("high", priority=5)
    world.submit("high", gpu=2)
    here.passes(0)
    assert world.status(allocation) == ["preempting"]
    world.release(allocation)
    assert here.counted() == {}


def test_what_is_long_ago_counts_less_but_is_not_forgotten(here: Here) -> None:
    world = here.world
    runs = key("pool_run_times", world.workspace, "p", "orchestrator/t")
    world.client.hset(runs, mapping={"0": 1990, "9": 5, "50": 1, "58": 1, "59": 1, "60": 1, "all": 1999})
    world.release(world.submit(gpu=2))
    assert here.counted() == {"orchestrator/t": {0: 995, 9: 3, 58: 1, 60: 1}}
    assert world.client.hget(runs, "all") == "1000"


def test_a_request_newer_than_the_estimates_has_none_yet(here: Here) -> None:
    here.world.submit(gpu=2, walltime_s=100)
    first = here.world.submit(gpu=2)
    assert here.get_result(first).estimate
    here.world.cancel(first)
    late = here.world.submit(gpu=2)
    assert here.get_result(late) == EstimateResult(None, JUST_QUEUED)
    here.now_s += 0.31
    assert here.get_result(late).estimate


def test_a_pool_that_takes_long_is_left_alone_for_longer(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise new waiters, which all ask at once, would keep the pool computing.
    world, snapshot, looks = here.world, here.world.plan_store.read_snapshot, 0

    def slow(workspace: str, pool: str, *, even_if_idle: bool = False) -> PoolSnapshot | None:
        nonlocal looks
        looks += 1
        here.now_s += 2
        return snapshot(workspace, pool, even_if_idle=even_if_idle)

    monkeypatch.setattr(world.plan_store, "read_snapshot", slow)
    world.submit(gpu=2, walltime_s=100)
    first = world.submit(gpu=2, walltime_s=100)
    assert here.get_result(first).estimate
    late = world.submit(gpu=2)
    for _ in range(7):
        here.now_s += 1
        assert here.get_result(first).estimate
        assert here.get_result(late, 2) == EstimateResult(None, JUST_QUEUED)
    assert looks == 1
    here.now_s += 1.1
    assert here.get_result(late, 2).estimate
    assert looks == 2


def test_where_nothing_can_be_said_it_says_why(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here.world.submit(gpu=2)
    waits = here.world.submit(gpu=2)
    assert here.get_result(waits) == EstimateResult(None, "no run times are known for the allocations that it waits for")
    assert here.get_result(here.world.submit(gpu=2), 1001) == EstimateResult(
        None, "it is too far back in the queue for an estimate"
    )

    def unfinished(*_: object, **__: object) -> None:
        raise UnfinishedWork("p")

    monkeypatch.setattr(here.world.plan_store, "read_snapshot", unfinished)
    here.now_s += 100
    assert here.get_result(waits) == EstimateResult(
        None, "the pool was changed just now, and its queue is still being put in order"
    )


class Slow:
    """Looks at pools, of which one takes until it is let go."""

    def __init__(self, world: World, slow: str) -> None:
        self._snapshot, self._slow = world.plan_store.read_snapshot, slow
        self.looked, self.began, self.go_on = Counter[str](), Event(), Event()

    def snapshot(self, workspace: str, pool: str, *, even_if_idle: bool = False) -> PoolSnapshot | None:
        """Read the snapshot as the real store does."""
        self.looked[pool] += 1
        if pool == self._slow:
            self.began.set()
            assert self.go_on.wait(30)
        return self._snapshot(workspace, pool, even_if_idle=even_if_idle)


def test_a_slow_pool_is_worked_out_once_and_holds_up_no_other(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    world = here.world
    world.pool("other", gpu=1)
    slow = Slow(world, "p")
    monkeypatch.setattr(world.plan_store, "read_snapshot", slow.snapshot)
    with ThreadPoolExecutor(3) as threads:
        futures = [threads.submit(here.foreseeing.list_estimates, world.workspace, "p") for _ in range(2)]
        assert slow.began.wait(30)
        assert threads.submit(here.foreseeing.list_estimates, world.workspace, "other").result(30) == {}
        assert not any(future.done() for future in futures)
        slow.go_on.set()
        assert [future.result(30) for future in futures] == [{}, {}]
    assert slow.looked == {"p": 1, "other": 1}


def test_no_call_waits_without_end_for_another_ones_estimates(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.service.single_flight.TIMEOUT_S", 0.05)
    slow = Slow(here.world, "p")
    monkeypatch.setattr(here.world.plan_store, "read_snapshot", slow.snapshot)
    with ThreadPoolExecutor(1) as threads:
        futures = threads.submit(here.foreseeing.list_estimates, here.world.workspace, "p")
        assert slow.began.wait(30)
        assert here.get_result(here.world.submit(gpu=1)) == EstimateResult(
            None, "another call is computing it; ask again in a moment"
        )
        assert here.foreseeing.list_estimates(here.world.workspace, "p") == {}
        slow.go_on.set()
        assert futures.result(30) == {}
    assert slow.looked == {"p": 1}


def test_what_is_too_old_to_be_told_is_not_kept(here: Here) -> None:
    here.foreseeing.list_estimates(here.world.workspace, "p")
    here.now_s += MAX_AGE_S
    here.foreseeing.list_estimates(here.world.workspace, "other")
    assert here.foreseeing.size == 1


def test_of_so_many_pools_at_most_one_is_kept(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.service.estimates.MAX_POOLS", 3)
    slow = Slow(here.world, "")
    monkeypatch.setattr(here.world.plan_store, "read_snapshot", slow.snapshot)
    for pool in ("a", "b", "c", "a", "d", "a", "b"):
        here.foreseeing.list_estimates(here.world.workspace, pool)
    assert slow.looked == {"a": 1, "b": 2, "c": 1, "d": 1}
    assert here.foreseeing.size == 3


def test_a_pool_that_is_not_there_has_no_queue(here: Here) -> None:
    assert here.foreseeing.list_estimates(here.world.workspace, "nowhere") == {}


@pytest.mark.parametrize(
    ("count", "basis", "is_rough"),
    [
        (1, "only 1 run time measured in this pool", True),
        (4, "only 4 run times measured in this pool", True),
        (5, "5 run times measured in this pool", False),
    ],
)
def test_an_estimate_from_few_run_times_says_so(here: Here, count: int, basis: str, is_rough: bool) -> None:
    world = here.world
    for _ in range(count):
        allocation = world.submit(gpu=2)
        world.clock.advance(100)
        world.release(allocation)
    world.submit(gpu=2)
    estimate = here.estimate(world.submit(gpu=2))
    assert estimate
    assert (estimate.basis, estimate.run_times, estimate.is_rough) == (basis, count, is_rough)
    assert (estimate.latest_ms is None) is is_rough


def test_an_estimate_from_promised_walltimes_needs_no_run_times(here: Here) -> None:
    here.world.submit(gpu=2, walltime_s=100)
    first, second = here.world.submit(gpu=2), here.world.submit(gpu=2)
    estimate = here.estimate(first)
    assert estimate
    assert (estimate.run_times, estimate.is_rough) == (0, False)
    assert here.estimate(second) is None, "the first of the queue has promised nothing"


def test_a_guess_before_a_deadline_is_rough_and_bounded(here: Here) -> None:
    world = here.world
    world.policy("high", priority=5)
    allocation = world.submit("t", gpu=2)
    world.clock.advance(3)
    world.release(allocation)
    world.submit("t", gpu=2, checkpoint="manual")
    waits = world.submit("high", gpu=2)
    Reconciler(world.plan_store, world.ledger).run(world.workspace)
    estimate = here.estimate(waits)
    assert estimate
    assert estimate.likely_ms < world.clock.now_ms() + 60_000, "it is likely to end long before its deadline"
    assert estimate.latest_ms is not None
    assert (estimate.is_rough, estimate.basis) == (True, "1 deadline of a victim and only 1 run time measured in this pool")
