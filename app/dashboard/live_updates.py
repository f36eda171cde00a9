"""The stream that announces changes. The page then requests its live part."""

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
"""Seconds between two comparisons of pools, groups and policies, whose changes make no event."""
MIN_INTERVAL_S = 0.5
"""Seconds between two announcements, at least, however many events there are."""
KEEPALIVE_S = 5.0
"""Seconds between two lines of the stream, at most: a page that gets none knows that the stream is broken."""


def stream_changes(context: PageContext) -> Response:
    """Stream `changed` after an event or a change of a shown pool, and `alive` at intervals.

    The shown pools are those of the parameters `pool`, or with `after` the pools of that page.
    """
    for pool in context.http_request.args.getlist("pool"):
        if not is_name(pool):
            raise NotFound("pool", ascii(pool)[:80])
    sock = context.http_request.environ.get("gunicorn.socket")
    last = context.services.requests.get_last_event_id(context.workspace)
    events = context.services.long_polls.stream_events(
        context.workspace,
        last,
        DIGEST_INTERVAL_S,
        lambda: is_disconnected(sock) or not context.is_authenticated(),
        "dashboard",
        context.user.token.share_holder,
    )
    next(events)  # so that an error is raised before the status line is sent
    response = event_stream(_sse_lines(context, events))
    response.call_on_close(events.close)  # a HEAD never begins the lines, so they would not close the stream
    return response


def _sse_lines(context: PageContext, events: Generator[Event | None]) -> Iterator[str]:
    with closing(events):
        digest, last_line_s, due = _digest(context), time.monotonic(), False
        yield "event: changed\ndata: now\n\n"  # earlier events are not streamed
        for event in events:
            now_s = time.monotonic()
            if event is None:
                before, digest = digest, _digest(context)
                due = due or digest != before
            else:
                due = True
            if due and now_s - last_line_s >= MIN_INTERVAL_S:
                last_line_s, due = now_s, False
                yield "event: changed\ndata: now\n\n"
            elif now_s - last_line_s >= KEEPALIVE_S:
                last_line_s = now_s
                yield "event: alive\ndata: now\n\n"


def _digest(context: PageContext) -> str:
    after = context.http_request.args.get("after")
    try:
        pools = context.http_request.args.getlist("pool") if after is None else pool_names_page(context, after)[0]
        return context.services.dashboard_queries.get_digest(context.workspace, pools[:PAGE_POOLS])
    except StoreUnavailable:
        return ""
