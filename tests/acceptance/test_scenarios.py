"""Every acceptance scenario, against the service with its embedded Redis, as `make up` runs it, and with another Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from app.store.child_process import ChildProcess
from tests.acceptance.scenarios import Scenario, play_all, scenarios
from tests.support.backends import free_port, require, running, serve, short_folder, wait_until_ready
from tests.support.poolkeeperd import COMMAND, environment, wait_until_served

SCENARIOS = scenarios()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not SCENARIOS, reason="the scenarios are not here; POOLKEEPER_ACCEPTANCE names their folder"),
]


def by_up(folder: Path, stack: ExitStack) -> int:
    """Start `poolkeeperd up` with its embedded Redis."""
    port = free_port()
    env = environment(folder, POOLKEEPER_PORT=str(port))
    stack.enter_context(process(folder, "up", env))
    return port


def by_hand(folder: Path, stack: ExitStack) -> int:
    """Start a Redis from PATH, the API, and two workers and two beats, which must not disturb each other."""
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


@pytest.fixture(scope="module", params=[by_up, by_hand], ids=["up", "by_hand"])
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | None]]:
    """Yield the fault of each scenario, or None."""
    folder = tmp_path_factory.mktemp("acceptance")
    with ExitStack() as stack:
        port = request.param(folder, stack)
        wait_until_served(port)
        yield play_all(f"http://127.0.0.1:{port}", SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_scenario(outcomes: dict[str, str | None], scenario: Scenario) -> None:
    assert outcomes[str(scenario)] is None
