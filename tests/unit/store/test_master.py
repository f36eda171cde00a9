"""The master of a workspace: a script that writes refuses another one, which is adopted with a jump of the fence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.domain.errors import NotFound, StaleFence, StoreUnavailable
from app.domain.ledger_limits import FENCE_JUMP
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.lua_linker import load_commands
from app.store.master_id import MASTER_ID, UNREPLICATED_ID, parse_replication
from app.store.scripts import Scripts
from tests.support.world import World

EARLIER, PROMOTED = "e" * 40, "a" * 40 + "-promoted"
META = key("meta", "test")


@pytest.fixture
def earlier(world: World) -> World:
    """Return a workspace of an earlier master: a pool with one of its two units allocated under fence 1."""
    world.pool(gpu=2)
    world.policy("t")
    world.submit(gpu=1)
    world.client.hset(META, "master", EARLIER)
    return world


def on(client: RedisClient, master: str, command: str, **args: str) -> list[str]:
    """Run a command as if it was sent to a server with this id; return its reply."""
    lua = load_commands()[command]
    values = [master if name == "master" else args[name] for name in lua.args] + [master]
    reply: list[str] = client.eval(lua.text, 2, "pk:{test}:", META, *values)
    return reply


def own_id(client: RedisClient) -> str:
    """Return the id that the connections of a client put into their calls."""
    return str(client.eval("return ARGV[1]", 1, META, MASTER_ID))


def test_the_first_write_makes_the_server_the_master_without_a_jump(world: World) -> None:
    world.pool(gpu=2)
    world.policy("t")
    assert world.submit(gpu=1).fence == 1
    assert world.client.hget(META, "master") == own_id(world.client)


def test_with_another_master_the_fence_rises_by_a_jump(earlier: World) -> None:
    second = earlier.submit(gpu=1)
    assert second.fence is not None
    assert second.fence > FENCE_JUMP + 1
    assert earlier.submit(gpu=1).status == "queued"
    assert earlier.client.hget(META, "master") != EARLIER


@pytest.mark.parametrize("name", sorted(name for name, command in load_commands().items() if command.writes))
def test_every_command_that_can_write_refuses_another_master_before_it_does_anything(earlier: World, name: str) -> None:
    lua = load_commands()[name]
    if "master" in lua.args:
        return
    before = earlier.state()
    reply = earlier.client.eval(lua.text, 2, "pk:{test}:", META, *["" for _ in lua.args], "b" * 40)
    assert reply == ["other_master", EARLIER]
    assert earlier.state() == before


def test_a_server_that_was_adopted_meanwhile_is_not_adopted_again(earlier: World) -> None:
    earlier.submit(gpu=1)
    fence, master = earlier.client.hget(META, "fence"), str(earlier.client.hget(META, "master"))
    assert on(earlier.client, master, "adopt", now="", stored=master) == ["changed"]
    assert earlier.client.hget(META, "fence") == fence


def test_two_servers_with_the_same_data_do_not_jump_to_the_same_fence(earlier: World) -> None:
    fences = set()
    for master in ("1234567" + "0" * 33, "89abcde" + "0" * 33):
        assert on(earlier.client, master, "adopt", now="", stored=EARLIER) == ["adopted"]
        fences.add(earlier.client.hget(META, "fence"))
        earlier.client.hset(META, mapping={"master": EARLIER, "fence": 1})
    assert len(fences) == 2


def test_a_new_workspace_of_a_promoted_server_begins_with_a_jump(client: RedisClient) -> None:
    assert on(client, PROMOTED, "adopt", now="", stored="") == ["adopted"]
    assert int(str(client.hget(META, "fence"))) > FENCE_JUMP


def test_only_one_of_two_processes_adopts(earlier: World) -> None:
    assert on(earlier.client, PROMOTED, "adopt", now="", stored=EARLIER) == ["adopted"]
    fence = earlier.client.hget(META, "fence")
    assert on(earlier.client, PROMOTED, "adopt", now="", stored=EARLIER) == ["changed"]
    assert earlier.client.hget(META, "fence") == fence


def test_a_deposed_master_is_not_written_until_the_mark_lapses(world: World) -> None:
    world.pool(gpu=2)
    world.policy("t")
    held = world.submit(gpu=1)
    scripts = Scripts(world.client)
    id_ = own_id(world.client)
    assert scripts.call("depose", "test", now=1_000, id=id_, lasts_ms=60_000).tag == "deposed"
    world.client.hset(META, "master", f"deposed {id_} {2**52}")
    before = world.state()
    with pytest.raises(StoreUnavailable) as refusal:
        world.submit(gpu=1)
    assert refusal.value.reason == "failing_over"
    assert world.state() == before
    world.client.hset(META, "master", f"deposed {id_} 61000")
    again = world.submit(gpu=1)
    assert (again.fence or 0) > (held.fence or 0) + FENCE_JUMP


def test_a_mark_does_not_depose_a_server_with_another_id(earlier: World) -> None:
    assert Scripts(earlier.client).call("depose", "test", now=1, id=EARLIER, lasts_ms=60_000).tag == "other"
    earlier.client.hset(META, "master", f"deposed {EARLIER} {2**52}")
    assert (earlier.submit(gpu=1).fence or 0) > FENCE_JUMP


def test_info_is_read() -> None:
    text = "# Replication\r\nrole:master\r\nmaster_replid:{}\r\nmaster_replid2:{}\r\n"
    assert parse_replication(text.format(EARLIER, UNREPLICATED_ID)) == ("master", EARLIER)
    assert parse_replication(text.format(EARLIER, "b" * 40).encode()) == ("master", EARLIER + "-promoted")


@pytest.mark.parametrize(
    "call",
    [
        lambda world, request: world.ledger.heartbeat("test", request, FENCE_JUMP),
        lambda world, request: world.ledger.release("test", request, FENCE_JUMP),
        lambda world, request: world.ledger.checkpoint("test", request, FENCE_JUMP, "progress"),
    ],
    ids=["heartbeat", "release", "checkpoint"],
)
def test_a_holder_whose_grant_was_lost_is_refused(earlier: World, call: Callable[[World, str], object]) -> None:
    # The master that granted it is gone; the new one knows the request as queued, or not at all.
    queued = earlier.submit(gpu=2)
    with pytest.raises(StaleFence) as refusal:
        call(earlier, queued.id)
    assert refusal.value.status == "queued"
    with pytest.raises(NotFound):
        call(earlier, "0" * 20)
