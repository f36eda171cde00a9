"""One allocation, from the grant until the units are released: the command, its heartbeats, and the report of its end."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from poolkeeper.backoff import pause_s
from poolkeeper.errors import (
    AccessDenied,
    AllocationLost,
    ApiError,
    BadRequest,
    Conflict,
    NotFound,
    PoolkeeperError,
    StaleFence,
)
from poolkeeper.failures import is_retryable
from poolkeeper.heartbeats import HeartbeatThread, now_s
from poolkeeper.runner.checkpoint_reporter import CheckpointReporter
from poolkeeper.runner.command_env import command_environment
from poolkeeper.runner.process_run import POLL_S, ProcessRun, RunOptions
from poolkeeper.waiters import cancel_if_queued

if TYPE_CHECKING:
    from poolkeeper.client import Client
    from poolkeeper.models import Request
    from poolkeeper.runner.checkpoint_files import CheckpointReport
    from poolkeeper.runner.process_run import RunContext

RELEASE_TIMEOUT_S = 60.0
"""The seconds for which the release of units without a lease is retried while the service cannot be reached."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class AllocationRunResult:
    """The end of an allocation: the exit code of the command, or the request if it is queued or allocated again."""

    code: int = 0
    request: Request | None = None
    unreported: CheckpointReport | None = None
    """The last checkpoint, if it was not reported to the service."""


