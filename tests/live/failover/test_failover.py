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
from app.store.workspaces import WorkspaceRegistry
from tests.live.failover.checker import fences_given_twice, kept, overlaps
from tests.live.failover.holders import WORKSPACE, Holding, run_holders
from tests.live.failover.servers import PROTECTED, SERVICE, Topology, cluster_topology, sentinel_topology
from tests.live.races.processes import CONTEXT, TIMES, ProcessGroup
from tests.support.audit_findings import findings
from tests.support.backends import require, wait_until
from tests.support.world import World

CAPACITY: Final = 10
PROCESSES: Final = 2
GRANTS: Final = 60
"""Grants before and after each change of the master."""
OLD_LIVES_ON_S: Final = 1.0
"""The seconds for which the old master goes on before it becomes a replica. With Sentinel it is up to eleven seconds."""


def command_of_sentinel(servers: Topology) -> None:
    """Run SENTINEL FAILOVER: the old master lives on until it is made a replica."""
    servers.sentinel.execute_command("SENTINEL FAILOVER", SERVICE)
    servers.wait_for_switch()


def command_of_the_server(servers: Topology) -> None:
    """Run FAILOVER, which pauses writes until the replica has everything; then tell the Sentinel."""
    servers.master.client.execute_command("FAILOVER", "TIMEOUT", 5000)
    wait_until(lambda: servers.replica.replication()["role"] == "master", "the replica is promoted")
    wait_until(lambda: servers.sentinel.execute_command("SENTINEL FAILOVER", SERVICE), "the Sentinel takes the command", 40)
    servers.wait_for_switch()


def kill(servers: Topology) -> None:
    """Kill the master with kill -9."""
    servers.master.send(signal.SIGKILL)
    servers.wait_for_switch()


def stop(servers: Topology) -> None:
    """Stop the master with SIGSTOP until another server is the master."""
    servers.master.send(signal.SIGSTOP)
    servers.wait_for_switch()


def kill_before_a_lagging_replica(servers: Topology) -> None:
    """Stop the replica, then let it become the master without the writes of the meantime."""
    servers.replica.send(signal.SIGSTOP)
    time.sleep(1)
    servers.master.send(signal.SIGKILL)
    servers.replica.send(signal.SIGCONT)
    servers.wait_for_switch()


def command_of_cluster(servers: Topology) -> None:
    """Run CLUSTER FAILOVER."""
    servers.replica.client.execute_command("CLUSTER FAILOVER")
    servers.wait_for_switch()


def demote(servers: Topology) -> None:
    """Make a replica of the old master, as Sentinel does a little later."""
    servers.master.follow(servers.replica)


def go_on(servers: Topology) -> None:
    """Let the old master go on, and make a replica of it a little later; a node of a cluster does so by itself."""
    servers.master.send(signal.SIGCONT)
    if servers.sentinel is not None:
        time.sleep(OLD_LIVES_ON_S)
        demote(servers)


def start_again(servers: Topology) -> None:
    """Start the old master again, as a replica; a node of a cluster becomes one by itself."""
    servers.master.start(*([] if servers.sentinel is None else ["--replicaof", "127.0.0.1", str(servers.replica.port)]))


@dataclass(frozen=True)
class Kind:
    """A way in which the master is replaced, and what becomes of the old one later."""

    start: Callable[..., AbstractContextManager[Topology]]
    replace: Callable[[Topology], None]
    restore: Callable[[Topology], None] = demote
    options: tuple[str, ...] = PROTECTED
    old_lives_on_s: float = OLD_LIVES_ON_S


KINDS: Final = {
    "SENTINEL FAILOVER": Kind(sentinel_topology, command_of_sentinel),
    "SENTINEL FAILOVER with min-replicas-to-write 0": Kind(
        sentinel_topology, command_of_sentinel, options=(), old_lives_on_s=6
    ),
    "FAILOVER": Kind(sentinel_topology, command_of_the_server),
    "kill -9": Kind(sentinel_topology, kill, start_again),
    "SIGSTOP": Kind(sentinel_topology, stop, go_on),
    "SIGSTOP with min-replicas-to-write 0": Kind(sentinel_topology, stop, go_on, options=()),
    "a lagging replica": Kind(sentinel_topology, kill_before_a_lagging_replica, start_again),
    "CLUSTER FAILOVER": Kind(cluster_topology, command_of_cluster, lambda _: None),
    "kill -9 in a cluster": Kind(cluster_topology, kill, start_again),
    "SIGSTOP in a cluster": Kind(cluster_topology, stop, go_on),
}
RUNS: Final = [(kind, replicas, turn) for turn in range(TIMES) for kind in KINDS for replicas in (0, 1)]
"""Each kind without and with an acknowledgement by the replica; twenty times as often with POOLKEEPER_TEST_TIMES=20."""


def replace_the_master(folder: Path, kind: Kind, replicas: int) -> list[Holding]:
    """Replace the master once under load; return what the clients held. One process of them starts after that."""
    end, grants, started = CONTEXT.Value("b", 0), CONTEXT.Value("q", 0), CONTEXT.Value("q", 0)
    with kind.start(folder, *kind.options) as servers, connect(servers.url, timeout_s=2) as client:
        watch = watch_master(client)
        assert watch
        world = World(client, WORKSPACE)
        world.pool(gpu=CAPACITY)
        world.policy("t")
        WorkspaceRegistry(client).add(WORKSPACE)  # what is deposed are the workspaces that are registered
        jobs = [(servers.url, number, replicas, end, grants, started) for number in range(PROCESSES + 1)]
        with ProcessGroup(run_holders, jobs[:PROCESSES]) as early:
            wait_until(lambda: grants.value >= GRANTS, "there is load", 60)
            kind.replace(servers)
            with ProcessGroup(run_holders, jobs[PROCESSES:]) as late:
                wait_until(lambda: started.value == len(jobs), "the last process has started", 60)
                time.sleep(kind.old_lives_on_s)
                kind.restore(servers)
                before = grants.value
                wait_until(lambda: grants.value >= before + GRANTS, "the new master grants", 60)
                end.value = 1
                holdings = [holding for process, _ in [*early.answers(60), *late.answers(60)] for holding in process]
        assert findings(world) == []
        watch.stop()
    return holdings


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[list[Holding]]]]:
    """Yield the runs of the selected tests; several run at a time, as they mostly wait."""
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
