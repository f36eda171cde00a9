"""The page of events: filters, and older pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from flask import Response

from app.api.errors import MalformedInput
from app.api.schemas.inputs import EVENT_PATTERN
from app.dashboard.page_context import PageContext
from app.domain.event_names import EVENT_NAMES
from app.domain.models import Event

PAGE_ROWS = 100
BATCH = 1000
"""The events that one call reads."""
MAX_BATCHES = 5
"""The most calls for one page. A filter with few matches comes in several pages, some of them empty."""
LONGEST_VALUE = 130
"""The most characters of a filter: `type/name` of a component, with spaces."""
LISTED_POOLS = 200
"""The most pools that are offered as a filter."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """The conditions of the list. An event has to meet all of them; an empty text is no condition."""

    pool: str = ""
    component: str = ""
    """The name, or `type/name`."""
    event: str = ""
    request: str = ""
    """The beginning or the end of the id of the request."""

    @classmethod
    def of(cls, args: Mapping[str, str]) -> EventFilter:
        """Return the filter of a query string. Raise MalformedInput if a value is too long, or is not the name of an event."""
        values = {name: args.get(name, "").strip() for name in cls.__dataclass_fields__}
        for name, value in values.items():
            if len(value) > LONGEST_VALUE:
                raise MalformedInput([(name, f"has more than {LONGEST_VALUE} characters")], "the query")
        if values["event"] and values["event"] not in EVENT_NAMES:
            raise MalformedInput([("event", f"is none of {', '.join(EVENT_NAMES)}")], "the query")
        return cls(**{**values, "request": values["request"].lower()})

    @property
    def values(self) -> dict[str, str]:
        """Return the conditions that are not empty, for a query string."""
        conditions = {"pool": self.pool, "component": self.component, "event": self.event, "request": self.request}
        return {name: value for name, value in conditions.items() if value}

    def matches(self, event: Event) -> bool:
        """True if the event meets all conditions."""
        return (
            (not self.pool or event.pool == self.pool)
            and (not self.event or event.event == self.event)
            and (not self.component or self.component in (event.component, event.component.partition("/")[2]))
            and (event.request.startswith(self.request) or event.request.endswith(self.request))
        )


def show_events(context: PageContext) -> Response:
    """Show the events that match the filters, the newest first."""
    args = context.http_request.args
    before = args.get("before")
    if before is not None and not re.fullmatch(EVENT_PATTERN, before):
        raise MalformedInput([("before", "is not one that was answered")], "the query")
    conditions = EventFilter.of(args)
    events, older, searched = _search(context, conditions, before)
    return context.render_page(
        "events.html",
        events=events,
        conditions=conditions,
        older=older,
        searched=searched,
        is_first_page=before is None,
        event_names=EVENT_NAMES,
        pools=() if context.is_partial else context.services.pools.list_names(context.workspace)[:LISTED_POOLS],
    )


def _search(context: PageContext, conditions: EventFilter, before: str | None) -> tuple[list[Event], str | None, int]:
    """Return the events of a page, the id before which the next page begins (None: none), and the number of events read."""
    events: list[Event] = []
    is_narrow = bool(conditions.values) or context.user.token.is_limited
    count = BATCH if is_narrow else PAGE_ROWS + 1
    searched = 0
    for _ in range(MAX_BATCHES):
        batch = context.services.queries.list_latest_events(context.workspace, min(count, BATCH), before)
        for number, event in enumerate(batch, start=1):
            before = event.id
            if conditions.matches(event) and context.user.can_see(event.component):
                events.append(event)
            if len(events) == PAGE_ROWS:
                has_more = number < len(batch) or len(batch) == count
                return events, before if has_more else None, searched + number
        searched += len(batch)
        if len(batch) < count:
            return events, None, searched
    return events, before, searched
