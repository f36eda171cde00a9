"""Waiting for others' doings: until a request changes, and for the events of a workspace as they come.

Who waits holds a thread of the process, so the seats are counted, and where none is left the answer comes at once. A waiter
looks when something was said, and now and then in case nothing was: hearing of a change is quick, and not hearing of it is late
and never wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final, Literal, NamedTuple, TypeAlias

from app.domain.errors import StoreUnavailable
from app.domain.models import Event, Request
from app.domain.states import RequestState
from app.service.requests import Requests
from app.service.validation import MAX_PAGE_ROWS, checked_name
from app.store.change_notifications import ChangeNotifications, ChangeWatch

SlotKind: TypeAlias = Literal["poll", "stream"]

POLL_INTERVAL_S: Final = 5.0
"""How long a waiter goes without looking, at most."""
DISCONNECT_CHECK_S: Final = 2.0
"""How long a client may be gone before it is noticed, about."""
KEEPALIVE_S: Final = 10.0
"""How long a stream says nothing, at most."""
BATCH_DELAY_S: Final = 0.05
"""Between two looks of a stream, at least: what comes meanwhile comes together."""


class TooManyWaiters(Exception):  # noqa: N818 - a state of the world
    """As many wait in this process as may, or for as long; later there will be room."""


class PollResult(NamedTuple):
    """A request as it stands, and whether there was no seat to wait for its change."""

    request: Request
    no_slot: bool = False


class KnownState(NamedTuple):
    """What who waits knows of a request already."""

    state: RequestState
    directive: str | None
    """None: it is no matter."""

    def differs_from(self, request: Request) -> bool:
        """Whether there is something new to tell."""
        comparable = self.directive is not None and request.directive is not None
        return request.status != self.state or (comparable and request.directive != self.directive)


class WaitSlots:
    """The seats of one process: all who wait take one, and streams at most so many of them."""

    def __init__(self, polls: int, streams: int) -> None:
        self.capacity, self.stream_capacity = polls, streams
        self._used: dict[SlotKind, int] = {"poll": 0, "stream": 0}
        self._refused: dict[SlotKind, int] = {"poll": 0, "stream": 0}
        self._lock = Lock()
        self.on_change: Callable[[SlotKind, int], None] = lambda kind, change: None
        """Told of each who sits down (1) or gets up (-1)."""

    @contextmanager
    def slot(self, kind: SlotKind) -> Iterator[bool]:
        """A seat for as long as the context; False if there is none."""
        acquired = self._acquire(kind)
        try:
            yield acquired
        finally:
            if acquired:
                with self._lock:
                    self._used[kind] -= 1
                self.on_change(kind, -1)

    def used(self) -> dict[SlotKind, int]:
        """How many sit there now, by what they wait for."""
        with self._lock:
            return dict(self._used)

    def refused(self) -> dict[SlotKind, int]:
        """How many found no seat so far."""
        with self._lock:
            return dict(self._refused)

    def _acquire(self, kind: SlotKind) -> bool:
        with self._lock:
            full = sum(self._used.values()) >= self.capacity or (kind == "stream" and self._used[kind] >= self.stream_capacity)
            (self._refused if full else self._used)[kind] += 1
        if not full:
            self.on_change(kind, 1)
        return not full


class LongPolls:
    """Long polls and streams of one process."""

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
    ) -> PollResult:
        """A request once its state is not `unlike` (None: not what it is now), or its directive not this one (None: no matter).

        Or as it is when time is up, the client has gone, the process ends, or there is no seat. To wait is to poll: the
        request does not go stale meanwhile.
        """
        deadline = time.monotonic() + wait_s
        record = self._requests.poll(workspace, request)
        baseline = KnownState(record.status if known_state is None else known_state, known_directive)
        if baseline.differs_from(record) or wait_s <= 0:
            return PollResult(record)
        with self.slots.slot("poll") as acquired:
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
        self, workspace: str, after: str, keepalive_s: float = KEEPALIVE_S, is_disconnected: Callable[[], bool] = lambda: False
    ) -> Generator[Event | None]:
        """Events of the workspace after one of them, until the process ends, the client has gone or the caller closes it.

        The first is always None, as soon as it is known that all is well; what is not (HouseFull, StoreUnavailable, a bad name
        or id) is raised in its place. Later None is a sign of life after so long a silence, and a Redis that is away is waited
        for.
        """
        with self.slots.slot("stream") as acquired:
            if not acquired:
                raise TooManyWaiters("there are as many streams as there may be")
            with self._notifications.watch(checked_name(workspace)) as watch:
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
        """Let everybody go, for good."""
        self._notifications.close()


def _wait_connected(watch: ChangeWatch, deadline: float, is_disconnected: Callable[[], bool]) -> bool:
    """Wait until something is said, or until then; False as soon as it is seen that the client has gone."""
    notified = False
    while not notified and (remaining_s := deadline - time.monotonic()) > 0:
        notified = watch.wait(min(remaining_s, DISCONNECT_CHECK_S))
        if is_disconnected():
            return False
    return True
