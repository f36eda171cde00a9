"""Estimates of start times, in states whose answer is obvious."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from app.planner.estimates import start_times
from app.planner.estimates.pool_state import (
    LeavingDeadline,
    SimulatedAllocation,
    SimulatedHold,
    SimulatedWaiter,
    SimulationState,
    fixed_share_account,
)
from app.planner.estimates.run_times import RunTimes, shortest_of, step_of
from app.planner.estimates.simulation import QueueSimulation
from app.planner.estimates.start_times import NoEstimate, StartEstimate, estimate_starts

NOTHING = RunTimes({})
HOUR = 3600.0


def state(
    running: list[SimulatedAllocation],
    waiting: list[SimulatedWaiter],
    past: RunTimes = NOTHING,
    *,
    gpu: int = 0,
    strict: bool = False,
) -> SimulationState:
    """Return a pool with this many gpu left."""
    return SimulationState({("pool", "gpu"): gpu}, running, waiting, {"t": past}, past, strict)


def allocation(
    gpu: int, age_s: float, batch: int = 1, walltime_s: float | None = None, leaving: LeavingDeadline | None = None
) -> SimulatedAllocation:
    return SimulatedAllocation("t", ("policy:t", "pool"), {"gpu": gpu}, age_s, batch, walltime_s, leaving)


def estimates(state: SimulationState) -> list[StartEstimate]:
    """Return the estimates, and check that there is one for every waiter."""
    start_estimates = [estimate for estimate in estimate_starts(state) if isinstance(estimate, StartEstimate)]
    assert len(start_estimates) == len(state.waiters)
    return start_estimates


def waiter(gpu: int, batch: int = 100, walltime_s: float | None = None) -> SimulatedWaiter:
    return SimulatedWaiter("t", ("policy:t", "pool"), {"gpu": gpu}, batch, walltime_s)


def run_times(*seconds: float) -> RunTimes:
    return RunTimes(Counter(step_of(value) for value in seconds))


class TestPast:
    @pytest.mark.parametrize("seconds", [0, 0.5, 1, 59, 3600, 10**6])
    def test_a_run_time_lies_in_its_step(self, seconds: float) -> None:
        step = step_of(seconds)
        assert shortest_of(step) <= seconds < shortest_of(step + 1)
        assert (shortest_of(step + 1) + 1) / (shortest_of(step) + 1) == pytest.approx(2**0.25)

    def test_what_is_drawn_lies_as_those_that_were(self) -> None:
        past = run_times(*[60] * 50, *[HOUR] * 50)
        drawn = [past.draw(rank / 100, 0) or 0 for rank in range(99)]
        assert drawn == sorted(drawn)
        assert {step_of(estimate) for estimate in drawn} == {step_of(60), step_of(HOUR)}
        assert sum(step_of(estimate) == step_of(60) for estimate in drawn) == 50

    def test_an_older_allocation_excludes_shorter_run_times(self) -> None:
        past = run_times(*[60] * 50, *[HOUR] * 50)
        assert all(step_of(past.draw(rank / 100, 600) or 0) == step_of(HOUR) for rank in range(99))
        assert past.draw(0.5, 2 * HOUR) is None

    def test_those_that_still_run_count_for_the_long_ones(self) -> None:
        ended = Counter({step_of(60): 10})
        assert RunTimes(ended).draw(0.6, 0) is not None
        assert RunTimes(ended, [step_of(HOUR)] * 10).draw(0.6, 0) is None, "half of them have outlived all that is known"


def test_a_promised_walltime_bounds_the_wait() -> None:
    (estimate,) = estimates(state([allocation(2, 40, walltime_s=100)], [waiter(2)]))
    assert estimate.latest_s is not None
    assert 0 <= estimate.earliest_s <= estimate.likely_s <= estimate.latest_s <= 60


def test_a_victim_leaves_by_its_deadline() -> None:
    (estimate,) = estimates(state([allocation(2, 40, leaving=LeavingDeadline(30, 30))], [waiter(2)]))
    assert 0 < estimate.earliest_s < estimate.likely_s < 30
    assert estimate.latest_s == 30


@pytest.mark.parametrize("past", [NOTHING, RunTimes({step_of(5): 30})], ids=["nothing is known", "most are over at once"])
def test_the_latest_start_is_when_the_victim_has_left_at_the_latest(past: RunTimes) -> None:
    (estimate,) = estimates(state([allocation(2, 40, leaving=LeavingDeadline(600, 1230))], [waiter(2)], past))
    assert estimate.latest_s == 1230
    assert estimate.likely_s < 600


def test_without_run_times_there_is_no_estimate() -> None:
    assert estimate_starts(state([allocation(2, 40)], [waiter(2)])) == [NoEstimate.NOTHING_KNOWN]


def test_a_waiter_that_no_end_lets_in_has_no_estimate() -> None:
    assert estimate_starts(state([allocation(1, 40)], [waiter(2)], run_times(*[HOUR] * 30))) == [NoEstimate.NOT_IN_SIGHT]


def test_waiters_too_far_behind_have_no_estimate() -> None:
    shapes = [waiter(1 + number % 600) for number in range(1000)]
    estimates_or_reasons = estimate_starts(state([allocation(600, 0)], shapes, run_times(*[HOUR] * 30)))
    first = estimates_or_reasons.index(NoEstimate.TOO_FAR)
    assert 10 < first < 1000
    assert set(estimates_or_reasons[first:]) == {NoEstimate.TOO_FAR}


def test_the_work_stays_bounded_when_many_allocations_end_that_no_waiter_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two policies are at their limits, and the grants of a third go on for long in the same pool.
    looks, most = 0, 20_000

    def counted(play: QueueSimulation, *args: Any) -> Any:
        nonlocal looks
        looks += 1
        return short(play, *args)

    short = QueueSimulation._first_shortage
    monkeypatch.setattr(QueueSimulation, "_first_shortage", counted)
    monkeypatch.setattr(start_times, "MAX_WORK", most)
    full = {("pool", "gpu"): 10_000} | {(f"policy:{name}", "gpu"): 0 for name in "uv"}
    running = [allocation(1, index / 100, batch=index) for index in range(500)]
    running += [SimulatedAllocation(name, (f"policy:{name}", "pool"), {"gpu": 100}, 0, 1000, None) for name in "uv"]
    waiting = [
        SimulatedWaiter("uv"[index % 2], (f"policy:{'uv'[index % 2]}", "pool"), {"gpu": 1 + index % 50}, index)
        for index in range(100)
    ]
    past = {"t": run_times(*[60.0] * 30), "u": run_times(*[9 * HOUR] * 30), "v": run_times(*[9 * HOUR] * 30)}
    results = estimate_starts(SimulationState(full, running, waiting, past, past["t"]))
    assert isinstance(results[0], StartEstimate)
    assert looks < 2 * most


def test_beyond_all_that_is_known_is_a_guess_of_that_size() -> None:
    censored = RunTimes(Counter({step_of(60): 10}), [step_of(10 * HOUR)] * 90)
    (estimate,) = estimates(state([allocation(2, 0)], [waiter(2)], censored))
    assert estimate.likely_s > 10 * HOUR, "nine in ten run for longer"
    assert estimate.latest_s is None


class TestPlaces:
    """A pool of 4 gpu, of which holds keep some."""

    PATH = ("policy:t", "pool")

    def test_fixed_work_waits_for_what_is_reserved_for_it(self) -> None:
        path = (fixed_share_account("policy:t"), *self.PATH)
        rooms = {("pool", "gpu"): 4, (path[0], "gpu"): 0}
        runs_on = SimulatedAllocation("t", path, {"gpu": 2}, 0, 1, 60)
        waits, passes = SimulatedWaiter("t", path, {"gpu": 2}, 100, 60), waiter(2, walltime_s=60)
        late, soon = estimates(SimulationState(rooms, [runs_on], [waits, passes], {}, NOTHING))
        assert late.earliest_s > 0
        assert soon.latest_s == 0

    def test_freed_units_belong_to_the_owner_of_the_hold(self) -> None:
        # 3 are free, two of them freed for the first waiter, which still expects one.
        leaver = allocation(1, 0, leaving=LeavingDeadline(30, 30, hold=0))
        waiting = [waiter(4, walltime_s=60), waiter(1, walltime_s=60), waiter(2, walltime_s=60)]
        hold = SimulatedHold(0, self.PATH, {("pool", "gpu"): 3})
        owner, estimate, two = estimates(SimulationState({("pool", "gpu"): 3}, [leaver], waiting, {}, NOTHING, holds=[hold]))
        assert owner.latest_s == 30
        assert estimate.earliest_s >= owner.earliest_s
        assert two.earliest_s >= owner.earliest_s
        assert estimate.latest_s is not None
        assert 30 < estimate.latest_s <= 90

    def test_pending_units_are_kept_from_no_waiter(self) -> None:
        # 2 are free. The owner needs 3: the two that its victim frees, and one of these.
        leaver = allocation(2, 0, leaving=LeavingDeadline(30, 30, hold=0))
        waiting = [waiter(3, walltime_s=60), waiter(1, walltime_s=60)]
        owner, estimate = estimates(
            SimulationState({("pool", "gpu"): 2}, [leaver], waiting, {}, NOTHING, holds=[SimulatedHold(0, self.PATH)])
        )
        assert estimate.latest_s == 0
        assert owner.earliest_s > 0

    def test_an_earlier_hold_goes_before_a_later_one_but_for_what_was_brought_to_that(self) -> None:
        # 3 are free, one of them freed for the second waiter; the first waits for one more.
        leaver = allocation(1, 0, leaving=LeavingDeadline(30, 30, hold=0))
        waiting, rooms = [waiter(3, walltime_s=60), waiter(1, walltime_s=60)], {("pool", "gpu"): 3}
        holds = [SimulatedHold(0, self.PATH), SimulatedHold(1, self.PATH, {("pool", "gpu"): 1})]
        first, second = estimates(SimulationState(rooms, [leaver], waiting, {}, NOTHING, holds=holds))
        assert (first.earliest_s > 0, second.latest_s) == (True, 0)

    def test_a_reprieved_victim_goes_on(self) -> None:
        # Other units are free for the owner before its victim has left.
        leaver = allocation(2, 0, walltime_s=HOUR, leaving=LeavingDeadline(HOUR, HOUR, hold=0))
        waiting, rooms = [waiter(2, walltime_s=HOUR), waiter(2, walltime_s=HOUR)], {("pool", "gpu"): 2}
        owner, other = estimates(SimulationState(rooms, [leaver], waiting, {}, NOTHING, holds=[SimulatedHold(0, self.PATH)]))
        assert owner.latest_s == 0
        assert other.likely_s > 0

    def test_a_patience_hold_binds_the_waiters_behind_its_owner(self) -> None:
        waiting = [waiter(1, walltime_s=60), waiter(5, walltime_s=60), waiter(1, walltime_s=60)]
        runs_on, rooms = [allocation(2, 0, walltime_s=60)], {("pool", "gpu"): 4}
        before, owner, behind = estimates(
            SimulationState(rooms, runs_on, waiting, {}, NOTHING, patience_hold=SimulatedHold(1, self.PATH))
        )
        assert before.latest_s == 0
        assert owner.earliest_s > 0
        assert behind.earliest_s >= owner.earliest_s

    def test_a_patience_hold_blocked_by_a_limit_keeps_no_other_waiter(self) -> None:
        path = ("policy:u", "pool")
        waiting = [
            SimulatedWaiter("u", path, {"gpu": 1}, 100, 60),
            SimulatedWaiter("u", path, {"gpu": 4}, 101, 60),
            waiter(3, walltime_s=60),
        ]
        rooms = {("pool", "gpu"): 4, ("policy:u", "gpu"): 4}
        found_estimates = estimates(SimulationState(rooms, [], waiting, {}, NOTHING, patience_hold=SimulatedHold(1, path)))
        assert [estimate.latest_s == 0 for estimate in found_estimates] == [True, False, True]

    def test_in_a_strict_queue_only_owners_of_holds_pass_the_first(self) -> None:
        leaver = allocation(1, 0, leaving=LeavingDeadline(30, 30, hold=0))
        waiting = [waiter(5, walltime_s=60), waiter(1, walltime_s=60), waiter(2, walltime_s=60)]
        hold = SimulatedHold(2, self.PATH, {("pool", "gpu"): 1})
        rooms = {("pool", "gpu"): 1}
        running = [leaver, allocation(3, 0, walltime_s=600)]
        first, second, owner = estimates(SimulationState(rooms, running, waiting, {}, NOTHING, is_strict=True, holds=[hold]))
        assert owner.latest_s == 30
        assert owner.earliest_s < first.earliest_s <= second.earliest_s


def test_a_few_run_times_are_a_guess_that_bounds_nothing() -> None:
    (estimate,) = estimates(state([allocation(2, 40)], [waiter(2)], run_times(50, 50, 50)))
    assert estimate.latest_s is None


def test_many_run_times_say_how_long_the_rest_is() -> None:
    (estimate,) = estimates(state([allocation(2, 0)], [waiter(2)], run_times(*[HOUR] * 30)))
    assert estimate.latest_s is not None
    assert 0.8 * HOUR < estimate.earliest_s <= estimate.likely_s <= estimate.latest_s < 1.2 * HOUR


def test_each_waits_for_those_before_it() -> None:
    waiting = [waiter(2, batch, walltime_s=60) for batch in range(100, 103)]
    first, second, third = estimates(state([allocation(2, 0, walltime_s=60)], waiting))
    assert first.likely_s < second.likely_s < third.likely_s
    assert third.latest_s is not None
    assert third.latest_s <= 3 * 60


@pytest.mark.parametrize("strict", [False, True])
def test_a_waiter_that_fits_passes_others_unless_the_queue_is_strict(strict: bool) -> None:
    waiting = [waiter(3, walltime_s=60), waiter(1, walltime_s=60)]
    _, small = estimates(state([allocation(2, 0, walltime_s=60)], waiting, gpu=1, strict=strict))
    assert (small.latest_s == 0) == (not strict)


def test_those_of_a_batch_end_together() -> None:
    past = run_times(*[60] * 50, *[HOUR] * 50)
    (together,) = estimates(state([allocation(1, 0, batch=1) for _ in range(8)], [waiter(1)], past))
    (apart,) = estimates(state([allocation(1, 0, batch=number) for number in range(8)], [waiter(1)], past))
    assert (together.latest_s or 0) > 0.5 * HOUR > (apart.latest_s or 0)


def test_equal_states_have_equal_estimates() -> None:
    here = state([allocation(1, age) for age in range(20)], [waiter(2) for _ in range(20)], run_times(*range(1, 100)))
    assert estimate_starts(here) == estimate_starts(here)


def test_a_promised_walltime_bounds_the_wait_also_where_earlier_runs_were_longer() -> None:
    (estimate,) = estimates(state([allocation(2, 40, walltime_s=100)], [waiter(2)], run_times(*[HOUR] * 20)))
    assert estimate.latest_s is not None
    assert estimate.latest_s <= 60
