"""A large pool is read in parts: which scripts read it, and what the next snapshot reads again."""

from __future__ import annotations

import pytest

from app.domain.clock import Clock
from app.domain.snapshot import PoolSnapshot
from app.store import snapshot_reader
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.scripts import Arg, ScriptReply, Scripts
from app.store.snapshot_reader import SnapshotReader, SnapshotSizes
from tests.support.world import World

SIZES = SnapshotSizes(allocations=3, accounts=3, lanes=50, changes=8, allocation_page=2, account_page=2)
PARTS = {"read_allocations", "read_accounts"}


class Reader(Scripts):
    """A reader of snapshots that counts the scripts of each."""

    def __init__(self, client: RedisClient, clock: Clock, sizes: SnapshotSizes = SIZES) -> None:
        super().__init__(client)
        self.commands: list[str] = []
        self.snapshots = SnapshotReader(clock, sizes)

    def call(self, command: str, workspace: str, /, **args: Arg) -> ScriptReply:
        """Call, and remember the command."""
        self.commands.append(command)
        return super().call(command, workspace, **args)

    def read(self, world: World) -> PoolSnapshot:
        """Return a snapshot, which must be that of one script."""
        self.commands.clear()
        snapshot = self.snapshots.read(self, world.workspace, "p", even_if_idle=True)
        assert snapshot == world.snapshot(even_if_idle=True)
        assert snapshot is not None
        return snapshot


@pytest.fixture
def reader(world: World) -> Reader:
    """Return a reader of a pool with four policies."""
    world.pool(gpu=40)
    world.group("g", reserved={"gpu": 4})
    for name in ("low", "mid", "high"):
        world.policy(name, group="g", priority=len(name))
    return Reader(world.client, world.clock)


def test_a_small_pool_is_read_by_one_script(world: World, reader: Reader) -> None:
    world.ledger.delete_policy(world.workspace, "p", "orchestrator/mid")
    for _ in range(3):
        world.submit("low", gpu=1)
    reader.read(world)
    assert reader.commands == ["read_snapshot"]


@pytest.mark.parametrize("large", ["allocations", "accounts", "lanes"])
def test_a_large_pool_is_read_in_parts(world: World, reader: Reader, large: str) -> None:
    for gpu in (1, 2, 38, 39):
        world.submit("low", gpu=gpu)
    sizes = SnapshotSizes()._replace(**{large: 1}, allocation_page=1, account_page=1)
    parts = Reader(world.client, world.clock, sizes)
    parts.read(world)
    assert parts.commands.count("read_allocations") == 3
    assert parts.commands.count("read_waiters") == (1 if large == "lanes" else 0)


def test_the_next_snapshot_reads_only_what_changed(world: World, reader: Reader) -> None:
    requests = [world.submit("low", gpu=1, checkpoint="manual") for _ in range(5)]
    reader.read(world)
    assert reader.commands.count("read_allocations") == 3
    reader.read(world)
    assert reader.commands == ["read_snapshot"]
    world.checkpoint(requests[0], "completed", routine=True)
    world.release(requests[1])
    assert [allocation.checkpointed_ms for allocation in reader.read(world).allocations] == [world.clock.now_ms(), *3 * [None]]
    assert reader.commands == ["read_snapshot"]


def test_many_changes_are_read_page_by_page(world: World, reader: Reader) -> None:
    for _ in range(5):
        world.submit("low", gpu=1)
    reader.read(world)
    for _ in range(15):  # two events each
        world.submit("high", gpu=1)
    reader.read(world)
    assert reader.commands == ["read_snapshot", *4 * ["read_changes"], "read_snapshot"]


def test_a_reader_that_is_far_behind_begins_anew(world: World, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_reader, "MAX_CHANGE_PAGES", 2)
    for _ in range(5):
        world.submit("low", gpu=1)
    reader.read(world)
    for _ in range(15):
        world.submit("high", gpu=1)
    reader.read(world)
    assert reader.commands[:4] == ["read_snapshot", "read_changes", "read_changes", "read_snapshot"]
    assert reader.commands.count("read_allocations") == 11


def test_what_was_read_is_kept_while_there_is_nothing_to_decide(world: World, reader: Reader) -> None:
    for _ in range(5):
        world.submit("low", gpu=1)
    reader.read(world)
    world.settle()
    assert reader.snapshots.read(reader, world.workspace, "p", even_if_idle=False) is None
    world.submit("low", gpu=1)
    reader.read(world)
    assert reader.commands == ["read_snapshot"]


def test_a_declared_policy_makes_the_accounts_be_read_anew(world: World, reader: Reader) -> None:
    for _ in range(5):
        world.submit("low", gpu=1)
    reader.read(world)
    world.policy("low", priority=9, group="g")
    assert reader.read(world).accounts["policy:orchestrator/low"].priority == 9
    assert PARTS & {*reader.commands} == {"read_accounts"}


@pytest.mark.parametrize("lost", ["events", "changes"])
def test_all_is_read_anew_once_the_changes_are_not_kept_any_more(world: World, reader: Reader, lost: str) -> None:
    requests = [world.submit("low", gpu=1, checkpoint="manual") for _ in range(5)]
    reader.read(world)
    world.clock.advance(1)
    for request in requests:
        world.checkpoint(request, "completed", routine=True)
    if lost == "events":
        world.client.xtrim(key("events", world.workspace), maxlen=0, approximate=False)
    else:  # as if a thousand other changes had pushed the first ones out
        changes = key("pool_changes", world.workspace, "p")
        world.client.zremrangebyrank(changes, 0, 1)
        world.client.zadd(changes, {f"request:{number}": 1000 + number for number in range(997)})
    assert {allocation.checkpointed_ms for allocation in reader.read(world).allocations} == {world.clock.now_ms()}
    assert {*reader.commands} >= PARTS


def test_a_pool_that_was_deleted_and_created_again_is_read_anew(world: World, reader: Reader) -> None:
    requests = [world.submit("low", gpu=1, checkpoint="manual") for _ in range(5)]
    world.checkpoint(requests[0], "completed", routine=True)
    reader.read(world)
    for request in requests:
        world.release(request)
    world.ledger.delete_pool(world.workspace, "p")
    assert world.client.exists(key("pool_changes", world.workspace, "p")) == 0
    world.pool(gpu=3)
    for name in ("low", "mid", "high", "new"):
        world.policy(name, priority=1)
    reader.read(world)
    assert {*reader.commands} >= PARTS


def test_a_pool_created_again_with_as_many_accounts_is_read_anew(world: World, reader: Reader) -> None:
    reader.read(world)
    world.ledger.delete_pool(world.workspace, "p")
    world.pool(gpu=40)
    world.group("g", reserved={"gpu": 7})
    for name in ("low", "mid", "high"):
        world.policy(name, group="g", priority=9)
    reader.read(world)
    assert "read_accounts" in reader.commands


def test_only_the_newest_changes_are_kept(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    request = world.submit(gpu=1, checkpoint="manual")
    changes = key("pool_changes", world.workspace, "p")
    world.client.zadd(changes, {f"request:{number}": 1 + number for number in range(1000)})
    world.checkpoint(request, "completed", routine=True)
    assert (world.client.zcard(changes), world.client.zrange(changes, -1, -1)) == (1000, [f"request:{request.id}"])
