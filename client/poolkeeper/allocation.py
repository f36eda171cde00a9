"""An allocation for the length of a `with` block.

Going in: submit under a key of its own, wait, and if anything stops that (the time is up, Ctrl-C, no server) leave nothing
behind: what waits is cancelled and what was granted meanwhile is released; when the submit's own answer was lost, its key
tells what became of it. Inside: heartbeats. Going out: release, `failed` if the block raised.
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
    Conflict,
    NotFound,
    NotGranted,
    PoolkeeperError,
    Refused,
    Rejected,
    StaleFence,
    TimedOut,
)
from poolkeeper.failures import surely_not_done
from poolkeeper.heartbeats import Heartbeats, now_s
from poolkeeper.http_client import new_key

if TYPE_CHECKING:
    from poolkeeper.client import Client
    from poolkeeper.models import Heartbeat, Request

OnDirective = Callable[["Allocation", str], object]
"""Called in a thread of its own whenever the directive changes, so that it may take its time."""

TRIES_TO_UNDO, HURRY_S = 2, 3.0

Held = TypeVar("Held")
Word = TypeVar("Word", "Heartbeat", "Request")


class Allocation:
    """Units held for the length of a block; made by `Client.allocation`, for one use.

    **What is known of the lease.** Only the server decides who holds the units. `lost` is True once it has said that we do not.
    As long as it cannot be reached nothing is known: heartbeats go on, and from the moment at which the lease may have lapsed
    (its length after the last acknowledged heartbeat was *sent*, by a clock of this machine) `suspected` is True. It becomes
    False again when a heartbeat gets through, because then the lease was kept all the time. `ensure()` raises AllocationLost in
    both cases, as before a step that only the holder may do one has to be sure; work that harms nobody can go on while
    it is only suspected.

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
        self._heartbeats: Heartbeats | None = None
        self._owner = 0

    # ---- what is held

    @property
    def request(self) -> Request:
        """The request, as it was granted."""
        return _entered(self._request)

    @property
    def fence(self) -> int:
        """The number that proves the allocation, for whoever wants to check it."""
        return self.request.fence or 0

    @property
    def pool(self) -> str | None:
        """Where the units are; None if the workspace lets this component do without."""
        return self.request.pool

    @property
    def resources(self) -> Mapping[str, int]:
        """What is held."""
        return self.request.resources

    @property
    def directive(self) -> str:
        """What we have to do: `continue`, or else `checkpoint`, `terminate`; `kill` if we have lost the units."""
        return _entered(self._heartbeats).directive

    @property
    def deadline(self) -> datetime | None:
        """By when, by the server's clock."""
        return _entered(self._heartbeats).deadline

    @property
    def lost(self) -> bool:
        """Whether the server said that the units are not ours any more."""
        return _entered(self._heartbeats).lost_because is not None

    @property
    def left(self) -> bool:
        """Whether we have given the units back unfinished, as we were asked to."""
        return _entered(self._heartbeats).left

    @property
    def suspected(self) -> bool:
        """Whether they may not be, since no heartbeat got through for as long as the lease lasts."""
        return _entered(self._heartbeats).suspected

    def ensure(self) -> None:
        """Returns if the units are ours by all that is known; AllocationLost if not.

        What is known is at most a few seconds old: a pool that gives less grace than that takes its units back unheard.
        """
        heartbeats = _entered(self._heartbeats)
        if heartbeats.lost_because:
            raise AllocationLost(heartbeats.lost_because)
        if heartbeats.left:
            raise AllocationLost(f"we have left {self.request.id}")
        if heartbeats.suspected:
            raise AllocationLost(f"no heartbeat of {self.request.id} gets through, its lease may have lapsed", suspected=True)

    # ---- leaving

    def checkpoint(self, state: str, seconds: int | None = None, reference: str | None = None) -> Heartbeat:
        """Say how far the saving of the work is, as `Client.checkpoint` does; AllocationLost if the units are not ours.

        If it was asked for and is `completed` we have `left`: stop what uses the units before saying so. If that was asked
        just then, and we do not know of it yet, it is AllocationLost, too.
        """
        told = (self.request.id, self.fence, state, seconds, reference)
        asked = self.directive != "continue"
        answer = self._said(lambda: self._client.checkpoint(*told))
        if self.left and not asked:
            raise AllocationLost(f"{self.request.id} had to leave just then, and has with this checkpoint")
        return answer

    def vacate(self) -> bool:
        """Leave, unfinished, because we have to: stop what uses the units before. False if we may stay after all."""
        try:
            self._said(lambda: self._client.release(self.request.id, self.fence, "vacated"))
        except Conflict as stays:
            if stays.code != "not_leaving":
                raise
        return self.left

    def _said(self, word: Callable[[], Word]) -> Word:
        try:
            return _entered(self._heartbeats).say(word)
        except StaleFence as gone:
            raise AllocationLost(str(gone)) from gone

    # ---- going in

    def __enter__(self) -> Self:
        if self._owner:
            raise RuntimeError("an allocation is for one use; make another")
        self._owner = os.getpid()
        try:
            return self._enter()
        except NotGranted:
            raise
        except BaseException as error:
            if self._request or not (isinstance(error, Refused) and surely_not_done(error) and not error.repeated):
                self._undo(error)
            raise

    def _enter(self) -> Self:
        vouched_s = now_s()
        self._request = self._client.submit_ask(self._body, self._key)
        at_once = self._request.holds and self._key_is_new
        self._request = self._granted(self._request)
        if not at_once:  # it may have been granted long ago, while the server could not be reached
            vouched_s = now_s()
            self._confirm()
        self._heartbeats = Heartbeats(self._client, self.request.id, self.fence, self.request.lease_s, vouched_s, self._tell)
        self._heartbeats.start()
        return self

    def _confirm(self) -> None:
        try:
            self._client.heartbeat(self.request.id, self.fence)
        except StaleFence as gone:
            raise AllocationLost(f"it was granted and lost before that was learnt: {gone}") from gone

    def _granted(self, request: Request) -> Request:
        """The request once it holds its units; NotGranted if it never will."""
        try:
            request = self._client.wait(request.id, self._wait_s) if request.queued else request
        except TimedOut as late:
            request = self._left_at_last(late)
        if request.status == "rejected":
            raise Rejected(request)
        if not request.holds:
            raise NotGranted(request)
        return request

    def _left_at_last(self, late: TimedOut) -> Request:
        """The request, granted in the very last moment; else out of the queue, and TimedOut."""
        try:
            request = leave(self._client, late.request.id)
        except PoolkeeperError as trouble:
            late.add_note(f"it could not be cancelled: {trouble}")
            raise late from None
        if not request.holds:
            raise late
        return request

    def _undo(self, error: BaseException) -> None:
        """Leaves nothing behind; if that fails, the queue's and the lease's own ends will do it."""
        if self._heartbeats:
            self._heartbeats.stop()
        try:
            undo(self._client, self._body, self._key, self._request)
        except PoolkeeperError as trouble:
            error.add_note(f"the request may still wait or hold units: {trouble}")

    def _tell(self, directive: str) -> None:
        if self._on_directive:
            name = f"poolkeeper-{directive}-{self.request.id}"
            Thread(target=self._on_directive, args=(self, directive), name=name, daemon=True).start()

    # ---- going out

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if os.getpid() != self._owner:  # a fork of the block leaves; the holder is still in it
            return
        heartbeats, outcome = _entered(self._heartbeats), "succeeded" if kind is None else "failed"
        sure = not (self.lost or self.suspected)
        heartbeats.stop()
        if heartbeats.left:
            return
        try:
            trouble: PoolkeeperError | None = _ended_by_others(self._release(outcome), outcome)
        except (StaleFence, NotFound) as gone:
            late = isinstance(gone, StaleFence) and gone.request_status == "expired" and sure
            trouble = None if late else AllocationLost(str(gone))
        except PoolkeeperError as refused:
            trouble = self._not_released(refused, quiet=error is None)
        if trouble and error is None:
            raise trouble
        if trouble and error is not None:
            error.add_note(f"{type(trouble).__name__}: {trouble}")

    def _release(self, outcome: str) -> Request:
        """Gives the units back, also when a Ctrl-C comes just then; the request as it is then."""
        try:
            return self._client.release(self.request.id, self.fence, outcome)
        except PoolkeeperError:
            raise
        except BaseException:
            self._client.release(self.request.id, self.fence, outcome)
            raise

    def _not_released(self, trouble: PoolkeeperError, *, quiet: bool) -> PoolkeeperError | None:
        """What to raise or note; only a warning if the block ended quietly and the lease ends by itself."""
        if not quiet or self.request.lease_s is None:
            return trouble
        text = f"request {self.request.id} could not be released, its units come back when its lease lapses: {trouble}"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
        return None


