"""The lease of an allocation, prolonged by heartbeats from a thread on a connection of its own.

The thread shares an Event and a few values with the other threads and replaces each value as a whole. A busy main thread or a
server that does not answer therefore delays nothing. Only code that keeps Python's interpreter lock for a third of the lease
could lose it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

from poolkeeper.backoff import pause_s
from poolkeeper.errors import NotFound, PoolkeeperError, StaleFence

if TYPE_CHECKING:
    from poolkeeper.client import Client
    from poolkeeper.models import Heartbeat, Request

Acknowledgement = TypeVar("Acknowledgement", "Heartbeat", "Request")
LONGEST_INTERVAL_S = 5.0
"""A long lease is prolonged as often as this, too, for the directives that come with the answer: they leave little time."""
SHORTEST_TIMEOUT_S = 0.25


def now_s() -> float:
    """Return a clock that only goes forward, also while the machine sleeps if the system can measure that."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class HeartbeatThread:
    """The heartbeats of one allocation, from `start` to `stop`, and the state of the lease that their answers tell."""

    def __init__(
        self,
        client: Client,
        request_id: str,
        fence: int,
        lease_s: float | None,
        renewed_s: float,
        on_directive: Callable[[str], object],
    ) -> None:
        self.directive = "continue"
        self.deadline: datetime | None = None
        self.deadline_s: float | None = None  # the deadline by `now_s`
        self.loss_reason: str | None = None
        self.status: str | None = None  # of the request once the units are lost, if the server said so
        self.left = False
        self._is_reporting = False  # a word under way may end what is held, and a heartbeat beside it be refused for that
        self._request_id, self._fence, self._lease_s, self._on_directive = request_id, fence, lease_s, on_directive
        self._clock_skew = timedelta()
        self._renewed_s = renewed_s  # when what was last acknowledged had been sent: the lease began no earlier
        self._interval_s = min(LONGEST_INTERVAL_S, lease_s / 3 if lease_s else LONGEST_INTERVAL_S)
        timeout_s = min(client.timeout_s, max(SHORTEST_TIMEOUT_S, self._interval_s))
        self._client = client.clone(timeout_s=timeout_s, tries=1)
        self._stop = Event()
        self._thread = Thread(target=self._run, name=f"poolkeeper-heartbeats-{request_id}", daemon=True)

    @property
    def suspected(self) -> bool:
        """True if the lease may have lapsed: its length has passed since the last acknowledged heartbeat was sent."""
        return self._lease_s is not None and now_s() >= self._renewed_s + self._lease_s

    def start(self) -> None:
        """Begin to send heartbeats."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the heartbeats, and ignore the answer to a heartbeat that is on its way."""
        self._stop.set()

    def report(self, call: Callable[[], Acknowledgement]) -> Acknowledgement:
        """Make a call that is answered like a heartbeat, and that may end the allocation."""
        self._is_reporting, sent_s = True, now_s()
        try:
            answer = call()
            if answer.is_allocated and getattr(answer, "fence", self._fence) == self._fence:
                self._renewed_s = max(self._renewed_s, sent_s)
                self._apply(answer, sent_s)
            else:  # perhaps granted again already, under another fence
                self.left = True
                self.stop()
        except StaleFence as error:
            self._is_reporting = False
            self._mark_lost(error)
            raise
        finally:
            self._is_reporting = False
        return answer

    def _run(self) -> None:
        failures = 0
        pause = self._interval_s - (now_s() - self._renewed_s)
        while not self._stop.wait(max(0.0, pause)):
            failures = 0 if self._send_heartbeat() else failures + 1
            pause = min(self._interval_s, pause_s(failures)) if failures else self._interval_s
            if self.loss_reason:
                break
        self._client.close()

    def _send_heartbeat(self) -> bool:
        """Send one heartbeat. True if it was answered; after any failure the next one is tried."""
        sent_s = now_s()
        try:
            heartbeat = self._client.heartbeat(self._request_id, self._fence)
        except (StaleFence, NotFound) as error:
            self._mark_lost(error)
        except PoolkeeperError:
            return False
        else:
            self._renewed_s, self._clock_skew = sent_s, clock_skew(self._client.server_date, datetime.now(UTC))
            self._apply(heartbeat, sent_s)
        return True

    def _apply(self, answer: Heartbeat | Request, sent_s: float) -> None:
        self.deadline_s = sent_s + (answer.deadline - self._response_time(answer)).total_seconds() if answer.deadline else None
        self.deadline = answer.deadline
        self._set_directive(answer.directive or "continue")

    def _response_time(self, answer: Heartbeat | Request) -> datetime:
        """Return the time of the answer by the server's clock, when the lease began anew. Without a lease it is exact to a
        second.
        """
        if self._lease_s is None or answer.lease_expires_at is None:
            return datetime.now(UTC) - self._clock_skew
        return answer.lease_expires_at - timedelta(seconds=self._lease_s)

    def _mark_lost(self, error: StaleFence | NotFound) -> None:
        if not (self._stop.is_set() or self._is_reporting):  # else it is us who gave it back, or who are told otherwise
            self.status = error.request_status if isinstance(error, StaleFence) else None
            self.loss_reason = str(error)
            self._set_directive(error.directive if isinstance(error, StaleFence) else "kill")

    def _set_directive(self, directive: str) -> None:
        if directive != self.directive and not self._stop.is_set():
            self.directive = directive
            self._on_directive(directive)


def clock_skew(server_date: str | None, now: datetime) -> timedelta:
    """Return by how much the clock of this machine is at least ahead of the server's; less than a second counts as zero."""
    from email.utils import parsedate_to_datetime

    try:
        difference = now - parsedate_to_datetime(server_date or "")
    except (TypeError, ValueError):  # no date, or one without a zone
        return timedelta()
    return timedelta() if timedelta() <= difference <= timedelta(seconds=1) else difference - timedelta(seconds=1)
