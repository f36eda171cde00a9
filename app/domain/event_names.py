"""The events of requests: their names, the transitions that write them, and their meaning as public text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.domain.states import FINAL_STATES, HOLDING_STATES, RequestState


@dataclass(frozen=True, slots=True)
class EventKind:
    """A row of the table of events."""

    meaning: str
    """Public text."""
    before: frozenset[RequestState] = frozenset()
    """The states from which its transitions lead; empty: a new request, or no transition."""
    after: frozenset[RequestState] = frozenset()
    """The states to which its transitions lead; empty: the event is a note, which changes no state."""


_QUEUED = frozenset({RequestState.QUEUED})
_ALLOCATED = frozenset({RequestState.ALLOCATED})
_PREEMPTING = frozenset({RequestState.PREEMPTING})
_LEFT = frozenset({RequestState.QUEUED, RequestState.PREEMPTED})

EVENTS: Mapping[str, EventKind] = {
    "submitted": EventKind("The request was submitted.", after=_QUEUED),
    "allocated": EventKind("The request was granted its units in `pool`, under a new fence.", _QUEUED, _ALLOCATED),
    "started": EventKind("A worker, or `poolkeeper run`, has begun the work of the request."),
    "released": EventKind(
        "The client gave the units back: `outcome` has the result of the work. Or an operator dropped the allocation.",
        HOLDING_STATES,
        frozenset({RequestState.RELEASED}),
    ),
    "rejected": EventKind("No pool can ever grant the request.", _QUEUED, frozenset({RequestState.REJECTED})),
    "expired": EventKind(
        "The lease or the queue TTL lapsed, or the worker was lost.",
        frozenset(RequestState) - FINAL_STATES,
        frozenset({RequestState.EXPIRED}),
    ),
    "cancelled": EventKind(
        "The client cancelled the queued request, or an operator dropped it.",
        _QUEUED,
        frozenset({RequestState.CANCELLED}),
    ),
    "preempting": EventKind(
        "The request was told to leave, for the request `by` or because of a limit.", _ALLOCATED, _PREEMPTING
    ),
    "preempted": EventKind("The victim left, and its units came back.", HOLDING_STATES, _LEFT),
    "forced": EventKind("The victim did not leave by its deadline, and its units were taken back.", _PREEMPTING, _LEFT),
    "reprieved": EventKind("The victim may stay: no hold needs its units any more.", _PREEMPTING, _ALLOCATED),
    "terminating": EventKind(
        "The victim has to end within its grace period: its directive changed from `checkpoint` to `terminate`."
    ),
    "passed_on": EventKind("The victim leaves for another request from now on, which `by` names."),
    "clearing": EventKind("The request is to be granted its units when its `victims` have left."),
}
"""Name → row. The events with a state after them are the transitions; the others are notes."""

EVENT_NAMES = tuple(EVENTS)
