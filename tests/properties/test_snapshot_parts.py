"""A snapshot is read in parts, with changes between the parts: it is that of its last moment."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from app.domain.errors import Refusal
from app.domain.snapshot import PoolSnapshot
from app.planner.planning_pass import plan_pool
from app.store.connection import RedisClient
from app.store.scripts import Arg, ScriptReply, Scripts
from app.store.snapshot_reader import SnapshotReader, SnapshotSizes, UnfinishedWork
from tests.properties.random_workspaces import COMPONENTS, Scene
from tests.support.servers import Servers
from tests.support.world import World

PARTS = SnapshotSizes(allocations=0, accounts=0, changes=4, allocation_page=2, account_page=2)
FEW_LANES = PARTS._replace(lanes=2)
FEW_CHANGES = PARTS._replace(changes=1)
"""Any change makes a reader of these catch up and try again, so that some run out of tries."""
SCENES, READS = 16, 12


class Changes:
    """Random changes of a workspace that its events, its rules or the list of other changes tell."""

    def __init__(self, scene: Scene, number: int) -> None:
        self._scene, self._random = scene, Random(number)
        self.left = 0

    def now_ms(self) -> int:
        """Return the time after the last change."""
        return self._scene.world.clock.now_ms()

    def make(self) -> None:
        """Make one change, if any are left."""
        if self.left and self._random.random() < 0.9:
            self.left -= 1
            with suppress(Refusal):
                self._change()

    def _change(self) -> None:
        draw, scene, world = self._random, self._scene, self._scene.world
        pool, requests = draw.choice(scene.pools), scene.requests()
        running = [request for request in requests if request.status in ("allocated", "preempting")]
        kind = draw.choice(("step", "step", "step", "checkpoint", "checkpoint", "cancel", "policy", "publish", "pass_time"))
        if kind == "step":
            scene.step()
        elif kind == "checkpoint" and running:
            world.checkpoint(draw.choice(running), "completed", routine=True)
        elif kind == "cancel" and (queued := scene.queued()):
            world.cancel(draw.choice(queued))
        elif kind == "policy" and draw.random() < 0.3:
            world.policy(draw.choice(COMPONENTS), pool, priority=draw.randint(1, 4))
            while world.ledger.resume_unfinished(world.workspace):
                pass
        elif kind == "publish":
            scene.settle()
        elif kind == "pass_time":
            world.pass_time(draw.choice((1, 5, 40)))


class BusyScripts(Scripts):
    """Scripts of a reader; before each of them the workspace changes, but not once the last part has been read."""

    def __init__(self, client: RedisClient, changes: Changes) -> None:
        super().__init__(client)
        self._changes = changes
        self.was_forced = False

    def call(self, command: str, workspace: str, /, **args: Arg) -> ScriptReply:
        """Make a change, then call."""
        if command != "read_demand":
            self._changes.make()
        if "now" in args:
            args["now"] = self._changes.now_ms()
        self.was_forced = bool(args.get("force"))
        return super().call(command, workspace, **args)


def read(reader: SnapshotReader, scripts: Scripts, world: World, pool: str) -> PoolSnapshot | str | None:
    """Return a snapshot, or that there is unfinished work."""
    try:
        return reader.read(scripts, world.workspace, pool, even_if_idle=True)
    except UnfinishedWork:
        return "unfinished"


@pytest.mark.parametrize("sizes", [PARTS, FEW_LANES, FEW_CHANGES], ids=["parts", "few lanes", "few changes"])
def test_parts_are_of_the_last_moment(servers: Servers, sizes: SnapshotSizes) -> None:
    outcomes: Counter[str] = Counter()
    for number in range(SCENES):
        scene = Scene(World(servers.client("embedded")), number, pools=2)
        changes = Changes(scene, number)
        busy_scripts = BusyScripts(scene.world.client, changes)
        reader = SnapshotReader(scene.world.clock, sizes)
        for _ in range(READS):
            changes.left = scene.random.choice((0, 1, 2, 4, 60))
            pool = scene.random.choice(scene.pools)
            parts = read(reader, busy_scripts, scene.world, pool)
            whole_reader = SnapshotReader(scene.world.clock, SnapshotSizes())
            whole = read(whole_reader, Scripts(scene.world.client), scene.world, pool)
            outcomes[_judge(parts, whole, sizes, is_forced=busy_scripts.was_forced)] += 1
    assert outcomes["equal"] > SCENES
    assert outcomes["forced"] > 0 or sizes is not FEW_CHANGES


def _judge(parts: PoolSnapshot | str | None, whole: PoolSnapshot | str | None, sizes: SnapshotSizes, *, is_forced: bool) -> str:
    """Compare a snapshot in parts with one of the moment of its last part."""
    if not isinstance(parts, PoolSnapshot) or not isinstance(whole, PoolSnapshot):
        assert parts == whole
        return "no snapshot"
    if is_forced:
        plan_pool(parts)
        return "forced"
    if sizes is FEW_LANES:  # the later waiters may be of an earlier moment
        assert {waiter.id for waiter in parts.waiters} <= {waiter.id for waiter in whole.waiters}
        parts = replace(parts, waiters=whole.waiters, preferred_pools=whole.preferred_pools)
    assert _comparable(parts) == _comparable(whole)
    return "equal"


def _comparable(snapshot: PoolSnapshot) -> dict[str, Any]:
    return {name: getattr(snapshot, name) for name in snapshot.__slots__}


class CorruptScripts(Scripts):
    """Scripts of a reader that loses rows, and that has to begin anew until its attempts are used up."""

    def __init__(self, client: RedisClient, number: int) -> None:
        super().__init__(client)
        self._random = Random(number)

    def call(self, command: str, workspace: str, /, **args: Arg) -> ScriptReply:
        """Call, and lose some rows of the reply."""
        reply = super().call(command, workspace, **args)
        if command == "read_snapshot" and reply.tag == "found" and not args["force"]:
            return ScriptReply("lost", {})
        for name, width in (("allocations", 2), ("victims", 2), ("accounts", 1), ("holds", 1), ("waiters", 1)):
            if rows := reply.fields.get(name):
                reply.fields[name] = self._lose(rows, width)
        return reply

    def _lose(self, rows: list[Any], width: int) -> list[Any]:
        """Return some of the rows; a row is `width` words."""
        kept = [rows[first : first + width] for first in range(0, len(rows), width) if self._random.random() < 0.7]
        return [word for row in kept for word in row]


def test_the_planner_plans_with_rows_that_contradict_each_other(servers: Servers) -> None:
    steps = missing = 0
    for number in range(4 * SCENES):
        scene = Scene(World(servers.client("embedded")), number, pools=2)
        for pool in scene.pools:
            scripts = CorruptScripts(scene.world.client, number)
            reader = SnapshotReader(scene.world.clock, PARTS)
            snapshot, whole = read(reader, scripts, scene.world, pool), scene.world.snapshot(pool, even_if_idle=True)
            assert isinstance(snapshot, PoolSnapshot)
            missing += len(whole.accounts) - len(snapshot.accounts)
            steps += len(plan_pool(snapshot).steps)
    assert steps > 0
    assert missing > 0