class AllocationRun:
    """A run of the command under one allocation.

    A run raises AllocationLost if the units are lost, and Interrupted if a signal arrives while the service cannot be reached.
    """

    def __init__(
        self,
        client: Client,
        request: Request,
        options: RunOptions,
        context: RunContext,
        renewed_s: float,
        unreported: CheckpointReport | None,
    ) -> None:
        self._client, self._request, self._options, self._context = client.clone(tries=1), request, options, context
        self._request_and_fence = request.id, request.fence or 0
        self._resume, self._reference, self._unreported = request.resume, request.checkpoint_reference, unreported
        wake = context.wakeup.wake
        self._heartbeats = HeartbeatThread(client, *self._request_and_fence, request.lease_s, renewed_s, wake, wake)

    def __call__(self) -> AllocationRunResult:
        """Run the command until the units are released. Run it again if it has left and the allocation was then reprieved."""
        self._heartbeats.start()
        try:
            while True:
                process_run = self._run_process()
                if result := self._settle(process_run):
                    return result
                self._context.progress.info("the allocation may stay after all, so the command is started again")
        finally:
            self._heartbeats.stop()
            self._client.close()

    def _run_process(self) -> ProcessRun:
        context, (request_id, fence) = self._context, self._request_and_fence
        context.checkpoint_files.clear()
        if self._unreported:
            self._resume, self._reference = True, self._unreported.reference or self._reference
        variables = command_environment(
            os.environ,
            self._client,
            self._request,
            context.checkpoint_files.path,
            resume=self._resume,
            reference=self._reference,
        )
        reporter = CheckpointReporter(
            self._client, request_id, fence, self._heartbeats, lambda why: context.progress.warn(f"checkpoint: {why}")
        )
        try:
            if self._unreported:
                reporter.report(self._unreported)
            process_run = ProcessRun(self._options, context, variables, self._heartbeats, reporter)
            process_run()
        finally:
            reporter.stop()
        self._unreported = process_run.checkpoint
        if report := process_run.checkpoint or reporter.last:
            self._resume, self._reference = True, report.reference or self._reference
        return process_run

    def _settle(self, process_run: ProcessRun) -> AllocationRunResult | None:
        """Report the outcome of the process to the service. Return None if the command may go on under this allocation."""
        if process_run.continues_when_lost:
            return AllocationRunResult(process_run.code)
        if process_run.lost:
            return self._requeued_or_lost()
        if process_run.is_refused:
            self._require_acceptance()
            return None
        if process_run.outcome in ("succeeded", "failed"):
            self._release(process_run)
            return AllocationRunResult(process_run.code)
        if self._heartbeats.left:
            return self._requeued_or_lost()
        try:
            has_left = self._report_leaving(process_run)
        except (StaleFence, NotFound):
            return self._requeued_or_lost()
        return AllocationRunResult(request=self._retry(self._get_request)) if has_left else None

    def _require_acceptance(self) -> None:
        """Wait until heartbeats are accepted again. Raise AllocationLost if the lease ends first."""
        heartbeats = self._heartbeats
        while heartbeats.must_leave:
            if heartbeats.suspected:
                refusal = heartbeats.refusal or "the service does not answer any more"
                raise AllocationLost(heartbeats.loss_reason or f"the lease is over, and heartbeats are refused: {refusal}")
            self._context.signals.check()
            self._context.wakeup.wait(POLL_S)

    def _report_leaving(self, process_run: ProcessRun) -> bool:
        """Report that the command has left, with its checkpoint if there is one. Return False if the allocation was
        reprieved."""
        if process_run.outcome == "completed" and process_run.checkpoint:
            arguments = (*self._request_and_fence, "completed", None, process_run.checkpoint.reference)
            try:
                self._retry(lambda: self._heartbeats.report(lambda: self._client.checkpoint(*arguments)))
            except BadRequest as error:  # the service refuses the reference
                self._unreported = None
                self._context.progress.warn(f"checkpoint: {error}")
            else:
                self._unreported = None
                return self._heartbeats.left
        if self._heartbeats.directive == "continue":
            return False
        try:
            self._retry(lambda: self._heartbeats.report(lambda: self._client.release(*self._request_and_fence, "vacated")))
        except Conflict as conflict:
            if conflict.code != "not_leaving":
                raise
        return self._heartbeats.left

    def _requeued_or_lost(self) -> AllocationRunResult:
        """Return the request if it is queued or allocated again; else raise AllocationLost."""
        try:
            request = self._retry(self._get_request)
        except NotFound as error:
            raise AllocationLost(str(error)) from error
        except AccessDenied as error:
            raise AllocationLost(self._heartbeats.loss_reason or str(error)) from error
        if request.is_queued or (request.is_allocated and request.fence != self._request_and_fence[1]):
            return AllocationRunResult(request=request, unreported=self._unreported)
        reason = request.reason.message if request.reason else self._heartbeats.loss_reason
        raise AllocationLost(f"request {request.id} is {request.status}: {reason or 'no reason is given'}")

    def _release(self, process_run: ProcessRun) -> None:
        """Release the units. A failure is only a warning: the command has ended, and its exit code is the result."""
        is_certain, began_s = not self._heartbeats.suspected, now_s()
        lease_ends = self._request.lease_s is not None

        def release() -> Request:
            return self._client.release(*self._request_and_fence, process_run.outcome, exit_code=process_run.exit_code)

        def is_time_up() -> bool:
            return self._heartbeats.suspected if lease_ends else now_s() > began_s + RELEASE_TIMEOUT_S

        try:
            request = self._retry(release, is_time_up)
            if request.outcome != process_run.outcome:
                self._context.progress.warn(f"request {request.id} was {request.status} before the command ended")
        except (StaleFence, NotFound) as error:
            if not (is_certain and isinstance(error, StaleFence) and error.request_status == "expired"):
                self._context.progress.warn(f"the units were lost before the command ended: {error}")
            self._cancel_requeued(process_run)
        except PoolkeeperError as error:
            consequence = "they are freed when the lease ends" if lease_ends else "and no lease will free them"
            self._context.progress.warn(f"the units could not be released, {consequence}: {error}")

    def _cancel_requeued(self, process_run: ProcessRun) -> None:
        """Cancel the request of finished work if a late preemption has queued it again."""
        try:
            request = cancel_if_queued(self._client, self._request.id)
            if request.is_allocated and request.fence is not None and request.fence != self._request_and_fence[1]:
                self._client.release(request.id, request.fence, process_run.outcome, exit_code=process_run.exit_code)
        except PoolkeeperError as error:
            self._context.progress.warn(f"request {self._request.id} may be in the queue again: {error}")

    def _get_request(self) -> Request:
        return self._client.request(self._request.id)

    def _retry(self, call: Callable[[], Result], is_time_up: Callable[[], bool] = lambda: False) -> Result:
        """Return the result of the call, retried until the time is up or a signal comes while the service is unreachable."""
        tries, progress = 0, self._context.progress
        while True:
            try:
                result = call()
            except ApiError as error:
                if not is_retryable(error) or is_time_up():
                    raise
                tries += 1
                progress.show_retry(str(error))
                until_s = now_s() + pause_s(tries, error.retry_after_s)
                while now_s() < until_s:
                    self._context.signals.check()
                    self._context.wakeup.wait(until_s - now_s())
            else:
                progress.clear()
                return result
