"""The start estimates of waiters compared with their blockers: a blocked waiter never gets "now" as its estimate."""

from __future__ import annotations

from collections import Counter

from app.domain.explanations import WaitReason
from app.service.estimates import Estimator
from app.store.queries import QueryStore
from app.store.queue_status import QueueStatusStore
from tests.properties.random_workspaces import Scene

FREE = {WaitReason.BEHIND, WaitReason.WAITING_FOR_VICTIMS}
"""There is room for it, or about to be."""


def count_estimates(scene: Scene) -> Counter[str]:
    """Return the number of estimates by blocker and outcome; raise AssertionError for a wrong one."""
    counts: Counter[str] = Counter()
    world = scene.world
    standings = QueueStatusStore(world.client, world.clock)
    foreseeing = Estimator(world.plan_store, world.ledger, QueryStore(world.client), standings)
    for waiter in scene.queued():
        for status in standings.list_statuses(world.workspace, waiter.id)[1]:
            answer = foreseeing.get(world.workspace, status.pool, waiter.id, status.position)
            assert (answer.estimate is None) == (answer.why_not is not None)
            if estimate := answer.estimate:
                assert status.wait_reason in FREE or estimate.earliest_ms > world.clock.now_ms(), f"{status}, {estimate}"
                assert estimate.earliest_ms <= estimate.likely_ms <= (estimate.latest_ms or estimate.likely_ms)
            counts[f"{status.wait_reason}: {'told when' if answer.estimate else 'not told'}"] += 1
    return counts
