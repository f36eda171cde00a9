"""Dry runs: what is told is all that would come of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.domain.errors import LimitReached
from app.domain.specs import PoolUpdate, WorkspaceSettings
from app.domain.workspace_limits import LimitedToken, WaitLimits
from app.planner.estimates.start_times import estimate_starts
from app.service.dry_run import DryRun
from app.store.workspace_copy import WorkspaceCopier
from tests.support.fake_redis import FakeRedisProvider
from tests.support.world import World


def test_of_many_all_are_told_however_few_events_are_kept(world: World) -> None:
    world.pool(gpu=2)
    world.policy()
    world.submit(gpu=2)
    waits = [world.submit(gpu=2).id for _ in range(150)]
    few = replace(world.limits, events_kept=1)
    outcome = DryRun(WorkspaceCopier(world.client, FakeRedisProvider(), world.clock), few).update_pool(
        world.workspace, "p", PoolUpdate(capacity={"gpu": 1})
    )
    assert sorted(outcome.rejected) == sorted(waits)


def test_what_is_known_is_told_though_the_estimate_takes_all_the_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.pool(gpu=2)
    world.policy()
    world.submit(gpu=2)
    now = 0.0

    def takes_long(*args: Any) -> Any:
        nonlocal now
        now += 60
        return estimate_starts(*args)

    monkeypatch.setattr("app.service.estimates.estimate_starts", takes_long)
    copying = WorkspaceCopier(world.client, FakeRedisProvider(), world.clock, lambda: now)
    outcome = DryRun(copying, world.limits).submit(world.workspace, world.request_spec(gpu=1))
    assert outcome.outcome == "queued"
    assert now == 60


def test_a_dry_run_beyond_the_shapes_of_the_workspace_is_refused_as_a_submit_is(world: World) -> None:
    world.ledger.update_workspace(world.workspace, WorkspaceSettings(max_shapes=1))
    world.pool(gpu=2)
    world.policy()
    world.submit(gpu=2)
    world.submit(gpu=1)
    dry_run = DryRun(WorkspaceCopier(world.client, FakeRedisProvider(), world.clock), world.limits)
    assert dry_run.submit(world.workspace, world.request_spec(gpu=1)).outcome == "queued"
    for submit in (dry_run.submit, world.ledger.submit):
        with pytest.raises(LimitReached) as refusal:
            submit(world.workspace, world.request_spec(gpu=2))
        assert (refusal.value.subject, refusal.value.name, refusal.value.present) == ("workspace", "max_shapes", 1)


def test_a_dry_run_beyond_the_limits_of_its_token_is_refused(world: World) -> None:
    token = LimitedToken("ci", WaitLimits(max_waiting=1))
    world.pool(gpu=2)
    world.policy()
    world.submit(gpu=2)
    world.ledger.submit(world.workspace, world.request_spec(gpu=1), token=token)
    dry_run = DryRun(WorkspaceCopier(world.client, FakeRedisProvider(), world.clock), world.limits)
    assert dry_run.submit(world.workspace, world.request_spec(gpu=1)).outcome == "queued"
    with pytest.raises(LimitReached) as refusal:
        dry_run.submit(world.workspace, world.request_spec(gpu=1), token)
    assert (refusal.value.subject, refusal.value.name, refusal.value.present) == ("token/ci", "max_waiting", 1)


def test_waiters_keep_the_pools_that_they_name_in_the_copy(world: World) -> None:
    for pool in ("a", "b"):
        world.pool(pool, gpu=1)
        world.policy(pool=pool)
        world.submit(gpu=1, pools=[pool])
    waiters = [world.submit(gpu=1, pools=[pool]).id for pool in ("b", "a")]
    dry_run = DryRun(WorkspaceCopier(world.client, FakeRedisProvider(), world.clock), world.limits)
    assert dry_run.update_pool(world.workspace, "a", PoolUpdate(capacity={"gpu": 2})).granted == (waiters[1],)
    outcome = dry_run.submit(world.workspace, world.request_spec(gpu=1, pools=["b"]))
    assert (outcome.outcome, [view.status.pool for view in outcome.views]) == ("queued", ["b"])
