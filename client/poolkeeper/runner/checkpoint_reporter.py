"""A thread that sends the checkpoint reports of the command to the service, so that the command does not wait for the service.

After a directive, a report `completed` ends the allocation, unless it is marked as routine. A directive may not have arrived
here yet. So every report of this module is marked as routine. `AllocationRun` reports the exit of the command after its last
process has ended.
"""

from __future__ import annotations

from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING

from poolkeeper.backoff import pause_s
from poolkeeper.errors import AccessDenied, ApiError, PoolkeeperError, StaleFence
from poolkeeper.failures import is_retryable
from poolkeeper.runner.checkpoint_files import CheckpointReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolkeeper.client import Client
    from poolkeeper.heartbeats import HeartbeatThread

TIMEOUT_S = 5.0


class CheckpointReporter:
    """The sender of the reports of one allocation, in order. A report is retried until it is answered or a newer one exists."""

    def __init__(
        self, client: Client, request_id: str, fence: int, heartbeats: HeartbeatThread, on_refusal: Callable[[str], object]
    ) -> None:
        self.unreported: CheckpointReport | None = None
        """The last checkpoint, while the service has not received it."""
        self.last: CheckpointReport | None = None
        """The last checkpoint."""
        self._client = client.clone(timeout_s=TIMEOUT_S, tries=1)
        self._request_and_fence, self._heartbeats, self._on_refusal = (request_id, fence), heartbeats, on_refusal
        self._reports: SimpleQueue[CheckpointReport | None] = SimpleQueue()
        self._stop = Event()
        self._thread = Thread(target=self._run, name=f"poolkeeper-words-{request_id}", daemon=True)
        self._thread.start()

    def report(self, report: CheckpointReport) -> None:
        """Queue a report to be sent."""
        if report.state == "completed":
            self.unreported = self.last = report
        self._reports.put(report)

    def stop(self) -> None:
        """Stop the thread, and wait until no report is under way."""
        self._stop.set()
        self._reports.put(None)
        self._thread.join(3 * TIMEOUT_S)
        self._client.close()

    def _run(self) -> None:
        while (report := self._reports.get()) and not self._stop.is_set():
            tries = 0
            while not (self._send(report) or self._stop.is_set()):
                tries += 1
                self._stop.wait(pause_s(tries))
                if not self._reports.empty():
                    break

    def _send(self, report: CheckpointReport) -> bool:
        """Send a report. Return True if it needs no further try."""
        try:
            arguments, routine = (*self._request_and_fence, report.state, None, report.reference), report.state == "completed"
            self._heartbeats.report(lambda: self._client.checkpoint(*arguments, routine=routine))
        except StaleFence:
            return True  # the answer to a heartbeat reports the loss, too
        except ApiError as error:
            if is_retryable(error) or isinstance(error, AccessDenied):  # a valid token may replace the refused one
                return False
            self._on_refusal(str(error))
        except PoolkeeperError:
            return False
        if self.unreported is report:
            self.unreported = None
        return True
