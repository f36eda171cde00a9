"""Shared decisions about a pool: one for all calls at the same moment, and always for the moment that it states."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import pytest

from app.domain.explanations import PoolExplanation
from app.domain.models import Request
from app.planner.planning_pass import plan_pool
from app.service.decision_cache import MAX_POOLS, TTL_S, DecisionCache
from app.service.explain import Explainer
from app.service.wait_slots import TooManyWaiters
from app.store.queue_status import QueueStatusStore
from tests.support.world import World


class Eye:
    """Explains, and counts looks at pools and passes over them."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.now_s, self.looks, self.passes = world, 0.0, 0, 0
        self.between: Any = lambda: None
        self._snapshot = world.plan_store.read_snapshot
        monkeypatch.setattr(world.plan_store, "read_snapshot", self._look)
        monkeypatch.setattr("app.service.decision_cache.plan_pool", self._pass)
        self.looking = DecisionCache(world.plan_store, world.ledger, lambda: self.now_s)
        self.explaining = Explainer(
            QueueStatusStore(world.client, world.clock), world.plan_store, world.ledger, decision_cache=self.looking
        )

    def _look(self, *args: Any, **named: Any) -> Any:
        self.looks += 1
        self.between()
        return self._snapshot(*args, **named)

    def _pass(self, *args: Any, **named: Any) -> Any:
        self.passes += 1
        return plan_pool(*args, **named)

    def see(self, request: Request) -> PoolExplanation:
        """Return the explanation of a waiter in one pool."""
        (pool,) = self.explaining.explain(self.world.workspace, request.id).pools
        return pool


@pytest.fixture
def eye(world: World, monkeypatch: pytest.MonkeyPatch) -> Eye:
    """Return a pool of 4 gpu, 3 of them held."""
    world.pool(gpu=4)
    world.policy("t")
    world.submit("t", gpu=3)
    return Eye(world, monkeypatch)


def test_a_pool_is_looked_at_once_while_nothing_happens(eye: Eye, world: World) -> None:
    first, second = world.submit("t", gpu=2), world.submit("t", gpu=3)
    explanations = eye.see(first), eye.see(second)
    assert (eye.looks, eye.passes) == (1, 2)
    assert (eye.see(first), eye.see(second)) == explanations
    assert (eye.looks, eye.passes) == (1, 2), "what was decided is kept as well"
    third = world.submit("t", gpu=2)
    assert eye.see(third).status.waiter_count == 3
    assert eye.looks == 2, "something happened"
    eye.now_s += TTL_S
    eye.see(third)
    assert eye.looks == 3, "the time is up"


def test_the_pass_ends_at_the_explained_request(eye: Eye, world: World) -> None:
    waits = [world.submit("t", gpu=2 + number) for number in range(3)]
    eye.see(waits[2])
    eye.see(waits[0])
    assert eye.passes == 1, "it came past those before"


def test_what_changes_no_event_tells_of_is_seen(eye: Eye, world: World) -> None:
    waits, before = world.submit("t", gpu=4), world.ledger.get_last_event_id(world.workspace)
    eye.see(waits)

    def changed() -> None:
        eye.between = lambda: None
        world.policy("u", limit={"gpu": 1})
        world.update_pool(gpu=5)

    eye.now_s += TTL_S
    eye.between = changed
    explanations = eye.see(waits)
    assert world.ledger.get_last_event_id(world.workspace) == before, "nothing happened"
    sight = eye.looking.get(world.workspace, explanations.status)
    assert sight.snapshot is not None
    assert (explanations.status.rules_version, "policy:orchestrator/u" in sight.snapshot.accounts) == (
        sight.snapshot.rules_version,
        True,
    )
    world.policy("u", limit={"gpu": 2})
    looks = eye.looks
    eye.see(waits)
    assert eye.looks > looks, "what was kept is of other rules"


def test_where_something_happens_all_the_time_what_was_seen_last_is_told(eye: Eye, world: World) -> None:
    waits = world.submit("t", gpu=4)
    eye.between = lambda: world.cancel(world.submit("t", gpu=4))
    explanations = eye.see(waits)
    assert (explanations.status.wait_reason, explanations.preemption.code) == ("no_capacity", "not_enough")
    assert eye.looks < 4


def test_a_call_about_another_pool_is_not_delayed(eye: Eye, world: World) -> None:
    world.pool("other", gpu=1)
    world.policy("x", "other")
    world.submit("x", gpu=1)
    here, there = world.submit("t", gpu=2), world.submit("x", gpu=1)
    inside, go_on = Event(), Event()

    def stay() -> None:
        eye.between = lambda: None
        inside.set()
        assert go_on.wait(20)

    eye.between = stay
    results: list[PoolExplanation] = []
    both = [Thread(target=lambda: results.append(eye.see(here))) for _ in range(2)]
    both[0].start()
    assert inside.wait(20)
    both[1].start()
    assert eye.see(there).status.pool == "other"
    go_on.set()
    for pool in both:
        pool.join(20)
    assert len(results) == 2
    assert results[0] == results[1]
    assert (eye.looks, eye.passes) == (2, 2), "two calls at the same moment shared one decision"


def test_no_call_waits_without_end_for_another_ones_pass(eye: Eye, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.service.single_flight.TIMEOUT_S", 0.05)
    waits = world.submit("t", gpu=2)
    inside, go_on = Event(), Event()

    def stay() -> None:
        inside.set()
        assert go_on.wait(20)

    eye.between = stay
    other = Thread(target=eye.see, args=[waits])
    other.start()
    assert inside.wait(20)
    with pytest.raises(TooManyWaiters, match="pool p: other calls are reading it"):
        eye.see(waits)
    go_on.set()
    other.join(20)
    assert eye.see(waits).status.wait_reason == "no_capacity", "and afterwards it goes on"


def test_what_is_too_old_to_be_told_is_not_kept(eye: Eye, world: World) -> None:
    world.pool("other", gpu=1)
    world.policy("x", "other")
    world.submit("x", gpu=1)
    here, there = world.submit("t", gpu=2), world.submit("x", gpu=1)
    eye.see(here)
    assert eye.looking.size == 1
    eye.now_s += TTL_S
    eye.see(there)
    assert eye.looking.size == 1


def test_no_more_than_some_pools_are_kept(eye: Eye, world: World) -> None:
    waits = world.submit("t", gpu=2)
    for number in range(MAX_POOLS + 1):
        world.pool(f"p{number}", gpu=1)
        world.policy("many", f"p{number}")
    for _ in range(MAX_POOLS + 1):
        world.submit("many", gpu=1)
    eye.see(waits)
    explanations = eye.explaining.explain(world.workspace, world.submit("many", gpu=1).id)
    assert len(explanations.pools) == MAX_POOLS + 1
    looks = eye.looks
    eye.explaining.explain(world.workspace, explanations.request.id)
    assert eye.looks > looks
