"""Events: what happens in a workspace, as it happens."""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator
from contextlib import closing

from flask import Response

from app.api.errors import Malformed
from app.api.request_handler import endless
from app.api.routing import STREAM, Call
from app.api.schemas.events import EventAnswer
from app.api.schemas.inputs import EVENT_PATTERN, EventsQuery
from app.api.schemas.requests import Page
from app.domain.models import Event
from app.service.long_poll import ALIVE_S

RETRY_MS = 2000
"""When a client comes back after a stream has ended."""


def every(call: Call, query: EventsQuery) -> Page[EventAnswer] | Response:
    """A stream of events (SSE), going on after `Last-Event-ID`; with `Accept: application/json` a page of those there are."""
    if wants_list(call.headers.get("Accept", "")):
        return _listed(call, query)
    after = _after(call, query)
    stream = call.services.waiting.events(call.workspace, after, gone=call.gone)
    next(stream)  # what is wrong is known now, while there is still a status to say it with
    return endless(_streamed(call, query, after, stream))


def wants_list(accept: str) -> bool:
    """Whether JSON is asked for, and a stream is not."""
    return "application/json" in accept and STREAM not in accept


def _listed(call: Call, query: EventsQuery) -> Page[EventAnswer]:
    given = _given(call, query)
    found = call.services.requests.events(call.workspace, query.cursor or given or "0", query.limit)
    items = [EventAnswer.of(event) for event in found if _is_wanted(call, query, event)]
    return Page(items=items, next_cursor=found[-1].id if len(found) == query.limit else None)


def _after(call: Call, query: EventsQuery) -> str:
    return _given(call, query) or call.services.requests.last_event(call.workspace)


def _given(call: Call, query: EventsQuery) -> str | None:
    """After which event the client wants to go on; the header knows better than the URL of a stream that was taken up again."""
    last = call.headers.get("Last-Event-ID")
    if last is not None and not re.fullmatch(EVENT_PATTERN, last):
        raise Malformed([("Last-Event-ID", "is not the id of an event")], "a header")
    return last or query.after


def _streamed(call: Call, query: EventsQuery, after: str, stream: Generator[Event | None]) -> Iterator[str]:
    with closing(stream):
        yield f"retry: {RETRY_MS}\nid: {after}\n\n"  # cut off before the first event, it is known where to go on
        said = time.monotonic()
        for event in stream:
            now, after = time.monotonic(), after if event is None else event.id
            if event is not None and _is_wanted(call, query, event):
                said = now
                yield f"id: {event.id}\nevent: {event.event}\ndata: {EventAnswer.of(event).model_dump_json(by_alias=True)}\n\n"
            elif event is None or now - said > ALIVE_S:  # also while there is much that is not for this client
                said = now
                yield f": alive\nid: {after}\n\n"


def _is_wanted(call: Call, query: EventsQuery, event: Event) -> bool:
    kind, _, name = event.component.partition("/")
    return (
        (query.pool is None or event.pool == query.pool)
        and (query.component is None or name == query.component)
        and (query.request is None or event.request == query.request)
        and call.token.may_see(kind, name)
    )
