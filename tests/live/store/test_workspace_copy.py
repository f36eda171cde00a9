"""Workspaces made again elsewhere: all that decisions go by is there, and nothing of the workspace is touched."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

from app.domain.clock import ManualClock
from app.domain.dry_run import RUN_TIMEOUT_S, DryRunUnavailable
from app.domain.errors import RuleViolation
from app.service.reconcile import Reconciler
from app.store import workspace_copy, workspace_reader
from app.store.audit import AuditStore
from app.store.connection import RedisClient, StoreMisconfigured
from app.store.keys import KEYS, prefix
from app.store.ledger import Ledger
from app.store.scripts import observe
from app.store.workspace_copy import ThrowawayRedis, WorkspaceCopier
from tests.properties.random_workspaces import Scene
from tests.properties.snapshot import kind_of
from tests.support.backends import require, wait_until
from tests.support.fake_redis import FakeRedisProvider
from tests.support.redis_snapshot import dump
from tests.support.servers import Servers
from tests.support.world import World

LEFT_OUT = {"events", "ended", "rejected", "counters", "idempotency", "operation", "nudge", "job_lock", "pool_changes"}
FINAL = {"preempted", "released", "expired", "cancelled", "rejected"}


def expected(client: RedisClient, workspace: str) -> dict[str, Any]:
    """Return the data that a copy must have."""
    there = {key: value for key, value in dump(client).items() if key.startswith(prefix(workspace))}
    kinds = {key: kind_of(key.removeprefix(prefix(workspace)))[0] for key in there}
    final_keys = {key for key, kind in kinds.items() if kind == "request" and there[key]["status"] in FINAL}
    records = {key: value for key, value in there.items() if key not in final_keys and kinds[key] not in LEFT_OUT}
    numbers = KEYS["requests"].of(workspace)
    records[numbers] = {
        id_: number for id_, number in records[numbers].items() if KEYS["request"].of(workspace, id_) not in final_keys
    }
    return _without_master({key: value for key, value in records.items() if value}, workspace)


def _without_master(records: dict[str, Any], workspace: str) -> dict[str, Any]:
    """Leave out the id of the master and the fence: the copy has a master of its own, and each master begins with a jump."""
    meta = KEYS["meta"].of(workspace)
    fields = {name: value for name, value in records[meta].items() if name not in ("master", "fence")}
    return {key: _without_activity(key, _with_waiters(value)) for key, value in {**records, meta: fields}.items()}


def _without_activity(key: str, value: Any) -> Any:
    """Leave out when a policy of a template was last active: only the cleanup asks for it, which no copy runs."""
    return set(value) if ":instances:" in key else value


def _with_waiters(value: Any) -> Any:
    """Leave out a number of waiters that is 0: the copy begins without one."""
    return (
        {name: text for name, text in value.items() if (name, text) != ("queue_length", "0")}
        if isinstance(value, dict)
        else value
    )


def copied(client: RedisClient) -> dict[str, Any]:
    """Return the data of a copy without its nudge, which the copying scripts send."""
    return _without_master({key: value for key, value in dump(client).items() if not key.endswith(":nudge")}, "test")


@pytest.mark.parametrize("number", range(12))
def test_all_that_decisions_go_by_is_there(servers: Servers, number: int) -> None:
    world = World(servers.client("fake" if number < 2 else "redis"))
    Scene(world, number, pools=2)
    before = dump(world.client)
    with WorkspaceCopier(world.client, FakeRedisProvider(), world.clock).copy(world.workspace) as made:
        assert copied(made.client) == expected(world.client, world.workspace)
        assert made.clock.now_ms() == world.clock.now_ms()
    assert dump(world.client) == before


class Meanwhile:
    """Things that happen just before the rest is read, the next one at each try; the last one over and over if `forever`."""

    def __init__(self, client: RedisClient, *happen: Callable[[], object], forever: bool = False) -> None:
        self.left, self.forever, self.tries = list(happen), forever, 0
        observe(client, self._around)

    @contextmanager
    def _around(self, script: str) -> Iterator[None]:
        if script == "copy_workspace":
            self.tries += 1
            for happens in self.left[:1]:
                happens()
            self.left = self.left if self.forever else self.left[1:]
        yield


@pytest.mark.parametrize("number", range(2, 8))
def test_what_happens_while_it_is_read_is_there_as_well(servers: Servers, number: int) -> None:
    world = World(servers.client("redis"))
    scene = Scene(world, number, pools=2)

    def much() -> None:
        for _ in range(5):
            scene.step()

    meanwhile = Meanwhile(world.client, much)
    with WorkspaceCopier(world.client, FakeRedisProvider(), world.clock).copy(world.workspace) as made:
        assert copied(made.client) == expected(world.client, world.workspace)
    assert meanwhile.tries == 1


def test_a_hold_that_ends_meanwhile_is_not_there_although_no_event_says_so(world: World) -> None:
    world.pool(gpu=5, settings={"grace_s": 30})
    world.policy("low")
    world.policy("high", priority=5)
    world.submit("high", gpu=1)
    world.submit("low", gpu=4)
    owner = world.submit("high", gpu=4)
    reconciling = Reconciler(world.plan_store, world.ledger)
    reconciling.run(world.workspace)
    last = world.ledger.get_last_event_id(world.workspace)

    def ends() -> None:
        world.policy("high", priority=5, limit={"gpu": 4})
        assert owner.id not in {event.request for event in world.ledger.read_events(world.workspace, last, 100)}

    with WorkspaceCopier(world.client, FakeRedisProvider(), world.clock).copy(world.workspace) as made:
        assert "victim_hold_pool" in str(dump(made.client))
    meanwhile = Meanwhile(world.client, ends, lambda: reconciling.run(world.workspace))
    for _ in range(2):
        with WorkspaceCopier(world.client, FakeRedisProvider(), world.clock).copy(world.workspace) as made:
            assert copied(made.client) == expected(world.client, world.workspace)
    assert meanwhile.tries == 3, "what is declared makes it begin anew"
    assert "victim_hold_pool" not in str(dump(made.client))


def test_a_victim_hold_that_ends_meanwhile_and_leaves_its_victims_for_later_is_not_there(world: World) -> None:
    world.pool(gpu=5, settings={"grace_s": 30})
    world.policy("low")
    world.policy("high", priority=5)
    world.submit("high", gpu=1)
    victim, owner = world.submit("low", gpu=4), world.submit("high", gpu=4)
    world.preempt(owner, victim)
    world.policy("high", priority=5, limit={"gpu": 4})
    last = world.ledger.get_last_event_id(world.workspace)
    Meanwhile(world.client, lambda: world.end_hold(owner))
    with WorkspaceCopier(world.client, FakeRedisProvider(), world.clock).copy(world.workspace) as made:
        assert copied(made.client) == expected(world.client, world.workspace)
    assert (world.ledger.get_last_event_id(world.workspace), world.get(owner).status) == (last, "queued")
    assert world.client.hgetall(KEYS["pool_victims"].of(world.workspace, "p")) == {victim.id: "-"}


def test_a_patience_hold_that_begins_or_ends_meanwhile_is_copied_as_it_is(world: World) -> None:
    world.pool(gpu=4, settings={"patience_s": 2})
    world.group("g", limit={"gpu": 3})
    world.policy("low")
    world.policy("mid", group="g", priority=1)
    world.policy("high", group="g", priority=2)
    world.submit("low", gpu=2)
    world.submit("mid", gpu=3)
    world.clock.advance(5)

    def ends() -> None:
        world.submit("high", gpu=1)

    for change in (lambda: world.ledger.give_patience_hold(world.workspace, "p"), ends):
        had_one = world.get_pool().holds
        Meanwhile(world.client, change)
        with WorkspaceCopier(world.client, FakeRedisProvider(), world.clock).copy(world.workspace) as made:
            assert copied(made.client) == expected(world.client, world.workspace)
        assert bool(world.get_pool().holds) != bool(had_one)


def test_many_changes_are_read_some_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_reader, "MAX_CHANGES", 3)
    world.pool(gpu=20)
    world.policy()
    world.submit(gpu=1)
    once = Meanwhile(world.client, lambda: [world.submit(gpu=1) for _ in range(5)])
    with WorkspaceCopier(world.client, FakeRedisProvider(), world.clock).copy(world.workspace) as made:
        assert copied(made.client) == expected(world.client, world.workspace)
    assert once.tries == 4, "two events each, three at a time"


def test_what_is_declared_makes_it_begin_anew_but_not_for_ever(world: World) -> None:
    world.pool(gpu=2)
    world.policy()
    world.submit(gpu=1)
    once = Meanwhile(world.client, lambda: world.policy(priority=3))
    with WorkspaceCopier(world.client, FakeRedisProvider(), world.clock).copy(world.workspace) as made:
        assert copied(made.client) == expected(world.client, world.workspace)
    assert once.tries == 2
    always = Meanwhile(world.client, lambda: world.policy(priority=3), forever=True)
    with (
        pytest.raises(DryRunUnavailable) as busy,
        WorkspaceCopier(world.client, FakeRedisProvider(), world.clock).copy(world.workspace),
    ):
        pass
    assert (busy.value.reason, always.tries) == ("busy", workspace_reader.MAX_READS)


@pytest.mark.parametrize("finished", [False, True], ids=["left", "finished meanwhile"])
def test_unfinished_work_of_the_workspace_is_finished_in_the_copy(world: World, finished: bool) -> None:
    world.pool(gpu=2)
    for name in ("low", "high"):
        world.policy(name)
    world.submit("low", gpu=1)
    waiters = [world.submit("low", gpu=2), world.submit("high", gpu=2), world.submit("high", gpu=1), world.submit("low", gpu=1)]
    world.submit("high", gpu=1)
    world.call("update_pool", chunk=1, name="p", description="", capacity="gpu=1", settings='{"discipline":"classes"}')

    def finish() -> None:
        while world.ledger.resume_unfinished(world.workspace):
            pass

    if finished:
        Meanwhile(world.client, finish)
    with WorkspaceCopier(world.client, FakeRedisProvider(), world.clock).copy(world.workspace) as made:
        there = Ledger(made.client, made.clock, world.limits)
        finish()
        kept = [waiter.id for waiter in waiters if world.get(waiter).status == "queued"]
        assert kept
        assert there.list_queue(world.workspace, "p", count=9) == world.ledger.list_queue(world.workspace, "p", count=9)
        assert copied(made.client)[KEYS["waiting"].of(world.workspace)].keys() >= {*kept}
        assert list(AuditStore(made.client).check_lanes(world.workspace, "p", repair=False)) == []


def test_it_ends_with_its_time(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    now = 0.0
    copying = WorkspaceCopier(world.client, FakeRedisProvider(), world.clock, lambda: now)

    def takes_long() -> None:
        nonlocal now
        with copying.copy(world.workspace) as made:
            there = Ledger(made.client, made.clock, world.limits)
            assert there.list_pools(world.workspace) == ["p"]
            now += RUN_TIMEOUT_S + 0.1
            there.list_pools(world.workspace)

    with pytest.raises(DryRunUnavailable) as late:
        takes_long()
    assert late.value.reason == "late"


def test_an_unused_workspace_is_empty(world: World) -> None:
    with WorkspaceCopier(world.client, FakeRedisProvider(), world.clock).copy("nobodys") as made:
        assert dump(made.client) == {}


def test_what_is_too_large_is_not_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.pool(gpu=1)
    world.policy()
    world.submit(gpu=1)
    monkeypatch.setattr(workspace_reader, "MAX_REQUESTS", 0)
    with (
        pytest.raises(RuleViolation) as error,
        WorkspaceCopier(world.client, FakeRedisProvider(), world.clock).copy(world.workspace),
    ):
        pass
    assert error.value.code == "too_many_requests_live"


@pytest.fixture
def place() -> ThrowawayRedis:
    require("embedded")
    return ThrowawayRedis()


def number_of(client: RedisClient) -> int:
    """Return the process id of a server."""
    process_id: int = client.info("server")["process_id"]
    return process_id


def test_it_is_empty_each_time_and_keeps_nothing(place: ThrowawayRedis) -> None:
    with place.empty_redis() as client:
        client.set("a", "b")
        first = number_of(client)
    assert client.dbsize() == 0
    with place.empty_redis() as client:
        assert (client.keys(), number_of(client)) == ([], first)
    with pytest.raises(ZeroDivisionError), place.empty_redis() as client:
        client.set("a", 1 // 0)
    assert client.dbsize() == 0


@pytest.mark.parametrize("noticed", [True, False])
def test_one_that_was_killed_is_replaced(place: ThrowawayRedis, noticed: bool) -> None:
    with place.empty_redis() as client:
        first = number_of(client)
    server = place._server
    assert server
    os.kill(first, signal.SIGKILL)
    if noticed:
        wait_until(lambda: not server.alive, "it has ended")
    with place.empty_redis() as client:
        assert number_of(client) != first
    assert place._server
    assert server is place._server or not server.data_dir.exists()


def test_one_that_hangs_is_replaced(place: ThrowawayRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_copy, "RUN_TIMEOUT_S", 0.3)
    with place.empty_redis() as client:
        first = number_of(client)
    os.kill(first, signal.SIGSTOP)
    with place.empty_redis() as client:
        assert number_of(client) != first
    assert not Path(f"/proc/{first}/stat").exists()


def test_if_the_next_one_fails_as_well_it_says_so(place: ThrowawayRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RedisError

    with monkeypatch.context() as harm:
        harm.setattr(Redis, "flushall", fails)
        with pytest.raises(DryRunUnavailable) as lost, place.empty_redis():
            pass
    assert lost.value.reason == "lost"
    with place.empty_redis() as client:
        assert client.ping()


def test_one_that_fails_under_way_is_not_taken_for_the_ledgers(world: World, place: ThrowawayRedis) -> None:
    world.pool(gpu=1)
    world.policy()
    copying = WorkspaceCopier(world.client, place, world.clock)

    def submits_after(harm: Callable[[RedisClient], object]) -> None:
        with copying.copy(world.workspace) as made:
            harm(made.client)
            Ledger(made.client, made.clock, world.limits).submit(world.workspace, world.request_spec(gpu=1))

    def dies(client: RedisClient) -> None:
        os.kill(number_of(client), signal.SIGKILL)

    def is_full(client: RedisClient) -> None:
        client.config_set("maxmemory", 1)

    for harm in (dies, is_full):
        with pytest.raises(DryRunUnavailable, match="the next dry run starts another") as lost:
            submits_after(harm)
        assert lost.value.reason == "lost"
    with copying.copy(world.workspace) as made:
        assert Ledger(made.client, made.clock, world.limits).list_pools(world.workspace) == ["p"]


def test_one_copy_is_made_at_a_time_and_no_caller_waits_for_long(
    place: ThrowawayRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_copy, "WAIT_TIMEOUT_S", 0.05)
    refused: list[str] = []

    def other() -> None:
        with pytest.raises(DryRunUnavailable) as busy, place.empty_redis():
            pass
        refused.append(busy.value.reason)

    with place.empty_redis():
        thread = Thread(target=other)
        thread.start()
        thread.join()
    assert refused == ["busy"]


def test_without_any_server_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise StoreMisconfigured("there is no Redis to use")

    monkeypatch.setattr("app.store.embedded_redis.find_server", nowhere)
    message = "this API has no throwaway server for dry runs"
    with pytest.raises(DryRunUnavailable, match=message) as none, ThrowawayRedis().empty_redis():
        pass
    assert none.value.reason == "impossible"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder for temporary files of this test."""
    require("embedded")
    with TemporaryDirectory(prefix="pk-", dir="/tmp") as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def test_one_that_cannot_start_leaves_nothing_behind(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "redis-server"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Redis server v=7.2.0 sha" || exit 1\n')
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    place = ThrowawayRedis()
    for _ in range(2):
        with pytest.raises(DryRunUnavailable, match="this API has no throwaway server"), place.empty_redis():
            pass
    assert list(here.iterdir()) == []
    monkeypatch.setattr("tempfile.tempdir", str(here / "nowhere"))
    with pytest.raises(DryRunUnavailable, match="this API has no throwaway server"), place.empty_redis():
        pass


def test_a_folder_whose_path_is_too_long_for_a_socket_does_no_harm(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = here / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    place = ThrowawayRedis()
    with place.empty_redis():
        assert list(long.iterdir()) == []
        assert place._server
        folder = place._server.data_dir
        assert folder.exists()
    del place
    gc.collect()
    assert not folder.exists()


def test_a_server_without_an_owner_ends(here: Path) -> None:
    place = ThrowawayRedis()
    with place.empty_redis() as client:
        server = number_of(client)
    del place
    gc.collect()
    assert not Path(f"/proc/{server}").exists()
    assert list(here.iterdir()) == []


def test_a_process_that_ends_leaves_nothing_behind_and_one_that_was_killed_not_for_ever(here: Path) -> None:
    program = (
        "import sys; from app.store.workspace_copy import ThrowawayRedis; place = ThrowawayRedis()\n"
        "with place.empty_redis() as client: print(client.info('server')['process_id'], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        server = child.stdout.readline().strip()
        child.communicate()
    assert not Path(f"/proc/{server}").exists()
    assert list(here.iterdir()) == []
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as two:
        assert two.stdout
        server = two.stdout.readline().strip()
        (folder,) = here.iterdir()
        with ThrowawayRedis().empty_redis():
            assert folder.exists()  # it is in use
        two.kill()
    wait_until(lambda: not Path(f"/proc/{server}").exists(), "the server has ended with its process")
    place = ThrowawayRedis()
    with place.empty_redis():
        assert not folder.exists()
        assert len(list(here.iterdir())) == 1


def test_a_fork_leaves_its_parents_alone_and_has_one_of_its_own(here: Path) -> None:
    program = """
import os, sys
from app.store.workspace_copy import ThrowawayRedis
place = ThrowawayRedis()
with place.empty_redis() as client:
    server = client.info('server')['process_id']
    if not (child := os.fork()):
        with place.empty_redis() as own:
            sys.exit(0 if own.info('server')['process_id'] != server else 1)
    assert os.waitpid(child, 0)[1] == 0
    client.set('a', 'b')
with place.empty_redis() as client:
    assert client.info('server')['process_id'] == server
    client.connection_pool.disconnect()
    assert client.ping()
"""
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)
    assert list(here.iterdir()) == []


def test_time_stands_still_where_things_are_tried(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    request = world.submit(gpu=1, lease_s=10)
    world.clock.advance(5)
    with WorkspaceCopier(world.client, FakeRedisProvider(), world.clock).copy(world.workspace) as made:
        assert isinstance(made.clock, ManualClock)
        there = World(made.client, world.workspace)
        there.ledger = type(world.ledger)(made.client, made.clock, world.limits)
        assert there.get(request).lease_expires_ms == world.get(request).lease_expires_ms
