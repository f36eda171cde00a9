"""The distribution of tests to processes, and their order: tests that wait run beside tests that compute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.paths import ROOT

WAITING = ("tests/acceptance/", "tests/live/")
"""Tests that mostly wait for processes; all others keep a processor busy."""
SPREAD = (
    "tests/properties/",
    "tests/live/api/test_fuzz.py",
    "tests/live/cli/",
    "tests/live/examples/",
    "tests/live/faults/",
    "tests/live/races/",
    "tests/live/store/",
)
"""Folders whose tests share nothing that takes long to start: each test goes to the next free process."""
TOGETHER = (
    "tests/live/cli/test_readme.py",
    "tests/live/cli/test_run_restarts.py",
    "tests/live/examples/test_celery_app.py",
)
"""Files in these folders whose tests share a service: one process runs all tests of such a file."""


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Give the tests of a file to one process, unless they are to be spread."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(SPREAD) and not nodeid.startswith(TOGETHER) else nodeid.split("::", 1)[0]


def interleave(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests so that both kinds last until the end, and slow files of each kind come first."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    slow = {path for path, tests in files.items() if any(test.get_closest_marker("slow") for test in tests)}
    in_order = sorted(files, key=lambda path: (path not in slow, -len(files[path]), path))
    kinds = [[path for path in in_order if _waits(path) is waits] for waits in (True, False)]
    place = {path: (number / len(kind), _waits(path)) for kind in kinds for number, path in enumerate(kind)}
    return [test for path in sorted(files, key=place.__getitem__) for test in files[path]]


def _waits(path: Path) -> bool:
    return path.relative_to(ROOT).as_posix().startswith(WAITING)
