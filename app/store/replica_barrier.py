"""The barriers of one master: a reply of a script counts when replicas have confirmed a barrier that began after it.

A barrier is a write of a key and a WAIT on the same connection. WAIT asks the replicas for the last write of its connection,
and a replica applies writes in order. So a barrier that begins after the reply of a script confirms all that the reply shows,
also writes of other connections.

One barrier runs at a time. The calls that come meanwhile share the next one, and the first of these calls runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock
from typing import NamedTuple

import redis.exceptions as errors


class NotAcknowledged(errors.RedisError):
    """Too few replicas have confirmed the writes before a reply."""


class _Barrier:
    """A barrier: the barrier before it, whether it is over, and the error that it ended with; None is success."""

    def __init__(self, before: _Barrier | None) -> None:
        self.before = before
        self.over = Event()
        self.error: Exception | None = errors.ConnectionError("the barrier of another call was interrupted")


class Ticket(NamedTuple):
    """The barrier for which a call waits, and whether this call runs it."""

    barrier: _Barrier
    runs_it: bool


class ReplicaBarriers:
    """The barriers of one master in one process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: _Barrier | None = None
        self._next: _Barrier | None = None

    def join(self) -> Ticket:
        """Return a ticket for a barrier that has not begun yet. The caller has to call `wait` with it at once."""
        with self._lock:
            if self._next:
                return Ticket(self._next, runs_it=False)
            barrier = _Barrier(self._running)
            if self._running:
                self._next = barrier
            else:
                self._running = barrier
            return Ticket(barrier, runs_it=True)

    def wait(self, ticket: Ticket, run: Callable[[], None], timeout_s: float) -> None:
        """Wait until the barrier of a ticket is over, or raise its error. The call that runs the barrier uses `run`."""
        barrier = ticket.barrier
        if ticket.runs_it:
            self._run(barrier, run, timeout_s)
        elif not barrier.over.wait(timeout_s):
            raise self._abandon(barrier)
        elif barrier.error:  # after a connection error the call is repeated, as if its own connection was lost
            kind = NotAcknowledged if isinstance(barrier.error, NotAcknowledged) else errors.ConnectionError
            raise kind(str(barrier.error)) from barrier.error

    def _run(self, barrier: _Barrier, run: Callable[[], None], timeout_s: float) -> None:
        """Run a barrier when the barrier before it is over. Raise its error here and in all calls that share it."""
        try:
            if barrier.before and not barrier.before.over.wait(timeout_s):
                raise self._abandon(barrier.before)
            with self._lock:
                self._begin(barrier)
            run()
            barrier.error = None
        except Exception as error:
            barrier.error = error
            raise
        finally:
            with self._lock:
                self._end(barrier)
            barrier.before = None
            barrier.over.set()

    def _abandon(self, barrier: _Barrier) -> errors.TimeoutError:
        """Release later calls from a barrier whose call was interrupted, because it would never end. Return the error for
        them."""
        with self._lock:
            self._end(barrier)
        return errors.TimeoutError("the barrier of another call took too long")

    def _begin(self, barrier: _Barrier) -> None:
        """Begin a barrier: calls from now on join a later one."""
        self._running = barrier
        if self._next is barrier:
            self._next = None

    def _end(self, barrier: _Barrier) -> None:
        if self._running is barrier:
            self._running = None
        if self._next is barrier:
            self._next = None
