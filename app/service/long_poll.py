"""Long polls and event streams: wait until a request changes, or yield the events of a workspace as they come.

Each wait holds a wait slot (`wait_slots.py`). Without a free slot the call is answered at once. A wait reads the request again
after each notification, and every POLL_INTERVAL_S. So a lost notification delays the answer, but never makes it wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import Final, Literal, NamedTuple

from app.domain.errors import StoreUnavailable
from app.domain.models import Event, Request
from app.domain.states import RequestState
from app.service.requests import Requests
from app.service.validation import MAX_PAGE_ROWS, checked_name
from app.service.wait_slots import WaitSlots
from app.store.change_notifications import ChangeNotifications, ChangeWatch

POLL_INTERVAL_S: Final = 5.0
"""Seconds between two reads of a wait, at most."""
DISCONNECT_CHECK_S: Final = 2.0
"""Seconds between two checks of a wait if its client has disconnected."""
KEEPALIVE_S: Final = 10.0
"""Seconds for which a stream is silent, at most."""
BATCH_DELAY_S: Final = 0.05
"""Seconds between two reads of a stream, at least: events of that time are sent together."""


class PollResult(NamedTuple):
    """The result of a long poll."""

    request: Request
    """The request in its present state."""
    no_slot: bool = False
    """True if no wait slot was free, so that the call did not wait."""


class KnownState(NamedTuple):
    """The state and directive of a request that the client has already."""

    state: RequestState
    directive: str | None
    """None if a change of the directive does not count."""

    def differs_from(self, request: Request) -> bool:
        """True if the request has a state or directive that the client does not have."""
        comparable = self.directive is not None and request.directive is not None
        return request.status != self.state or (comparable and request.directive != self.directive)


class LongPolls:
    """The long polls and event streams of one process."""

    def __init__(self, requests: Requests, notifications: ChangeNotifications, slots: WaitSlots) -> None:
        self.slots = slots
        self._requests, self._notifications = requests, notifications

    def wait_for_change(
        self,
        workspace: str,
        request: str,
        known_state: RequestState | None,
        wait_s: float,
        is_disconnected: Callable[[], bool] = lambda: False,
        known_directive: str | None = None,
        token: str | None = None,
    ) -> PollResult:
        """Return a request once its state differs from `known_state`, or its directive from `known_directive`.

        Without a `known_state` the present state counts as known; without a `known_directive` directives do not count. The
        unchanged request is returned if the time is over, the client has disconnected, the process ends, or no slot is free. A
        wait counts as a poll: the queue TTL of the request starts again.
        """
        deadline = time.monotonic() + wait_s
        record = self._requests.poll(workspace, request)
        baseline = KnownState(record.status if known_state is None else known_state, known_directive)
        if baseline.differs_from(record) or wait_s <= 0:
            return PollResult(record)
        with self.slots.slot("poll", token) as acquired:
            if not acquired:
                return PollResult(record, no_slot=True)
            with self._notifications.watch(workspace, request) as watch:
                return PollResult(self._poll_until_changed(watch, workspace, request, baseline, deadline, is_disconnected))

    def _poll_until_changed(
        self,
        watch: ChangeWatch,
        workspace: str,
        request: str,
        baseline: KnownState,
        deadline: float,
        is_disconnected: Callable[[], bool],
    ) -> Request:
        while True:
            record = self._requests.poll(workspace, request)
            if baseline.differs_from(record) or watch.closed or time.monotonic() >= deadline:
                return record
            interval_s = min(POLL_INTERVAL_S, record.queue_ttl_s / 3) if record.queue_ttl_s else POLL_INTERVAL_S
            if not _wait_connected(watch, min(deadline, time.monotonic() + interval_s), is_disconnected):
                return record

    def stream_events(
        self,
        workspace: str,
        after: str,
        keepalive_s: float = KEEPALIVE_S,
        is_disconnected: Callable[[], bool] = lambda: False,
        kind: Literal["stream", "dashboard"] = "stream",
        token: str | None = None,
    ) -> Generator[Event | None]:
        """Yield the events of a workspace after an event, until the process ends, the client disconnects or it is closed.

        The first value is None, when the stream has begun; a refusal (TooManyWaiters, StoreUnavailable, a bad name or id) is
        raised in its place. A later None is a keepalive after `keepalive_s` without an event. The stream continues after a
        Redis outage.
        """
        with self.slots.required_slot(kind, token), self._notifications.watch(checked_name(workspace)) as watch:
            page = self._requests.list_events(workspace, after, MAX_PAGE_ROWS)
            yield None
            yield from self._stream(watch, workspace, after, page, keepalive_s, is_disconnected)

    def _stream(
        self,
        watch: ChangeWatch,
        workspace: str,
        after: str,
        page: list[Event],
        keepalive_s: float,
        is_disconnected: Callable[[], bool],
    ) -> Iterator[Event | None]:
        last_sent = time.monotonic()
        while not watch.closed:
            yield from page
            if page:
                after, last_sent = page[-1].id, time.monotonic()
            elif time.monotonic() >= last_sent + keepalive_s:
                yield None
                last_sent = time.monotonic()
            if len(page) < MAX_PAGE_ROWS:
                time.sleep(BATCH_DELAY_S)
                if not _wait_connected(
                    watch, min(time.monotonic() + POLL_INTERVAL_S, last_sent + keepalive_s), is_disconnected
                ):
                    return
            page = self._read_next_page(workspace, after)

    def _read_next_page(self, workspace: str, after: str) -> list[Event]:
        try:
            return self._requests.list_events(workspace, after, MAX_PAGE_ROWS)
        except StoreUnavailable:
            return []

    def close(self) -> None:
        """End all waits, for good."""
        self._notifications.close()


def _wait_connected(watch: ChangeWatch, deadline: float, is_disconnected: Callable[[], bool]) -> bool:
    """Wait for a notification until the deadline. Return False as soon as the client has disconnected."""
    notified = False
    while not notified and (remaining_s := deadline - time.monotonic()) > 0:
        notified = watch.wait(min(remaining_s, DISCONNECT_CHECK_S))
        if is_disconnected():
            return False
    return True
