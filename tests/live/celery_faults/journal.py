"""The journal of tasks: a line for each thing that happens, of all processes into one file.

A line is appended by one write, so lines of different processes do not mix and stand in the order in which they were written.
Each line has two times of the same machine: the monotonic one, to compare lines with each other, and the wall clock, to
compare them with the events of the ledger.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

BEGIN, STEP, HOLDS, END, STORED = "begin", "step", "holds", "end", "stored"
ASKED, SAVING, SAVED, LEAVES, OUT = "asked", "saving", "saved", "leaves", "out"


@dataclass(frozen=True, slots=True)
class Line:
    """An entry of the journal: one thing that happened to one run of a task, with the step of its work."""

    word: str
    task: str
    team: str
    fence: int
    step: int
    pid: int
    monotonic: float
    wall: float


class Journal:
    """The file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: defaultdict[str, list[Line]] = defaultdict(list)
        self._upto = 0

    def write(self, word: str, task: str, team: str, fence: int, step: int) -> None:
        """Add a line, now."""
        row = [word, task, team, fence, step, os.getpid(), time.monotonic(), time.time()]
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, (json.dumps(row) + "\n").encode())
        finally:
            os.close(file)

    def read(self, tasks: Iterable[str], word: str = "") -> list[Line]:
        """Return the entries of these tasks so far, task by task."""
        self._catch_up()
        return [line for task in tasks for line in self._known[task] if word in ("", line.word)]

    def _catch_up(self) -> None:
        """Read the lines that were added since the last call, as callers that wait call often."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._upto)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        self._upto += len(whole)
        for row in whole.splitlines():
            line = Line(*json.loads(row))
            self._known[line.task].append(line)


@dataclass(frozen=True)
class Run:
    """All that one run of a task wrote, in order."""

    lines: tuple[Line, ...]

    @property
    def task(self) -> str:
        """Return the task of the run."""
        return self.lines[0].task

    @property
    def fence(self) -> int:
        """Return the fence of the run."""
        return self.lines[0].fence

    @property
    def first_step(self) -> int:
        """Return the step at which the run began or went on."""
        return self.lines[0].step

    @property
    def body(self) -> tuple[float, float]:
        """Return the first and the last time at which the body is known to have run."""
        inside = [line.monotonic for line in self.lines if line.word != STORED]
        return inside[0], inside[-1]

    def steps(self, word: str = STEP) -> list[int]:
        """Return the steps at which the run wrote the word."""
        return [line.step for line in self.lines if line.word == word]


def runs(lines: Iterable[Line]) -> list[Run]:
    """Return the runs in the order in which they began: the lines of each process and fence of each task."""

    def whose(line: Line) -> tuple[str, int, int]:
        return line.task, line.fence, line.pid

    task_runs = [Run(tuple(run_lines)) for _, run_lines in groupby(sorted(lines, key=whose), key=whose)]
    return sorted(task_runs, key=lambda run: run.body)


def most_at_once(intervals: Iterable[tuple[float, float]]) -> int:
    """Return the largest number of intervals at the same time."""
    changes = sorted(change for begin, end in intervals for change in ((begin, 1), (end, -1)))
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most
