"""Having somebody leave, without a planner to choose him: what a decision does, and what its deadlines do."""

from __future__ import annotations

from collections.abc import Iterable

from app.domain.clock import Clock
from app.domain.plan_steps import Stop, Trigger, Victim
from app.store.plan_store import Planning
from app.store.scripts import Client


def preempt(
    client: Client,
    waiter: str,
    victims: Iterable[tuple[str, int]],
    *,
    workspace: str = "default",
    pool: str = "gpus",
    reason: Trigger = Trigger.PRIORITY,
    clock: Clock | None = None,
) -> None:
    """These allocations (id, fence) have to leave for somebody who waits, and not for nothing."""
    planning = Planning(client, clock)
    seen = planning.snapshot(workspace, pool)
    assert seen
    taken = planning.take(workspace, seen, Stop(waiter, tuple(Victim(*victim, reason) for victim in victims)))
    assert taken.applied, taken.why


def depart(client: Client, *, workspace: str = "default", clock: Clock | None = None) -> None:
    """What the deadlines of those who have to leave ask for is done."""
    Planning(client, clock).depart(workspace)
