"""Nudges: sent once, claimed by one worker, and not too often; a worker that finds the lease taken leaves a note for its
holder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.cluster import RedisCluster

from app.domain.clock import ManualClock
from app.store.change_notifications import CLIENT_NAME
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.lua_linker import FOLDER, load_commands
from app.store.nudges import ChannelSubscription, Nudges
from app.store.scripts import Scripts
from tests.support.backends import wait_until
from tests.support.servers import Servers
from tests.support.world import World

W = "test"
LONG_S = 20.0
"""For what must happen."""
SHORT_S = 0.2
"""For what must not happen."""
LEASE_S = 60

Ask = Callable[..., object]


@pytest.fixture
def ask(tmp_path: Path) -> Callable[[RedisClient], Ask]:
    """Return a script that leaves work for the reconciler."""
    (tmp_path / "lib").mkdir()
    shutil.copy(FOLDER / "lib" / "nudges.lua", tmp_path / "lib")
    head = "-- Ask, and ask again.\n-- @use nudges\n-- @reply asked\n\n"
    (tmp_path / "ask.lua").write_text(f"{head}nudges.send()\nnudges.send()\nreturn reply.asked()\n")
    commands = load_commands(tmp_path)

    def asking(client: RedisClient) -> Ask:
        scripts = Scripts(client, commands)
        return lambda workspace=W: scripts.call("ask", workspace)

    return asking


@pytest.fixture
def nudges(world: World) -> Nudges:
    """Return the nudges of a workspace with one waiter."""
    world.pool(gpu=1)
    world.policy()
    world.submit(gpu=1)
    world.submit(gpu=1)
    world.client.delete(key("nudge", W))
    return Nudges(world.client, world.clock)


def nudge(world: World) -> str | None:
    value = world.client.get(key("nudge", W))
    return None if value is None else str(value)


def holder(world: World) -> str | None:
    value = world.client.get(key("job_lock", W, "reconcile"))
    return None if value is None else str(value)


def counts(world: World) -> dict[str, int]:
    counters = world.client.hgetall(key("counters", W)).items()
    return {str(name): int(count) for name, count in counters if str(name).startswith("reconcile")}


def test_of_many_one_claims_what_was_asked(world: World, nudges: Nudges, ask: Callable[[RedisClient], Ask]) -> None:
    assert nudges.claim_nudge(W) is None
    ask(world.client)()
    assert (nudge(world), 4000 < world.client.pttl(key("nudge", W)) <= 5000) == ("pending", True)
    assert (nudges.claim_nudge(W), Nudges(world.client).claim_nudge(W), nudge(world)) == (0, None, "sent")
    ask(world.client)()
    assert (nudges.claim_nudge(W), nudge(world)) == (None, "sent"), "the worker has not claimed it yet"
    assert nudges.begin_reconcile(W, "a", LEASE_S) == "begun"
    ask(world.client)()
    assert nudges.claim_nudge(W) is not None, "after the look has begun it is another matter"


def test_what_is_sent_costs_a_fifth_of_the_time_at_most(
    world: World, nudges: Nudges, ask: Callable[[RedisClient], Ask]
) -> None:
    other = Nudges(world.client, world.clock)

    def waits(took_s: float, of: Nudges) -> float | None:
        nudges.begin_reconcile(W, "a", LEASE_S)
        nudges.finish_reconcile(W, "a", None, LEASE_S, took_s, "nothing")
        ask(world.client)()
        return of.claim_nudge(W)

    assert waits(0.1, nudges) == 0
    assert waits(0.1, other) == 0.5, "from any sender"
    world.clock.advance(0.5)
    assert waits(0.002, nudges) == 0.02
    world.clock.advance(0.5)
    assert waits(0.002, nudges) == 0
    assert waits(3, nudges) == 15
    assert world.client.pttl(key("nudge", W)) > 15_000, "and it is remembered for so long"
    back = Nudges(world.client, ManualClock(1_600_000_000_000))
    assert waits(0.01, back) == 0.05, "a clock that was put back does not stop it"


def test_without_waiters_and_preemptions_there_is_no_nudge(world: World, ask: Callable[[RedisClient], Ask]) -> None:
    nudges = Nudges(world.client, world.clock)
    world.pool(gpu=1)
    world.pool("q", gpu=1)
    world.policy()
    request = world.submit(gpu=1)
    world.settle()
    ask(world.client)()
    assert (nudges.begin_reconcile(W, "a", LEASE_S), nudge(world), holder(world)) == ("idle", None, None)
    waiting = world.submit(gpu=1)
    assert nudges.begin_reconcile(W, "a", LEASE_S) == "begun"
    nudges.finish_reconcile(W, "a", None, LEASE_S, 0, "nothing")
    world.cancel(waiting)
    assert nudges.begin_reconcile(W, "a", LEASE_S) == "idle"
    world.client.hset(key("pool_victims", W, "q"), request.id, "-")
    assert nudges.begin_reconcile(W, "a", LEASE_S) == "begun", "a needless victim may be reprieved"
    world.client.delete(key("pool_victims", W, "q"))
    world.client.zadd(key("preemption_deadlines", W), {request.id: 1})
    assert nudges.begin_reconcile(W, "a", LEASE_S) == "begun"
    world.client.delete(key("preemption_deadlines", W))


def test_a_worker_without_the_lease_makes_its_holder_repeat_the_pass(world: World, nudges: Nudges) -> None:
    assert nudges.begin_reconcile(W, "a.1", LEASE_S) == "begun"
    assert nudges.begin_reconcile(W, "a.1", LEASE_S) == "begun", "as often as it is asked"
    assert (nudges.begin_reconcile(W, "b.1", LEASE_S), nudge(world)) == ("held", "missed")
    assert nudges.begin_reconcile(W, "b.1", LEASE_S, "missed") == "held"
    assert nudges.finish_reconcile(W, "a.1", "a.2", LEASE_S, 0.0101, "nothing")
    assert (nudge(world), holder(world)) == (None, "a.2")
    assert nudges.begin_reconcile(W, "b.1", LEASE_S, "missed") == "seen"
    assert nudges.finish_reconcile(W, "a.1", "a.2", LEASE_S, 0.0101, "nothing"), "said again, if the answer was lost"
    assert counts(world) == {"reconciles": 1, "reconcile_ms": 11, "reconcile_last_ms": 11}
    assert not nudges.finish_reconcile(W, "a.2", "a.3", LEASE_S, 0.001, "nothing")
    assert not nudges.finish_reconcile(W, "a.2", "a.3", LEASE_S, 0.001, "nothing")
    assert (holder(world), counts(world)) == (None, {"reconciles": 2, "reconcile_ms": 12, "reconcile_last_ms": 1})


def test_a_pending_nudge_is_left_to_its_worker(world: World, nudges: Nudges, ask: Callable[[RedisClient], Ask]) -> None:
    nudges.begin_reconcile(W, "a.1", LEASE_S)
    ask(world.client)()
    assert not nudges.finish_reconcile(W, "a.1", "a.2", LEASE_S, 0.1, "nothing")
    assert (nudge(world), holder(world)) == ("pending", None)


def test_a_worker_at_its_limit_sends_another_nudge(world: World, nudges: Nudges) -> None:
    nudges.begin_reconcile(W, "a.1", LEASE_S)
    assert nudges.finish_reconcile(W, "a.1", "a.2", LEASE_S, 0, "more")
    assert not nudges.finish_reconcile(W, "a.2", None, LEASE_S, 0, "more")
    assert (nudge(world), holder(world)) == ("pending", None)
    nudges.begin_reconcile(W, "a.1", LEASE_S)
    nudges.begin_reconcile(W, "b.1", LEASE_S)
    assert not nudges.finish_reconcile(W, "a.1", None, LEASE_S, 0, "nothing")
    assert (nudge(world), holder(world)) == ("pending", None)


def test_what_failed_is_not_nudged_for_a_while(world: World, nudges: Nudges, ask: Callable[[RedisClient], Ask]) -> None:
    nudges.begin_reconcile(W, "a.1", LEASE_S)
    ask(world.client)()
    assert not nudges.finish_reconcile(W, "a.1", "a.2", LEASE_S, 0.003, "failed")
    ask(world.client)()
    assert (nudge(world), nudges.claim_nudge(W), holder(world)) == ("suppressed", None, None)
    assert 4000 < world.client.pttl(key("nudge", W)) <= 5000
    assert counts(world)["reconcile_last_ms"] == 3
    assert nudges.begin_reconcile(W, "b.1", LEASE_S, "nudge") == "seen"
    assert nudges.begin_reconcile(W, "b.1", LEASE_S) == "begun", "a tick does not mind"


def test_a_worker_that_lost_the_lease_ends_nothing(world: World, nudges: Nudges) -> None:
    nudges.begin_reconcile(W, "a.1", LEASE_S)
    assert (nudges.extend_lock(W, "a.1", LEASE_S), nudges.extend_lock(W, "b.1", LEASE_S)) == (True, False)
    world.client.delete(key("job_lock", W, "reconcile"))
    nudges.begin_reconcile(W, "b.1", LEASE_S)
    before = world.state()
    assert not nudges.finish_reconcile(W, "a.1", "a.2", LEASE_S, 1, "more")
    assert not nudges.extend_lock(W, "a.1", LEASE_S)
    assert world.state() == before


# ---- what is heard, on servers only: the fake has no connections

SERVERS = ("embedded", "redis", "cluster")


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, servers: Servers) -> RedisClient:
    return servers.client(request.param)


@pytest.fixture
def ears(server: RedisClient) -> Iterator[ChannelSubscription]:
    with Nudges(server).subscribe() as ears:
        yield ears


def hears(ears: ChannelSubscription, *names: str) -> None:
    """Wait until all these channels have had a message; fail if another channel has one."""
    channels, until = set[str](), time.monotonic() + LONG_S
    while channels != set(names):
        assert time.monotonic() < until, f"heard {channels}"
        channels |= ears.wait(1)
        assert channels <= set(names)


def node(client: RedisClient) -> Any:
    """Return a client of the only node."""
    return client.get_redis_connection(client.get_default_node()) if isinstance(client, RedisCluster) else client  # type: ignore[no-untyped-call]


def test_a_nudge_is_sent_once_until_it_is_claimed(
    server: RedisClient, ears: ChannelSubscription, ask: Callable[[RedisClient], Ask]
) -> None:
    asking = ask(server)
    for _ in range(50):
        asking()
    with node(server).pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.psubscribe("pk:*")
        pubsub.get_message(timeout=LONG_S)
        asking()
        assert pubsub.get_message(timeout=SHORT_S) is None
        server.delete(key("nudge", W))
        asking()
        asking("other")
        channels = {pubsub.get_message(timeout=LONG_S)["channel"] for _ in range(2)}
        assert channels == {key("nudged", W), key("nudged", "other")}
        assert pubsub.get_message(timeout=SHORT_S) is None
    hears(ears, W, "other")
    assert ears.wait(SHORT_S) == set()


def test_changes_of_requests_and_foreign_channels_are_no_nudges(server: RedisClient, ears: ChannelSubscription) -> None:
    world = World(server)
    for channel in (f"{key('nudged', W)}x", "pk:{a}:nudged:b", "nudged"):
        node(server).publish(channel, "")
    world.pool(gpu=1)
    world.policy()
    world.release(world.submit(gpu=1))
    assert ears.wait(SHORT_S) == set()


def test_it_hears_again_after_the_connection_broke(
    server: RedisClient, ears: ChannelSubscription, ask: Callable[[RedisClient], Ask]
) -> None:
    asking = ask(server)

    def listening() -> list[str]:
        return [each["id"] for each in node(server).client_list() if each["name"] == CLIENT_NAME and each["psub"] == "1"]

    (first,) = listening()
    node(server).client_kill_filter(_id=first)
    wait_until(lambda: listening() not in ([], [first]), "it has subscribed again")
    asking()
    hears(ears, W)


def test_waiters_are_woken_at_the_shutdown(server: RedisClient) -> None:
    with Nudges(server).subscribe() as ears:
        ears.close()
        started_s = time.monotonic()
        assert ears.wait(LONG_S) == set()
    assert time.monotonic() - started_s < LONG_S / 2


def test_a_redis_user_without_the_right_to_publish_can_write(servers: Servers, ask: Callable[[RedisClient], Ask]) -> None:
    client = node(servers.client("redis"))
    client.acl_setuser("mute", enabled=True, nopass=True, keys="*", commands=["+@all"], reset_channels=True)
    try:
        with client.client() as mute:
            mute.execute_command("AUTH", "mute", "x")
            ask(mute)()
        assert client.get(key("nudge", W)) == "pending"
    finally:
        client.acl_deluser("mute")
