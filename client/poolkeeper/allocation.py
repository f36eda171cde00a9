"""An allocation for the length of a `with` block.

On entry: submit under an idempotency key of its own, and wait. If that is interrupted (the time is up, Ctrl-C, no server), the
queued request is cancelled, or the allocation released if it was granted meanwhile. If the answer to the submit was lost, the
key finds the request. Inside: heartbeats. On exit: release, with the outcome `failed` if the block raised.
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
"""Called in a thread of its own whenever the directive changes, so that it may take its time."""

Entered = TypeVar("Entered")
Acknowledgement = TypeVar("Acknowledgement", "Heartbeat", "Request")


class Allocation:
    """Units held for the length of a block; made by `Client.allocation`, for one use.

    **The state of the lease.** Only the server decides which request holds the units. `lost` is True once it has said that ours
    does not. If it refuses heartbeats (401 or 403), `refusal` says why, and the logger `poolkeeper` has a warning with the time
    left. A token that is replaced in the environment or a file is used at once. If heartbeats are still refused when the lease
    is over, the units are lost. As long as the server cannot be reached nothing is known: heartbeats go on, and from the
    moment at which the lease may have lapsed (its length after the last acknowledged heartbeat was *sent*, by a clock of this
    machine) `suspected` is True. It becomes False again when a heartbeat gets through, because then the lease was kept all the
    time. `ensure()` raises AllocationLost in both cases, as before a step that only the holder may do one has to be sure; work
    that does no harm can go on while the loss is only suspected.

    **Having to leave.** `directive` says what we are asked: `checkpoint` (save the work and leave) or `terminate` (leave) until
    `deadline`, and `continue` if we may stay after all; the units are ours all the while. `checkpoint("completed", …)` says
    that the work is saved, and that we have left with that; `vacate()` that we have left as we are. Either way `left` is True
    then, the request goes back to the queue if it may, and `client.allocation` with the same `idempotency_key` waits for it
    there. Who does not leave in time has lost the units.

    **At the end** AllocationLost is raised if the units were taken from us while the block ran, unless the block itself raised;
    then it is a note on that error. A lease that lapsed only because the release came late harmed nobody and is not
    an error. If the server cannot be told at all, the units come back when the lease lapses, and there is a RuntimeWarning;
    without a lease, Unavailable is raised.
    """

    def __init__(
        self, client: Client, body: Mapping[str, Any], key: str | None, wait_s: float | None, on_directive: OnDirective | None
    ) -> None:
        self._client, self._body, self._wait_s, self._on_directive = client, body, wait_s, on_directive
        self._key, self._key_is_new = key or new_key(), key is None
        self._request: Request | None = None
        self._heartbeats: HeartbeatThread | None = None
        self._owner_pid = 0

    # ---- what is held

    @property
    def request(self) -> Request:
        """The request, as it was granted."""
        return _require_entered(self._request)

    @property
    def fence(self) -> int:
        """The number that proves the allocation to other systems."""
        return self.request.fence or 0

    @property
    def pool(self) -> str | None:
        """The pool of the units; None if the workspace lets this component run without a pool."""
        return self.request.pool

    @property
    def resources(self) -> Mapping[str, int]:
        """The units of each key."""
        return self.request.resources

    @property
    def directive(self) -> str:
        """`continue`, `checkpoint` or `terminate`; `kill` if the units are lost."""
        return _require_entered(self._heartbeats).directive

    @property
    def deadline(self) -> datetime | None:
        """The deadline of the directive, by the server's clock."""
        return _require_entered(self._heartbeats).deadline

    @property
    def lost(self) -> bool:
        """True if the server has answered that the units are lost, or still refuses heartbeats when the lease is over."""
        return _require_entered(self._heartbeats).loss_reason is not None

    @property
    def refusal(self) -> str | None:
        """Why the server refused the last heartbeat (401 or 403); None if it did not."""
        return _require_entered(self._heartbeats).refusal

    @property
    def left(self) -> bool:
        """True if the units were released unfinished because of a directive."""
        return _require_entered(self._heartbeats).left

    @property
    def suspected(self) -> bool:
        """True if the lease may have lapsed: no heartbeat was acknowledged for as long as the lease lasts."""
        return _require_entered(self._heartbeats).suspected

    def ensure(self) -> None:
        """Raise AllocationLost if the units are lost, released or suspected to be lost.

        The state is at most a few seconds old: a pool that gives less grace than that takes its units back before it is
        known here.
        """
        heartbeats = _require_entered(self._heartbeats)
        if heartbeats.loss_reason:
            raise AllocationLost(heartbeats.loss_reason)
        if heartbeats.left:
            raise AllocationLost(f"we have left {self.request.id}")
        if heartbeats.suspected:
            raise AllocationLost(f"no heartbeat of {self.request.id} gets through, its lease may have lapsed", suspected=True)

    # ---- leaving

    def checkpoint(self, state: str, seconds: int | None = None, reference: str | None = None) -> Heartbeat:
        """Report the progress of a checkpoint, as `Client.checkpoint` does. Raise AllocationLost if the units are lost.

        If a checkpoint was asked for and this one is `completed`, the allocation has `left`: stop what uses the units before
        the call. If the directive came during the call, AllocationLost is raised as well.
        """
        arguments = (self.request.id, self.fence, state, seconds, reference)
        was_asked = self.directive != "continue"
        heartbeat = self._report(lambda: self._client.checkpoint(*arguments))
        if self.left and not was_asked:
            raise AllocationLost(f"{self.request.id} had to leave just then, and has with this checkpoint")
        return heartbeat

    def vacate(self) -> bool:
        """Release the units unfinished because of a directive; stop what uses them before. False if the allocation may stay
        after all.
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

    # ---- going in

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
        if not is_fresh_grant:  # it may have been granted long ago, while the server could not be reached
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
            raise AllocationLost(f"it was granted and lost before that was learnt: {error}") from error

    @staticmethod
    def _has_waited(request: Request) -> bool:
        """True if the request was queued before it was granted, so that its lease began at an unknown time of the call."""
        return request.granted_at != request.submitted_at

    def _wait_for_grant(self, request: Request, began_s: float) -> Request:
        """Return the request once it is allocated. Raise NotGranted if it never will be."""
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
        """Return how long it may still wait, of what it may wait since then; None is without end."""
        return None if self._wait_s is None else max(0.0, began_s + self._wait_s - now_s())

    def _resubmit(self) -> Request:
        """Submit the expired request again, as this process still waits for it."""
        self._request, self._key = None, next_key(self._key)
        self._request = submit_waiter(self._client, self._body, self._key)
        return self._request

    def _cancel_after_timeout(self, timeout: WaitTimeout) -> Request:
        """Cancel the request and raise WaitTimeout; return the request if it was granted in the last moment."""
        try:
            request = cancel_if_queued(self._client, timeout.request.id)
        except PoolkeeperError as error:
            timeout.add_note(f"it could not be cancelled: {error}")
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

    # ---- going out

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if os.getpid() != self._owner_pid:  # a fork of the block leaves; the holder is still in it
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
        """Release the units, also if a Ctrl-C comes during the call. Return the request after that."""
        try:
            return self._client.release(self.request.id, self.fence, outcome)
        except PoolkeeperError:
            raise
        except BaseException:
            self._client.release(self.request.id, self.fence, outcome)
            raise

    def _release_error(self, error: PoolkeeperError, *, quiet: bool) -> PoolkeeperError | None:
        """Return what to raise or note. None after a warning, if the block ended without an error and there is a lease."""
        if not quiet or self.request.lease_s is None:
            return error
        text = f"request {self.request.id} could not be released, its units come back when its lease lapses: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
        return None


def _loss_by_other_end(request: Request, outcome: str) -> AllocationLost | None:
    """Return AllocationLost if the request had ended before this release, as when an operator has dropped it."""
    if request.outcome == outcome:
        return None
    why = f": {request.reason.message}" if request.reason else ""
    return AllocationLost(f"request {request.id} is {request.status}, and not by its holder{why}")


def _require_entered(value: Entered | None) -> Entered:
    if value is None:
        raise RuntimeError("the block of this allocation was not entered")
    return value
