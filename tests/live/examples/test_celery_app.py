"""`examples/celery_app` with a worker of Celery's, by the README's commands: two teams, one training that comes back."""

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
from tests.support.paths import ROOT
from tests.support.poolkeeperd import Up, up

EXAMPLE = ROOT / "examples" / "celery_app"
README = (ROOT / "README.md").read_text("utf-8")


def shown() -> tuple[list[str], list[str]]:
    """The commands of the README's block, and what the last of them is shown to say."""
    (text,) = re.findall(r"^```console\n(\$ POOLKEEPER_BROKERS=.*?)^```", README, re.M | re.S)
    lines = [line.partition("  # ")[0].strip() for line in text.splitlines() if line.startswith("$ ")]
    message = text[text.rindex("\n$ ") :].splitlines()[2:]
    return [line.removeprefix("$ ") for line in lines], message


def words(line: str) -> str:
    """What it says whenever it says it; where a training was asked to leave is another step each day."""
    return re.sub(r"after \d+ steps", "after N steps", re.sub(r"^ *[\d.]+ s  ", "", line))


@dataclass
class Example:
    """The app beside a service, with a worker, as the README starts them."""

    variables: dict[str, str]
    log: Path

    def demo(self, *words: str) -> list[str]:
        """What it says, to its end."""
        command = " ".join([shown()[0][-1], *words])
        done = subprocess.run(
            ["bash", "-c", command], cwd=EXAMPLE, env=self.variables, check=True, timeout=120, capture_output=True, text=True
        )
        return done.stdout.splitlines()


@pytest.fixture(scope="module")
def example() -> Iterator[Example]:
    """The example at work, in a folder with a short name; afterwards no card is held or waited for."""
    require("embedded")
    with TemporaryDirectory(prefix="pk-") as folder, beside_a_service(Path(folder)) as (running, example):
        start, declare, work, _ = shown()[0]
        assert start == "POOLKEEPER_BROKERS=examples/celery_app/brokers.toml make up"
        subprocess.run(["bash", "-c", declare], cwd=ROOT, env=example.variables, check=True, timeout=30, capture_output=True)
        worker = ChildProcess(["/bin/bash", "-c", f"exec {work}"], example.log, env=example.variables, cwd=EXAMPLE)
        try:
            yield example
        finally:
            worker.stop()
        pool = running.ask("GET", "/pools/cards").body
        assert (pool["active_count"], pool["queue_length"], pool["free"]["card"]) == (0, 0, 2)


@contextmanager
def beside_a_service(folder: Path) -> Iterator[tuple[Up, Example]]:
    """Yield the service as the first command of the README starts it, and the variables of the other commands."""
    with up(folder, PWD=str(folder), POOLKEEPER_BROKERS=str(EXAMPLE / "brokers.toml")) as running:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("POOLKEEPER_")}
        names = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "POOLKEEPER_URL": f"http://127.0.0.1:{running.port}",
            "EXAMPLE_REDIS": f"redis+socket://{folder}/data/redis.sock",
            "EXAMPLE_SAVED": str(folder / "saved"),
            "XDG_CONFIG_HOME": "/nonexistent",
        }
        yield running, Example(clean | names, folder / "worker.log")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_example_does_what_the_readme_shows(example: Example) -> None:
    message = example.demo()
    assert sorted(map(words, message)) == sorted(map(words, shown()[1]))
    lines = re.findall(r"(\w+) (leaves at|trains from) step (\d+)", example.log.read_text())
    (component, left_at) = next((name, step) for name, kind, step in lines if kind == "leaves at")
    assert lines.count((component, "trains from", left_at)) == 1, "it went on from where it left"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("steps", ["8", "0"])
def test_with_few_steps_it_ends_as_well_and_says_what_happened_instead(example: Example, steps: str) -> None:
    message = [words(line) for line in example.demo(steps)]
    trained = [line.partition(",")[0] for line in message if " trained" in line]
    assert trained == ["first trained", "second trained"]
    assert "model evaluated in cards" in message
    instead = [line for line in message if " ended before " in line]
    assert instead or any("in an earlier life" in line for line in message), message
