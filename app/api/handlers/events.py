"""Events: the changes of requests in a workspace, as a stream or in pages."""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator
from contextlib import closing

from flask import Response

from app.api.errors import MalformedInput
from app.api.request_handler import event_stream
from app.api.routing import EVENT_STREAM, Call
from app.api.schemas.events import EventListResponse, EventResponse
from app.api.schemas.inputs import EVENT_PATTERN, EventsQuery
from app.domain.models import Event
from app.service.long_poll import KEEPALIVE_S

RECONNECT_MS = 2000
"""Milliseconds after which a client connects again when a stream has ended."""


def list_events(call: Call, query: EventsQuery) -> EventListResponse | Response:
    """Stream events (SSE) from `Last-Event-ID` on; with `Accept: application/json`, return a page of past events."""
    if _wants_list(call.headers.get("Accept", "")):
        return _events_page(call, query)
    after = _start_id(call, query)
    stream = call.services.long_polls.stream_events(
        call.workspace, after, is_disconnected=call.client_disconnected, token=call.token.share_holder
    )
    next(stream)  # so that an error is raised before the status line is sent
    response = event_stream(_sse_lines(call, query, after, stream))
    response.call_on_close(stream.close)  # a HEAD never begins the lines, so they would not close the stream
    return response


def _wants_list(accept: str) -> bool:
    """True if the client accepts JSON and no event stream."""
    return "application/json" in accept and EVENT_STREAM not in accept


def _events_page(call: Call, query: EventsQuery) -> EventListResponse:
    start_id = _requested_start_id(call, query)  # checks the header, even if the cursor overrides it
    events = call.services.requests.list_events(call.workspace, query.cursor or start_id or "0", query.limit)
    items = [EventResponse.of(event, call.token) for event in events if _matches(call, query, event)]
    return EventListResponse(items=items, next_cursor=events[-1].id if len(events) == query.limit else None)


def _start_id(call: Call, query: EventsQuery) -> str:
    return _requested_start_id(call, query) or call.services.requests.get_last_event_id(call.workspace)


def _requested_start_id(call: Call, query: EventsQuery) -> str | None:
    """Return the id of the event after which the client wants to continue; None if it gives none.

    The header overrides the URL: a client that reconnects repeats the URL of its first call.
    """
    event_id = call.headers.get("Last-Event-ID")
    if event_id is not None and not re.fullmatch(EVENT_PATTERN, event_id):
        raise MalformedInput([("Last-Event-ID", "is not the id of an event")], "a header")
    return event_id or query.after


def _sse_lines(call: Call, query: EventsQuery, after: str, stream: Generator[Event | None]) -> Iterator[str]:
    with closing(stream):
        yield f"retry: {RECONNECT_MS}\nid: {after}\n\n"  # a stream that breaks before the first event can go on too
        last_line_s = time.monotonic()
        for event in stream:
            now_s, after = time.monotonic(), after if event is None else event.id
            if event is not None and _matches(call, query, event):
                last_line_s = now_s
                data = EventResponse.of(event, call.token).model_dump_json(by_alias=True)
                yield f"id: {event.id}\nevent: {event.event}\ndata: {data}\n\n"
            elif event is None or now_s - last_line_s > KEEPALIVE_S:  # also while all events are filtered out
                last_line_s = now_s
                yield f": alive\nid: {after}\n\n"


def _matches(call: Call, query: EventsQuery, event: Event) -> bool:
    kind, _, name = event.component.partition("/")
    return (
        (query.pool is None or event.pool == query.pool)
        and (query.component is None or name == query.component)
        and (query.request is None or event.request == query.request)
        and call.token.can_see(kind, name)
    )
