"""A worker whose Redis gives answers that Celery does not expect of a broker: it stays, and goes on when Redis recovers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from app.cli.process_commands import commands
from app.store.celery_url import KEY_PREFIX
from tests.support.backends import require, running, serve, short_folder, wait_until
from tests.support.poolkeeperd import environment

OUTAGES: Final[dict[str, tuple[Callable[[Any], object], Callable[[Any], object]]]] = {
    "out of memory": (lambda c: c.config_set("maxmemory", 1), lambda c: c.config_set("maxmemory", 0)),
    "read only": (lambda c: c.replicaof("127.0.0.1", 1), lambda c: c.replicaof("NO", "ONE")),
    "too few replicas": (
        lambda c: c.config_set("min-replicas-to-write", 1),
        lambda c: c.config_set("min-replicas-to-write", 0),
    ),
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    """Yield a server of its own."""
    require("redis")
    with short_folder(tmp_path) as place:
        path = str(place / "broker.sock")
        with (
            serve(tmp_path, "--port", "0", "--unixsocket", path),
            Redis(unix_socket_path=path, decode_responses=True) as client,
        ):
            wait_until(client.ping, "the server answers")
            yield client


def worker(folder: Path, server: Redis) -> Any:
    """Start the worker of the service on this server."""
    url = f"unix://{server.connection_pool.connection_kwargs['path']}"
    env = environment(folder, POOLKEEPER_REDIS_URL=url)
    return running(commands()["worker"], folder / "worker.log", env)


@pytest.mark.parametrize("outage", OUTAGES)
def test_a_worker_outlasts_what_its_broker_answers(outage: str, server: Redis, tmp_path: Path) -> None:
    begin, end = OUTAGES[outage]
    log = tmp_path / "worker.log"
    begin(server)
    with worker(tmp_path, server) as process:
        wait_until(lambda: log.read_text().count("connected anew") > 1 or not process.alive, "it has tried twice")
        assert process.alive, process.output_tail()
        end(server)
        wait_until(lambda: _listens(server), "it waits for messages")
        begin(server)
        server.client_kill_filter(_type="normal", skipme=True)
        attempts = log.read_text().count("connected anew")
        wait_until(lambda: log.read_text().count("connected anew") > attempts or not process.alive, "it has tried again")
        assert process.alive, process.output_tail()
        end(server)
        wait_until(lambda: _listens(server), "it waits for messages again")


def _listens(server: Redis) -> bool:
    """True if a client waits for the next message of the queue, and its queue is bound."""
    is_bound = server.exists(f"{KEY_PREFIX}_kombu.binding.poolkeeper")
    return bool(is_bound) and any(client["cmd"] == "brpop" for client in server.client_list())
