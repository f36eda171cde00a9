"""Both apps of `docs/guides/celery.md`, each with a worker of Celery, by the commands of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from app.store.child_process import ChildProcess
from tests.support.backends import require
from tests.support.doc_pages import Block, Page
from tests.support.paths import ROOT
from tests.support.poolkeeperd import up
from tests.support.transcripts import carry_out

EXAMPLE = ROOT / "examples" / "celery_app"
PAGE = ROOT / "docs/guides/celery.md"
BLOCKS = Page(PAGE).blocks()
WORKER = "celery --app "
LONG_STEPS = 120
"""Steps of a tenth of a second: enough for a directive before the last one, also on a busy machine."""
EXAMPLE_START = "POOLKEEPER_BROKERS=examples/celery_app/brokers.toml make up"


def example_block() -> Block:
    """Return the block of `examples/celery_app`."""
    (block,) = [block for block in BLOCKS if block.text.startswith(f"$ {EXAMPLE_START} ")]
    return block


def transcript() -> tuple[list[str], list[str]]:
    """Return the commands of the block of `examples/celery_app`, and the output of its last command."""
    commands = example_block().commands()
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
def service_with_broker(folder: Path, brokers: Path, *arguments: str) -> Iterator[dict[str, str]]:
    """Yield the variables of an app while a service runs; afterwards no unit of a pool is held or waited for."""
    redis = f"redis+socket://{folder}/data/redis.sock"
    broker = f"{redis}?virtual_host=1"
    with up(folder, *arguments, PWD=str(folder), POOLKEEPER_BROKERS=str(brokers), BROKER_URL=broker) as service:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("POOLKEEPER_")}
        yield clean | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "POOLKEEPER_URL": f"http://127.0.0.1:{service.port}",
            "BROKER_URL": broker,
            "EXAMPLE_REDIS": redis,
            "EXAMPLE_SAVED": str(folder / "saved"),
            "XDG_CONFIG_HOME": "/nonexistent",
        }
        for pool in service.ask("GET", "/pools").body["items"]:
            assert (pool["active_count"], pool["queue_length"]) == (0, 0), pool["name"]


@contextmanager
def celery_worker(command: str, folder: Path, variables: dict[str, str], log: Path) -> Iterator[None]:
    """Run a worker of Celery by the command of the page, and stop it when its tasks are done."""
    worker = ChildProcess(["/bin/bash", "-c", f"exec {command}"], log, env=variables, cwd=folder)
    try:
        yield
    finally:
        worker.stop()


@dataclass(frozen=True)
class PagePart(Page):
    """The commands of the third terminal, as long as one worker runs."""

    part: tuple[Block, ...]

    def blocks(self) -> list[Block]:
        """Return the blocks without the marker that keeps them from the common test."""
        return [replace(block, markers={}) for block in self.part]


def worker_parts() -> list[tuple[str, PagePart]]:
    """Return the command of each worker of the page, with the transcripts of the third terminal that follow it."""
    parts: list[tuple[str, list[Block]]] = []
    for block in BLOCKS[: BLOCKS.index(example_block())]:
        if block.language == "console":
            workers = [command for command in block.commands() if command.text.startswith(WORKER)]
            if workers:
                parts.append((workers[0].text.partition("  # ")[0], []))
            else:
                parts[-1][1].append(block)
    return [(worker, PagePart(PAGE, tuple(blocks))) for worker, blocks in parts]


@pytest.mark.timeout(180)
def test_the_app_of_the_page_waits_for_its_licence_seat_and_leaves_it_to_the_owner() -> None:
    require("embedded")
    with TemporaryDirectory(prefix="pk-") as name:
        folder = Path(name)
        files = {block.markers["file"]: block.text for block in BLOCKS if "file" in block.markers}
        assert sorted(files) == ["borrow.py", "brokers.toml", "call.py", "pools.yaml", "sweeps.py", "tasks.py"]
        for path, text in files.items():
            (folder / path).write_text(text)
        parts = worker_parts()
        assert len(parts) == 2
        with service_with_broker(folder, folder / "brokers.toml", "--no-pools") as variables:
            for command, part in parts:
                with celery_worker(command, folder, variables, folder / "worker.log"):
                    carry_out(part, folder, variables)


@pytest.fixture(scope="module")
def example() -> Iterator[RunningApp]:
    """Run `examples/celery_app`, in a folder with a short name."""
    require("embedded")
    (_, declare, work, demo), _ = transcript()
    with TemporaryDirectory(prefix="pk-") as name, service_with_broker(Path(name), EXAMPLE / "brokers.toml") as variables:
        subprocess.run(["bash", "-c", declare], cwd=ROOT, env=variables, check=True, timeout=30, capture_output=True)
        log = Path(name) / "worker.log"
        with celery_worker(work, EXAMPLE, variables, log):
            yield RunningApp(EXAMPLE, variables, log, demo)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_example_prints_the_transcript_of_the_page(example: RunningApp) -> None:
    output, expected = example.output(str(LONG_STEPS)), transcript()[1]
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
    assert instead or any("in an earlier run" in line for line in output), output
