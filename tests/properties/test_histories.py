"""Random histories on the fake and on a real server: after every step, everything that must hold does.

`HISTORIES=2000 make test ARGS="tests/properties"` tries that many histories (of 50 steps) on each, by chance and not as ever.
"""

from __future__ import annotations

import os

import hypothesis
import pytest
from hypothesis import HealthCheck
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import Servers
from tests.properties.machine import Histories

STEPS = 50
SEEDS = (1, 2, 3, 4)
AS_EVER = 10
"""Histories of each seed."""


@pytest.mark.slow
@pytest.mark.timeout(3600 * 12)
@pytest.mark.parametrize("backend", ["fake", "redis"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_history_keeps_the_rules(servers: Servers, backend: str, seed: int) -> None:
    longer = os.environ.get("HISTORIES")

    class Here(Histories):
        client = servers.client(backend)

    if not longer:
        hypothesis.seed(seed)(Here)
    run_state_machine_as_test(
        Here,
        settings=hypothesis.settings(
            max_examples=int(longer) // len(SEEDS) if longer else AS_EVER,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
