"""The acceptance scenarios: files that use a running Poolkeeper only over HTTP.

They are no part of the project: they are in the folder `shared/acceptance` beside it, or in the folder that
POOLKEEPER_ACCEPTANCE names. Without them their tests are skipped.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.support.paths import BESIDE

FOLDER = Path(os.environ.get("POOLKEEPER_ACCEPTANCE", BESIDE / "acceptance"))
FILES = (
    "10_zenml_examples",
    "20_ledger",
    "30_taking_back",
    "40_classes_and_leaving",
    "50_fair_share",
    "60_contract",
    "75_templates",
)

AT_ONCE = 16


class Scenario(NamedTuple):
    """One scenario of a file."""

    file: str
    name: str
    steps: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def scenarios() -> list[Scenario]:
    """Return every scenario of the files."""
    all_scenarios = []
    for file in FILES:
        path = FOLDER / "scenarios" / f"{file}.yaml"
        if path.exists():
            documents = yaml.safe_load_all(path.read_text("utf-8"))
            all_scenarios += [Scenario(file, document["name"], document) for document in documents if document]
    return all_scenarios


def play_all(url: str, scenarios: Sequence[Scenario]) -> dict[str, str | None]:
    """Play the scenarios side by side, each in a workspace of its own; return the fault of each, or None."""
    play = _player()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        failures = threads.map(lambda scenario: play(scenario.steps, url, None), scenarios)
        return dict(zip(map(str, scenarios), failures, strict=True))


def _player() -> Callable[[dict[str, Any], str, str | None], str | None]:
    spec = importlib.util.spec_from_file_location("acceptance_run", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    play: Callable[[dict[str, Any], str, str | None], str | None] = module.play
    return play
