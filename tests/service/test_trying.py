"""Dry runs: what is told is all that would come of it."""

from __future__ import annotations

from dataclasses import replace

from app.domain.asks import PoolChange
from app.service.trying import Trying
from app.store.scratch import Copying
from tests.backends import FakeScratch
from tests.world import World


def test_of_many_all_are_told_however_few_events_are_kept(world: World) -> None:
    world.pool(gpu=2)
    world.policy()
    world.submit(gpu=2)
    waits = [world.submit(gpu=2).id for _ in range(150)]
    few = replace(world.limits, events_kept=1)
    told = Trying(Copying(world.client, FakeScratch(), world.clock), few).pool(
        world.workspace, "p", PoolChange(capacity={"gpu": 1})
    )
    assert sorted(told.rejected) == sorted(waits)
