"""One start of the command under an allocation, until its last process has ended: its signals and its outcome.

The events that end the command, and the signals that it gets:

- Directive `checkpoint`: SIGUSR1, once. If the command then reports that its work is saved, it gets SIGTERM, and SIGKILL after
  the grace or shortly before the deadline.
- Directive `terminate`: SIGTERM, and SIGKILL shortly before the deadline.
- The units were taken back after the deadline: SIGKILL.
- The lease has ended, or an operator has dropped the request: SIGTERM, and SIGKILL after ten seconds. With the option
  `continues_when_lost`: nothing.
- Heartbeats are refused, and the lease is about to end: SIGTERM, and SIGKILL when it ends. With that option: nothing.
- A signal to `run`: it is forwarded, each further signal as SIGTERM. SIGKILL follows after the grace.
- Its first process has ended: the other processes get SIGTERM, and SIGKILL two seconds later. If a signal of `run` ended the
  first process, such as a shell around the real work, the others keep the time of that signal.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from poolkeeper.formatting import duration
from poolkeeper.heartbeats import ACCEPTED_AGAIN, now_s
from poolkeeper.runner.checkpoint_files import CheckpointFiles, CheckpointReport
from poolkeeper.runner.guarded_process import GuardedProcess
from poolkeeper.runner.signals import ENDING_SIGNALS, FORWARDED_SIGNALS
from poolkeeper.runner.terminal import continue_group

if TYPE_CHECKING:
    from poolkeeper.heartbeats import HeartbeatThread
    from poolkeeper.runner.checkpoint_reporter import CheckpointReporter
    from poolkeeper.runner.progress import Progress
    from poolkeeper.runner.signals import SignalHandler
    from poolkeeper.runner.terminal import Terminal
    from poolkeeper.wakeup_pipe import WakeupPipe

POLL_S = 0.2
LEFTOVER_GRACE_S = 2.0
LOSS_GRACE_S = 10.0
_CTRL_Z_MESSAGE = "Ctrl-Z does not stop a command that holds units: the command goes on"
DEADLINE_MARGIN, MAX_DEADLINE_MARGIN_S = 0.2, 2.0
"""The time before a deadline at which SIGKILL is sent: this part of the time left, but at most these seconds."""
TAKEN_BACK_STATES = ("queued", "allocated", "preempting", "preempted")
"""The possible states of a request after its units were taken back at the deadline."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `run` that do not describe the request."""

    argv: Sequence[str]
    grace_s: float = 30.0
    continues_when_lost: bool = False
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class RunContext:
    """The objects that all starts of the command in a run share."""

    progress: Progress
    signals: SignalHandler
    wakeup: WakeupPipe
    terminal: Terminal
    checkpoint_files: CheckpointFiles


