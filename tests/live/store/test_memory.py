"""The cost of a waiting request: at most 1 KiB of the server's memory, with its event and its places in the indexes."""

from __future__ import annotations

from tests.support.servers import Servers
from tests.support.world import World

WAITING = 5_000
TEAMS = [f"team-{number}" for number in range(10)]


def test_a_waiting_request_costs_at_most_a_kibibyte(servers: Servers) -> None:
    world = World(servers.client("redis"))
    world.pool("training", gpu=64)
    for team in TEAMS:
        world.policy(team, "training", priority=10, reserved={"gpu": 4}, limit={"gpu": 64})
    world.submit(TEAMS[0], gpu=64)
    wait(world, 50)
    before = memory(world)
    wait(world, WAITING)
    assert world.get_pool("training").queue_length == 50 + WAITING
    each = (memory(world) - before) / WAITING
    assert each <= 1024, f"{each:.0f} bytes a waiting request"


def wait(world: World, count: int) -> None:
    """Submit this many more requests that wait, with the default lease and time to live."""
    asks = [world.request_spec(TEAMS[number % len(TEAMS)], gpu=8, lease_s=60, queue_ttl_s=600) for number in range(count)]
    for first in range(0, count, 50):
        world.submit_all(asks[first : first + 50])


def memory(world: World) -> int:
    """Return the server's memory for data, in bytes."""
    return int(world.client.info("memory")["used_memory_dataset"])
