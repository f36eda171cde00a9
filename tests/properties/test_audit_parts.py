"""An audit in parts finds damage and nothing else, even if data change between the parts."""

from __future__ import annotations

import pytest

from app.service.audit import Audit
from app.store.audit import AuditStore
from app.store.keys import key
from tests.properties.random_workspaces import Scene
from tests.properties.test_snapshot_parts import BusyScripts, Changes
from tests.support.audit_findings import findings
from tests.support.servers import Servers
from tests.support.world import World

SCENES = 16


def busy_audit(scene: Scene, changes: Changes) -> Audit:
    """Return an audit in small parts, with a change before each."""
    store = AuditStore(scene.world.client, scene.world.clock, chunk=3)
    store._scripts = store._sums._scripts = BusyScripts(scene.world.client, changes)
    return Audit(scene.world.ledger, store)


@pytest.mark.parametrize("count", [3, 200], ids=["few changes", "many changes"])
def test_nothing_is_found_in_a_busy_workspace(servers: Servers, count: int) -> None:
    for number in range(SCENES):
        scene = Scene(World(servers.client("embedded")), number, pools=2)
        changes = Changes(scene, number)
        changes.left = count
        assert busy_audit(scene, changes).run(scene.world.workspace) == []


def test_damage_in_a_busy_workspace_is_found_and_repaired(servers: Servers) -> None:
    repaired = 0
    for number in range(SCENES):
        scene = Scene(World(servers.client("embedded")), number, pools=2)
        world, changes, pool = scene.world, Changes(scene, number), scene.pools[0]
        world.client.hincrby(key("pool", "test", pool), "patience_held:lic", 2)
        changes.left = 12
        found = [str(finding) for finding in busy_audit(scene, changes).run(world.workspace, repair=True)]
        repaired += len(found)
        changes.left = 0
        left = findings(world)
        assert len(found) + len(left) == 1, "it is found at once, or by the next audit"
        assert (found + left)[0].startswith(f"account {pool} pool patience_held lic: ")
    assert repaired > SCENES // 2
