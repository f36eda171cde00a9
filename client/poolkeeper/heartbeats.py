"""The heartbeats that prolong the lease of an allocation, from a thread with a connection of its own.

The thread shares an Event and a few values with other threads, and replaces each value as a whole. So neither a busy main
thread nor a server without an answer delays anything. Only code that keeps Python's interpreter lock for a third of the lease
could lose the lease.

Meaning of an answer for the lease:

- Accepted: the lease began anew when the heartbeat was sent.
- 409 with the directive `kill`, or 404 from the service: the units are lost at once.
- 401 or 403: the service does not prolong the lease. The refusal is reported, and heartbeats go on, because the token may be
  replaced. If heartbeats are still refused at the end of the lease, the units are lost.
- No answer, or an error of the service or of a proxy: the state is unknown, and heartbeats go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

from poolkeeper.backoff import pause_s
from poolkeeper.errors import AccessDenied, AllocationLost, NotFound, PoolkeeperError, StaleFence
from poolkeeper.formatting import duration

if TYPE_CHECKING:
    from poolkeeper.client import Client
    from poolkeeper.models import Heartbeat, Request

Acknowledgement = TypeVar("Acknowledgement", "Heartbeat", "Request")
LONGEST_INTERVAL_S = 5.0
"""The most seconds between two heartbeats, also of a long lease: the answer brings directives, which leave little time."""
SHORTEST_TIMEOUT_S = 0.25
ACCEPTED_AGAIN = "the service accepts heartbeats again, and the lease was kept"
LEAVE_MARGIN, MAX_LEAVE_MARGIN_S = 0.2, 2.0
"""The time before the end of a lease at which work has to leave if heartbeats are refused: this part of the lease, but at most
these seconds."""


def now_s() -> float:
    """Return the seconds of a clock that only goes forward, also while the machine sleeps if the system can measure that."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class HeartbeatThread:
    """The heartbeats of one allocation, from `start` to `stop`, and the state of the lease by their answers."""

    def __init__(
        self,
        client: Client,
        request_id: str,
        fence: int,
        lease_s: float | None,
        renewed_s: float,
        on_directive: Callable[[str], object],
        on_refusal: Callable[[str], object] = lambda message: None,
    ) -> None:
        self.directive = "continue"
        self.refusal: str | None = None  # the reason, if the last heartbeat was refused
        self.must_leave = False  # heartbeats are refused, and the lease is about to end
        self.is_silent = False  # the last heartbeat was not answered by the service
        self.deadline: datetime | None = None
        self.deadline_s: float | None = None  # the deadline by `now_s`
        self.loss_reason: str | None = None
        self.status: str | None = None  # of the request after a loss, if the server named it
        self.left = False
        self._is_reporting = False  # a report under way may end the allocation; a heartbeat at that time is refused
        self._request_id, self._fence, self._lease_s = request_id, fence, lease_s
        self._on_directive, self._on_refusal = on_directive, on_refusal
        self._reported_refusal: str | None = None
        self._clock_skew = timedelta()
        self._renewed_s = renewed_s  # the time at which the last acknowledged call was sent: the lease began no earlier
        self._interval_s = min(LONGEST_INTERVAL_S, lease_s / 3 if lease_s else LONGEST_INTERVAL_S)
        timeout_s = min(client.timeout_s, max(SHORTEST_TIMEOUT_S, self._interval_s))
        self._client = client.clone(timeout_s=timeout_s, tries=1)
        self._stop = Event()
        self._thread = Thread(target=self._run, name=f"poolkeeper-heartbeats-{request_id}", daemon=True)

    @property
    def suspected(self) -> bool:
        """True if the lease may have lapsed: its length has passed since the last acknowledged heartbeat was sent."""
        return (end_s := self.lease_end_s) is not None and now_s() >= end_s

    @property
    def lease_end_s(self) -> float | None:
        """Return the end of the lease by `now_s`, no later than by the server's clock; None without a lease."""
        return None if self._lease_s is None else self._renewed_s + self._lease_s

    @property
    def _leave_s(self) -> float | None:
        """Return the time at which the work has to begin to leave if heartbeats are refused; None without a lease."""
        if self._lease_s is None or (end_s := self.lease_end_s) is None:
            return None
        return end_s - min(MAX_LEAVE_MARGIN_S, LEAVE_MARGIN * self._lease_s)

    def refusal_message(self) -> str:
        """Return the reason of the refusal and its consequence for the lease."""
        end_s = self.lease_end_s
        consequence = "there is no lease that ends" if end_s is None else f"the lease ends in {_seconds_until(end_s)}"
        return f"heartbeats are refused: {self.refusal}; {consequence}"

    def start(self) -> None:
        """Start to send heartbeats."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the heartbeats, and ignore the answer to a heartbeat that is on its way."""
        self._stop.set()

    def report(self, call: Callable[[], Acknowledgement]) -> Acknowledgement:
        """Make a call that is answered like a heartbeat and may end the allocation. Return its answer."""
        self._is_reporting, sent_s = True, now_s()
        try:
            answer = call()
            if answer.is_allocated and getattr(answer, "fence", self._fence) == self._fence:
                self._renewed_s = max(self._renewed_s, sent_s)
                self._apply(answer, sent_s)
            else:  # the request may be granted again, under another fence
                self.left = True
                self.stop()
        except (StaleFence, NotFound) as error:
            self._is_reporting = False
            if is_loss(error):
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
            pause = self._pause_s(failures)
            if self.loss_reason:
                break
        self._client.close()

    def _pause_s(self, failures: int) -> float:
        """Return the pause before the next heartbeat.

        If heartbeats are refused, the next is sent no later than the time to leave, then no later than the end of the lease.
        """
        pause = min(self._interval_s, pause_s(failures)) if failures else self._interval_s
        if self.refusal is None or self._leave_s is None or self.lease_end_s is None:
            return pause
        now = now_s()
        return min([pause, *(moment - now for moment in (self._leave_s, self.lease_end_s) if moment > now)])

    def _send_heartbeat(self) -> bool:
        """Send one heartbeat. Return True if it was accepted or the answer reports a loss, False after any failure."""
        sent_s = now_s()
        try:
            heartbeat = self._client.heartbeat(self._request_id, self._fence)
        except (StaleFence, NotFound) as error:
            if not is_loss(error):
                self.refusal, self.is_silent = None, True
                return False
            self._mark_lost(error)
        except AccessDenied as error:
            self._handle_refusal(error)
            return False
        except PoolkeeperError:
            self.refusal, self.is_silent = None, True
            return False
        else:
            self._renewed_s, self._clock_skew = sent_s, clock_skew(self._client.server_date, datetime.now(UTC))
            self.refusal, self.must_leave, self.is_silent = None, False, False
            self._report_acceptance()
            self._apply(heartbeat, sent_s)
        return True

    def _handle_refusal(self, error: AccessDenied) -> None:
        """Report a refusal, unless the last one had the same reason. If the lease is over, note the loss of the units."""
        if self._stop.is_set():
            return
        self.refusal, self.is_silent = str(error), False
        if self.refusal != self._reported_refusal:
            self._reported_refusal = self.refusal
            self._on_refusal(self.refusal_message())
        if self._leave_s is not None and now_s() >= self._leave_s:
            self.must_leave = True
        if self.suspected:
            self._mark_lost(error)

    def _report_acceptance(self) -> None:
        if self._reported_refusal:
            self._reported_refusal = None
            self._on_refusal(ACCEPTED_AGAIN)

    def _apply(self, answer: Heartbeat | Request, sent_s: float) -> None:
        self.deadline_s = sent_s + (answer.deadline - self._response_time(answer)).total_seconds() if answer.deadline else None
        self.deadline = answer.deadline
        self._set_directive(answer.directive or "continue")

    def _response_time(self, answer: Heartbeat | Request) -> datetime:
        """Return the time of the answer by the server's clock, at which the lease began anew. Without a lease it is exact to a
        second.
        """
        if self._lease_s is None or answer.lease_expires_at is None:
            return datetime.now(UTC) - self._clock_skew
        return answer.lease_expires_at - timedelta(seconds=self._lease_s)

    def _mark_lost(self, error: StaleFence | NotFound | AccessDenied) -> None:
        if not (self._stop.is_set() or self._is_reporting):  # else this process released it, or the report gets the loss
            self.status = error.request_status if isinstance(error, StaleFence) else None
            is_refusal = isinstance(error, AccessDenied)
            self.loss_reason = f"the lease is over, and heartbeats are refused: {error}" if is_refusal else str(error)
            self._set_directive(error.directive if isinstance(error, StaleFence) else "kill")

    def _set_directive(self, directive: str) -> None:
        if directive != self.directive and not self._stop.is_set():
            self.directive = directive
            self._on_directive(directive)


def is_loss(error: StaleFence | NotFound) -> bool:
    """True if the error means that the units are lost. A 404 without a code is the answer of a proxy."""
    return isinstance(error, StaleFence) or bool(error.code)


@contextmanager
def raising_loss() -> Iterator[None]:
    """Raise AllocationLost in place of an error of the block that means that the units are lost."""
    try:
        yield
    except (StaleFence, NotFound) as error:
        if not is_loss(error):
            raise
        raise AllocationLost(str(error)) from error


def _seconds_until(moment_s: float) -> str:
    return duration(max(0, round(moment_s - now_s())))


def clock_skew(server_date: str | None, now: datetime) -> timedelta:
    """Return the least time by which the clock of this machine is ahead of the server's; less than a second counts as zero."""
    from email.utils import parsedate_to_datetime

    try:
        difference = now - parsedate_to_datetime(server_date or "")
    except (TypeError, ValueError):  # no date, or one without a zone
        return timedelta()
    return timedelta() if timedelta() <= difference <= timedelta(seconds=1) else difference - timedelta(seconds=1)
