"""Copies of the tree: a mutation is applied, its tests run, and the mutation is undone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutation_list import Mutation

NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "data", "dist")
COPIED_ALTHOUGH_HIDDEN = (".luacheckrc",)
PLUGINS = ("pytest_timeout", "_hypothesis_pytestplugin", "tests.mutants.pytest_plugin")

TESTS_FAILED, INTERRUPTED = 1, 2
"""Exit codes of pytest; the second one is for an error in the imports of a test file."""

FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
CANNOT_RUN = re.compile(
    r"^E +.*\b(?:SyntaxError|IndentationError|NameError|ImportError|LuaContractError|nonexistent global variable)\b",
    re.MULTILINE,
)
"""Errors of a mutation that breaks the code instead of a rule: every test fails with them."""


@dataclass(frozen=True, slots=True)
class TestRun:
    """The result of pytest for the tests of one mutation."""

    __test__ = False  # this class has no tests

    outcome: str
    """`green`, `red`, `timed out`, or `broken`: pytest could not run these tests at all."""
    seconds: float
    failed: str
    """The first test that failed."""
    output: str


class TreeCopy:
    """One copy of the tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, tree: Path, folder: Path) -> TreeCopy:
        """Copy the sources of a tree into a folder that is not there yet."""
        shutil.copytree(tree, folder, ignore=NOT_COPIED, symlinks=True)
        for name in COPIED_ALTHOUGH_HIDDEN:
            shutil.copy2(tree / name, folder / name)
        return cls(folder)

    def run_mutated(self, mutation: Mutation, limit_s: float) -> TestRun:
        """Run the tests of a mutation with the mutation applied; the copy is as before when this returns."""
        path = self.folder / mutation.file
        text, status = path.read_bytes(), path.stat()
        try:
            mutation.apply(self.folder)
            os.utime(
                path, ns=(status.st_atime_ns, status.st_mtime_ns + 10_000_000_000)
            )  # so that no compiled file matches the changed source
            return self.run(mutation.tests, limit_s, compiles=False)
        finally:
            path.write_bytes(text)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def run(self, tests: Sequence[str], limit_s: float, *, compiles: bool) -> TestRun:
        """Run tests until the first one fails. Compiled files are kept only if the tree is not mutated."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        environment |= {
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(self.folder / "client")]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "" if compiles else "1",
        }
        plugins = [word for plugin in PLUGINS for word in ("-p", plugin)]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *plugins, *tests]
        begin = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return TestRun("timed out", time.monotonic() - begin, "", output)
        first = FAILURE.search(output)
        outcome = "broken" if CANNOT_RUN.search(output) else _outcome(process.returncode)
        return TestRun(outcome, time.monotonic() - begin, first[1] if first else "", output)


def _outcome(code: int) -> str:
    if code == 0:
        return "green"
    return "red" if code in (TESTS_FAILED, INTERRUPTED) else "broken"
