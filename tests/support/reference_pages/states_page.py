"""The reference page of the states of a request."""

from __future__ import annotations

from app.domain.event_names import EVENTS
from app.domain.states import FINAL_STATES, HOLDING_STATES, STATE_TEXTS, TRANSITIONS, RequestState
from tests.support.reference_pages.markdown import block, codes, page, table


def states_page() -> str:
    """Return the page: diagram, meaning of each state, event of each transition."""
    transitions = [(before, after) for before, states in TRANSITIONS.items() for after in _in_order(states)]
    return page(
        "States of a request",
        "Every request is in one of these states. Each transition writes one [event](events.md).",
        "app/domain/states.py and app/domain/event_names.py",
        block("mermaid", _diagram()),
        "## States",
        table(["state", "kind", "meaning"], ([f"`{state}`", _kind(state), STATE_TEXTS[state]] for state in RequestState)),
        "## Transitions",
        "If the pool has `grace_s: 0`, or the work of the victim has not started, the request goes from `allocated` to "
        "`queued` or `preempted` at once. Every other victim goes through `preempting`.",
        table(
            ["from", "to", "event"],
            ([f"`{before}`", f"`{after}`", codes(events_of(before, after))] for before, after in transitions),
        ),
    )


def _diagram() -> str:
    lines = ["stateDiagram-v2", "    [*] --> queued"]
    for before, states in TRANSITIONS.items():
        lines += [f"    {before} --> {after}" for after in _in_order(states)]
    return "\n".join([*lines, *(f"    {state} --> [*]" for state in _in_order(FINAL_STATES))])


def _in_order(states: frozenset[RequestState]) -> list[RequestState]:
    return [state for state in RequestState if state in states]


def _kind(state: RequestState) -> str:
    if state in FINAL_STATES:
        return "final"
    return "holds units" if state in HOLDING_STATES else "waits"


def events_of(before: RequestState, after: RequestState) -> list[str]:
    """Return the events that a transition may write."""
    return [name for name, event in EVENTS.items() if before in event.before and after in event.after]
