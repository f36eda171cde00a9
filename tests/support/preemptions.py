"""Preemptions without a planner: the effect of a decision, and of its deadlines."""

from __future__ import annotations

from collections.abc import Iterable

from app.domain.clock import Clock
from app.domain.plan_steps import Preempt, Trigger, Victim
from app.store.connection import RedisClient
from app.store.plan_store import PlanStore


def preempt(
    client: RedisClient,
    waiter: str,
    victims: Iterable[tuple[str, int]],
    *,
    workspace: str = "default",
    pool: str = "gpus",
    reason: Trigger = Trigger.PRIORITY,
    clock: Clock | None = None,
) -> None:
    """Preempt these allocations (id, fence) for a waiter."""
    planning = PlanStore(client, clock)
    snapshot = planning.read_snapshot(workspace, pool)
    assert snapshot
    taken = planning.apply_step(workspace, snapshot, Preempt(waiter, tuple(Victim(*victim, reason) for victim in victims)))
    assert taken.applied, taken.reason


def depart(client: RedisClient, *, workspace: str = "default", clock: Clock | None = None) -> None:
    """Enforce the deadlines of victims."""
    PlanStore(client, clock).enforce_deadlines(workspace)
