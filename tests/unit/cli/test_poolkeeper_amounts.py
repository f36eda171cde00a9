"""`--KEY N`, wherever amounts are given: a request, its dry run, a new pool, a changed pool."""

from __future__ import annotations

import pytest
from poolkeeper.cli.exit_codes import ExitCode

from tests.support.cli_program import Program


@pytest.fixture
def gpus(poolkeeper: Program) -> Program:
    """Create a pool `gpus` with a policy of `team`; return the program."""
    poolkeeper("pool", "create", "gpus", "--gpu", "4", "--capacity", "mcpu=8000", "--seats=3")
    poolkeeper("policy", "attach", "gpus", "team")
    return poolkeeper


def test_a_pool_is_made_of_amounts(gpus: Program) -> None:
    assert gpus("pool", "describe", "gpus", "-o", "json").json["capacity"] == {"gpu": 4, "mcpu": 8000, "seats": 3}


def test_a_pool_is_changed_by_amounts(gpus: Program) -> None:
    changed = gpus("pool", "update", "gpus", "--gpu", "6", "--seats", "0", "-o", "json").json
    assert changed["capacity"] == {"gpu": 6, "mcpu": 8000}


def test_a_request_asks_for_amounts(gpus: Program) -> None:
    words = ("--component", "team", "--gpu", "2", "--mcpu=500", "--resource", "seats=1", "--walltime", "2h", "-o", "json")
    request = gpus("request", "submit", *words).json
    assert request["resources"] == {"gpu": 2, "mcpu": 500, "seats": 1, "step_run": 1}
    assert request["walltime_s"] == 7200


def test_a_dry_run_asks_for_amounts(gpus: Program) -> None:
    assert gpus("request", "submit", "--component", "team", "--gpu", "4", "--dry-run").line == (
        "would be allocated in gpus at once"
    )
    gpus("request", "submit", "--component", "team", "--gpu", "5", "--dry-run", ends=ExitCode.REJECTED)


@pytest.mark.parametrize("words", ["request submit", "pool create", "pool update", "run"])
def test_the_help_names_the_shorthand(poolkeeper: Program, words: str) -> None:
    usage = poolkeeper(*words.split(), "--help").out.splitlines()[0]
    assert "[--KEY N]…" in usage


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("--gpu 1.5", " such as mgpu=8000 for 8, and ask --mgpu 1500"),
        ("--gpu ,25", " such as mgpu=8000 for 8, and ask --mgpu 250"),
        ("--gpu 1.23456", " such as mgpu=8000 for 8, and ask --mgpu 1234"),
        ("--gpu 0.0001", " such as mgpu=8000 for 8"),
        ("--cpu 0.5", "--cpu takes a whole number, not 0.5; --cpu-count takes it"),
        ("--gpu -1.5", "--gpu takes a whole number, not -1.5"),
        ("--gpu 2x", "--gpu takes a whole number, not 2x"),
    ],
)
def test_for_parts_of_a_unit_it_says_what_to_do(gpus: Program, words: str, advice: str) -> None:
    for verb in ("run", "request submit"):
        command = ("--", "true") if verb == "run" else ()
        refused = gpus(*verb.split(), "--component", "team", *words.split(), *command, ends=ExitCode.USAGE)
        assert refused.err.splitlines()[0].endswith(advice)
