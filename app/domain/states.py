"""The states of a request and all transitions between them: one declaration, from which Lua constants and docs are made."""

from __future__ import annotations

from enum import StrEnum


class RequestState(StrEnum):
    """The state of a request."""

    QUEUED = "queued"
    ALLOCATED = "allocated"
    PREEMPTING = "preempting"
    PREEMPTED = "preempted"
    RELEASED = "released"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


TRANSITIONS: dict[RequestState, frozenset[RequestState]] = {
    RequestState.QUEUED: frozenset(
        {RequestState.ALLOCATED, RequestState.CANCELLED, RequestState.REJECTED, RequestState.EXPIRED}
    ),
    RequestState.ALLOCATED: frozenset(
        {RequestState.PREEMPTING, RequestState.PREEMPTED, RequestState.QUEUED, RequestState.RELEASED, RequestState.EXPIRED}
    ),
    RequestState.PREEMPTING: frozenset(
        {RequestState.ALLOCATED, RequestState.PREEMPTED, RequestState.QUEUED, RequestState.RELEASED, RequestState.EXPIRED}
    ),
    RequestState.PREEMPTED: frozenset(),
    RequestState.RELEASED: frozenset(),
    RequestState.EXPIRED: frozenset(),
    RequestState.CANCELLED: frozenset(),
    RequestState.REJECTED: frozenset(),
}

HOLDING_STATES: frozenset[RequestState] = frozenset({RequestState.ALLOCATED, RequestState.PREEMPTING})
"""The states in which a request holds units."""

FINAL_STATES: frozenset[RequestState] = frozenset(state for state, after in TRANSITIONS.items() if not after)
"""The states without a transition to another one."""
