"""One allocation that is preempted for one waiter, and what the store tests look at meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.errors import StaleFence
from app.domain.models import Request
from app.domain.states import RequestState
from tests.support.world import World

ENDS = ("preemptions", "requeued", "failed_checkpoints", "checkpoints", "checkpoints_ms")
"""The counters of the ways in which a preemption ends."""
SAVES: dict[str, Any] = {"checkpoint": "auto"}


def victim_and_waiter(world: World, settings: dict[str, Any] | None = None, **fields: Any) -> tuple[Request, Request]:
    """Create a holder of a whole pool, and a waiter of higher rank."""
    world.pool(gpu=4, settings=settings)
    world.policy("low")
    world.policy("high", priority=1)
    return world.submit("low", gpu=4, **fields), world.submit("high", gpu=4)


def preempting_victim(world: World, settings: dict[str, Any] | None = None, **fields: Any) -> tuple[Request, Request]:
    """Create the same, and preempt the holder."""
    victim, waiter = victim_and_waiter(world, settings, **fields)
    assert world.preempt(waiter, victim).applied
    return victim, waiter


def next_step(world: World, request: Request) -> tuple[str | None, float | None]:
    """Return the directive of a request, and the seconds until its deadline."""
    current = world.get(request)
    return current.directive, None if current.deadline_ms is None else (current.deadline_ms - world.clock.now_ms()) / 1000


def later_transitions(world: World, request: Request) -> list[tuple[str, RequestState | None, RequestState]]:
    """Return the events of a request after its first grant."""
    return [(event.event, event.from_status, event.to_status) for event in world.events() if event.request == request.id][2:]


def assert_void(world: World, request: Request, fence: int) -> None:
    """Check that every call under this fence is refused and changes nothing."""
    before = world.state()
    for say in (
        lambda: world.heartbeat(request, fence),
        lambda: world.checkpoint(request, "progress", fence=fence),
        lambda: world.checkpoint(request, "completed", reference="late", fence=fence),
        lambda: world.release(request, fence),
        lambda: world.release(request, fence, "vacated"),
    ):
        with pytest.raises(StaleFence):
            say()
    assert world.state() == before
