"""`poolkeeperd`'s commands beside the service: on a real embedded server, wrong settings, help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.bootstrap import Services, open_services
from app.domain.specs import PoolSpec
from app.settings import Settings
from app.store.connection import RedisClient, connect
from tests.support.backends import require, short_folder
from tests.support.poolkeeperd import run, run_in_process


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    require("embedded")
    with short_folder(tmp_path) as made:
        yield made


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Services, RedisClient]]:
    """Yield the services and the Redis of the data folder, for as long as the context."""
    with open_services(Settings(data_dir=folder / "data")) as here, connect(here.url) as client:
        yield here.services, client


def test_audit_says_what_differs_and_repairs(folder: Path) -> None:
    with opened(folder) as (services, client):
        services.pools.create("w", PoolSpec(name="p", capacity={"gpu": 1}))
        client.hset("pk:{w}:pool:p", "used:gpu", "1")
    audit = run(folder, "audit", "w")  # in a process of its own, as a person runs it
    assert audit.returncode == 3
    assert "w: account p pool used gpu: 1, should be 0" in audit.stdout
    assert run_in_process(folder, "audit", "--repair").returncode == 0
    clean = run_in_process(folder, "audit")
    assert (clean.returncode, clean.stdout) == (0, "w: 0 differences\n")
    unknown = run_in_process(folder, "audit", "v")
    assert (unknown.returncode, unknown.stderr) == (1, "poolkeeperd: there is no workspace v; there are: w\n")
    assert not list((folder / "data").glob("*.sock"))


def test_tidy_does_one_round(folder: Path) -> None:
    with opened(folder) as (services, client):
        services.workspaces.add("w")
        client.zadd("pk:{w}:ended", {"old": 1})
    done = run_in_process(folder, "tidy")
    assert (done.returncode, done.stdout) == (0, "w: 0 leases lapsed, 0 waiters expired, 1 ended requests deleted\n")


@pytest.mark.parametrize(
    ("wrong", "code", "message"),
    [
        ({"POOLKEEPER_REDIS_URL": "http://nowhere"}, 1, "http"),
        ({"POOLKEEPER_REDIS_URL": "redis://127.0.0.1:1/0"}, 1, "127.0.0.1:1"),
        ({"POOLKEEPER_CHUNK": "many"}, 2, "POOLKEEPER_CHUNK"),
        ({"POOLKEEPER_PROT": "8102"}, 2, "did you mean POOLKEEPER_PORT?"),
    ],
)
def test_wrong_surroundings_are_one_line(folder: Path, wrong: dict[str, str], code: int, message: str) -> None:
    done = run_in_process(folder, "tidy", **wrong)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert message in done.stderr


def test_help_names_every_command(folder: Path) -> None:
    text = run_in_process(folder, "--help").stdout
    for command in ("up", "api", "worker", "beat", "token", "audit", "tidy"):
        assert f"\n  {command} " in text
