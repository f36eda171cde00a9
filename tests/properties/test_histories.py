"""Random histories on a real server: after every step, everything that must hold does.

Two ways to make one: walks draw their steps by weight, so that the world stays crowded; the state machine of hypothesis tries
everything alike. `HISTORIES=2000 make test ARGS="tests/properties"` tries that many of each, new ones each time.
"""

from __future__ import annotations

import os
import time

import hypothesis
import pytest
from hypothesis import HealthCheck
from hypothesis.stateful import run_state_machine_as_test

from tests.properties.leaving import Leavings
from tests.properties.walks import Step, Walk, endless, fails, go, shortest
from tests.support.servers import Servers

LONGER = int(os.environ.get("HISTORIES") or 0)
STEPS = 60
PARTS = range(4)
"""A part is a test of its own, so that several processes can share the work."""
WALKS, RESTS, MACHINES = 5, 5, 2
"""Histories of each part, where no more are asked for."""

in_parts = pytest.mark.parametrize("part", PARTS)
long = pytest.mark.timeout(24 * 3600 if LONGER else 300)


def machine(servers: Servers) -> type[Leavings]:
    """Histories on the embedded server; the fake takes several times as long for a call."""

    class Here(Leavings):
        client = servers.client("embedded")

    return Here


@pytest.mark.slow
@long
@in_parts
def test_every_walk_keeps_the_rules(servers: Servers, part: int) -> None:
    here = machine(servers)
    first, count = (time.time_ns() // 1000, max(1, LONGER // len(PARTS))) if LONGER else (part * WALKS, WALKS)
    for seed in range(first, first + count):
        _walk(here, f"Walk({seed})", Walk(seed).steps(STEPS))


@pytest.mark.slow
@long
def test_every_walk_comes_to_rest(servers: Servers) -> None:
    here = machine(servers)
    first, count = (time.time_ns() // 1000, LONGER) if LONGER else (1000, RESTS)
    for seed in range(first, first + count):
        _walk(here, f"endless Walk({seed})", endless(Walk(seed).steps(STEPS // 2)))


def _walk(here: type[Leavings], name: str, steps: list[Step]) -> None:
    if fails(here, steps):
        steps = shortest(here, steps)
        print(f"{name} at its shortest:", *steps, sep="\n  ")
        go(here, steps)
        pytest.fail(f"{name} failed, but not again")


@pytest.mark.slow
@long
@in_parts
def test_every_history_keeps_the_rules(servers: Servers, part: int) -> None:
    here = machine(servers)
    if not LONGER:
        hypothesis.seed(part)(here)
    chosen = hypothesis.settings(
        max_examples=max(1, LONGER // len(PARTS)) if LONGER else MACHINES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(here, settings=chosen)
