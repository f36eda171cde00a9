"""The cost of a cycle with waiters: by the depth of the queue, and by the number of lanes.

Two cycles are timed, as waiters can matter in two ways. *Beside* the queue: the request fits where no waiter fits and is
granted at once; its release has to find that no waiter fits now. *Through* the queue: a release grants the head, and a new
request of the same shape is queued, so the depth stays.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from redis import Redis

from app.domain.ids import request_id
from app.domain.pool_setting_models import PoolSettings
from app.domain.specs import PolicySpec, PoolSpec, RequestSpec
from app.planner.planning_pass import plan_pool
from app.store.keys import key
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore
from bench.timing import per_call_us
from bench.unlimited import NO_LIMITS

WORKSPACE = "bench"
POLICIES = 100
CALLS = 300
RESERVED = PoolSettings()


def run(client: Redis, depths: tuple[int, ...]) -> None:
    """Print the table of depths (in 1,000 lanes) and the table of lanes (at the third depth)."""
    base = 0.0
    for waiting in depths:
        beside, through, memory = measure(client, waiting, 1000)
        base = base or beside
        _print(f"{waiting:>9,} waiting in {min(waiting, 1000):>5,} lanes", base, beside, through, memory)
    for lanes in (1, 10, 100, 1000):
        beside, through, memory = measure(client, depths[min(2, len(depths) - 1)], lanes)
        _print(f"{depths[2]:>9,} waiting in {lanes:>5,} lanes", base, beside, through, memory)


def compare(client: Redis, rounds: int) -> None:
    """Print the cost of the same cycles by the discipline of the pool, in turns: without waiters, and through the queue."""
    fair = PoolSettings(discipline="fair_share")
    for waiting, lanes in ((0, 1), (10_000, 100), (10_000, 1_000)):
        pairs = [[measure(client, waiting, lanes, settings)[:2] for settings in (RESERVED, fair)] for _ in range(rounds)]
        column = 1 if waiting else 0
        plain, shared = (median(pair[which][column] for pair in pairs) for which in (0, 1))
        label = f"{waiting:,} waiting in {lanes:,} shapes" if waiting else "no request waiting"
        print(f"  {label}: {shared:.0f} us a grant, reserved {plain:.0f} us: {plain / shared:.2f} x its rate (reach 0.5)")


def _print(label: str, base: float, beside: float, through: float, memory: float) -> None:
    queued = f"through {through:6.0f} us ({through / base:.2f} x); {memory:5.0f} B a waiter" if through else ""
    print(f"  {label}: beside {beside:6.0f} us ({beside / base:.2f} x); {queued}")


def measure(client: Redis, waiting: int, lanes: int, settings: PoolSettings = RESERVED) -> tuple[float, float, float]:
    """Return the microseconds of a cycle beside and through the queue, and the bytes of a waiter. Fair shares are published."""
    client.flushall()
    ledger = Ledger(client)
    ledger.update_workspace(WORKSPACE, NO_LIMITS)
    ledger.create_pool(WORKSPACE, PoolSpec(name="p", capacity={"gpu": 2_001}, settings=settings))
    for number in range(POLICIES):
        ledger.set_policy(WORKSPACE, "p", f"orchestrator/t{number}", PolicySpec(priority=number % 10, reserved={"gpu": 10}))
    running: deque[tuple[str, int]] = deque()
    for number in range(200):
        request = ledger.submit(WORKSPACE, RequestSpec(component=f"t{number % POLICIES}", resources={"gpu": 10}, lease_s=None))
        running.append((request.id, request.fence or 0))
    shapes = [
        RequestSpec(component=f"t{number % POLICIES}", resources={"gpu": 2 + number // POLICIES}, lease_s=None)
        for number in range(lanes)
    ]
    before = client.info("memory")["used_memory"]
    for first in range(0, waiting, 200):
        batch = [(request_id(), shapes[number % lanes], None) for number in range(first, min(first + 200, waiting))]
        ledger.submit_all(WORKSPACE, batch)
    _publish(client)
    memory = (client.info("memory")["used_memory"] - before) / max(1, waiting)
    small = RequestSpec(component="t0", resources={"gpu": 1})

    def beside() -> None:
        request = ledger.submit(WORKSPACE, small)
        ledger.release(WORKSPACE, request.id, request.fence or 0)

    beside_us = per_call_us(beside, CALLS)
    if not waiting:
        return beside_us, 0, 0
    turn = 0

    def through() -> None:
        nonlocal turn
        ledger.release(WORKSPACE, *running.popleft())
        ledger.submit(WORKSPACE, shapes[turn % lanes])
        turn += 1
        if not running:
            _refill(client, running)

    return beside_us, per_call_us(through, CALLS), memory


def _publish(client: Redis) -> None:
    """Publish the fair shares for the scripts, like the planning pass of a worker does."""
    planning = PlanStore(client)
    snapshot = planning.read_snapshot(WORKSPACE, "p")
    publication = plan_pool(snapshot).publication if snapshot else None
    if snapshot and publication:
        planning.write_fair_shares(WORKSPACE, snapshot, publication)


def _refill(client: Redis, running: deque[tuple[str, int]]) -> None:
    for request in map(str, client.zrange(key("pool_allocations", WORKSPACE, "p"), 0, -1)):
        running.append((request, int(client.zscore(key("pool_allocations", WORKSPACE, "p"), request) or 0)))
