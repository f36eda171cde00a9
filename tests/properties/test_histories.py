"""Random histories on the fake and on real servers: after every step, everything that must hold does.

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
WALKS = {"fake": 1, "embedded": 3, "redis": 3}
"""Backend → walks of each part, unless more are asked for; a real server is several times as fast as the fake."""
RESTS = {"fake": 1, "embedded": 3, "redis": 3}
"""Backend → walks that come to rest, unless more are asked for."""
MACHINES = 1
"""Histories of the state machine in each part, unless more are asked for."""

pytestmark = pytest.mark.backends(*WALKS)
in_parts = pytest.mark.parametrize("part", PARTS)
long = pytest.mark.timeout(24 * 3600 if LONGER else 300)


def machine(servers: Servers, backend: str) -> type[Leavings]:
    """Return the histories on one backend."""

    class Here(Leavings):
        client = servers.client(backend)

    return Here


def first_seed(backend: str) -> int:
    """Return the first seed of a backend; in a longer run it is new each time."""
    return time.time_ns() // 1000 if LONGER else 1000 * list(WALKS).index(backend)


@pytest.mark.slow
@long
@in_parts
def test_every_walk_keeps_the_rules(servers: Servers, backend: str, part: int) -> None:
    here = machine(servers, backend)
    count = max(1, LONGER // len(PARTS)) if LONGER else WALKS[backend]
    first = first_seed(backend) + part * count
    for seed in range(first, first + count):
        _walk(here, f"Walk({seed})", Walk(seed).steps(STEPS))


@pytest.mark.slow
@long
def test_every_walk_comes_to_rest(servers: Servers, backend: str) -> None:
    here = machine(servers, backend)
    first, count = first_seed(backend), LONGER or RESTS[backend]
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
def test_every_history_keeps_the_rules(servers: Servers, backend: str, part: int) -> None:
    here = machine(servers, backend)
    if not LONGER:
        hypothesis.seed(first_seed(backend) + part)(here)
    chosen = hypothesis.settings(
        max_examples=max(1, LONGER // len(PARTS)) if LONGER else MACHINES,
        stateful_step_count=STEPS,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(here, settings=chosen)
