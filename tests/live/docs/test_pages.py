"""Every page of the documentation with commands: they are carried out, and answer as the page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from app.store.schema import check_schema
from app.store.workspaces import WorkspaceRegistry
from tests.support.backends import require, start
from tests.support.doc_pages import PAGES, Page
from tests.support.paths import ROOT
from tests.support.poolkeeperd import Up, up
from tests.support.programs import require_program
from tests.support.transcripts import PAGE_TIMEOUT_S, carry_out, run_script, steps
from tests.support.world import World

pytestmark = pytest.mark.timeout(PAGE_TIMEOUT_S + 60)
RUN = [page for page in PAGES if page.stage and steps(page)]


def on(*stages: str) -> pytest.MarkDecorator:
    """Return the mark that repeats a test for each page of these stages."""
    pages = [page for page in RUN if page.stage in stages]
    return pytest.mark.parametrize("page", pages, ids=[page.name for page in pages])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Yield the service as `make up` runs it."""
    require("embedded")
    with up(tmp_path_factory.mktemp("docs")) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty folder but for copies of the repository's samples."""
    for name in ("config", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


@on("service", "sample pools")
def test_the_commands_of_a_page_answer_as_shown(service: Up, folder: Path, page: Page) -> None:
    variables = {
        "POOLKEEPER_URL": f"http://127.0.0.1:{service.port}",
        "POOLKEEPER_WORKSPACE": re.sub(r"[^a-z]+", "-", page.name.lower()).strip("-"),
    }
    if page.stage == "sample pools":
        program = Path(sys.executable).parent / "poolkeeper"
        words = [str(program), "apply", "-f", str(ROOT / "config" / "pools.yaml"), "--yes"]
        subprocess.run(words, env={**os.environ, **variables}, check=True, capture_output=True, timeout=30)
    carry_out(page, folder, variables)


@on("nothing")
def test_the_commands_without_a_service_answer_as_shown(folder: Path, page: Page) -> None:
    carry_out(page, folder, {})


@pytest.fixture
def redis_cli(tmp_path: Path) -> Iterator[Path]:
    """Yield the folder of a `redis-cli` that reaches a server with one pool, two teams and three requests."""
    require("redis")
    program = require_program("redis-cli", "redis-tools")
    with start("redis", tmp_path) as client:
        assert isinstance(client, Redis)
        check_schema(client)
        world = World(client, "default")
        WorkspaceRegistry(client).add("default")
        world.pool("gpus", gpu=8)
        world.policy("red", pool="gpus", priority=1)
        world.policy("blue", pool="gpus", priority=1, reserved={"gpu": 4})
        world.submit("red", gpu=8, own_id="request-red-1")
        world.submit("red", gpu=2, own_id="request-red-2")
        world.submit("blue", gpu=2, own_id="request-blue-1")
        path = tmp_path / "bin" / "redis-cli"
        path.parent.mkdir()
        socket = client.connection_pool.connection_kwargs["path"]
        path.write_text(f'#!/bin/sh\nexec {program} -s {socket} "$@"\n', "utf-8")
        path.chmod(0o755)
        yield path.parent


@on("redis")
def test_every_redis_cli_command_answers_as_shown(redis_cli: Path, folder: Path, page: Page) -> None:
    carry_out(page, folder, {}, path_first=redis_cli)


@pytest.mark.timeout(60)
def test_the_jobs_of_a_page_that_never_ends_are_killed(tmp_path: Path) -> None:
    assert run_script("sleep 300 & wait", tmp_path, os.environ, timeout_s=0.2) == ""
