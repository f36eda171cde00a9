"""A Redis whose memory is full: no new request enters, and every call that gives units back passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from app.domain.errors import StoreUnavailable
from app.domain.models import Request
from app.domain.specs import RequestSpec
from app.domain.tasks import TaskSpec
from app.domain.tokens import Role, Token
from app.store.connection import RedisClient, connect
from app.store.task_outbox import TaskStore
from app.store.tokens import TokenStore
from tests.support.audit_findings import findings
from tests.support.backends import require, serve, short_folder, wait_until
from tests.support.world import World


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisClient]:
    """Yield a server of its own, whose memory can be full."""
    require("redis")
    folder = tmp_path_factory.mktemp("server")
    with short_folder(folder) as place:
        options = ("--port", "0", "--unixsocket", str(place / "full.sock"))
        with serve(folder, *options), connect(f"unix://{place / 'full.sock'}") as client:
            wait_until(client.ping, "the server answers")
            yield client


@pytest.fixture
def world(server: RedisClient) -> Iterator[World]:
    """Yield an empty workspace, on a server that has memory again afterwards."""
    server.flushall()
    yield World(server)
    server.config_set("maxmemory", 0)


def queued(world: World) -> Request:
    world.pool(gpu=2)
    world.policy()
    world.submit(gpu=2)
    return world.submit(gpu=1)


def patient(world: World) -> Request:
    world.pool(gpu=2, settings={"patience_s": 5})
    world.policy()
    world.submit(gpu=2)
    waiter = world.submit(gpu=2)
    world.pass_time(6)
    assert [hold.request for hold in world.get_pool().holds] == [waiter.id]
    return waiter


def with_holds(world: World) -> tuple[Request, Request]:
    """Create two owners of holds; return the first, and its victim."""
    world.pool(gpu=2)
    world.policy()
    world.policy("u", priority=1)
    victims = world.submit(gpu=1), world.submit(gpu=1)
    owners = [world.submit("u", gpu=1) for _ in victims]
    for owner, victim in zip(owners, victims, strict=True):
        world.preempt(owner, victim)
    assert world.status(*victims) == ["preempting", "preempting"]
    return owners[0], victims[0]


def reprieved(world: World) -> Request:
    owner, victim = with_holds(world)
    world.cancel(owner)
    world.reprieve(victim)
    assert world.status(victim) == ["allocated"]
    return victim


def allocated(world: World) -> Request:
    """Return an allocation that a waiter will take over."""
    world.pool(gpu=2)
    world.policy()
    holder = world.submit(gpu=2)
    world.submit(gpu=2)
    return holder


def parked(world: World) -> Request:
    world.pool(gpu=2)
    world.policy()
    world.submit(gpu=2)
    spec = RequestSpec(component="t", resources={"gpu": 2})
    task = TaskStore(world.client, world.clock).park_task(
        world.workspace, TaskSpec(task="a", request=spec, name="train", message={"id": "a"})
    )
    assert task.request
    return world.get(task.request)


CALLS: Final[dict[str, tuple[Callable[[World], Request], Callable[[World, Request], Any], str]]] = {
    "cancel": (queued, World.cancel, "cancelled"),
    "cancel the owner of a patience hold": (patient, World.cancel, "cancelled"),
    "cancel the owner of a victim hold": (lambda world: with_holds(world)[0], World.cancel, "cancelled"),
    "cancel a parked task": (
        parked,
        lambda world, _: TaskStore(world.client, world.clock).cancel_task(world.workspace, "a"),
        "cancelled",
    ),
    "drop a waiter": (queued, World.drop, "cancelled"),
    "drop an allocation": (allocated, World.drop, "released"),
    "drop a victim": (lambda world: with_holds(world)[1], World.drop, "released"),
    "release": (allocated, World.release, "released"),
    "release after a failure": (allocated, lambda world, request: world.release(request, outcome="failed"), "released"),
    "release a victim": (lambda world: with_holds(world)[1], World.release, "released"),
    "a victim leaves": (
        lambda world: with_holds(world)[1],
        lambda world, request: world.release(request, outcome="vacated"),
        "queued",
    ),
    "a reprieved victim leaves": (reprieved, lambda world, request: world.release(request, outcome="vacated"), "queued"),
}
"""Call → the state before it, the call, and the status after it."""


@pytest.mark.parametrize("name", CALLS)
def test_what_gives_units_back_passes(name: str, world: World) -> None:
    prepare, call, status = CALLS[name]
    request = prepare(world)
    world.client.config_set("maxmemory", 1)
    with pytest.raises(StoreUnavailable, match="memory"):
        world.submit(gpu=1)
    call(world, request)
    assert world.status(request) == [status]
    assert findings(world) == []


def test_a_token_with_a_rate_is_still_throttled(world: World) -> None:
    tokens = TokenStore(world.client, world.clock)
    token = tokens.create_token("digest", Token(id="t", name="t", role=Role.REQUESTER, workspaces=("*",), rate_per_s=1))
    world.client.config_set("maxmemory", 1)
    assert [tokens.throttle_token(token.id, 1) for _ in range(3)] == [0, 1000, 1000]
    world.clock.advance(1)
    assert tokens.throttle_token(token.id, 1) == 0
