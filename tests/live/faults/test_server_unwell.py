"""A server that cannot write, or not yet: a call does all or nothing and says why; its repeat is served when all is well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from app.domain.errors import StoreUnavailable
from app.domain.ledger_limits import LedgerLimits
from app.store.connection import RedisClient, connect
from app.store.ledger import Ledger
from tests.live.faults.change_sequence import CHANGES, WORKSPACE, read_state, set_up
from tests.live.faults.test_connection_cut import plain, prepare, undisturbed
from tests.live.races import invariants, settled_invariants
from tests.support.backends import require, serve, short_folder, wait_until
from tests.support.redis_snapshot import Snapshot, dump
from tests.support.world import World


@dataclass(frozen=True)
class Fault:
    """A fault of the server, its repair, and the error that callers get meanwhile."""

    reason: str
    strike: Callable[[Any], object]
    heal: Callable[[Any], object]


def lose_the_disk(client: Any) -> None:
    """Remove the folder of the snapshots, so that none can be written."""
    client.config_set("save", "3600 1000000")
    if client.info("persistence")["rdb_last_bgsave_status"] == "ok":
        client.bgsave()
        wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "the snapshot failed")


ILLNESSES: Final = {
    "out of memory": Fault("out_of_memory", lambda c: c.config_set("maxmemory", 1), lambda c: c.config_set("maxmemory", 0)),
    "read only": Fault("read_only", lambda c: c.replicaof("127.0.0.1", 1), lambda c: c.replicaof("NO", "ONE")),
    "not persisting": Fault("not_persisting", lose_the_disk, lambda c: c.config_set("save", "")),
    "too few replicas": Fault(
        "not_persisting", lambda c: c.config_set("min-replicas-to-write", 1), lambda c: c.config_set("min-replicas-to-write", 0)
    ),
}


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisClient]:
    """Yield a server that a test may break; the folder of its snapshots does not exist any more."""
    require("redis")
    log, removed = tmp_path_factory.mktemp("log"), tmp_path_factory.mktemp("gone")
    with short_folder(log) as place:
        options = ("--port", "0", "--unixsocket", str(place / "ill.sock"), "--dir", str(removed))
        with serve(log, *options), connect(f"unix://{place / 'ill.sock'}") as client:
            wait_until(client.ping, "the server answers")
            removed.rmdir()
            yield client


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("illness", ILLNESSES)
def test_a_change_is_made_whole_or_not_at_all(illness: str, name: str, patient: RedisClient) -> None:
    ill = ILLNESSES[illness]
    answer, expected = undisturbed(patient, name)
    prepare(patient, name)
    world, before = World(patient, WORKSPACE), dump(patient)
    try:
        ill.strike(patient)
        reason, after = _refusal(lambda: CHANGES[name](world)), dump(patient)
    finally:
        ill.heal(patient)
    if reason:
        assert (reason, after) == (ill.reason, before)
        assert plain(CHANGES[name](world)) == plain(answer)
    else:
        assert ill.reason == "out_of_memory", "without memory, what begins by giving some back goes on to its end"
        assert name not in ("submit", "batch", "create pool")
    settled_invariants.check(patient, world.ledger, WORKSPACE, lowered=True)
    assert read_state(patient) == expected


@pytest.mark.parametrize("illness", ILLNESSES)
def test_what_is_known_can_still_be_read(illness: str, patient: RedisClient) -> None:
    world = set_up(patient)
    try:
        ILLNESSES[illness].strike(patient)
        assert (world.get("holding").fence, world.get_pool().queue_length, len(world.queue())) == (2, 8, 8)
    finally:
        ILLNESSES[illness].heal(patient)


class Interrupted(Ledger):
    """A ledger whose server falls ill in the middle of a long change."""

    strike: Callable[[], object]
    rounds = 0

    def resume_unfinished(self, workspace: str) -> bool:
        """Resume unfinished work; before the second time, the memory is full."""
        self.rounds += 1
        if self.rounds == 2:
            self.strike()
        return super().resume_unfinished(workspace)


@pytest.mark.parametrize("illness", ILLNESSES)
@pytest.mark.parametrize("name", ["grow", "rank anew", "shrink"])
def test_a_long_change_goes_on_when_all_is_well_again(illness: str, name: str, patient: RedisClient) -> None:
    _, expected = undisturbed(patient, name)
    ill, world = ILLNESSES[illness], set_up(patient)
    world.ledger = interrupted = Interrupted(patient, world.clock, LedgerLimits(chunk=1))
    interrupted.strike = lambda: ill.strike(patient)
    try:
        reason = _refusal(lambda: CHANGES[name](world))
        assert reason == ill.reason or (ill.reason == "out_of_memory" and not reason)  # pieces that give memory back go on
        invariants.require_none(invariants.faults(Snapshot(patient, WORKSPACE), lowered=True))
    finally:
        ill.heal(patient)
    survivor = World(patient, WORKSPACE, chunk=1)
    while survivor.ledger.resume_unfinished(WORKSPACE):
        pass
    settled_invariants.check(patient, survivor.ledger, WORKSPACE, lowered=True)
    assert read_state(patient) == expected


def test_a_server_that_is_still_loading(tmp_path: Path) -> None:
    with short_folder(tmp_path) as place:
        path = str(place / "slow.sock")
        options = ("--port", "0", "--unixsocket", path, "--rdbcompression", "no")
        with serve(tmp_path, *options), Redis(unix_socket_path=path, decode_responses=True) as client:
            wait_until(client.ping, "the server answers")
            set_up(client)
            client.mset({f"other:{each}": "x" * 200 for each in range(200)})
            client.save()
        slowly = ("--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024")
        with serve(tmp_path, *options, *slowly), connect(f"unix://{path}", timeout_s=0.3) as client:
            world = World(client, WORKSPACE)
            wait_until(lambda: _loading(world), "it is loading")
            wait_until(lambda: CHANGES["submit"](world), "it has loaded")
            assert world.get("single").number == 12
            settled_invariants.check(client, world.ledger, WORKSPACE)


def _loading(world: World) -> bool:
    reason = _refusal(lambda: CHANGES["submit"](world))
    assert reason, "it did not take long enough"
    return reason == "loading"


def _refusal(call: Callable[[], object]) -> str:
    """Return the error of the server, or "" if it answered."""
    try:
        call()
    except StoreUnavailable as away:
        return away.reason
    return ""
