"""The commands of the README do what it shows: the tour, the pools, the lines of curl, the training, the client in Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.backends import require
from tests.support.paths import ROOT
from tests.support.poolkeeperd import Up, up

README = (ROOT / "README.md").read_text("utf-8")
MARK = "@@ {} @@"


def block(language: str, with_words: str) -> str:
    """The code block of a language that holds these words."""
    blocks: list[str] = [text for name, text in re.findall(r"^```(\w+)\n(.*?)^```", README, re.M | re.S) if name == language]
    (code,) = [text for text in blocks if with_words in text]
    return code


def shown(text: str) -> list[tuple[str, str]]:
    """Each command of a console block with what it is shown to answer."""
    parts = re.split(r"^\$ (.+)\n", text, flags=re.M)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def same(text: str) -> str:
    """What does not differ from one day to the next: ids are numbered as they come, times and ages are all alike."""
    ids: dict[str, str] = {}
    text = re.sub(r"\b[0-9a-hjkmnp-tv-z]{20}\b", lambda match: ids.setdefault(match[0], f"id-{len(ids)}".ljust(20)), text)
    part = r"[0-9a-hjkmnp-tv-z]{6}"
    short = rf"(?:^|(?<=^  )|(?<=^    )){part}(?= )|(?<=request ){part}(?=,)"
    text = re.sub(short, lambda match: ids.setdefault(match[0], f"{len(ids):<6}"), text, flags=re.M)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"\b\d+s( +-$| +preempted |$)", r"AGE\1", text, flags=re.M)
    return re.sub(r"AGE +", "AGE", text)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """The service as `make up` runs it, with the sample pools."""
    require("embedded")
    with up(tmp_path_factory.mktemp("readme")) as running:
        yield running


def environment(here: Up, workspace: str) -> dict[str, str]:
    """What the commands are to know."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("POOLKEEPER_")}
    where = {"POOLKEEPER_URL": f"http://127.0.0.1:{here.port}", "POOLKEEPER_WORKSPACE": workspace}
    return {**clean, **where, "PATH": path, "XDG_CONFIG_HOME": "/nonexistent"}


def carry_out(here: Up, folder: Path, text: str) -> None:
    """Every command of a console block, in one shell; each answers as shown. An ellipsis stands for the rest of a line."""
    commands = shown(text)
    script = "\n".join(f"{command}\necho '{MARK.format(number)}'" for number, (command, _) in enumerate(commands))
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment(here, "default"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=True,
    )
    answers = re.split("@@ \\d+ @@\n", same(done.stdout))[:-1]
    expected_answers = re.split("@@ \\d+ @@\n", same("".join(f"{expected}{MARK.format(0)}\n" for _, expected in commands)))[:-1]
    for (command, _), answer, expected in zip(commands, answers, expected_answers, strict=True):
        assert len(expected.splitlines()) == len(answer.splitlines()), f"{command}\n{answer}"
        for line, answer_line in zip(expected.splitlines(), answer.splitlines(), strict=True):
            assert answer_line == line if not line.endswith("…") else answer_line.startswith(line[:-1]), f"{command}\n{answer}"


def test_the_tour_and_the_file_of_pools(here: Up, tmp_path: Path) -> None:
    carry_out(here, tmp_path, block("console", "pool requests gpus --view all"))
    carry_out(here, tmp_path, block("console", "poolkeeper plan -f pools.yaml"))
    carry_out(here, tmp_path, block("console", "poolkeeper pool shares lab"))
    carry_out(here, tmp_path, block("console", "poolkeeper request explain $waits"))


def test_the_lines_of_curl(here: Up, tmp_path: Path) -> None:
    carry_out(here, tmp_path, block("console", "json='Content-Type"))


def test_what_up_says_can_be_tried_can_be(here: Up) -> None:
    lines = [line.strip() for line in here.said[here.said.index("Try, in another terminal:") + 1 : -1]]
    assert lines[0] == f"export POOLKEEPER_URL=http://127.0.0.1:{here.port}"
    assert len(lines) == 4, "the address, as it is not the usual one, and three commands"
    variables = {name: value for name, value in environment(here, "default").items() if not name.startswith("POOLKEEPER_")}
    done = subprocess.run(
        ["bash", "-ec", "\n".join(lines)], env=variables, capture_output=True, text=True, timeout=60, check=True
    )
    assert "the shared GPUs" in done.stdout
    assert "allocated in gpus" in done.stdout


def test_the_client_in_python(here: Up) -> None:
    program = block("python", "from poolkeeper import Client")
    expected = [text.strip() for text in re.findall(r"print\(.*#(.*)$", program, re.M)]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(here, "default"),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == expected


@pytest.mark.slow
def test_the_training_that_is_preempted(here: Up, tmp_path: Path) -> None:
    text = block("console", "examples/train.py >")
    commands = "\n".join(command for command, _ in shown(text))
    names = environment(here, "training")
    subprocess.run(["poolkeeper", "apply", "-f", ROOT / "config" / "pools.yaml", "--yes"], env=names, check=True, timeout=30)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        ["bash", "-c", commands],
        cwd=tmp_path,
        env=names,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=90,
        check=True,
    )
    expected = [same_training(line) for line in text.splitlines() if not line.startswith("$ ")]
    answers = [same_training(line) for line in done.stdout.splitlines()]
    waits = {line for line in expected if ": waiting in " in line}
    assert waits >= {line for line in answers if ": waiting in " in line}, "a wait that is short may have no line"
    assert [line for line in answers if line not in waits] == [line for line in expected if line not in waits]


def same_training(line: str) -> str:
    """Return the line without what differs from one day to the next."""
    line = re.sub(r"\b[0-9a-hjkmnp-tv-z]{20}\b", "ID", line)
    line = re.sub(r"(\(|of |from )\S*(train\.json)", r"\1\2", line)
    line = re.sub(r"\(\S+@\S+ ", "(OWNER ", line)
    line = re.sub(r"within (10m|9m\d+s)", "within N", line)
    line = re.sub(r"\d\d:\d\d", "TIME", line)
    return re.sub(r"(saved at step|going on from step) \d+", r"\1 N", line)
