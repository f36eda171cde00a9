"""The reference page of events."""

from __future__ import annotations

from collections.abc import Collection

from app.domain.event_names import EVENTS, EventKind
from app.domain.states import FINAL_STATES, RequestState
from tests.support.reference_pages.json_schema import field_table, schema_of
from tests.support.reference_pages.markdown import code, codes, json_block, page, table
from tests.support.reference_pages.recorded_examples import first_response

LINKS = {"RequestState": "[state](states.md)", "RankResponse": "[rank](#rank)", "VictimResponse": "[victim](#victim)"}


def events_page() -> str:
    """Return the page: every event, and the fields of an event."""
    return page(
        "Events",
        "Every change of a request is an event in the stream of its workspace and in the timeline of the request. "
        "Read them with [`GET /events`](http/events.md), `GET /requests/{request}/events` or `poolkeeper events`.",
        "app/domain/event_names.py and app/api/schemas/events.py",
        "Exactly one event is written for each transition between [states](states.md), by the script that makes it. "
        "A note is an event that changes no state.",
        "## Names",
        table(
            ["event", "transition", "meaning"],
            ([code(name), _transition(kind), kind.meaning] for name, kind in EVENTS.items()),
        ),
        "## Fields",
        field_table(schema_of("EventResponse"), LINKS.__getitem__),
        "### Rank",
        field_table(schema_of("RankResponse"), LINKS.__getitem__),
        "### Victim",
        field_table(schema_of("VictimResponse"), LINKS.__getitem__),
        "## Example",
        json_block(first_response("list_events")["items"][0]),
    )


def _transition(kind: EventKind) -> str:
    if not kind.after:
        return "note"
    return f"{_states(kind.before) or 'new'} → {_states(kind.after)}"


def _states(states: Collection[RequestState]) -> str:
    if states == frozenset(RequestState) - FINAL_STATES:
        return "any state that is not final"
    return codes(state for state in RequestState if state in states).replace(", ", " or ")
