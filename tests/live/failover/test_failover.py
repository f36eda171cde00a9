"""The master replaced under load, in every way: no unit is held twice at a moment, and no fence is given out twice.

A grant that was told of and not yet replicated when the master was lost is lost (`docs/operations/failover.md`). Its holder is
told so by its next heartbeat. With `replicas_acknowledge` there is no such grant.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from app.store.connection import connect
from app.store.master_watch import watch_master
from tests.live.failover.checker import fences_given_twice, kept, overlaps
from tests.live.failover.holders import LEASE_S, WORKSPACE, Holding, run_holders
from tests.live.failover.servers import PROTECTED, SERVICE, Topology, cluster_topology, sentinel_topology
from tests.live.races.processes import CONTEXT, TIMES, ProcessGroup
from tests.support.audit_findings import findings
from tests.support.backends import require, wait_until
from tests.support.world import World

CAPACITY: Final = 10
PROCESSES: Final = 2
GRANTS: Final = 20
"""Grants before and after each change of the master."""


def command_of_sentinel(servers: Topology) -> None:
    """SENTINEL FAILOVER, after which the old master lives on for seconds."""
    servers.sentinel.execute_command("SENTINEL FAILOVER", SERVICE)
    servers.wait_for_switch()
    time.sleep(1)
    servers.master.follow(servers.replica)


def command_of_the_server(servers: Topology) -> None:
    """FAILOVER, which pauses writes until the replica has everything, and then tells the Sentinel."""
    servers.master.client.execute_command("FAILOVER", "TIMEOUT", 5000)
    wait_until(lambda: servers.replica.replication()["role"] == "master", "the replica is promoted")
    servers.wait_for_switch()


def killed(servers: Topology) -> None:
    """kill -9; the old master comes back as a replica."""
    servers.master.send(signal.SIGKILL)
    servers.wait_for_switch()
    servers.master.start(*([] if servers.sentinel is None else ["--replicaof", "127.0.0.1", str(servers.replica.port)]))


def stopped(servers: Topology) -> None:
    """SIGSTOP, until another is the master; then the old one goes on."""
    servers.master.send(signal.SIGSTOP)
    servers.wait_for_switch()
    servers.master.send(signal.SIGCONT)
    time.sleep(0.5)
    if servers.sentinel is not None:
        servers.master.follow(servers.replica)


def lagging(servers: Topology) -> None:
    """A replica that stands still, and then becomes the master without what was written meanwhile."""
    servers.replica.send(signal.SIGSTOP)
    time.sleep(1)
    servers.master.send(signal.SIGKILL)
    servers.replica.send(signal.SIGCONT)
    servers.wait_for_switch()
    servers.master.start(*([] if servers.sentinel is None else ["--replicaof", "127.0.0.1", str(servers.replica.port)]))


def command_of_cluster(servers: Topology) -> None:
    """CLUSTER FAILOVER."""
    servers.replica.client.execute_command("CLUSTER FAILOVER")
    servers.wait_for_switch()


@dataclass(frozen=True)
class Kind:
    """A way in which the master is replaced."""

    change: Callable[[Topology], None]
    start: Callable[..., AbstractContextManager[Topology]]
    options: tuple[str, ...] = PROTECTED


KINDS: Final = {
    "SENTINEL FAILOVER": Kind(command_of_sentinel, sentinel_topology),
    "SENTINEL FAILOVER with min-replicas-to-write 0": Kind(command_of_sentinel, sentinel_topology, ()),
    "FAILOVER": Kind(command_of_the_server, sentinel_topology),
    "kill -9": Kind(killed, sentinel_topology),
    "SIGSTOP": Kind(stopped, sentinel_topology),
    "a lagging replica": Kind(lagging, sentinel_topology),
    "CLUSTER FAILOVER": Kind(command_of_cluster, cluster_topology),
    "kill -9 in a cluster": Kind(killed, cluster_topology),
    "SIGSTOP in a cluster": Kind(stopped, cluster_topology),
}
RUNS: Final = [(kind, replicas, turn) for turn in range(TIMES) for kind in KINDS for replicas in (0, 1)]
"""Each kind without and with an acknowledgement by the replica; twenty times as often with POOLKEEPER_TEST_TIMES=20."""


def replace_the_master(folder: Path, kind: Kind, replicas: int) -> list[Holding]:
    """Replace the master once under load; return what the clients held."""
    stop, grants = CONTEXT.Value("b", 0), CONTEXT.Value("q", 0)
    with kind.start(folder, *kind.options) as servers, connect(servers.url, timeout_s=2) as client:
        watch = watch_master(client)
        assert watch
        world = World(client, WORKSPACE)
        world.pool(gpu=CAPACITY)
        world.policy("t")
        jobs = [(servers.url, number, replicas, stop, grants) for number in range(PROCESSES)]
        with ProcessGroup(run_holders, jobs) as group:
            wait_until(lambda: grants.value >= GRANTS, "there is load", 60)
            kind.change(servers)
            before = grants.value
            wait_until(lambda: grants.value >= before + GRANTS, "the new master grants", 60)
            time.sleep(LEASE_S / 3)
            stop.value = 1
            holdings = [holding for process, _ in group.answers(60) for holding in process]
        assert findings(world) == []
        watch.stop()
    return holdings


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[list[Holding]]]]:
    """The runs of the tests that are selected, several at a time, as they mostly wait."""
    require("redis")
    selected = [test for test in request.session.items if isinstance(test, pytest.Function) and test.module is request.module]
    with ThreadPoolExecutor(6) as pool:
        started = {}
        for test in selected:
            run: dict[str, Any] = test.callspec.params
            folder = tmp_path_factory.mktemp("run")
            started[test.nodeid] = pool.submit(replace_the_master, folder, KINDS[run["kind"]], run["replicas"])
        yield started


@pytest.mark.parametrize(("kind", "replicas", "turn"), RUNS)
def test_no_unit_is_held_twice(
    request: pytest.FixtureRequest, runs: dict[str, Future[list[Holding]]], kind: str, replicas: int, turn: int
) -> None:
    holdings = runs[request.node.nodeid].result()
    assert fences_given_twice(holdings) == []
    assert overlaps(holdings if replicas else kept(holdings), CAPACITY) == []
