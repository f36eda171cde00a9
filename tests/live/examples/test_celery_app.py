"""Both apps of `docs/guides/celery.md`, each with a worker of Celery, by the commands of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from app.store.child_process import ChildProcess
from tests.support.backends import require
from tests.support.doc_pages import Page
from tests.support.paths import ROOT
from tests.support.poolkeeperd import up

EXAMPLE = ROOT / "examples" / "celery_app"
BLOCKS = Page(ROOT / "docs/guides/celery.md").blocks()


def transcript(start: str) -> tuple[list[str], list[str]]:
    """Return the commands of the block that starts with this command, and the output of its last command."""
    (block,) = [block for block in BLOCKS if block.language == "console" and block.text.startswith(f"$ {start} ")]
    commands = block.commands()
    return [command.text.partition("  # ")[0].strip() for command in commands], commands[-1].expected.splitlines()


def comparable(line: str) -> str:
    """Return a line without its time, and without the step at which a training was asked to leave."""
    return re.sub(r"after \d+ steps", "after N steps", re.sub(r"^ *[\d.]+ s  ", "", line))


@dataclass
class RunningApp:
    """An app beside a service, with a worker, as the page starts them."""

    folder: Path
    variables: dict[str, str]
    log: Path
    last_command: str

    def output(self, *arguments: str) -> list[str]:
        """Return the lines that the last command of the page prints."""
        result = subprocess.run(
            ["bash", "-c", " ".join([self.last_command, *arguments])],
            cwd=self.folder,
            env=self.variables,
            check=True,
            timeout=120,
            stdout=subprocess.PIPE,
            text=True,
        )
        return result.stdout.splitlines()


@contextmanager
def running_app(start: str, folder: Path, app_folder: Path, declare_in: Path, brokers: Path) -> Iterator[RunningApp]:
    """Yield an app while a service and a worker run; afterwards no unit of a pool is held or waited for."""
    (_, declare, work, last), _ = transcript(start)
    redis = f"redis+socket://{folder}/data/redis.sock"
    broker = f"{redis}?virtual_host=1"
    with up(folder, PWD=str(folder), POOLKEEPER_BROKERS=str(brokers), BROKER_URL=broker) as service:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("POOLKEEPER_")}
        variables = clean | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "POOLKEEPER_URL": f"http://127.0.0.1:{service.port}",
            "BROKER_URL": broker,
            "EXAMPLE_REDIS": redis,
            "EXAMPLE_SAVED": str(folder / "saved"),
            "XDG_CONFIG_HOME": "/nonexistent",
        }
        subprocess.run(["bash", "-c", declare], cwd=declare_in, env=variables, check=True, timeout=30, capture_output=True)
        log = folder / "worker.log"
        worker = ChildProcess(["/bin/bash", "-c", f"exec {work}"], log, env=variables, cwd=app_folder)
        try:
            yield RunningApp(app_folder, variables, log, last)
        finally:
            worker.stop()
        for pool in service.ask("GET", "/pools").body["items"]:
            assert (pool["active_count"], pool["queue_length"]) == (0, 0), pool["name"]


@pytest.mark.timeout(120)
def test_the_app_of_the_page_waits_for_its_licence_seat() -> None:
    require("embedded")
    start = "POOLKEEPER_BROKERS=brokers.toml poolkeeperd up"
    with TemporaryDirectory(prefix="pk-") as name:
        folder = Path(name)
        files = {block.markers["file"]: block.text for block in BLOCKS if "file" in block.markers}
        assert sorted(files) == ["brokers.toml", "call.py", "pools.yaml", "tasks.py"]
        for path, text in files.items():
            (folder / path).write_text(text)
        with running_app(start, folder, folder, folder, folder / "brokers.toml") as app:
            assert app.output() == transcript(start)[1]


EXAMPLE_START = "POOLKEEPER_BROKERS=examples/celery_app/brokers.toml make up"


@pytest.fixture(scope="module")
def example() -> Iterator[RunningApp]:
    """Run `examples/celery_app`, in a folder with a short name."""
    require("embedded")
    with (
        TemporaryDirectory(prefix="pk-") as folder,
        running_app(EXAMPLE_START, Path(folder), EXAMPLE, ROOT, EXAMPLE / "brokers.toml") as app,
    ):
        yield app


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_example_prints_the_transcript_of_the_page(example: RunningApp) -> None:
    output, expected = example.output(), transcript(EXAMPLE_START)[1]
    assert sorted(map(comparable, output)) == sorted(map(comparable, expected))
    lines = re.findall(r"(\w+) (leaves at|trains from) step (\d+)", example.log.read_text())
    (component, left_at) = next((name, step) for name, kind, step in lines if kind == "leaves at")
    assert lines.count((component, "trains from", left_at)) == 1, "it continues at the step at which it left"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("steps", ["8", "0"])
def test_the_example_with_few_steps_ends_and_says_that_no_training_had_to_leave(example: RunningApp, steps: str) -> None:
    output = [comparable(line) for line in example.output(steps)]
    trained = [line.partition(",")[0] for line in output if " trained" in line]
    assert trained == ["first trained", "second trained"]
    assert "model evaluated in cards" in output
    instead = [line for line in output if " ended before " in line]
    assert instead or any("in an earlier life" in line for line in output), output
