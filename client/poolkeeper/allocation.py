"""An allocation for the length of a `with` block.

On entry, the request is submitted under an idempotency key and the process waits for the grant. If the wait is interrupted
(time is up, Ctrl-C, no server), the request is cancelled, or released if it was granted meanwhile. If the answer to the submit
was lost, the key finds the request. Inside the block, heartbeats are sent. On exit, the units are released, with the outcome
`failed` if the block raised.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from datetime import datetime
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from poolkeeper.errors import (
    AllocationLost,
    ApiError,
    Conflict,
    NotFound,
    NotGranted,
    PoolkeeperError,
    RequestRejected,
    StaleFence,
    WaitTimeout,
)
from poolkeeper.failures import is_definitely_not_applied
from poolkeeper.heartbeats import HeartbeatThread, now_s, raising_loss
from poolkeeper.http_client import new_key
from poolkeeper.wait_for_grant import POLL_S
from poolkeeper.waiters import cancel_if_queued, cancel_or_release, has_expired_unpolled, next_key, submit_waiter

if TYPE_CHECKING:
    from poolkeeper.client import Client
    from poolkeeper.models import Heartbeat, Request

OnDirective = Callable[["Allocation", str], object]
"""The callback for a changed directive. It runs in a thread of its own, so it may take long."""

Entered = TypeVar("Entered")
Acknowledgement = TypeVar("Acknowledgement", "Heartbeat", "Request")


class Allocation:
    """Units that a process holds for the length of a block; made by `Client.allocation`, for one use.

    **State of the lease.** Only the server decides which request holds the units. `lost` is True once the server has answered
    that this request does not. If the server refuses heartbeats (401 or 403), `refusal` is its reason, and the logger
    `poolkeeper` gets a warning with the time left. A token that is replaced in the environment or in a file is used at once. If
    heartbeats are still refused at the end of the lease, the units are lost. If the server cannot be reached, heartbeats go on.
    `suspected` is True when the lease may have ended: its length has passed since the last acknowledged heartbeat was *sent*,
    by the clock of this machine. It becomes False when a heartbeat is accepted, because the lease was kept then. `ensure()`
    raises AllocationLost if the units are lost or suspected to be lost: call it before a step that needs them for certain.

    **Directives.** `directive` is `checkpoint` (save the work and leave) or `terminate` (leave), both until `deadline`, and
    `continue` if the allocation may stay after all. The request holds its units until it leaves. `checkpoint("completed", …)`
    reports that the work is saved, and leaves; `vacate()` leaves without. Then `left` is True, the request is queued again if
    its retries allow it, and `client.allocation` with the same `idempotency_key` waits for it. After the deadline the units are
    lost.

    **End of the block.** If the units were lost while the block ran, AllocationLost is raised; if the block raised an error, it
    is a note on that error. A lease that ended only because the release came late is no error. If the server cannot be reached,
    the units are freed when the lease ends, and there is a RuntimeWarning; without a lease, Unavailable is raised.
    """

    def __init__(
        self, client: Client, body: Mapping[str, Any], key: str | None, wait_s: float | None, on_directive: OnDirective | None
    ) -> None:
        self._client, self._body, self._wait_s, self._on_directive = client, body, wait_s, on_directive
        self._key, self._key_is_new = key or new_key(), key is None
        self._request: Request | None = None
        self._heartbeats: HeartbeatThread | None = None
        self._owner_pid = 0

    # ---- facts

    @property
    def request(self) -> Request:
        """Return the request as it was granted."""
        return _require_entered(self._request)

    @property
    def fence(self) -> int:
        """Return the number that proves the allocation to other systems."""
        return self.request.fence or 0

    @property
    def pool(self) -> str | None:
        """Return the pool of the units; None if the workspace lets this component run without a pool."""
        return self.request.pool

    @property
    def resources(self) -> Mapping[str, int]:
        """Return the units of each key."""
        return self.request.resources

    @property
    def directive(self) -> str:
        """Return `continue`, `checkpoint` or `terminate`; `kill` if the units are lost."""
        return _require_entered(self._heartbeats).directive

    @property
    def deadline(self) -> datetime | None:
        """Return the deadline of the directive by the server's clock; None without a deadline."""
        return _require_entered(self._heartbeats).deadline

    @property
    def lost(self) -> bool:
        """True if the server has answered that the units are lost, or still refused heartbeats at the end of the lease."""
        return _require_entered(self._heartbeats).loss_reason is not None

    @property
    def refusal(self) -> str | None:
        """Return the reason for which the server refused the last heartbeat (401 or 403); None if it did not refuse it."""
        return _require_entered(self._heartbeats).refusal

    @property
    def left(self) -> bool:
        """True if the units were released unfinished because of a directive."""
        return _require_entered(self._heartbeats).left

    @property
    def suspected(self) -> bool:
        """True if the lease may have ended: no heartbeat was acknowledged for the length of the lease."""
        return _require_entered(self._heartbeats).suspected

    def ensure(self) -> None:
        """Raise AllocationLost if the units are lost, released or suspected to be lost.

        The state is at most a few seconds old. A pool with a shorter grace takes its units back before this process knows.
        """
        heartbeats = _require_entered(self._heartbeats)
        if heartbeats.loss_reason:
            raise AllocationLost(heartbeats.loss_reason)
        if heartbeats.left:
            raise AllocationLost(f"the units of {self.request.id} are released")
        if heartbeats.suspected:
            raise AllocationLost(f"no heartbeat of {self.request.id} gets through, its lease may have ended", suspected=True)

    # ---- leaving

    def checkpoint(self, state: str, seconds: int | None = None, reference: str | None = None) -> Heartbeat:
        """Report the progress of a checkpoint, as `Client.checkpoint` does. Raise AllocationLost if the units are lost.

        After a directive, a `completed` checkpoint leaves: stop the use of the units before the call. If the directive comes
        during the call, AllocationLost is raised as well.
        """
        arguments = (self.request.id, self.fence, state, seconds, reference)
        was_asked = self.directive != "continue"
        heartbeat = self._report(lambda: self._client.checkpoint(*arguments))
        if self.left and not was_asked:
            raise AllocationLost(
                f"{self.request.id} got a directive to leave during this call, and has left with this checkpoint"
            )
        return heartbeat

    def vacate(self) -> bool:
        """Release the units unfinished because of a directive. Stop their use before the call. Return False if the allocation
        may stay after all.
        """
        try:
            self._report(lambda: self._client.release(self.request.id, self.fence, "vacated"))
        except Conflict as conflict:
            if conflict.code != "not_leaving":
                raise
        return self.left

    def _report(self, call: Callable[[], Acknowledgement]) -> Acknowledgement:
        with raising_loss():
            return _require_entered(self._heartbeats).report(call)

    # ---- entry

    def __enter__(self) -> Self:
        if self._owner_pid:
            raise RuntimeError("an allocation is for one use; make another")
        self._owner_pid = os.getpid()
        try:
            return self._enter()
        except NotGranted:
            raise
        except BaseException as error:
            if self._request or not (isinstance(error, ApiError) and is_definitely_not_applied(error) and not error.repeated):
                self._cancel_or_release(error)
            raise

    def _enter(self) -> Self:
        renewed_s = now_s()
        began_s = renewed_s
        first_wait_s = POLL_S if self._wait_s is None else min(POLL_S, self._wait_s)
        self._request = submit_waiter(self._client, self._body, self._key, first_wait_s)
        is_fresh_grant = self._key_is_new and self._request.is_allocated and not self._has_waited(self._request)
        self._request = self._wait_for_grant(self._request, began_s)
        if not is_fresh_grant:  # the grant may be old, as the server could not be reached
            renewed_s = now_s()
            self._confirm()
        self._heartbeats = HeartbeatThread(
            self._client,
            self.request.id,
            self.fence,
            self.request.lease_s,
            renewed_s,
            self._call_on_directive,
            self._log_refusal,
        )
        self._heartbeats.start()
        return self

    def _confirm(self) -> None:
        try:
            self._client.heartbeat(self.request.id, self.fence)
        except StaleFence as error:
            raise AllocationLost(f"the units were lost before the grant was known here: {error}") from error

    @staticmethod
    def _has_waited(request: Request) -> bool:
        """True if the request was queued before its grant: its lease then began at an unknown time during the call."""
        return request.granted_at != request.submitted_at

    def _wait_for_grant(self, request: Request, began_s: float) -> Request:
        """Return the request once it is allocated. Raise NotGranted if it ends without a grant."""
        left_s = self._time_left(began_s)
        while request.is_queued:
            try:
                request = self._client.wait(request.id, left_s)
            except WaitTimeout as timeout:
                text = f"request {request.id} is still queued after {self._wait_s:g} s"
                request = self._cancel_after_timeout(WaitTimeout(timeout.request, text))
            if has_expired_unpolled(request):
                request = self._resubmit()
                left_s = self._time_left(began_s)
        if request.status == "rejected":
            raise RequestRejected(request)
        if not request.is_allocated:
            raise NotGranted(request)
        return request

    def _time_left(self, began_s: float) -> float | None:
        """Return the seconds left of the wait that began at `began_s`; None without a limit."""
        return None if self._wait_s is None else max(0.0, began_s + self._wait_s - now_s())

    def _resubmit(self) -> Request:
        """Submit the expired request again, as this process still waits for it."""
        self._request, self._key = None, next_key(self._key)
        self._request = submit_waiter(self._client, self._body, self._key)
        return self._request

    def _cancel_after_timeout(self, timeout: WaitTimeout) -> Request:
        """Cancel the request and raise WaitTimeout; return the request if it was granted just before."""
        try:
            request = cancel_if_queued(self._client, timeout.request.id)
        except PoolkeeperError as error:
            timeout.add_note(f"the request could not be cancelled: {error}")
            raise timeout from None
        if not request.is_allocated:
            raise timeout
        return request

    def _cancel_or_release(self, error: BaseException) -> None:
        """Cancel or release the request; if that fails, its queue TTL and its lease end it."""
        if self._heartbeats:
            self._heartbeats.stop()
        try:
            cancel_or_release(self._client, self._body, self._key, self._request)
        except PoolkeeperError as cleanup_error:
            error.add_note(f"the request may still wait or hold units: {cleanup_error}")

    def _call_on_directive(self, directive: str) -> None:
        if self._on_directive:
            name = f"poolkeeper-{directive}-{self.request.id}"
            Thread(target=self._on_directive, args=(self, directive), name=name, daemon=True).start()

    def _log_refusal(self, message: str) -> None:
        import logging

        logging.getLogger("poolkeeper").warning("allocation %s: %s", self.request.id, message)

    # ---- exit

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if os.getpid() != self._owner_pid:  # a forked child leaves the block; its parent still holds the units
            return
        heartbeats, outcome = _require_entered(self._heartbeats), "succeeded" if kind is None else "failed"
        is_certain = not (self.lost or self.suspected)
        heartbeats.stop()
        if heartbeats.left:
            return
        try:
            trouble: PoolkeeperError | None = _loss_by_other_end(self._release(outcome), outcome)
        except (StaleFence, NotFound) as loss:
            is_late_release = isinstance(loss, StaleFence) and loss.request_status == "expired" and is_certain
            trouble = None if is_late_release else AllocationLost(str(loss))
        except PoolkeeperError as release_error:
            if heartbeats.loss_reason:
                trouble = AllocationLost(heartbeats.loss_reason)
            else:
                trouble = self._release_error(release_error, quiet=error is None)
        if trouble and error is None:
            raise trouble
        if trouble and error is not None:
            error.add_note(f"{type(trouble).__name__}: {trouble}")

    def _release(self, outcome: str) -> Request:
        """Release the units, also if Ctrl-C comes during the call. Return the request after the release."""
        try:
            return self._client.release(self.request.id, self.fence, outcome)
        except PoolkeeperError:
            raise
        except BaseException:
            self._client.release(self.request.id, self.fence, outcome)
            raise

    def _release_error(self, error: PoolkeeperError, *, quiet: bool) -> PoolkeeperError | None:
        """Return the error to raise or to note. With a lease, and if the block ended without an error, warn and return None."""
        if not quiet or self.request.lease_s is None:
            return error
        text = f"request {self.request.id} could not be released, its units are freed when its lease ends: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
        return None


def _loss_by_other_end(request: Request, outcome: str) -> AllocationLost | None:
    """Return AllocationLost if the request ended otherwise before this release: an operator dropped it, for example."""
    if request.outcome == outcome:
        return None
    why = f": {request.reason.message}" if request.reason else ""
    return AllocationLost(f"request {request.id} was {request.status} before this release{why}")


def _require_entered(value: Entered | None) -> Entered:
    if value is None:
        raise RuntimeError("the block of this allocation was not entered")
    return value
