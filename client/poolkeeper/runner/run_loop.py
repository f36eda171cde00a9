"""From the ask to the command's exit code: wait, run, and after a preemption wait again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from poolkeeper.allocation import leave, undo
from poolkeeper.errors import (
    AllocationLost,
    Conflict,
    NotGranted,
    PoolkeeperError,
    Rejected,
    StaleFence,
    TimedOut,
    TooManyRequests,
    Unavailable,
)
from poolkeeper.failures import may_pass
from poolkeeper.heartbeats import now_s
from poolkeeper.http_client import new_key, pause_s
from poolkeeper.runner import guard
from poolkeeper.runner.allocation_run import Attempt
from poolkeeper.runner.checkpoint_files import Checkpoints
from poolkeeper.runner.guarded_process import Unstartable
from poolkeeper.runner.process_run import Surroundings, Terms
from poolkeeper.runner.progress import LAST_S, Showing
from poolkeeper.runner.signals import Interrupted, Interruptions
from poolkeeper.runner.terminal import Terminal
from poolkeeper.runner.wakeup_pipe import Bell

if TYPE_CHECKING:
    from poolkeeper.client import Client
    from poolkeeper.models import Request
    from poolkeeper.runner.checkpoint_files import Word

ASIDE_S = 2.0
"""How long an answer may take that is only to be shown."""

Answer = TypeVar("Answer")


class Held(PoolkeeperError):  # noqa: N818 - names what happened
    """Somebody else has begun to run what the request of this key was granted for."""


def run(client: Client, body: Mapping[str, Any], key: str | None, terms: Terms, showing: Showing) -> int:
    """The exit code of the command, run for as long as it holds what was asked for, as often as it is preempted and resumed.

    Unstartable, Rejected, TimedOut, NotGranted, AllocationLost, Held, Interrupted and what calls raise say why there is none;
    the request does not wait or hold units then, as far as the service could be told.
    """
    if "/" not in terms.words[0] and shutil.which(terms.words[0]) is None:
        raise Unstartable(terms.words[0], 2)
    guard.adopt_orphans()
    bell = Bell()
    checkpoints = Checkpoints()
    try:
        with Interruptions(bell.ring) as interruptions:
            around = Surroundings(showing, interruptions, bell, Terminal(), checkpoints)
            return _Run(client, body, key, terms, around)()
    finally:
        showing.clear()
        showing.flush(LAST_S)
        checkpoints.close()
        bell.close()


class _Run:
    def __init__(self, client: Client, body: Mapping[str, Any], key: str | None, terms: Terms, around: Surroundings) -> None:
        self._client, self._body, self._terms, self._around = client, body, terms, around
        self._key, self._runner = key or new_key(), f"run:{new_key()}"
        self._request: Request | None = None
        self._begun_s = 0.0
        self._unsaid: Word | None = None

    def __call__(self) -> int:
        try:
            self._submit()
            while True:
                request = self._granted()
                self._around.showing.say(_granted(request))
                ended = Attempt(self._client, request, self._terms, self._around, self._begun_s, self._unsaid)()
                if ended.request is None:
                    return ended.code
                self._request, self._unsaid = ended.request, ended.unsaid
                if ended.request.queued:
                    self._around.showing.say(_queued_again(ended.request))
        except (NotGranted, AllocationLost, Held):
            raise
        except BaseException as error:
            self._undo(error)
            raise

    def _submit(self) -> None:
        with self._around.interruptions.raised():
            self._request = self._client.submit_ask(self._body, self._key)

    def _granted(self) -> Request:
        """The request, which holds its units, and has been seen to just now; NotGranted if it never will."""
        while True:
            assert self._request
            if self._request.queued:
                self._wait(self._request)
            if self._request.status == "rejected":
                raise Rejected(self._request)
            if not self._request.holds:
                raise NotGranted(self._request)
            if self._is_begun(self._request):
                return self._request

    def _is_begun(self, request: Request) -> bool:
        """Whether we are the ones who run under this fence. Held if somebody else is; if the lease lapsed before we learnt of
        the grant, AllocationLost, or False as it waits or holds units again."""
        try:
            self._patiently(lambda: self._begin(request))
        except Conflict as other:
            if isinstance(other, StaleFence):
                self._request = self._patiently(lambda: self._client.request(request.id))
                if self._request.queued or (self._request.holds and self._request.fence != request.fence):
                    return False
                raise AllocationLost(f"it was granted and lost before that was learnt: {other}") from other
            if other.code != "already_started":
                raise
            raise Held(f"request {request.id} of this key holds units already: for another run, or one that died") from None
        return True

    def _begin(self, request: Request) -> None:
        sent_s = now_s()
        self._client.start(request.id, request.fence or 0, self._runner)
        self._begun_s = sent_s

    def _patiently(self, call: Callable[[], Answer]) -> Answer:
        """The answer, however long the service cannot be reached."""
        failures, showing = 0, self._around.showing
        with self._around.interruptions.raised():
            while True:
                try:
                    answer = call()
                except (Unavailable, TooManyRequests) as trouble:
                    failures += 1
                    self._sit_out(trouble, failures)
                else:
                    showing.clear()
                    return answer

    def _sit_out(self, trouble: Unavailable | TooManyRequests, failures: int) -> None:
        """Returns when it may be tried again; what will not pass is raised."""
        if not may_pass(trouble):
            raise trouble
        self._around.showing.trouble(str(trouble))
        time.sleep(pause_s(failures, trouble.retry_after_s))

    def _wait(self, request: Request) -> None:
        """Until it is no longer queued, or until the time is up: then it is out of the queue, and TimedOut."""
        showing, began = self._around.showing, time.monotonic()
        showing.begin_waiting()
        with self._around.interruptions.raised():
            failures = 0
            while request.queued:
                if not failures:
                    showing.waiting(request)
                    self._foresee(request)
                try:
                    request = self._client.wait(request.id, self._poll_s(began))
                except TimedOut as still:
                    request, failures = still.request, 0
                except (Unavailable, TooManyRequests) as trouble:
                    failures += 1
                    self._sit_out(trouble, failures)
                self._request = request
                if request.queued and self._poll_s(began) <= 0:
                    self._give_up(request)
                    break
        showing.clear()

    def _foresee(self, request: Request) -> None:
        """Asks now and then when it may start; for a service that cannot tell nobody waits."""
        if not self._around.showing.wants_estimate:
            return
        likely = None
        with suppress(PoolkeeperError), self._client.twin(timeout_s=ASIDE_S, tries=1) as aside:
            told = [pool.get("estimated_start") for pool in aside.estimate(request.id)["pools"]]
            likely = min((datetime.fromisoformat(each["likely"]) for each in told if each), default=None)
        self._around.showing.foreseen(likely)

    def _poll_s(self, began: float) -> float:
        timeout_s = self._terms.timeout_s
        left_s = self._around.showing.poll_s if timeout_s is None else began + timeout_s - time.monotonic()
        return max(0.0, min(self._around.showing.poll_s, left_s))

    def _give_up(self, request: Request) -> None:
        """TimedOut, and out of the queue, unless it is granted in the very last moment."""
        self._request = leave(self._client, request.id)
        if not self._request.holds:
            timeout_s = self._terms.timeout_s or 0
            raise TimedOut(request, f"request {request.id} was not granted within {timeout_s:g} s, and is out of the queue")

    def _undo(self, error: BaseException) -> None:
        """Leaves nothing behind; if that cannot be, the queue's and the lease's own ends will do it."""
        showing = self._around.showing
        try:
            undo(self._client, self._body, self._key, self._request, self._runner)
        except Conflict as other:  # or it has ended otherwise
            if other.code == "already_started":
                showing.warn("the request of this key holds units for another run, so they are left alone")
        except PoolkeeperError as trouble:
            if self._request or isinstance(error, Interrupted):
                showing.warn(f"the request may still wait or hold units: {trouble}")
        else:
            if isinstance(error, Interrupted) and self._request:
                showing.warn(f"{error.sign.name}: request {self._request.id} is given up")


def _granted(request: Request) -> str:
    held = ",".join(f"{key}={amount}" for key, amount in request.resources.items() if key != "step_run") or "what it asked for"
    where = f" in {request.pool}" if request.pool else ""
    since = f", to go on from {request.checkpoint_reference}" if request.resume and request.checkpoint_reference else ""
    return f"request {request.id} has {held}{where} under fence {request.fence}{since}"


def _queued_again(request: Request) -> str:
    why = f": {request.reason.message}" if request.reason else ""
    return f"request {request.id} is in the queue again{why}"
