"""The fields that scripts write into the hash of a request are those of its table."""

from __future__ import annotations

import re

from app.domain.request_fields import REQUEST_FIELDS
from app.store.keys import key
from tests.support.world import World

STORED = {field.name for field in REQUEST_FIELDS if field.is_stored}
REQUIRED = {field.name for field in REQUEST_FIELDS if field.is_stored and field.is_required}
TIMELINE_LINE = re.compile(r"e\d+")


def stored_fields(world: World, *ids: str) -> set[str]:
    names = {str(name) for id_ in ids for name in world.client.hkeys(key("request", world.workspace, id_))}
    return {name for name in names if not TIMELINE_LINE.fullmatch(name)}


def test_a_history_with_all_that_can_happen_writes_only_known_fields(world: World) -> None:
    world.pool(gpu=8)
    world.policy("low")
    world.policy("high", priority=5)
    saver = world.submit(
        "low", gpu=8, checkpoint="auto", checkpoint_minutes=1, walltime_s=3600, lease_s=60, queue_ttl_s=600,
        labels={"run": "7", "preemption_group": "g"},
    )  # fmt: skip
    waiter = world.submit("high", gpu=8)
    world.preempt(waiter, saver)
    world.checkpoint(saver, "started")
    world.checkpoint(saver, "defer", 10)
    assert {"deferred_s", "answered", "preempting_ms", "rank"} <= stored_fields(world, saver.id), "it is told to leave"
    world.checkpoint(saver, "completed", reference="s3://there")
    world.release(waiter)
    world.release(saver, outcome="succeeded")
    never = world.submit("low", gpu=9)
    request = world.submit("low", gpu=8)
    orphan = world.submit("high", gpu=8)
    world.preempt(orphan, request)
    world.cancel(orphan)
    world.enforce_deadlines()
    names = stored_fields(world, saver.id, waiter.id, never.id, request.id, orphan.id)
    assert names - STORED == set()
    assert {"left_by", "left_fence", "reference", "resume", "outcome", "reasons", "orphaned_ms", "preempted_fence"} <= names


def test_every_request_has_the_required_fields(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    assert stored_fields(world, world.submit(gpu=1).id) >= REQUIRED
