"""The states of a request and every way between them: the one declaration, handed to Lua and checked against the README."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a request stands."""

    QUEUED = "queued"
    ALLOCATED = "allocated"
    PREEMPTING = "preempting"
    PREEMPTED = "preempted"
    RELEASED = "released"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.ALLOCATED, State.CANCELLED, State.REJECTED, State.EXPIRED}),
    State.ALLOCATED: frozenset({State.PREEMPTING, State.PREEMPTED, State.QUEUED, State.RELEASED, State.EXPIRED}),
    State.PREEMPTING: frozenset({State.ALLOCATED, State.PREEMPTED, State.QUEUED, State.RELEASED, State.EXPIRED}),
    State.PREEMPTED: frozenset(),
    State.RELEASED: frozenset(),
    State.EXPIRED: frozenset(),
    State.CANCELLED: frozenset(),
    State.REJECTED: frozenset(),
}

LIVE: frozenset[State] = frozenset({State.ALLOCATED, State.PREEMPTING})
"""The states in which a request holds units."""

FINAL: frozenset[State] = frozenset(state for state, after in TRANSITIONS.items() if not after)
"""The states nothing leads out of."""
