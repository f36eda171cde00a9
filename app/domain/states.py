"""The states of a request and all transitions between them: the one table, for Lua and for the reference page."""

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

STATE_TEXTS: dict[RequestState, str] = {
    RequestState.QUEUED: "The request waits in the queue of each pool that may grant it. It holds no units.",
    RequestState.ALLOCATED: "The request holds its units in one pool, under a fence and until its lease lapses.",
    RequestState.PREEMPTING: "The request still holds its units. It has a directive and a deadline by which it must leave.",
    RequestState.PREEMPTED: "The request was preempted and does not return to the queue: its retries are used up, or "
    "its work was not saved and `requeue_failed_checkpoint` is false.",
    RequestState.RELEASED: "The client gave the units back, or an operator dropped the allocation.",
    RequestState.EXPIRED: "The lease or the queue TTL lapsed, or the worker was lost.",
    RequestState.CANCELLED: "The client cancelled the queued request, or an operator dropped it.",
    RequestState.REJECTED: "No pool can ever grant the request. The field `reason` has the answer of each pool.",
}
"""State → its meaning, as public text."""
