"""The list of mutations: what each changes, the rule that this breaks, and the tests that have to fail for it."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

LISTS = Path(__file__).parent / "lists"

FIELDS = {"id", "rule", "file", "search", "replace", "tests"}


class WrongList(Exception):  # noqa: N818
    """The lists do not fit the tree; the message has one line for each fault."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One small change of the source that breaks one rule."""

    id: str
    rule: str
    """The rule that holds without the mutation, in one sentence."""
    file: str
    search: str
    """Text that occurs exactly once in the file."""
    replace: str
    tests: tuple[str, ...]
    """Test files and node ids, the quickest first."""

    def apply(self, root: Path) -> None:
        """Change the file below `root`."""
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(self.search, self.replace), encoding="utf-8")


def load(folder: Path = LISTS) -> list[Mutation]:
    """Return all mutations, in the order of the lists; WrongList if an entry is incomplete or an id comes twice."""
    mutations, faults = [], []
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutation"]:
            if entry.keys() != FIELDS or not entry["tests"]:
                faults.append(f"{path.name}: {entry.get('id', '?')} has {', '.join(sorted(entry))}")
                continue
            mutations.append(_mutation(entry))
    faults += [f"{name} comes {times} times" for name, times in Counter(each.id for each in mutations).items() if times > 1]
    if faults:
        raise WrongList("\n".join(faults))
    return mutations


def faults_of(mutations: list[Mutation], root: Path) -> list[str]:
    """Return a line for each mutation that does not fit the tree below `root`."""
    faults = []
    for mutation in mutations:
        times = _read(root / mutation.file).count(mutation.search)
        if times != 1:
            faults.append(f"{mutation.id}: its search text occurs {times} times in {mutation.file}")
        if mutation.search == mutation.replace:
            faults.append(f"{mutation.id} changes nothing")
        faults += [f"{mutation.id}: there is no test {test}" for test in mutation.tests if not _exists(test, root)]
    return faults


def _exists(test: str, root: Path) -> bool:
    path, *names = test.partition("[")[0].split("::")
    text = _read(root / path)
    return bool(text) and all(re.search(rf"^ *(?:def|class) {name}\b", text, re.MULTILINE) for name in names)


@cache
def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _mutation(entry: dict[str, Any]) -> Mutation:
    return Mutation(**{**entry, "tests": tuple(entry["tests"])})
