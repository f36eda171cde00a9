"""Every acceptance scenario, against the service as `make up` runs it and on a Redis of one's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from app.store.child_process import ChildProcess
from tests.acceptance.scenarios import Scenario, play_all, scenarios
from tests.support.backends import available, free_port, require, running, serve, short_folder, wait_until_ready
from tests.support.poolkeeperd import COMMAND, environment, wait_until_served

SCENARIOS = scenarios()
ALL_BY_UP = int(os.environ.get("POOLKEEPER_TEST_TIMES", "1")) > 1 or available("redis") is not None
BY_UP = SCENARIOS if ALL_BY_UP else SCENARIOS[::3]
"""The scenarios that are played against `up` as well, which runs the same code; all with POOLKEEPER_TEST_TIMES=2."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not SCENARIOS, reason="the scenarios are not here; POOLKEEPER_ACCEPTANCE names their folder"),
]


def by_up(folder: Path, stack: ExitStack) -> int:
    """`poolkeeperd up`, with the Redis that comes along."""
    port = free_port()
    env = environment(folder, POOLKEEPER_PORT=str(port))
    stack.enter_context(process(folder, "up", env))
    return port


def by_hand(folder: Path, stack: ExitStack) -> int:
    """A Redis from PATH; beside it the API, and two workers and two beats, who must not be in each other's way."""
    require("redis")
    port, place = free_port(), stack.enter_context(short_folder(folder))
    stack.enter_context(serve(folder, "--port", "0", "--unixsocket", str(place / "plain.sock")))
    url = f"unix://{place / 'plain.sock'}"
    wait_until_ready(url)
    env = environment(folder, POOLKEEPER_PORT=str(port), POOLKEEPER_REDIS_URL=url)
    for number, name in enumerate(("api", "worker", "worker", "beat", "beat")):
        stack.enter_context(process(folder, name, env, number))
    return port


def process(folder: Path, name: str, env: dict[str, str], number: int = 0) -> AbstractContextManager[ChildProcess]:
    command = ["/usr/bin/env", "-i", *(f"{key}={value}" for key, value in env.items()), *COMMAND, name]
    return running(command, folder / f"{name}-{number}.log")


def play(
    way: Callable[[Path, ExitStack], int], scenarios: Sequence[Scenario], factory: pytest.TempPathFactory
) -> dict[str, str | None]:
    """Return what was wrong with each scenario, if anything, with a service that is started this way."""
    folder = factory.mktemp("acceptance")
    with ExitStack() as stack:
        port = way(folder, stack)
        wait_until_served(port)
        return play_all(f"http://127.0.0.1:{port}", scenarios)


@pytest.fixture(scope="module")
def outcomes_by_hand(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What was wrong with every scenario, if anything, where each process is started by itself."""
    return play(by_hand, SCENARIOS, tmp_path_factory)


@pytest.fixture(scope="module")
def outcomes_by_up(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What was wrong with some scenarios of every file, if anything, where `up` starts all processes."""
    return play(by_up, BY_UP, tmp_path_factory)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_scenario(outcomes_by_hand: dict[str, str | None], scenario: Scenario) -> None:
    assert outcomes_by_hand[str(scenario)] is None


@pytest.mark.parametrize("scenario", BY_UP, ids=str)
def test_scenario_by_up(outcomes_by_up: dict[str, str | None], scenario: Scenario) -> None:
    assert outcomes_by_up[str(scenario)] is None
