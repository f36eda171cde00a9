"""A pool of 4 gpu for `team`, made by the command line; and requests for all of it."""

from __future__ import annotations

from tests.support.cli_program import Program


def create_team_pool(program: Program) -> Program:
    """Create a pool `gpus` of 4 gpu with a policy of `team`, and return the program."""
    program("pool", "create", "gpus", "--capacity", "gpu=4")
    program("policy", "attach", "gpus", "team")
    return program


def submit(program: Program, *words: str) -> str:
    """Submit a request of `team` for the whole pool, and return what the program prints: its id."""
    return program("request", "submit", "--component", "team", "--resource", "gpu=4", "-o", "name", *words).line
