"""The loop of `run`, from the submit to the exit code of the command: wait, run, and wait again after a preemption."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from poolkeeper.backoff import pause_s
from poolkeeper.errors import (
    AccessDenied,
    AllocationLost,
    Conflict,
    NotGranted,
    PoolkeeperError,
    RequestRejected,
    StaleFence,
    TooManyRequests,
    Unavailable,
    WaitTimeout,
)
from poolkeeper.failures import is_retryable
from poolkeeper.heartbeats import now_s
from poolkeeper.http_client import new_key
from poolkeeper.runner import guard
from poolkeeper.runner.allocation_run import AllocationRun
from poolkeeper.runner.checkpoint_files import CheckpointFiles
from poolkeeper.runner.guarded_process import CommandStartError
from poolkeeper.runner.process_run import RunContext, RunOptions
from poolkeeper.runner.progress import FINAL_FLUSH_S, Progress
from poolkeeper.runner.signals import Interrupted, SignalHandler
from poolkeeper.runner.terminal import Terminal
from poolkeeper.runner.waiting_line import WaitDetails, read_details
from poolkeeper.waiters import (
    FIRST_WAIT_S,
    LONGEST_REFUSAL_S,
    cancel_if_queued,
    cancel_or_release,
    has_expired_unpolled,
    next_key,
    submit_waiter,
)
from poolkeeper.wakeup_pipe import WakeupPipe

if TYPE_CHECKING:
    from poolkeeper.client import Client
    from poolkeeper.models import Request
    from poolkeeper.runner.checkpoint_files import CheckpointReport

DETAILS_TIMEOUT_S = 2.0
"""The seconds that reading the details of the wait may take."""

Result = TypeVar("Result")


class AlreadyRunning(PoolkeeperError):  # noqa: N818 - names what happened
    """Another run has started the allocation of the request with this key."""


def run(client: Client, body: Mapping[str, Any], key: str | None, options: RunOptions, progress: Progress) -> int:
    """Run the command while its request holds units, again after each preemption. Return the exit code of the command.

    Raise CommandStartError, RequestRejected, WaitTimeout, NotGranted, AllocationLost, AlreadyRunning, Interrupted or an error
    of a call if there is no exit code. The request is then cancelled or released, if the service could be reached.
    """
    if "/" not in options.argv[0] and shutil.which(options.argv[0]) is None:
        raise CommandStartError(options.argv[0], 2)
    guard.adopt_orphans()
    wakeup = WakeupPipe()
    checkpoint_files = CheckpointFiles()
    try:
        with SignalHandler() as signals, wakeup.woken_by_signals():
            context = RunContext(progress, signals, wakeup, Terminal(), checkpoint_files)
            return _RunLoop(client, body, key, options, context)()
    finally:
        progress.clear()
        progress.flush(FINAL_FLUSH_S)
        checkpoint_files.close()
        wakeup.close()


class _RunLoop:
    def __init__(
        self, client: Client, body: Mapping[str, Any], key: str | None, options: RunOptions, context: RunContext
    ) -> None:
        self._client, self._body, self._options, self._context = client, body, options, context
        self._key, self._runner = key or new_key(), f"run:{new_key()}"
        self._request: Request | None = None
        self._renewed_s = 0.0
        self._refused_since_s: float | None = None
        self._unreported: CheckpointReport | None = None

    def __call__(self) -> int:
        try:
            self._submit()
            while True:
                request = self._wait_for_grant()
                self._context.progress.info(_grant_message(request))
                result = AllocationRun(self._client, request, self._options, self._context, self._renewed_s, self._unreported)()
                if result.request is None:
                    return result.code
                self._request, self._unreported = result.request, result.unreported
                if result.request.is_queued:
                    self._context.progress.info(_requeue_message(result.request))
        except (NotGranted, AllocationLost, AlreadyRunning):
            raise
        except BaseException as error:
            self._cancel_or_release(error)
            raise

    def _submit(self) -> None:
        with self._context.signals.raise_on_signal():
            self._request = submit_waiter(self._client, self._body, self._key, self._first_wait_s())

    def _first_wait_s(self) -> float:
        timeout_s = self._options.timeout_s
        return FIRST_WAIT_S if timeout_s is None else min(FIRST_WAIT_S, timeout_s)

    def _resubmit(self, expired: Request) -> None:
        """Submit the expired request again, as this process still waits for it."""
        self._request, self._key = None, next_key(self._key)
        with self._context.signals.raise_on_signal():
            self._request = request = submit_waiter(self._client, self._body, self._key)
        reason = f"no poll was accepted for {expired.queue_ttl_s} s"
        self._context.progress.warn(f"request {expired.id} has expired, as {reason}; submitted again as {request.id}")

    def _wait_for_grant(self) -> Request:
        """Wait for the grant and start the allocation. Return the request. Raise NotGranted if it ends without a grant."""
        began_s = time.monotonic()
        while True:
            assert self._request
            if self._request.is_queued:
                self._wait(self._request, began_s)
                if has_expired_unpolled(self._request):
                    self._resubmit(self._request)
                    continue
            if self._request.status == "rejected":
                raise RequestRejected(self._request)
            if not self._request.is_allocated:
                raise NotGranted(self._request)
            if self._start(self._request):
                return self._request

    def _start(self, request: Request) -> bool:
        """Start the allocation. Raise AlreadyRunning if another run has started it.

        If the lease ended before the grant was known here, return False if the request is queued or allocated again, else
        raise AllocationLost.
        """
        try:
            self._retry(lambda: self._send_start(request))
        except Conflict as conflict:
            if isinstance(conflict, StaleFence):
                self._request = self._retry(lambda: self._client.request(request.id))
                if self._request.is_queued or (self._request.is_allocated and self._request.fence != request.fence):
                    return False
                raise AllocationLost(f"the units were lost before the grant was known here: {conflict}") from conflict
            if conflict.code != "already_started":
                raise
            raise AlreadyRunning(
                f"request {request.id} of this key already holds units, for another run or for one that died"
            ) from None
        return True

    def _send_start(self, request: Request) -> None:
        sent_s = now_s()
        self._client.start(request.id, request.fence or 0, self._runner)
        self._renewed_s = sent_s

    def _retry(self, call: Callable[[], Result]) -> Result:
        """Return the result of a call. Repeat it while the service cannot be reached, and for a while if it is refused."""
        failures, progress = 0, self._context.progress
        with self._context.signals.raise_on_signal():
            while True:
                try:
                    result = call()
                except (Unavailable, TooManyRequests, AccessDenied) as error:
                    failures += 1
                    self._pause_or_raise(error, failures)
                else:
                    self._refused_since_s = None
                    progress.clear()
                    return result

    def _pause_or_raise(self, error: Unavailable | TooManyRequests | AccessDenied, failures: int) -> None:
        """Pause before the next try, or raise an error that cannot be retried. A refused token may be replaced meanwhile."""
        if isinstance(error, AccessDenied):
            self._refused_since_s = self._refused_since_s or time.monotonic()
            if time.monotonic() - self._refused_since_s > LONGEST_REFUSAL_S:
                raise error
        elif not is_retryable(error):
            raise error
        self._context.progress.show_retry(str(error))
        time.sleep(pause_s(failures, error.retry_after_s))

    def _wait(self, request: Request, began_s: float) -> None:
        """Wait until the request is no longer queued. When the time is up, leave the queue and raise WaitTimeout."""
        progress = self._context.progress
        progress.begin_waiting()
        with self._context.signals.raise_on_signal():
            failures = 0
            while request.is_queued:
                if not failures:
                    progress.show_position(request)
                    self._ask_details(request)
                try:
                    request = self._client.wait(request.id, self._poll_s(began_s))
                except WaitTimeout as timeout:
                    request, failures, self._refused_since_s = timeout.request, 0, None
                except (Unavailable, TooManyRequests, AccessDenied) as error:
                    failures += 1
                    self._pause_or_raise(error, failures)
                self._request = request
                if request.is_queued and self._poll_s(began_s) <= 0:
                    self._leave_queue(request)
                    break
        progress.clear()

    def _ask_details(self, request: Request) -> None:
        """Read the reason of the wait and the estimated start at intervals. A slow answer delays nothing else."""
        if not self._context.progress.wants_details:
            return
        details = WaitDetails()
        with suppress(PoolkeeperError), self._client.clone(timeout_s=DETAILS_TIMEOUT_S, tries=1) as quick_client:
            details = read_details(quick_client.estimate(request.id, reasons=True)["pools"])
        self._context.progress.set_details(details)

    def _poll_s(self, began_s: float) -> float:
        timeout_s = self._options.timeout_s
        left_s = self._context.progress.poll_s if timeout_s is None else began_s + timeout_s - time.monotonic()
        return max(0.0, min(self._context.progress.poll_s, left_s))

    def _leave_queue(self, request: Request) -> None:
        """Cancel the request and raise WaitTimeout, unless it was granted just before."""
        self._request = cancel_if_queued(self._client, request.id)
        if not self._request.is_allocated:
            timeout_s = self._options.timeout_s or 0
            raise WaitTimeout(request, f"request {request.id} was not granted within {timeout_s:g} s, and is out of the queue")

    def _cancel_or_release(self, error: BaseException) -> None:
        """Cancel or release the request; if that fails, its queue TTL or its lease ends it."""
        progress = self._context.progress
        try:
            request = cancel_or_release(self._client, self._body, self._key, self._request, self._runner)
        except Conflict as conflict:  # or the request has ended
            if conflict.code == "already_started":
                progress.warn("the request of this key holds units for another run, so it is not released")
        except PoolkeeperError as cleanup_error:
            if self._request or isinstance(error, Interrupted):
                progress.warn(f"the request may still wait or hold units: {cleanup_error}")
        else:
            if isinstance(error, Interrupted) and self._request:
                progress.warn(f"{error.signum.name}: request {request.id} is {request.status}")


def _grant_message(request: Request) -> str:
    amounts = (
        ",".join(f"{key}={amount}" for key, amount in request.resources.items() if key != "step_run") or "what it asked for"
    )
    where = f" in {request.pool}" if request.pool else ""
    resume = f", to go on from {request.checkpoint_reference}" if request.resume and request.checkpoint_reference else ""
    is_last = 0 < request.retries == request.preemptions
    last = "; this is its last retry: the next preemption ends it" if is_last else ""
    return f"request {request.id} has {amounts}{where} under fence {request.fence}{resume}{last}"


def _requeue_message(request: Request) -> str:
    reason = f": {request.reason.message}" if request.reason else ""
    return f"request {request.id} is in the queue again{reason}"
