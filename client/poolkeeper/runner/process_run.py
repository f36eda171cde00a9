"""One run of the command under an allocation, from its start until nothing of it lives: what it is told, and what came of it.

Who wants it to end, and what is done then:

- The service says `checkpoint`: SIGUSR1, once. If the command then says that its work is saved, it is ended: SIGTERM, and
  SIGKILL after the grace or shortly before the deadline.
- The service says `terminate`: SIGTERM, and SIGKILL shortly before the deadline.
- The units are lost. If they were taken because it was too late to leave: SIGKILL. If the lease has lapsed or somebody dropped
  the request: SIGTERM, and SIGKILL after ten seconds; or nothing at all, if that was asked for.
- A signal to `run`: it is passed on, any further one is SIGTERM, and after the grace comes SIGKILL.
- Its first process has ended: what it has left behind gets SIGTERM, and SIGKILL two seconds later. Except if that process died
  of a signal of ours, as a shell around the real work does: then the others have the time they would have had with it.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from poolkeeper.formatting import duration
from poolkeeper.heartbeats import now_s
from poolkeeper.runner.checkpoint_files import Checkpoints, Word
from poolkeeper.runner.guarded_process import Command
from poolkeeper.runner.signals import ENDING, PASSED
from poolkeeper.runner.terminal import wake_group

if TYPE_CHECKING:
    from poolkeeper.heartbeats import Heartbeats
    from poolkeeper.runner.checkpoint_reporter import Words
    from poolkeeper.runner.progress import Showing
    from poolkeeper.runner.signals import Interruptions
    from poolkeeper.runner.terminal import Terminal
    from poolkeeper.runner.wakeup_pipe import Bell

LOOK_S = 0.2
LEFTOVERS_S = 2.0
LOST_S = 10.0
MARGIN, MOST_MARGIN_S = 0.2, 2.0
"""How long before a deadline SIGKILL is sent: this part of the time there is, but no more than that."""
TAKEN = ("queued", "allocated", "preempting", "preempted")
"""What a request may be, if its units were taken because it did not leave in time."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What was asked of `run` beside the units."""

    words: Sequence[str]
    grace_s: float = 30.0
    keep_lost: bool = False
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run stands in."""

    showing: Showing
    interruptions: Interruptions
    bell: Bell
    terminal: Terminal
    checkpoints: Checkpoints


class Turn:
    """Made when the command starts; called, it returns when nothing of it lives any more."""

    def __init__(
        self, terms: Terms, around: Surroundings, environment: Mapping[str, str], heartbeats: Heartbeats, words: Words
    ) -> None:
        self._saved: Word | None = None  # the checkpoint with which it leaves
        self.lost = self.kept = False
        self._terms, self._around, self._heartbeats, self._words = terms, around, heartbeats, words
        self._say = around.showing.say
        self._heard, self._suspected, self._swept = "continue", False, False
        self._sent: set[int] = set()  # what we sent because of a directive
        self._passed: set[int] = set()  # what we passed on because somebody wants an end of it
        self._is_broken_off = False  # by that, before it was done
        self._kill_s, self._killed = inf, False
        self._told_to_end = False
        self._forgiven_s = inf  # when it would have been killed, had it not been allowed to stay
        self._wants_terminal = False
        lends = around.terminal.is_for_the_command()
        self._command = Command(terms.words, environment, foreground=lends)
        if lends:
            around.terminal.lent()

    def __call__(self) -> None:
        """Returns when nothing lives any more; killed is all of it if that goes wrong."""
        try:
            while not self._command.gone:
                self._look()
                wait_s = LOOK_S if self._killed else min(LOOK_S, self._kill_s - now_s())
                self._around.bell.wait(wait_s, [self._command.fileno()])
                self._command.hear()
            self._heed_checkpoints()
        finally:
            self._command.kill()
            self._command.close()
            self._around.terminal.take_back()

    @property
    def code(self) -> int:
        """The command's exit code, as shells say it."""
        code = self._command.code
        if code is None:
            return 128 + signal.SIGKILL
        return 128 - code if code < 0 else code

    @property
    def outcome(self) -> str:
        """What to tell the service: `succeeded`, `failed`, or, as it left because it had to, `completed` or `vacated`."""
        if self._is_broken_off:
            return "failed"
        if self._saved:
            return "completed"
        if self._sent & {signal.SIGTERM, signal.SIGKILL} or self._died_of(self._sent):
            return "completed" if self._words.kept else "vacated"
        return "succeeded" if self.code == 0 else "failed"

    @property
    def checkpoint(self) -> Word | None:
        """With what to go on, that the service does not know."""
        return self._saved or self._words.kept

    # ---- what there is to heed

    def _look(self) -> None:
        self._around.showing.flush()
        self._heed_stop()
        self._heed_signals()
        self._heed_checkpoints()
        self._heed_end()
        self._heed_service()
        if now_s() >= self._forgiven_s:
            self._forgiven_s = inf
            self._sent.discard(signal.SIGTERM)
        if now_s() >= self._kill_s and not self._killed:
            self._killed = True
            self._command.kill()

    def _heed_stop(self) -> None:
        by, self._command.stopped_by = self._command.stopped_by, None
        if by == signal.SIGTSTP:
            self._around.showing.warn("Ctrl-Z does not stop what holds units: the command goes on")
            self._command.signal(signal.SIGCONT)
        elif by in (signal.SIGTTIN, signal.SIGTTOU):
            self._wants_terminal = True
            if not self._around.terminal.is_ours():
                self._around.showing.warn("the command wants the terminal, and stands still: `fg`, or start it with </dev/null")
        if self._wants_terminal and self._around.terminal.is_ours():  # it always was, or we were brought to the foreground
            self._wants_terminal = False
            self._around.terminal.lend(self._command.group)
            self._command.signal(signal.SIGCONT)

    def _heed_signals(self) -> None:
        came = self._around.interruptions.came
        while came:
            sign = came.popleft()
            if sign in ENDING:
                self._end_for_somebody(sign)
            elif sign in PASSED:
                self._command.signal(sign)
            else:
                self._around.showing.warn("Ctrl-Z does not stop what holds units: the command goes on")
                wake_group()

    def _end_for_somebody(self, sign: signal.Signals) -> None:
        sign = signal.SIGTERM if self._passed else sign
        self._passed.add(sign)
        self._is_broken_off = self._is_broken_off or not self._swept
        self._command.signal(sign)
        self._kill_within(self._terms.grace_s)
        self._around.showing.warn(f"{sign.name} to the command, and SIGKILL in {self._terms.grace_s:g} s if it needs that")

    def _heed_checkpoints(self) -> None:
        gone = self._command.gone
        for word in self._around.checkpoints.take(ended=gone):
            if self.lost:
                continue
            if word.state != "completed":
                self._words.say(word)
            elif self._leaves:
                self._leave_with(word)
            else:
                self._say(f"checkpoint{_of(word)}")
                self._words.say(word)

    def _leave_with(self, word: Word) -> None:
        self._saved = word
        if not self._command.gone:
            self._say(f"its work is saved{_of(word)}; it ends here for now")
            self._terminate(min(self._terms.grace_s, self._left_s()))

    def _heed_service(self) -> None:
        if self.lost:
            return
        if self._heartbeats.lost_because or self._heartbeats.left:
            self._lose()
            return
        if self._swept:  # its work is over, and what it has left behind has little time anyway
            return
        self._tell_of_doubt()
        directive = self._heartbeats.directive
        if directive == self._heard:
            return
        self._heard = directive
        if directive == "checkpoint":
            self._say(f"others need the units: SIGUSR1 to the command, to save its work and end within {self._time()}")
            self._sent.add(signal.SIGUSR1)
            self._command.signal(signal.SIGUSR1)
        elif directive == "terminate":
            self._say(f"the units are needed now: SIGTERM to the command, which has {self._time()}")
            self._terminate(self._left_s())
        else:
            self._say("nobody needs the units any more: it may stay")
            self._forgive()

    def _forgive(self) -> None:
        """It may stay. If it outlives the time it had, it does not heed what it was told, and ends for reasons of its own."""
        if not (self._saved or self._passed):
            self._forgiven_s, self._kill_s, self._told_to_end = min(self._forgiven_s, self._kill_s), inf, False

    def _lose(self) -> None:
        if self._swept:
            self._kill_within(0)
            return
        self.lost = True
        if self._heartbeats.left or self._heartbeats.status in TAKEN:
            self._around.showing.warn("its units were taken back: the command is killed")
            self._kill_within(0)
            return
        why = self._heartbeats.lost_because
        if self._terms.keep_lost:
            self.kept = True
            self._around.showing.warn(f"the units are lost, and the command goes on without them: {why}")
            return
        self._around.showing.warn(f"the units are lost, so the command is stopped: {why}")
        self._terminate(min(LOST_S, self._terms.grace_s))

    def _tell_of_doubt(self) -> None:
        if (suspected := self._heartbeats.suspected) != self._suspected:
            self._suspected = suspected
            self._around.showing.warn(
                "no answer for as long as the lease lasts, so others may have the units by now; the command goes on, as only "
                "the service knows"
                if suspected
                else "the service answers again, and the lease was kept"
            )

    def _heed_end(self) -> None:
        if self._command.code is None or self._swept:
            return
        waited_for = self._died_of(self._passed) or (self._leaves and self._died_of(self._sent))
        if not waited_for:
            self._swept = True
            self._command.signal(signal.SIGTERM)
            self._kill_within(LEFTOVERS_S)

    # ---- how

    @property
    def _leaves(self) -> bool:
        return self._heard in ("checkpoint", "terminate")

    def _terminate(self, within_s: float) -> None:
        self._forgiven_s = inf
        if not self._told_to_end:
            self._told_to_end = True
            self._sent.add(signal.SIGTERM)
            self._command.signal(signal.SIGTERM)
        self._kill_within(within_s)

    def _kill_within(self, seconds: float) -> None:
        self._kill_s = min(self._kill_s, now_s() + seconds)

    def _left_s(self) -> float:
        """Until shortly before the deadline."""
        until_s = self._heartbeats.until_s
        if until_s is None:
            return self._terms.grace_s
        left_s = max(0.0, until_s - now_s())
        return left_s - min(MOST_MARGIN_S, MARGIN * left_s)

    def _time(self) -> str:
        until_s = self._heartbeats.until_s
        return duration(max(0, round(until_s - now_s()))) if until_s is not None else "a while"

    def _died_of(self, signals: set[int]) -> bool:
        """Whether the first process has ended by one of these; also one that a shell reports of what it had started."""
        return any(self.code == 128 + sign for sign in signals) if self._command.code is not None else False


def _of(word: Word) -> str:
    return f" ({word.reference})" if word.reference else ""
