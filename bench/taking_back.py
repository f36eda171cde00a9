"""The cost of a decision about victims, by the number of allocations and the number of their policies.

Half of the units of each policy are borrowed. Waiters of a policy with an unused share come one by one. For each, a snapshot is
read, a plan is made, and its step is applied: three victims are told to leave. Only the records of the allocations are kept
from one decision to the next, as in a worker.
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise

from redis import Redis

from app.domain.ids import request_id
from app.domain.pool_setting_models import PoolSettings
from app.domain.specs import PolicySpec, PoolSpec, RequestSpec
from app.planner.planning_pass import plan_pool
from app.store.ledger import Ledger
from app.store.plan_store import PlanStore

WORKSPACE = "bench"
VICTIMS = 3


def run(client: Redis, sizes: tuple[int, ...], decisions: int) -> None:
    """Print a line for every discipline, number of policies and number of allocations."""
    for discipline in ("reserved", "classes", "fair_share"):
        for policies in (10, 100):
            base = 0.0
            for running in sizes:
                if discipline == "fair_share" and running < 10 * policies:
                    continue  # too few allocations a policy to borrow much
                total, *parts = measure(client, discipline, policies, running, decisions)
                base = base or total
                parts_text = ", ".join(f"{part} {ms:5.1f}" for part, ms in zip(("look", "plan", "take"), parts, strict=True))
                print(
                    f"  {discipline:>10}, {policies:>3} policies, {running:>6,} running: "
                    f"{total:6.1f} ms a decision ({parts_text}), {total / base:5.1f} x"
                )


def measure(client: Redis, discipline: str, policies: int, running: int, decisions: int) -> tuple[float, ...]:
    """Return the milliseconds of a decision and of its three parts, as medians."""
    client.flushall()
    ledger, planning = Ledger(client), PlanStore(client)
    _seed(ledger, discipline, policies, running, decisions)
    _look(planning)
    times = []
    for _ in range(decisions):
        ledger.submit(WORKSPACE, RequestSpec(component="owner", resources={"gpu": VICTIMS}, preemption_class=7, lease_s=None))
        moments = [time.perf_counter()]
        snapshot = planning.read_snapshot(WORKSPACE, "p")
        moments.append(time.perf_counter())
        assert snapshot
        plan = plan_pool(snapshot)
        moments.append(time.perf_counter())
        if plan.publication:
            planning.write_fair_shares(WORKSPACE, snapshot, plan.publication)
        assert planning.apply_step(WORKSPACE, snapshot, plan.steps[0]).applied
        moments.append(time.perf_counter())
        spans = [(after - before) * 1000 for before, after in pairwise(moments)]
        times.append((sum(spans), *spans))
    return tuple(statistics.median(column) for column in zip(*times, strict=True))


def _look(planning: PlanStore) -> None:
    """Publish fair shares once, so that the time is known since which the owner is below its fair share."""
    snapshot = planning.read_snapshot(WORKSPACE, "p")
    publication = plan_pool(snapshot).publication if snapshot else None
    if snapshot and publication:
        planning.write_fair_shares(WORKSPACE, snapshot, publication)
        time.sleep(0.01)  # a timeout of 0 s needs a moment to pass


def _seed(ledger: Ledger, discipline: str, policies: int, running: int, decisions: int) -> None:
    units = VICTIMS * decisions
    at_once = {"backoff_s": 0, "starvation_timeout_s": 0, "fair_share_tolerance": 1}
    settings = PoolSettings.model_validate({"discipline": discipline, "grace_s": 3600, "patience_s": None, **at_once})
    ledger.create_pool(WORKSPACE, PoolSpec(name="p", capacity={"gpu": running + units}, settings=settings))
    ledger.set_policy(WORKSPACE, "p", "orchestrator/owner", PolicySpec(priority=5, reserved={"gpu": units}))
    for number in range(policies):
        share = {"gpu": running // policies // 2}
        ledger.set_policy(WORKSPACE, "p", f"orchestrator/t{number}", PolicySpec(priority=number % 10, reserved=share))
    asks = [
        RequestSpec(
            component=f"t{number % policies}",
            resources={"gpu": 1},
            preemption_class=number % 7,
            checkpoint="auto",
            walltime_s=86_400,
            lease_s=None,
        )
        for number in range(running + units)
    ]
    for first in range(0, len(asks), 200):
        ledger.submit_all(WORKSPACE, [(request_id(), ask, None) for ask in asks[first : first + 200]])
    if discipline == "fair_share":  # so large a demand that part of the owner's fair share is in use by others
        ask = RequestSpec(component="owner", resources={"gpu": running // 4}, preemption_class=0, lease_s=None)
        ledger.submit(WORKSPACE, ask)
