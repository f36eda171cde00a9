"""The README says what the code does: its keys, its commands and its program are checked or run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from app.store.keys import KEYS
from app.store.workspaces import WorkspaceRegistry
from tests.support.backends import available, start
from tests.support.paths import ROOT
from tests.support.world import World

README = (ROOT / "README.md").read_text("utf-8")


def block(language: str, with_words: str) -> str:
    """The code block of a language that holds these words."""
    blocks: list[str] = [text for name, text in re.findall(r"^```(\w+)\n(.*?)^```", README, re.M | re.S) if name == language]
    (text_block,) = [text for text in blocks if with_words in text]
    return text_block


def test_the_table_of_keys_is_the_list_of_keys() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (hash|zset|set|list|string|stream|channel) \| (.+) \|$", README, re.M)
    assert rows == [(key.shape, key.type, key.meaning.replace("|", "&#124;")) for key in KEYS.values()]


def test_the_program_does_what_its_comments_say(tmp_path: Path) -> None:
    program = block("python", "RequestSpec")
    expected = [text.strip() for text in re.findall(r"print\(.*#(.*)$", program, re.M)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("POOLKEEPER_")}
    environment = {**clean, "POOLKEEPER_DATA_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == expected


@pytest.fixture
def story(tmp_path: Path) -> object:
    """The state the README's page on redis-cli looks at, on a plain Redis; gives the words that reach it."""
    if absent := available("redis") or (None if shutil.which("redis-cli") else "no redis-cli on PATH"):
        if os.environ.get("CI"):
            pytest.fail(absent)
        pytest.skip(absent)
    with start("redis", tmp_path) as client:
        assert isinstance(client, Redis)
        world = World(client, "default")
        WorkspaceRegistry(client).add("default")
        world.pool("gpus", gpu=8)
        world.policy("red", pool="gpus", priority=1)
        world.policy("blue", pool="gpus", priority=1, reserved={"gpu": 4})
        world.submit("red", gpu=8, own_id="request-red-1")
        world.submit("red", gpu=2, own_id="request-red-2")
        world.submit("blue", gpu=2, own_id="request-blue-1")
        yield ["redis-cli", "-s", client.connection_pool.connection_kwargs["path"]]


def test_every_redis_cli_command_answers_as_shown(story: list[str]) -> None:
    parts = re.split(r"^\$ redis-cli (.+)\n", block("console", "redis-cli SMEMBERS"), flags=re.M)[1:]
    assert len(parts) > 10
    for command, expected in zip(parts[::2], parts[1::2], strict=True):
        done = subprocess.run([*story, *shlex.split(command)], capture_output=True, text=True, check=True, timeout=20)
        assert done.stdout == expected, command
