"""Keeping a lease: heartbeats from a thread of their own, on a connection of their own.

The thread shares nothing with the others but an Event that ends it and a few values that it sets whole, so that neither a busy
main thread nor a server that does not answer holds anybody up. Only code that never lets go of the interpreter's lock for a
third of the lease could.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

from poolkeeper.errors import NotFound, PoolkeeperError, StaleFence
from poolkeeper.http_client import pause_s

if TYPE_CHECKING:
    from poolkeeper.client import Client
    from poolkeeper.models import Heartbeat, Request

Word = TypeVar("Word", "Heartbeat", "Request")
LONGEST_INTERVAL_S = 5.0
"""A long lease is prolonged as often as this, too, for the directives that come with the answer: they leave little time."""
SHORTEST_TIMEOUT_S = 0.25


def now_s() -> float:
    """A clock that only goes forward, also while the machine sleeps where the system can tell."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Heartbeats:
    """The heartbeats of one allocation, from `start` to `stop`, and what was learnt by them."""

    def __init__(
        self,
        client: Client,
        request_id: str,
        fence: int,
        lease_s: float | None,
        vouched_s: float,
        tell: Callable[[str], object],
    ) -> None:
        self.directive = "continue"
        self.deadline: datetime | None = None
        self.until_s: float | None = None  # the deadline by `now_s`
        self.lost_because: str | None = None
        self.status: str | None = None  # of the request once the units are lost, if the server said so
        self.left = False
        self._saying = False  # a word under way may end what is held, and a heartbeat beside it be refused for that
        self._request_id, self._fence, self._lease_s, self._tell = request_id, fence, lease_s, tell
        self._ahead = timedelta()
        self._vouched_s = vouched_s  # when what was last acknowledged had been sent: the lease began no earlier
        self._interval_s = min(LONGEST_INTERVAL_S, lease_s / 3 if lease_s else LONGEST_INTERVAL_S)
        timeout_s = min(client.timeout_s, max(SHORTEST_TIMEOUT_S, self._interval_s))
        self._client = client.twin(timeout_s=timeout_s, tries=1)
        self._stop = Event()
        self._thread = Thread(target=self._keep, name=f"poolkeeper-heartbeats-{request_id}", daemon=True)

    @property
    def suspected(self) -> bool:
        """Whether the lease may have lapsed: its length has gone by since the last heartbeat that was acknowledged was sent."""
        return self._lease_s is not None and now_s() >= self._vouched_s + self._lease_s

    def start(self) -> None:
        """From now on."""
        self._thread.start()

    def stop(self) -> None:
        """No more; one that is on its way is no longer listened to."""
        self._stop.set()

    def say(self, word: Callable[[], Word]) -> Word:
        """Say something that is answered like a heartbeat, and may have the effect that nothing is held any more."""
        self._saying, sent_s = True, now_s()
        try:
            beat = word()
            if beat.holds and getattr(beat, "fence", self._fence) == self._fence:
                self._vouched_s = max(self._vouched_s, sent_s)
                self._hear(beat, sent_s)
            else:  # perhaps granted again already, under another fence
                self.left = True
                self.stop()
        except StaleFence as gone:
            self._saying = False
            self._lose(gone)
            raise
        finally:
            self._saying = False
        return beat

    def _keep(self) -> None:
        failures = 0
        pause = self._interval_s - (now_s() - self._vouched_s)
        while not self._stop.wait(max(0.0, pause)):
            failures = 0 if self._beat() else failures + 1
            pause = min(self._interval_s, pause_s(failures)) if failures else self._interval_s
            if self.lost_because:
                break
        self._client.close()

    def _beat(self) -> bool:
        """One heartbeat; whether it was answered. Whatever goes wrong, the next one may do better."""
        sent_s = now_s()
        try:
            beat = self._client.heartbeat(self._request_id, self._fence)
        except (StaleFence, NotFound) as gone:
            self._lose(gone)
        except PoolkeeperError:
            return False
        else:
            self._vouched_s, self._ahead = sent_s, ahead(self._client.dated, datetime.now(UTC))
            self._hear(beat, sent_s)
        return True

    def _hear(self, beat: Heartbeat | Request, sent_s: float) -> None:
        self.until_s = sent_s + (beat.deadline - self._answered(beat)).total_seconds() if beat.deadline else None
        self.deadline = beat.deadline
        self._direct(beat.directive or "continue")

    def _answered(self, beat: Heartbeat | Request) -> datetime:
        """When that was, by the server's clock: the lease began anew then. Without a lease it is known to a second."""
        if self._lease_s is None or beat.lease_expires_at is None:
            return datetime.now(UTC) - self._ahead
        return beat.lease_expires_at - timedelta(seconds=self._lease_s)

    def _lose(self, gone: StaleFence | NotFound) -> None:
        if not (self._stop.is_set() or self._saying):  # else it is us who gave it back, or who are told otherwise
            self.status = gone.request_status if isinstance(gone, StaleFence) else None
            self.lost_because = str(gone)
            self._direct(gone.directive if isinstance(gone, StaleFence) else "kill")

    def _direct(self, directive: str) -> None:
        if directive != self.directive and not self._stop.is_set():
            self.directive = directive
            self._tell(directive)


def ahead(dated: str | None, now: datetime) -> timedelta:
    """How far our clock is ahead of the server's, at least; a clock that may agree is taken at its word."""
    from email.utils import parsedate_to_datetime

    try:
        apart = now - parsedate_to_datetime(dated or "")
    except (TypeError, ValueError):  # no date, or one without a zone
        return timedelta()
    return timedelta() if timedelta() <= apart <= timedelta(seconds=1) else apart - timedelta(seconds=1)
