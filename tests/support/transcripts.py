"""Transcripts of documentation pages: carried out in one shell, and compared with what the page shows."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.doc_pages import Page
from tests.support.transcript_writer import write_output

PAGE_TIMEOUT_S = 180
"""Time for all commands of a page on a busy machine."""
_MARK = "@@ {} @@"
_ID = r"[0-9a-hjkmnp-tv-z]"
_MARKED_ID = f"«({_ID}{{20}})»"


@dataclass(frozen=True)
class Step:
    """A part of the shell script of a page, with the output that it must have."""

    line: int
    script: str
    expected: str


def steps(page: Page) -> list[Step]:
    """Return the page's files to write, programs and commands, in order; blocks of other tests are left out."""
    result: list[Step] = []
    for block in page.blocks():
        if "tested by" in block.markers:
            continue
        if path := block.markers.get("file"):
            result.append(
                Step(block.line, f"mkdir -p \"$(dirname {path})\"\ncat > {path} <<'@@END@@'\n{block.text}@@END@@\n", "")
            )
        elif block.language == "console":
            result += [Step(block.line, command.text, command.expected) for command in block.commands()]
        elif block.language == "python" and block.prints():
            result.append(Step(block.line, f"python - <<'@@END@@'\n{block.text}@@END@@\n", block.prints()))
    return result


def carry_out(page: Page, folder: Path, variables: Mapping[str, str], path_first: Path | None = None) -> None:
    """Run all steps of a page in one shell and compare each output with the page, which calls the folder `/home/ana`."""
    parts = steps(page)
    script = "".join(f"{step.script.rstrip()}\necho '{_MARK.format(number)}'\n" for number, step in enumerate(parts))
    first = [str(path_first)] if path_first else []
    clean = {name: value for name, value in os.environ.items() if not name.startswith("POOLKEEPER_")}
    path = ":".join([*first, str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**clean, "PATH": path, "XDG_CONFIG_HOME": "/nonexistent", "LOGNAME": "ana", "COLUMNS": "120", **variables}
    output = run_script(script, folder, environment, PAGE_TIMEOUT_S)
    *answers, _ = re.split(r"@@ \d+ @@\n", output.replace(str(folder), "/home/ana"))
    assert len(answers) == len(parts), f"{page.name}: the shell ended early, or took longer than {PAGE_TIMEOUT_S} s:\n{output}"
    compare(page, answers)


def run_script(script: str, folder: Path, environment: Mapping[str, str], timeout_s: float) -> str:
    """Run a script of bash and return its output. At the time limit the script and its background jobs are killed."""
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            return shell.communicate(timeout=timeout_s)[0]
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            return shell.communicate()[0]


def compare(page: Page, answers: Iterable[str]) -> None:
    """Compare the output of each step with the page.

    With the variable WRITE_TRANSCRIPTS an output that differs is written into the page.
    """
    known: dict[str, str] = {}
    for step, answer in zip(steps(page), answers, strict=True):
        place = f"{page.name}, the block of line {step.line}: {step.script}"
        for shown, actual in id_pairs(step.expected, answer) or ():
            is_same_request = known.setdefault(shown, actual) == actual and list(known.values()).count(actual) == 1
            assert is_same_request, f"{place}\nthe page shows {shown} for two requests, or two ids for one"
        if is_same(step.expected, answer) or (
            "WRITE_TRANSCRIPTS" in os.environ
            and write_output(page.path, step.line, step.script, step.expected, answer, is_same)
        ):
            continue
        output, expected = normalised(answer), normalised(step.expected)
        assert output == expected, f"{place}\nprints\n{output}instead of\n{expected}"


def is_same(expected: str, actual: str) -> bool:
    """True if an output is as a page shows it."""
    return id_pairs(expected, actual) is not None


def id_pairs(expected: str, actual: str) -> list[tuple[str, str]] | None:
    """Return each id that the page shows with the id in its place in the output; None if the output is not as shown."""
    shown = pattern(normalised(expected))
    match = re.fullmatch(re.sub(_MARKED_ID, _MARKED_ID, shown), normalised(actual))  # each id stands for any id
    return match and list(zip(re.findall(_MARKED_ID, shown), match.groups(), strict=True))


def pattern(expected: str) -> str:
    """Return the expression that an output must match: an ellipsis stands for the rest of a line, or alone for any lines."""
    parts = []
    for line in expected.splitlines():
        if line.strip() == "…":
            parts.append(r"(?:.*\n)*")
        elif line.endswith("…"):
            parts.append(re.escape(line[:-1]) + r".*\n")
        else:
            parts.append(re.escape(line) + r"\n")
    return "".join(parts)


def normalised(text: str) -> str:
    """Return the text with marked ids, and without the parts that differ between runs.

    These are short ids, times, ages, ports, the machine's name and the widths of columns.
    """
    text = re.sub(rf"[\w.-]+@({re.escape(socket.gethostname().partition('.')[0])}|gpu-01)\b", "USER@HOST", text)
    text = re.sub(rf"\b{_ID}{{20}}\b", r"«\g<0>»", text)
    text = re.sub(
        rf"(?:^|(?<=^  )|(?<=^    )){_ID}{{6}}(?= )|(?<=request ){_ID}{{6}}(?=,| )|(?<=request: ){_ID}{{6}}(?=:)",
        "SHORT",
        text,
        flags=re.M,
    )
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:[\d.]+)?Z?", "TIME", text)
    text = re.sub(r"\b\d\d:\d\d(:\d\d)?\b", "TIME", text)
    text = re.sub(r"\b(10m|9m\d+s)\b", "TEN", text)
    text = re.sub(r"\b\d{1,3}s(?= *$|  +\S| preempted)", "AGE", text, flags=re.M)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", text)
    return re.sub(r"(?<=\S) {2,}", "  ", re.sub(r" +$", "", text, flags=re.M))
