"""The use of pools over the last hours: what is noted, what is kept, and what is told of it."""

from __future__ import annotations

import pytest

from app.bootstrap import Services, make_services
from app.domain.clock import ManualClock
from app.domain.errors import NotFound
from app.domain.usage_history import UsageHistory
from app.service.usage_history import MAX_COMPONENTS
from app.settings import Settings
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.usage_samples import MAX_POLICIES
from tests.support.world import World

T, U = "orchestrator/t", "step_operator/u"


@pytest.fixture
def here(world: World) -> Services:
    """Return services that sample each minute, and keep three samples, by the world's clock."""
    made = make_services(world.client, Settings(history_interval_s=60, history_kept=3), world.clock)
    made.workspaces.add(world.workspace)
    return made


def noted(world: World, here: Services, pool: str = "p", after_s: float = 60) -> UsageHistory:
    """Return the history after another sample."""
    world.clock.advance(after_s)
    assert here.periodic_jobs.record_usage() == {world.workspace: "done"}
    return here.usage_history.get(world.workspace, pool)


def test_each_policy_has_its_series_and_the_pool_the_sum(world: World, here: Services) -> None:
    world.pool(gpu=8, cpu=4)
    world.policy(T, reserved={"gpu": 2})
    world.policy(U)
    world.policy("idle")
    start = world.clock.now_ms()
    assert here.usage_history.get(world.workspace, "p") == UsageHistory((), {}, {"pool": {}}, {"pool": {}})
    first = world.submit(T, gpu=3, cpu=1)
    noted(world, here)
    world.submit(U, gpu=4)
    noted(world, here)
    world.release(first)
    assert noted(world, here) == UsageHistory(
        times_ms=(start + 60_000, start + 120_000, start + 180_000),
        capacity={"cpu": (4, 4, 4), "gpu": (8, 8, 8)},
        series={
            "pool": {"cpu": (1, 1, 0), "gpu": (3, 7, 4)},
            T: {"cpu": (1, 1, 0), "gpu": (3, 3, 0)},
            U: {"cpu": (0, 0, 0), "gpu": (0, 4, 4)},
        },
        peaks={
            "pool": {"cpu": (1, 1, 1), "gpu": (3, 7, 7)},
            T: {"cpu": (1, 1, 1), "gpu": (3, 3, 3)},
            U: {"cpu": (0, 0, 0), "gpu": (0, 4, 4)},
        },
    )


def test_the_maximum_between_two_samples_is_kept(world: World, here: Services) -> None:
    world.pool(gpu=8, cpu=4)
    world.policy(T)
    world.policy(U)
    noted(world, here)
    first, second = world.submit(T, gpu=3, cpu=1), world.submit(U, gpu=4)
    world.release(first)
    third = world.submit(T, gpu=1)
    noted(world, here)
    noted(world, here)  # nothing has changed since the last one
    world.release(second)
    world.release(third)
    history = noted(world, here)
    assert history.series["pool"]["gpu"] == (5, 5, 0)
    assert history.peaks == {
        "pool": {"cpu": (1, 0, 0), "gpu": (7, 5, 5)},
        T: {"cpu": (1, 0, 0), "gpu": (3, 1, 1)},
        U: {"cpu": (0, 0, 0), "gpu": (4, 4, 4)},
    }


def test_a_key_that_comes_back_has_no_maximum_of_before(world: World, here: Services) -> None:
    world.pool(gpu=8, tpu=2)
    world.policy(T)
    world.release(world.submit(T, tpu=2))
    world.update_pool(tpu=0)
    noted(world, here)
    world.update_pool(tpu=2)
    world.submit(T, gpu=1)
    history = noted(world, here)
    assert (history.peaks["pool"]["tpu"], history.peaks[T]["tpu"]) == ((None, 0), (None, 0))


def test_the_oldest_notes_go_and_a_key_is_unknown_before_it_was_there(world: World, here: Services) -> None:
    world.pool(gpu=8)
    world.policy()
    world.submit(gpu=1, tpu=1)  # rejected: no pool has a tpu
    world.submit(gpu=1)
    for _ in range(3):
        noted(world, here)
    world.update_pool(tpu=2)
    history = noted(world, here)
    assert (len(history.times_ms), history.capacity["tpu"], history.series[T]["tpu"]) == (3, (None, None, 2), (None, None, 0))
    assert world.client.llen(key("pool_usage_history", world.workspace, "p")) == 3


