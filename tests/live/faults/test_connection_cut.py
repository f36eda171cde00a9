"""The connection breaks after a call reached the server and before its answer came; the repeat gives that same answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from app.domain.errors import StoreUnavailable
from app.store.connection import RETRIES, RedisClient, connect
from tests.live.faults.change_sequence import CHANGES, REPEATED_CODES, WORKSPACE, read_state, repeat_change, set_up
from tests.live.faults.proxy import CuttingProxy
from tests.live.races import settled_invariants
from tests.support.backends import free_port, serve, short_folder, wait_until
from tests.support.servers import Servers
from tests.support.world import World

TRIES = RETRIES + 1


@pytest.fixture
def direct(servers: Servers) -> RedisClient:
    """Return the client whose connections are never cut."""
    return servers.client("redis")


@pytest.fixture
def proxy(direct: RedisClient, tmp_path: Path) -> Iterator[CuttingProxy]:
    """Yield the proxy that can cut connections."""
    upstream = direct.connection_pool.connection_kwargs["path"]  # type: ignore[union-attr]
    with short_folder(tmp_path) as folder, CuttingProxy(folder, upstream) as proxy:
        yield proxy


def undisturbed(direct: RedisClient, name: str) -> tuple[Any, dict[str, Any]]:
    """Return the reply and the final state of an undisturbed change."""
    prepare(direct, name)
    return CHANGES[name](World(direct, WORKSPACE)), read_state(direct)


def prepare(direct: RedisClient, name: str) -> None:
    """Create the state that the change needs."""
    set_up(direct)
    if name == "delete pool":
        CHANGES["create pool"](World(direct, WORKSPACE))


def plain(answer: Any) -> Any:
    """Return a reply without its history, which contains ids of events."""
    if isinstance(answer, list):
        return [plain(item) for item in answer]
    if not hasattr(answer, "status"):
        return answer
    return {name: getattr(answer, name) for name in answer.__slots__ if name != "timeline"}


@pytest.mark.parametrize("name", CHANGES)
def test_the_client_tries_again_by_itself(name: str, direct: RedisClient, proxy: CuttingProxy) -> None:
    answer, expected = undisturbed(direct, name)
    prepare(direct, name)
    with connect(proxy.url) as client:
        client.ping()
        proxy.cut(1)
        assert plain(CHANGES[name](World(client, WORKSPACE))) == plain(answer)
    assert proxy.swallowed == 1
    settled_invariants.check(direct, World(direct, WORKSPACE).ledger, WORKSPACE, lowered=True)
    assert read_state(direct) == expected


@pytest.mark.parametrize("name", CHANGES)
def test_the_caller_repeats_what_was_not_answered(name: str, direct: RedisClient, proxy: CuttingProxy) -> None:
    answer, expected = undisturbed(direct, name)
    prepare(direct, name)
    with connect(proxy.url) as client:
        client.ping()
        proxy.cut(TRIES)
        with pytest.raises(StoreUnavailable) as away:
            CHANGES[name](World(client, WORKSPACE))
        assert (away.value.reason, proxy.swallowed) == ("unreachable", TRIES)
        repeated = repeat_change(World(client, WORKSPACE), name)
    if name not in REPEATED_CODES:
        assert plain(repeated) == plain(answer)
    settled_invariants.check(direct, World(direct, WORKSPACE).ledger, WORKSPACE, lowered=True)
    assert read_state(direct) == expected


def test_a_failover_in_the_middle_of_a_call(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    with (
        serve(folders[0], "--port", str(ports[0]), "--repl-diskless-sync-delay", "0"),
        serve(folders[1], "--port", str(ports[1])),
        Redis("127.0.0.1", ports[0], decode_responses=True) as first,
        Redis("127.0.0.1", ports[1], decode_responses=True) as second,
        short_folder(tmp_path) as folder,
        CuttingProxy(folder, ("127.0.0.1", ports[0])) as proxy,
    ):
        wait_until(first.ping, "the first answers")
        wait_until(second.ping, "the second answers")
        second.replicaof("127.0.0.1", ports[0])
        wait_until(lambda: second.info("replication")["master_link_status"] == "up", "the replica is in line")
        with connect(f"redis://127.0.0.1:{ports[0]}") as client:
            set_up(client)

        def fail_over() -> None:
            offset = first.info("replication")["master_repl_offset"]
            wait_until(lambda: second.info("replication")["slave_repl_offset"] >= offset, "the replica has all of it")
            second.replicaof("NO", "ONE")
            proxy.upstream = ("127.0.0.1", ports[1])

        with connect(proxy.url) as client:
            world = World(client, WORKSPACE)
            proxy.cut(1, fail_over)
            released = world.ledger.release(WORKSPACE, "holding", 2)
            granted = [event["request"] for event in read_state(second)["events"] if event["to"] == "allocated"]
        assert (str(released.status), proxy.swallowed) == ("released", 1)
        assert granted == ["lapsing", "holding", "dropped", "waiting1"]
        settled_invariants.check(second, World(second, WORKSPACE).ledger, WORKSPACE)
