"""`examples/celery_app` with a worker of Celery's, by the README's commands: two teams, one training that comes back."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.store.child import Child
from tests.backends import require
from tests.cli.processes import Up, up

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "celery_app"
README = (ROOT / "README.md").read_text("utf-8")


def shown() -> tuple[list[str], list[str]]:
    """The commands of the README's block, and what the last of them is shown to say."""
    (text,) = re.findall(r"^```console\n(\$ POOLKEEPER_BROKERS=.*?)^```", README, re.M | re.S)
    lines = [line.partition("  # ")[0].strip() for line in text.splitlines() if line.startswith("$ ")]
    said = text[text.rindex("\n$ ") :].splitlines()[2:]
    return [line.removeprefix("$ ") for line in lines], said


def words(line: str) -> str:
    """What it says whenever it says it; where a training was asked to leave is another step each day."""
    return re.sub(r"after \d+ steps", "after N steps", re.sub(r"^ *[\d.]+ s  ", "", line))


@pytest.fixture
def here() -> Iterator[tuple[Up, dict[str, str]]]:
    """The service as the first command starts it, and what the others are to know, in a folder with a short name."""
    require("embedded")
    folder = Path(tempfile.mkdtemp(prefix="pk-"))
    try:
        with up(folder, PWD=str(folder), POOLKEEPER_BROKERS=str(EXAMPLE / "brokers.toml")) as running:
            clean = {name: value for name, value in os.environ.items() if not name.startswith("POOLKEEPER_")}
            yield (
                running,
                {
                    **clean,
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    "POOLKEEPER_URL": f"http://127.0.0.1:{running.port}",
                    "EXAMPLE_REDIS": f"redis+socket://{folder}/data/redis.sock",
                    "EXAMPLE_SAVED": str(folder / "saved"),
                    "XDG_CONFIG_HOME": "/nonexistent",
                },
            )
    finally:
        shutil.rmtree(folder)


@pytest.mark.timeout(180)
def test_the_example_does_what_the_readme_shows(here: tuple[Up, dict[str, str]], tmp_path: Path) -> None:
    running, known = here
    (start, declare, work, demo), expected = shown()
    assert start == "POOLKEEPER_BROKERS=examples/celery_app/brokers.toml make up"
    subprocess.run(["bash", "-c", declare], cwd=ROOT, env=known, check=True, timeout=30, capture_output=True)
    log = tmp_path / "worker.log"
    worker = Child(["/bin/bash", "-c", f"exec {work}"], log, env=known, cwd=EXAMPLE)
    try:
        done = subprocess.run(
            ["bash", "-c", demo], cwd=EXAMPLE, env=known, check=True, timeout=120, capture_output=True, text=True
        )
    finally:
        worker.stop()
    assert sorted(map(words, done.stdout.splitlines())) == sorted(map(words, expected))
    told = re.findall(r"(\w+) (leaves at|trains from) step (\d+)", log.read_text())
    (who, left_at) = next((name, step) for name, what, step in told if what == "leaves at")
    assert told.count((who, "trains from", left_at)) == 1, "it went on from where it left"
    pool = running.ask("GET", "/pools/cards").body
    assert (pool["active_count"], pool["queue_length"], pool["free"]["card"]) == (0, 0, 2)