def test_doubled_ticks_note_once_and_late_ones_are_not_lost(world: World, here: Services) -> None:
    world.pool(gpu=1)
    counts = [len(noted(world, here, after_s=after_s).times_ms) for after_s in (0, 1, 30, 29, 46)]
    assert counts == [1, 1, 1, 2, 3]


def test_what_a_clock_ahead_has_noted_is_not_told(world: World, here: Services) -> None:
    world.pool(gpu=1)
    ahead = ManualClock(world.clock.now_ms() + 3_600_000)
    make_services(world.client, Settings(), ahead).usage_history.record(world.workspace)
    history = noted(world, here)
    assert history.times_ms == (world.clock.now_ms(),)


def test_a_policy_made_anew_begins_anew_and_a_pool_takes_its_history_along(world: World, here: Services) -> None:
    world.pool(gpu=1)
    world.policy(T, reserved={"gpu": 1})
    noted(world, here)
    world.ledger.delete_policy(world.workspace, "p", T)
    world.policy(T, reserved={"gpu": 1})
    assert set(here.usage_history.get(world.workspace, "p").series) == {"pool"}
    assert set(noted(world, here).series) == {"pool", T}
    world.ledger.delete_pool(world.workspace, "p")
    with pytest.raises(NotFound):
        here.usage_history.get(world.workspace, "p")
    assert not world.client.exists(key("pool_usage_history", world.workspace, "p"))


def test_of_many_policies_those_that_used_most_are_noted_and_told(world: World, here: Services) -> None:
    world.pool(gpu=100_000)
    many = [f"orchestrator/team-with-a-rather-long-name-{number:03}" for number in range(MAX_POLICIES + 20)]
    allocations = []
    for number, component in enumerate(many):
        world.policy(component, reserved={"gpu": 1})
        allocations.append(world.submit(component, gpu=1 + number))
    history = noted(world, here)
    assert set(history.series) == {"pool", *many[20:]}
    assert (history.series["pool"]["gpu"], history.series[many[-1]]["gpu"]) == (
        (sum(range(1, MAX_POLICIES + 21)),),
        (MAX_POLICIES + 20,),
    )
    (line,) = world.client.lrange(key("pool_usage_history", world.workspace, "p"), 0, -1)
    assert (len(line) < 10 * MAX_POLICIES, line[-2:]) == (True, " +")
    world.release(allocations[-1])
    world.submit(many[0], gpu=90_000)
    history = noted(world, here)
    assert (len(history.series), history.series[many[0]]["gpu"]) == (MAX_COMPONENTS + 1, (None, 90_001))
    assert history.series[many[-1]]["gpu"] == (MAX_POLICIES + 20, 0)
    assert history.peaks[many[-1]]["gpu"] == (MAX_POLICIES + 20, MAX_POLICIES + 20), "it counts by its maximum"
    assert many[20] not in history.series


def test_a_workspace_is_left_to_the_holder_of_its_lease(client: RedisClient, world: World, here: Services) -> None:
    world.pool(gpu=1)
    assert world.ledger.take_job_lock(world.workspace, "record_usage", "another worker", 60)
    assert here.periodic_jobs.record_usage() == {world.workspace: "skipped"}
    assert not client.exists(key("pool_usage_history", world.workspace, "p"))


def test_the_policies_of_a_template_are_one_series(world: World, here: Services) -> None:
    world.pool(gpu=8, settings={"template_idle_s": 1})
    world.policy("user-*")
    held = [world.submit(f"user-{number}", gpu=number) for number in (1, 2)]
    noted(world, here)
    for each in held:
        world.release(each)
    world.pass_time(5)
    assert len(world.get_pool().policies) == 1
    history = noted(world, here)
    assert history.series == {"pool": {"gpu": (3, 0)}, "orchestrator/user-*": {"gpu": (3, 0)}}
