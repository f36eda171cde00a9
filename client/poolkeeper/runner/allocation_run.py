"""One allocation, from the grant until the units are given back: the command in it, the heartbeats beside it, and its end."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from poolkeeper.allocation import leave
from poolkeeper.errors import AllocationLost, Conflict, Malformed, NotFound, PoolkeeperError, Refused, StaleFence
from poolkeeper.failures import may_pass
from poolkeeper.heartbeats import Heartbeats, now_s
from poolkeeper.http_client import pause_s
from poolkeeper.runner.checkpoint_reporter import Words
from poolkeeper.runner.command_env import environment
from poolkeeper.runner.process_run import Terms, Turn

if TYPE_CHECKING:
    from poolkeeper.client import Client
    from poolkeeper.models import Request
    from poolkeeper.runner.checkpoint_files import Word
    from poolkeeper.runner.process_run import Surroundings

PATIENCE_S = 60.0
"""How long to try to give units back that have no lease, if the service cannot be reached."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended for us: with the command's exit code, or with a request that is to be waited for again."""

    code: int = 0
    request: Request | None = None
    unsaid: Word | None = None
    """A checkpoint that the service does not know of."""


class Attempt:
    """Called once. AllocationLost if the units were; Interrupted if the service cannot be reached and somebody has had
    enough."""

    def __init__(
        self, client: Client, request: Request, terms: Terms, around: Surroundings, vouched_s: float, unsaid: Word | None
    ) -> None:
        self._client, self._request, self._terms, self._around = client.twin(tries=1), request, terms, around
        self._held = request.id, request.fence or 0
        self._resume, self._reference, self._unsaid = request.resume, request.checkpoint_reference, unsaid
        ring = around.bell.ring
        self._heartbeats = Heartbeats(client, *self._held, request.lease_s, vouched_s, ring)

    def __call__(self) -> Ended:
        """Runs the command, again if it left and may stay after all; returns when the units are given back."""
        self._heartbeats.start()
        try:
            while True:
                turn = self._turn()
                if ended := self._settled(turn):
                    return ended
                self._around.showing.say("it may stay after all, so it is started again")
        finally:
            self._heartbeats.stop()
            self._client.close()

    def _turn(self) -> Turn:
        around, (request_id, fence) = self._around, self._held
        around.checkpoints.clear()
        if self._unsaid:
            self._resume, self._reference = True, self._unsaid.reference or self._reference
        variables = environment(
            os.environ,
            self._client,
            self._request,
            around.checkpoints.path,
            resume=self._resume,
            reference=self._reference,
        )
        words = Words(self._client, request_id, fence, self._heartbeats, lambda why: around.showing.warn(f"checkpoint: {why}"))
        try:
            if self._unsaid:
                words.say(self._unsaid)
            turn = Turn(self._terms, around, variables, self._heartbeats, words)
            turn()
        finally:
            words.stop()
        self._unsaid = turn.checkpoint
        if word := turn.checkpoint or words.last:
            self._resume, self._reference = True, word.reference or self._reference
        return turn

    def _settled(self, turn: Turn) -> Ended | None:
        """Tells the service how it ended; None if the command may go on under this allocation."""
        if turn.kept:
            return Ended(turn.code)
        if turn.lost:
            return self._again_or_lost()
        if turn.outcome in ("succeeded", "failed"):
            self._release(turn)
            return Ended(turn.code)
        if self._heartbeats.left:
            return self._again_or_lost()
        try:
            left = self._left(turn)
        except (StaleFence, NotFound):
            return self._again_or_lost()
        return Ended(request=self._insist(self._found)) if left else None

    def _left(self, turn: Turn) -> bool:
        """Says that we have left, with the checkpoint, if there is one; False if we need not."""
        if turn.outcome == "completed" and turn.checkpoint:
            told = (*self._held, "completed", None, turn.checkpoint.reference)
            try:
                self._insist(lambda: self._heartbeats.say(lambda: self._client.checkpoint(*told)))
            except Malformed as wrong:  # a reference that cannot be one
                self._unsaid = None
                self._around.showing.warn(f"checkpoint: {wrong}")
            else:
                self._unsaid = None
                return self._heartbeats.left
        if self._heartbeats.directive == "continue":
            return False
        try:
            self._insist(lambda: self._heartbeats.say(lambda: self._client.release(*self._held, "vacated")))
        except Conflict as stays:
            if stays.code != "not_leaving":
                raise
        return self._heartbeats.left

    def _again_or_lost(self) -> Ended:
        """The request, if it waits or holds units again; else AllocationLost."""
        try:
            request = self._insist(self._found)
        except NotFound as gone:
            raise AllocationLost(str(gone)) from gone
        if request.queued or (request.holds and request.fence != self._held[1]):
            return Ended(request=request, unsaid=self._unsaid)
        why = request.reason.message if request.reason else self._heartbeats.lost_because
        raise AllocationLost(f"request {request.id} is {request.status}: {why or 'no reason is given'}")

    def _release(self, turn: Turn) -> None:
        """Gives the units back. Whatever becomes of that, the command has ended, and its code is what counts."""
        sure, began_s = not self._heartbeats.suspected, now_s()
        lease_ends = self._request.lease_s is not None

        def enough() -> bool:
            return self._heartbeats.suspected if lease_ends else now_s() > began_s + PATIENCE_S

        try:
            found = self._insist(lambda: self._client.release(*self._held, turn.outcome), enough)
            if found.outcome != turn.outcome:
                self._around.showing.warn(f"request {found.id} had been {found.status} before the command was done")
        except (StaleFence, NotFound) as gone:
            if not (sure and isinstance(gone, StaleFence) and gone.request_status == "expired"):
                self._around.showing.warn(f"the units were lost before the command was done: {gone}")
            self._clear_away(turn)
        except PoolkeeperError as trouble:
            end = "they come back when the lease lapses" if lease_ends else "and there is no lease to end that"
            self._around.showing.warn(f"the units could not be given back, {end}: {trouble}")

    def _clear_away(self, turn: Turn) -> None:
        """The request of work that is done, if it was put back into the queue in the last moment."""
        try:
            request = leave(self._client, self._request.id)
            if request.holds and request.fence is not None and request.fence != self._held[1]:
                self._client.release(request.id, request.fence, turn.outcome)
        except PoolkeeperError as trouble:
            self._around.showing.warn(f"request {self._request.id} may wait in the queue once more: {trouble}")

    def _found(self) -> Request:
        return self._client.request(self._request.id)

    def _insist(self, call: Callable[[], Answer], enough: Callable[[], bool] = lambda: False) -> Answer:
        """The answer, however long the service cannot be reached; not beyond what is enough, nor a signal to end."""
        tried, showing = 0, self._around.showing
        while True:
            try:
                answer = call()
            except Refused as trouble:
                if not may_pass(trouble) or enough():
                    raise
                tried += 1
                showing.trouble(str(trouble))
                until_s = now_s() + pause_s(tried, trouble.retry_after_s)
                while now_s() < until_s:
                    self._around.interruptions.check()
                    self._around.bell.wait(until_s - now_s())
            else:
                showing.clear()
                return answer