def undo(client: Client, body: Mapping[str, Any], key: str, request: Request | None, runner: str | None = None) -> Request:
    """Leaves nothing behind of an ask, also where only its key is known; PoolkeeperError if that cannot be had at once.

    With a `runner` what it holds is left alone if another one has begun it: Conflict. The request as it is then.
    """
    hurried = client.twin(tries=TRIES_TO_UNDO, timeout_s=min(HURRY_S, client.timeout_s))
    try:
        found = leave(hurried, (request or hurried.submit_ask(body, key)).id)
        if found.holds and found.fence is not None:
            if runner:
                hurried.start(found.id, found.fence, runner)
            found = hurried.release(found.id, found.fence, "failed")
        return found
    finally:
        hurried.close()


def leave(client: Client, request_id: str) -> Request:
    """The request, cancelled if it waited, else as it is."""
    try:
        return client.cancel(request_id)
    except Conflict:
        return client.request(request_id)


def _ended_by_others(request: Request, outcome: str) -> AllocationLost | None:
    """AllocationLost if the request had ended before it was released with this outcome: an operator dropped it."""
    if request.outcome == outcome:
        return None
    why = f": {request.reason.message}" if request.reason else ""
    return AllocationLost(f"request {request.id} is {request.status}, and not by its holder{why}")


def _entered(value: Held | None) -> Held:
    if value is None:
        raise RuntimeError("the block of this allocation was not entered")
    return value