class ProcessRun:
    """One start of the command. The constructor starts it; a call returns when none of its processes is left."""

    def __init__(
        self,
        options: RunOptions,
        context: RunContext,
        environment: Mapping[str, str],
        heartbeats: HeartbeatThread,
        reporter: CheckpointReporter,
    ) -> None:
        self._leave_checkpoint: CheckpointReport | None = None  # the checkpoint with which the command leaves
        self.lost = self.continues_when_lost = self.is_refused = False
        self._reported_refusal: str | None = None
        self._options, self._context, self._heartbeats, self._reporter = options, context, heartbeats, reporter
        self._info = context.progress.info
        self._last_directive, self._was_suspected, self._is_clearing_leftovers = "continue", False, False
        self._directive_signals: set[int] = set()  # signals sent because of a directive
        self._forwarded_signals: set[int] = set()  # ending signals forwarded from `run`
        self._is_interrupted = False  # by a forwarded signal, before the work was done
        self._kill_at_s, self._is_killed = inf, False
        self._is_terminated = False
        self._reprieved_kill_at_s = inf  # the time of a SIGKILL that a reprieve called off
        self._wants_terminal = False
        gives_terminal = context.terminal.should_give_at_start()
        self._process = GuardedProcess(options.argv, environment, foreground=gives_terminal)
        if gives_terminal:
            context.terminal.mark_given()

    def __call__(self) -> None:
        """Wait until no process is left. If anything raises, kill all of them."""
        try:
            while not self._process.is_gone:
                self._step()
                wait_s = POLL_S if self._is_killed else min(POLL_S, self._kill_at_s - now_s())
                self._context.wakeup.wait(wait_s, [self._process.fileno()])
                self._process.read_reports()
            self._handle_checkpoints()
        finally:
            self._process.kill()
            self._process.close()
            self._context.terminal.take_back()

    @property
    def code(self) -> int:
        """Return the exit code of the command as a shell reports it."""
        code = self._process.code
        if code is None:
            return 128 + signal.SIGKILL
        return 128 - code if code < 0 else code

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command, or the negative number of the signal that ended it."""
        code = self._process.code
        return -signal.SIGKILL if code is None else code

    @property
    def outcome(self) -> str:
        """Return the outcome: `succeeded` or `failed`; after a directive `completed` (work saved) or `vacated`."""
        if self._is_interrupted:
            return "failed"
        if self._leave_checkpoint:
            return "completed"
        if self._directive_signals & {signal.SIGTERM, signal.SIGKILL} or self._died_of_signal(self._directive_signals):
            return "completed" if self._reporter.unreported else "vacated"
        return "succeeded" if self.code == 0 else "failed"

    @property
    def checkpoint(self) -> CheckpointReport | None:
        """Return the last checkpoint that the service does not know."""
        return self._leave_checkpoint or self._reporter.unreported

    # ---- events

    def _step(self) -> None:
        self._context.progress.flush()
        self._handle_stop()
        self._handle_signals()
        self._handle_checkpoints()
        self._handle_exit()
        self._handle_directive()
        if now_s() >= self._reprieved_kill_at_s:
            self._reprieved_kill_at_s = inf
            self._directive_signals.discard(signal.SIGTERM)
        if now_s() >= self._kill_at_s and not self._is_killed:
            self._is_killed = True
            self._process.kill()

    def _handle_stop(self) -> None:
        stop_signal, self._process.stopped_by = self._process.stopped_by, None
        if stop_signal == signal.SIGTSTP:
            self._context.progress.warn(_CTRL_Z_MESSAGE)
            self._process.signal(signal.SIGCONT)
        elif stop_signal in (signal.SIGTTIN, signal.SIGTTOU):
            self._wants_terminal = True
            if not self._context.terminal.is_ours():
                self._context.progress.warn(
                    "the command is stopped, as it needs the terminal: enter `fg`, or start it with </dev/null"
                )
        if self._wants_terminal and self._context.terminal.is_ours():  # always, or since `fg`
            self._wants_terminal = False
            self._context.terminal.give_to(self._process.group)
            self._process.signal(signal.SIGCONT)

    def _handle_signals(self) -> None:
        pending = self._context.signals.pending
        while pending:
            signum = pending.popleft()
            if signum in ENDING_SIGNALS:
                self._end_on_signal(signum)
            elif signum in FORWARDED_SIGNALS:
                self._process.signal(signum)
            else:
                self._context.progress.warn(_CTRL_Z_MESSAGE)
                continue_group()

    def _end_on_signal(self, signum: signal.Signals) -> None:
        signum = signal.SIGTERM if self._forwarded_signals else signum
        self._forwarded_signals.add(signum)
        self._is_interrupted = self._is_interrupted or not self._is_clearing_leftovers
        self._process.signal(signum)
        self._kill_within(self._options.grace_s)
        self._context.progress.warn(
            f"{signum.name} to the command; SIGKILL follows in {self._options.grace_s:g} s if it has not ended"
        )

    def _handle_checkpoints(self) -> None:
        is_gone = self._process.is_gone
        for report in self._context.checkpoint_files.read_new(has_ended=is_gone):
            if self.lost:
                continue
            if report.state != "completed":
                self._reporter.report(report)
            elif self._is_leaving:
                self._leave_with(report)
            else:
                self._info(f"checkpoint{_reference_text(report)}")
                self._reporter.report(report)

    def _leave_with(self, report: CheckpointReport) -> None:
        self._leave_checkpoint = report
        if not self._process.is_gone:
            self._info(f"its work is saved{_reference_text(report)}: SIGTERM to the command, until the next grant")
            self._terminate(min(self._options.grace_s, self._time_left_s()))

    def _handle_directive(self) -> None:
        if self.lost:
            return
        if self._heartbeats.loss_reason or self._heartbeats.left:
            self._handle_loss()
            return
        if self._is_clearing_leftovers:  # the work is over, and the remaining processes get SIGKILL soon anyway
            return
        self._report_suspicion()
        self._report_refusal()
        self._handle_refusal()
        directive = self._heartbeats.directive
        if directive == self._last_directive:
            return
        self._last_directive = directive
        if directive == "checkpoint":
            self._info(
                f"others need the units: SIGUSR1 to the command, to save its work and end within {self._time_left_text()}"
            )
            self._directive_signals.add(signal.SIGUSR1)
            self._process.signal(signal.SIGUSR1)
        elif directive == "terminate":
            self._info(f"the units are needed now: SIGTERM to the command, which has {self._time_left_text()}")
            self._terminate(self._time_left_s())
        else:
            self._info("no request needs the units any more: the command may stay")
            self._handle_reprieve()

    def _handle_reprieve(self) -> None:
        """Let the command stay. If it outlives its former deadline, it ignored the signals; its later end has another cause."""
        if not (self._leave_checkpoint or self._forwarded_signals):
            self._reprieved_kill_at_s, self._kill_at_s, self._is_terminated = (
                min(self._reprieved_kill_at_s, self._kill_at_s),
                inf,
                False,
            )

    def _handle_loss(self) -> None:
        if self._is_clearing_leftovers:
            self._kill_within(0)
            return
        self.lost = True
        if self._heartbeats.left or self._heartbeats.status in TAKEN_BACK_STATES:
            self._context.progress.warn("the units were taken back, so the command is killed")
            self._kill_within(0)
            return
        reason = self._heartbeats.loss_reason
        if self._options.continues_when_lost:
            self.continues_when_lost = True
            self._context.progress.warn(f"the units are lost, and the command goes on without them: {reason}")
            return
        self._context.progress.warn(f"the units are lost, so the command is stopped: {reason}")
        self._terminate(min(LOSS_GRACE_S, self._options.grace_s))

    def _report_refusal(self) -> None:
        refusal = self._heartbeats.refusal
        if refusal and refusal != self._reported_refusal:
            self._reported_refusal = refusal
            self._context.progress.warn(self._heartbeats.refusal_message())
        elif self._reported_refusal and not refusal and not self._heartbeats.is_silent:
            self._reported_refusal = None
            self._context.progress.warn(ACCEPTED_AGAIN)

    def _handle_refusal(self) -> None:
        """Stop the command before the end of a lease whose heartbeats are refused; let it stay if one is accepted again."""
        if self._heartbeats.must_leave == self.is_refused or self._options.continues_when_lost:
            return
        self.is_refused = self._heartbeats.must_leave
        if not self.is_refused:
            self._handle_reprieve()
            return
        end_s = self._heartbeats.lease_end_s or now_s()
        self._context.progress.warn("the lease is about to end, so the command is stopped")
        self._terminate(max(0.0, end_s - now_s()))

    def _report_suspicion(self) -> None:
        if self._heartbeats.refusal:
            return
        if (suspected := self._heartbeats.suspected) != self._was_suspected:
            self._was_suspected = suspected
            self._context.progress.warn(
                "no heartbeat was answered for the length of the lease, so others may have the units; the command goes on "
                "until the service answers"
                if suspected
                else "the service answers again, and the lease was kept"
            )

    def _handle_exit(self) -> None:
        if self._process.code is None or self._is_clearing_leftovers:
            return
        leaves_time_to_others = self._died_of_signal(self._forwarded_signals) or (
            self._is_leaving and self._died_of_signal(self._directive_signals)
        )
        if not leaves_time_to_others:
            self._is_clearing_leftovers = True
            self._process.signal(signal.SIGTERM)
            self._kill_within(LEFTOVER_GRACE_S)

    # ---- signals

    @property
    def _is_leaving(self) -> bool:
        return self._last_directive in ("checkpoint", "terminate")

    def _terminate(self, within_s: float) -> None:
        self._reprieved_kill_at_s = inf
        if not self._is_terminated:
            self._is_terminated = True
            self._directive_signals.add(signal.SIGTERM)
            self._process.signal(signal.SIGTERM)
        self._kill_within(within_s)

    def _kill_within(self, seconds: float) -> None:
        self._kill_at_s = min(self._kill_at_s, now_s() + seconds)

    def _time_left_s(self) -> float:
        """Return the seconds until SIGKILL is sent, shortly before the deadline."""
        deadline_s = self._heartbeats.deadline_s
        if deadline_s is None:
            return self._options.grace_s
        left_s = max(0.0, deadline_s - now_s())
        return left_s - min(MAX_DEADLINE_MARGIN_S, DEADLINE_MARGIN * left_s)

    def _time_left_text(self) -> str:
        deadline_s = self._heartbeats.deadline_s
        return duration(max(0, round(deadline_s - now_s()))) if deadline_s is not None else "a while"

    def _died_of_signal(self, signals: set[int]) -> bool:
        """True if one of these signals ended the first process, or the child of a shell that is the first process."""
        return any(self.code == 128 + signum for signum in signals) if self._process.code is not None else False


def _reference_text(report: CheckpointReport) -> str:
    return f" ({report.reference})" if report.reference else ""
