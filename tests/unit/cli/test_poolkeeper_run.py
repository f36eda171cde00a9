"""`poolkeeper run` up to the runner: what it asks for, and the options of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from poolkeeper.runner import run_loop

from tests.support.cli_program import Program

COMMAND = ("--component", "team", "--gpu", "1")


@pytest.fixture
def nowhere(tmp_path: Path) -> Program:
    """Return the program without a service at its address."""
    return Program("http://127.0.0.1:1", tmp_path, "default")


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the list of the bodies of all runs."""
    bodies: list[dict[str, Any]] = []

    def run(_client: Any, body: dict[str, Any], *_: Any) -> int:
        bodies.append(body)
        return 0

    monkeypatch.setattr(run_loop, "run", run)
    return bodies


@pytest.mark.parametrize(
    ("words", "retries"),
    [
        ((), None),
        (("--checkpoint", "none"), None),
        (("--checkpoint", "manual"), -1),
        (("--checkpoint", "auto"), -1),
        (("--checkpoint", "auto", "--retries", "2"), 2),
        (("--retries", "0"), 0),
    ],
)
def test_a_command_with_a_checkpoint_is_retried_without_bound(
    nowhere: Program, bodies: list[dict[str, Any]], words: tuple[str, ...], retries: int | None
) -> None:
    nowhere("run", *COMMAND, *words, "--", "true")
    assert bodies[0].get("retries") == retries


def test_a_run_says_where_it_comes_from(nowhere: Program, bodies: list[dict[str, Any]]) -> None:
    command = ("--", "python", "train.py", "--token", "hunter2")
    nowhere("run", *COMMAND, "--name", "nightly", "--label", "user=ana", *command)
    nowhere("run", *COMMAND, "--no-record-arguments", "--key", "k", *command)
    nowhere("run", *COMMAND, *command, POOLKEEPER_RECORD_ARGUMENTS="false")
    assert [body["labels"]["command"] for body in bodies] == ["python train.py --token ***", "python", "python"]
    assert (bodies[0]["name"], bodies[0]["labels"]["user"]) == ("nightly", "ana")
    assert ["pid" in body["labels"] for body in bodies] == [True, False, True]
