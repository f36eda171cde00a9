"""A workspace copy is read in parts, with changes between the parts: it decides like the workspace at its last moment."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from app.domain.dry_run import DryRunUnavailable
from app.domain.models import Pool
from app.domain.snapshot import PoolSnapshot
from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.ledger import Ledger
from app.store.workspace_copy import WorkspaceCopier
from app.store.workspace_reader import WorkspaceReader
from tests.properties.random_workspaces import Scene
from tests.properties.test_snapshot_parts import BusyScripts, Changes
from tests.support.fake_redis import FakeRedisProvider
from tests.support.servers import Servers
from tests.support.world import World

SCENES, COPIES = 12, 3


BYTES = "bytes of bodies"
"""A copy has the bytes of the whole workspace, as the limit counts them, and not the requests that have ended."""


def test_a_copy_in_parts_is_of_the_last_moment(servers: Servers, monkeypatch: Any) -> None:
    for name, size in {"READ_BATCH": 3, "LIST_PAGE": 4, "ACCOUNT_PAGE": 2, "MAX_CHANGES": 5}.items():
        monkeypatch.setattr(f"app.store.workspace_reader.{name}", size)
    compared = 0
    for number in range(SCENES):
        world = World(servers.client("embedded"))
        scene = Scene(world, number, pools=2)
        changes = Changes(scene, number)
        copier = WorkspaceCopier(world.client, FakeRedisProvider(), world.clock)
        copier._reader = WorkspaceReader(BusyScripts(world.client, changes), world.clock)
        for _ in range(COPIES):
            changes.left = scene.random.choice((0, 2, 5, 20))
            with suppress(DryRunUnavailable), copier.copy(world.workspace) as copy:
                changes.left = 0
                there = World(copy.client, world.workspace)
                there.clock.advance((copy.clock.now_ms() - there.clock.now_ms()) / 1000)
                _compare(world, there)
                compared += 1
    assert compared > SCENES


def _in_order(pool: Pool) -> Pool:
    """Return a pool with its holds in order: a hash has none."""
    return replace(pool, holds=tuple(sorted(pool.holds, key=lambda hold: hold.request)))


def _compare(world: World, copy: World) -> None:
    """Compare the snapshots for decisions, and audit the copy."""
    ledger = Ledger(copy.client, copy.clock, world.limits)
    assert copy.pools() == world.pools()
    for pool in world.pools():
        assert _comparable(copy.snapshot(pool, even_if_idle=True)) == _comparable(world.snapshot(pool, even_if_idle=True))
        assert copy.queue(pool) == world.queue(pool)
        assert _in_order(copy.get_pool(pool)) == _in_order(world.get_pool(pool))
    findings = Audit(ledger, AuditStore(copy.client, copy.clock)).run(world.workspace)
    assert [finding for finding in findings if finding.location != BYTES] == []


def _comparable(snapshot: PoolSnapshot) -> dict[str, Any]:
    return {name: getattr(snapshot, name) for name in snapshot.__slots__}
