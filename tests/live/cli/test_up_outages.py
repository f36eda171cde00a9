"""`poolkeeperd up`, killed: its processes end with it at once, and the port is free. And `up` while its Redis has no memory."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis

from tests.support.backends import require, short_folder, wait_until
from tests.support.poolkeeperd import Up, descendants, living, up

POOLS = "pools: [{name: gpus, capacity: {gpu: 2}, policies: [{component: team}]}]"
REQUEST = {"component": "team", "resources": {"gpu": 1}, "lease_s": None}
AT_ONCE_S = 2
"""On a loaded machine; on an idle one it is a hundredth of a second."""
UNFINISHED_REQUEST = (
    b"POST /api/v1/requests HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
)
STREAM_REQUEST = b"GET /api/v1/events/stream HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    require("embedded")
    with short_folder(tmp_path) as made:
        yield made


def test_killed_its_processes_end_at_once_and_the_port_is_free(folder: Path) -> None:
    with up(folder, POOLKEEPER_API_PROCESSES="2", POOLKEEPER_WORKER_PROCESSES="2") as here, ExitStack() as clients:
        for request in (UNFINISHED_REQUEST, UNFINISHED_REQUEST, STREAM_REQUEST):
            clients.enter_context(socket.create_connection((here.host, here.port))).sendall(request)
        assert here.ask("GET", "/whoami").status == 200, "the API has accepted the connections before this one"
        wait_until(lambda: has_forks(descendants(here.process.pid)), "the children have forked")
        below = descendants(here.process.pid)
        start = time.monotonic()
        here.process.kill()
        here.process.wait()
        wait_until(lambda: living(below) == {}, "all of its processes have ended", AT_ONCE_S)
        require_free(here)
        assert time.monotonic() - start < AT_ONCE_S


def has_forks(below: dict[int, str]) -> bool:
    """True if the API and the worker run with their forks."""
    least = {"gunicorn": 3, "celeryd": 3, "celery beat": 1, "redis.sock": 1}
    return all(sum(words in command for command in below.values()) >= count for words, count in least.items())


def require_free(here: Up) -> None:
    """Raise an error if a process still listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((here.host, here.port))
        probe.listen()


def test_while_redis_has_no_memory_the_api_takes_what_gives_units_back(folder: Path) -> None:
    (folder / "pools.yaml").write_text(POOLS)
    with up(folder, "--pools", "pools.yaml", POOLKEEPER_RECONCILE_INTERVAL_S="0.1") as here:
        requests = [here.ask("POST", "/requests", REQUEST).body for _ in range(3)]
        assert [request["status"] for request in requests] == ["allocated", "allocated", "queued"]
        released, dropped, cancelled = requests
        with Redis(unix_socket_path=str(folder / "data" / "redis.sock")) as server:
            server.config_set("maxmemory", 1)
            wait_until(lambda: refuses_worker(server, folder / "data" / "log" / "worker.log"), "refused", every_s=0.5)
        assert here.ask("POST", "/requests", REQUEST).status == 503
        assert here.ask("POST", f"/requests/{cancelled['id']}/cancel").body["status"] == "cancelled"
        assert here.ask("DELETE", f"/requests/{dropped['id']}").body["status"] == "released"
        release = {"fence": released["fence"], "outcome": "succeeded"}
        assert here.ask("POST", f"/requests/{released['id']}/release", release).body["status"] == "released"
        assert here.errors.read_text() == "", "no process has ended"


def refuses_worker(server: Redis, log: Path) -> bool:
    """True if the worker was refused when it connected; until then its connection is broken."""
    server.client_kill_filter(_type="normal", skipme=True)
    return "connected anew" in log.read_text()
