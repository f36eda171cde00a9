"""What those who wait are told of their start, held against what keeps them: who is kept is never told that it is now."""

from __future__ import annotations

from collections import Counter

from app.domain.explanations import WaitReason
from app.service.estimates import Estimator
from app.store.queries import QueryStore
from app.store.queue_status import QueueStatusStore
from tests.properties.random_workspaces import Scene

FREE = {WaitReason.BEHIND, WaitReason.WAITING_FOR_VICTIMS}
"""There is room for it, or about to be."""


def told(scene: Scene) -> Counter[str]:
    """How many of those who wait were told when, or not, by what keeps them; AssertionError if one was told wrongly."""
    seen: Counter[str] = Counter()
    world = scene.world
    standings = QueueStatusStore(world.client, world.clock)
    foreseeing = Estimator(world.plan_store, world.ledger, QueryStore(world.client), standings)
    for waiter in scene.queued():
        for at in standings.list_statuses(world.workspace, waiter.id)[1]:
            told = foreseeing.get(world.workspace, at.pool, waiter.id, at.position)
            assert (told.estimate is None) == (told.why_not is not None)
            if one := told.estimate:
                assert at.wait_reason in FREE or one.earliest_ms > world.clock.now_ms(), f"{at}, {one}"
                assert one.earliest_ms <= one.likely_ms <= (one.latest_ms or one.likely_ms)
            seen[f"{at.wait_reason}: {'told when' if told.estimate else 'not told'}"] += 1
    return seen
