"""What those who wait are told of their start, held against what keeps them: who is kept is never told that it is now."""

from __future__ import annotations

from collections import Counter

from app.domain.explanations import Verdict
from app.service.estimates import Foreseeing
from app.store.queries import Lists
from app.store.queue_status import Standings
from tests.properties.scenes import Scene

FREE = {Verdict.BEHIND, Verdict.WAITING_FOR_VICTIMS}
"""There is room for it, or about to be."""


def told(scene: Scene) -> Counter[str]:
    """How many of those who wait were told when, or not, by what keeps them; AssertionError if one was told wrongly."""
    seen: Counter[str] = Counter()
    world = scene.world
    standings = Standings(world.client, world.clock)
    foreseeing = Foreseeing(world.planning, world.ledger, Lists(world.client), standings)
    for waiter in scene.queued():
        for at in standings.of(world.workspace, waiter.id)[1]:
            told = foreseeing.of(world.workspace, at.pool, waiter.id, at.position)
            assert (told.estimate is None) == (told.why_not is not None)
            if one := told.estimate:
                assert at.verdict in FREE or one.earliest_ms > world.clock.now_ms(), f"{at}, {one}"
                assert one.earliest_ms <= one.likely_ms <= (one.latest_ms or one.likely_ms)
            seen[f"{at.verdict}: {'told when' if told.estimate else 'not told'}"] += 1
    return seen
