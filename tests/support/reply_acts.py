"""The act that leads to each declared reply of a command, and its registration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.domain.models import Request
from app.store.scripts import ScriptReply
from tests.support.world import World

Act = Callable[[World], ScriptReply]
ACTS: dict[tuple[str, str], Act] = {}
ABSENT, NOWHERE = "0" * 20, "nowhere"


def replies(command: str, tag: str) -> Callable[[Act], Act]:
    """Register the act that leads to a reply; it gets a workspace with pool `p` (gpu 2), group `g` and policy `t` in it."""

    def note(act: Act) -> Act:
        ACTS[command, tag] = act
        return act

    return note


def register_call(command: str, tag: str, **args: Any) -> None:
    """Register a reply that needs nothing but the call."""
    ACTS[command, tag] = lambda world: world.call(command, **args)


def allocation_and_waiter(world: World) -> tuple[Request, Request]:
    """Create a holder of the whole pool, and a waiter of higher rank."""
    return world.submit(gpu=2, checkpoint="auto"), world.submit(gpu=2, preemption_class=9)


def victim_and_waiter(world: World) -> tuple[Request, Request]:
    """Create the same, and preempt the holder."""
    victim, waiter = allocation_and_waiter(world)
    assert world.preempt(waiter, victim).applied
    return victim, waiter
