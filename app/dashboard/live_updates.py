"""The stream that says that something has changed; what has, the page then asks for."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing

from flask import Response

from app.api.request_handler import event_stream, is_disconnected
from app.dashboard.page_context import Look
from app.dashboard.pages import POOLS, page_of
from app.domain.errors import NotFound, StoreUnavailable
from app.domain.models import Event
from app.domain.names import is_name

LOOK_S = 0.7
"""How often is looked for what makes no event: a pool, a group or a policy that is other than it was."""
CALM_S = 0.5
"""Between two words of change, at least; so a page is some tenths of a second old at most, however much goes on."""
ALIVE_S = 5.0
"""How long nothing is said, at most: a page that hears less knows that its stream is dead."""


def stream(look: Look) -> Response:
    """Says `changed` whenever something has happened, or a pool that is looked at is other than it was; `alive` at times.

    Those are the pools that are named, or, with `after`, those of that page of all pools.
    """
    for pool in look.asked.args.getlist("pool"):
        if not is_name(pool):
            raise NotFound("pool", ascii(pool)[:80])
    sock = look.asked.environ.get("gunicorn.socket")
    last = look.services.requests.get_last_event_id(look.workspace)
    events = look.services.long_polls.stream_events(
        look.workspace, last, LOOK_S, lambda: is_disconnected(sock) or not look.stays()
    )
    next(events)  # what is wrong is known now, while there is still a status to say it with
    response = event_stream(_told(look, events))
    response.call_on_close(events.close)  # the lines of a HEAD are never begun, so they close nothing
    return response


def _told(look: Look, events: Generator[Event | None]) -> Iterator[str]:
    with closing(events):
        seen, said, due = _digest(look), time.monotonic(), False
        yield "event: changed\ndata: now\n\n"  # what happened before this began is not told again
        for event in events:
            now = time.monotonic()
            if event is None:
                before, seen = seen, _digest(look)
                due = due or seen != before
            else:
                due = True
            if due and now - said >= CALM_S:
                said, due = now, False
                yield "event: changed\ndata: now\n\n"
            elif now - said >= ALIVE_S:
                said = now
                yield "event: alive\ndata: now\n\n"


def _digest(look: Look) -> str:
    after = look.asked.args.get("after")
    try:
        pools = look.asked.args.getlist("pool") if after is None else page_of(look, after)[0]
        return look.services.dashboard_queries.get_digest(look.workspace, pools[:POOLS])
    except StoreUnavailable:
        return ""
