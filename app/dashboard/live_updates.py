"""The stream that says that something has changed; what has, the page then asks for."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing

from flask import Response

from app.api.request_handler import event_stream, is_disconnected
from app.dashboard.page_context import PageContext
from app.dashboard.pages import PAGE_POOLS, pool_names_page
from app.domain.errors import NotFound, StoreUnavailable
from app.domain.models import Event
from app.domain.names import is_name

DIGEST_INTERVAL_S = 0.7
"""How often is looked for what makes no event: a pool, a group or a policy that is other than it was."""
MIN_INTERVAL_S = 0.5
"""Between two words of change, at least; so a page is some tenths of a second old at most, however much goes on."""
KEEPALIVE_S = 5.0
"""How long nothing is said, at most: a page that hears less knows that its stream is dead."""


def stream_changes(context: PageContext) -> Response:
    """Says `changed` whenever something has happened, or a pool that is looked at is other than it was; `alive` at times.

    Those are the pools that are named, or, with `after`, those of that page of all pools.
    """
    for pool in context.http_request.args.getlist("pool"):
        if not is_name(pool):
            raise NotFound("pool", ascii(pool)[:80])
    sock = context.http_request.environ.get("gunicorn.socket")
    last = context.services.requests.get_last_event_id(context.workspace)
    events = context.services.long_polls.stream_events(
        context.workspace, last, DIGEST_INTERVAL_S, lambda: is_disconnected(sock) or not context.is_authenticated()
    )
    next(events)  # what is wrong is known now, while there is still a status to say it with
    response = event_stream(_sse_lines(context, events))
    response.call_on_close(events.close)  # the lines of a HEAD are never begun, so they close nothing
    return response


def _sse_lines(context: PageContext, events: Generator[Event | None]) -> Iterator[str]:
    with closing(events):
        seen, said, due = _digest(context), time.monotonic(), False
        yield "event: changed\ndata: now\n\n"  # what happened before this began is not told again
        for event in events:
            now = time.monotonic()
            if event is None:
                before, seen = seen, _digest(context)
                due = due or seen != before
            else:
                due = True
            if due and now - said >= MIN_INTERVAL_S:
                said, due = now, False
                yield "event: changed\ndata: now\n\n"
            elif now - said >= KEEPALIVE_S:
                said = now
                yield "event: alive\ndata: now\n\n"


def _digest(context: PageContext) -> str:
    after = context.http_request.args.get("after")
    try:
        pools = context.http_request.args.getlist("pool") if after is None else pool_names_page(context, after)[0]
        return context.services.dashboard_queries.get_digest(context.workspace, pools[:PAGE_POOLS])
    except StoreUnavailable:
        return ""
