"""`poolkeeper run` when others need the units: what the command is told, what the service is told, and how it comes back."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from poolkeeper.cli.exit_codes import ExitCode

from tests.support.backends import wait_until
from tests.support.cli_program import Program
from tests.support.cli_runs import ALL, BEGIN, SLEEP, WORK, Lab, nobody_lives
from tests.support.poolkeeperd import descendants, living

MANUAL = (*ALL, "--checkpoint", "manual")
SAVES = 'trap \'echo asked >>"$LOG"; echo step-7 >"$POOLKEEPER_CHECKPOINT_FILE"\' USR1\n'
IGNORES_TERM = "trap 'echo term >>\"$LOG\"' TERM\n"
ONCE = 'if [ "$(grep -c ^start "$LOG")" -gt 1 ]; then exit 4; fi\n'
"""The second start is done at once."""


@pytest.fixture
def lab(poolkeeper: Program, beneath: str, tmp_path: Path) -> Lab:
    return Lab(poolkeeper, beneath, tmp_path)


@pytest.mark.parametrize("how", [("manual",), ("auto", "--walltime", "2h", "--retries", "3")])
def test_the_work_is_saved_and_goes_on_from_there_when_the_units_are_back(lab: Lab, how: tuple[str, ...]) -> None:
    lab.furnish()
    with lab.run(*ALL, "--checkpoint", *how, script=SAVES + BEGIN + ONCE + WORK) as run:
        first = lab.started()
        below = descendants(run.pid)
        waiter = lab.preempt(first)
        lab.is_now(waiter, "allocated")
        assert living({first.pid: ""}) == {}, "it has ended before others have its units"
        lab.is_now(first.request, "queued")
        run.says("request " + first.request + " is in the queue again: preempted for request " + waiter)
        nobody_lives({pid: args for pid, args in below.items() if pid != run.pid})
        lab.release(waiter)
        second = lab.started(2)
        run.ends(4)
    assert (second.request, second.resume, second.reference) == (first.request, "1", "step-7")
    assert second.fence > first.fence
    assert (first.resume, first.reference) == ("0", "")
    assert lab.lines()[1] == "asked"
    assert "others need the units: SIGUSR1 to the command, to save its work and end within" in run.err
    assert "its work is saved (step-7); it ends here for now" in run.err
    assert f"request {first.request} has gpu=4 in gpus under fence {second.fence}, to go on from step-7" in run.err
    found = lab.request(first.request)
    assert (found["preemptions"], found["outcome"]) == (1, "failed")
    lab.is_sound()


@pytest.mark.parametrize(
    ("said", "reference"),
    [
        ("poolkeeper checkpoint done --reference 's3://a b'", "s3://a b"),
        ("poolkeeper checkpoint done", ""),
        ('touch "$POOLKEEPER_CHECKPOINT_FILE"', ""),
        ('printf half >"$POOLKEEPER_CHECKPOINT_FILE"', "half"),
        ('echo last >"$POOLKEEPER_CHECKPOINT_FILE"; exit 0', "last"),
        ('echo worse >"$POOLKEEPER_CHECKPOINT_FILE"; exit 1', "worse"),
    ],
)
def test_every_way_to_say_that_it_is_saved(lab: Lab, said: str, reference: str) -> None:
    lab.furnish()
    script = f"saved() {{ {said}; }}\ntrap saved USR1\n{BEGIN}{ONCE}{WORK}"
    with lab.run(*MANUAL, script=script) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        lab.is_now(waiter, "allocated")
        lab.release(waiter)
        second = lab.started(2)
        assert (second.resume, second.reference) == ("1", reference)
        run.ends(4)


def test_a_command_that_knows_nothing_of_it_dies_and_begins_anew(lab: Lab) -> None:
    lab.furnish()
    with lab.run(*MANUAL, script=BEGIN + ONCE + "exec sleep 300") as run:
        first = lab.started()
        waiter = lab.preempt(first)
        lab.is_now(waiter, "allocated")
        lab.release(waiter)
        second = lab.started(2)
        assert (second.resume, second.reference) == ("0", "")
        run.ends(4)
    assert lab.request(first.request)["preemptions"] == 1


def test_without_a_checkpoint_it_is_sigterm_whatever_it_exits_with(lab: Lab) -> None:
    lab.furnish()
    with lab.run(*ALL, script="trap 'exit 0' TERM\n" + BEGIN + ONCE + WORK) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        lab.is_now(waiter, "allocated")
        lab.is_now(first.request, "queued")
        lab.release(waiter)
        run.ends(4)
    assert "the units are needed now: SIGTERM to the command, which has" in run.err


def test_what_ignores_sigterm_is_killed_in_time(lab: Lab) -> None:
    lab.furnish("grace_s=4")
    with lab.run(*ALL, "--retries", "0", script=IGNORES_TERM + BEGIN + "sleep 304 & " + WORK) as run:
        first = lab.started()
        below = descendants(run.pid)
        waiter = lab.preempt(first)
        deadline = datetime.fromisoformat(lab.request(first.request)["deadline"])
        lab.is_now(waiter, "allocated")
        assert datetime.fromisoformat(lab.request(waiter)["granted_at"]) < deadline, "before it is taken from us by force"
        nobody_lives({pid: args for pid, args in below.items() if pid != run.pid})
        run.ends(ExitCode.ENDED)
    assert lab.lines()[1:] == ["term"]
    found = lab.request(first.request)
    assert [told["event"] for told in found["story"]][-1] == "preempted", "not forced: it has left in time"
    assert f"request {first.request} is preempted: preempted for request {waiter}" in run.err
    lab.release(waiter)
    lab.is_sound()


def test_what_is_done_before_it_has_to_end_is_done(lab: Lab) -> None:
    lab.furnish()
    with lab.run(*MANUAL, script="trap 'exit 0' USR1\n" + BEGIN + WORK) as run:
        first = lab.started()
        lab.preempt(first)
        run.ends(0)
    assert lab.request(first.request)["outcome"] == "succeeded"


def test_what_fails_on_its_way_out_has_failed(lab: Lab) -> None:
    lab.furnish()
    with lab.run(*MANUAL, script="trap 'exit 9' USR1\n" + BEGIN + WORK) as run:
        first = lab.started()
        lab.preempt(first)
        run.ends(9)
    assert lab.request(first.request)["outcome"] == "failed"


def test_a_shell_around_the_work_dies_of_the_signal_and_the_work_has_its_time(lab: Lab) -> None:
    lab.furnish()
    inner = SAVES.replace("; echo step", '; while [ ! -e "$LOG.go" ]; do sleep 0.02; done; echo step') + WORK
    script = BEGIN + ONCE + f"bash -c '{inner.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'\ntrue\n"
    with lab.run(*MANUAL, script=script) as run:
        first = lab.started()
        inside = next(pid for pid, args in descendants(run.pid).items() if "step-7" in args and pid != first.pid)
        waiter = lab.preempt(first)
        lab.until("asked")
        nobody_lives({first.pid: "the shell"})
        assert living({inside: ""})
        assert lab.request(first.request)["status"] == "preempting"
        Path(f"{lab.log}.go").touch()
        lab.is_now(waiter, "allocated")
        nobody_lives({inside: ""})
        lab.release(waiter)
        assert lab.started(2).reference == "step-7"
        run.ends(4)


def test_nobody_needs_it_any_more_before_it_has_saved_its_work(lab: Lab) -> None:
    lab.furnish()
    with lab.run(*MANUAL, script="trap 'echo asked >>\"$LOG\"' USR1; trap 'exit 6' TERM\n" + BEGIN + WORK) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        lab.until("asked")
        lab.reprieve(waiter)
        run.says("nobody needs the units any more: it may stay")
        lab.is_now(first.request, "allocated")
        lab.until("asked")
        lab.preempt(first)
        lab.until("asked", times=2)
        run.tell(signal.SIGTERM)
        run.ends(6)
    assert len(lab.lines()) == 3


def test_nobody_needs_it_any_more_when_it_has_ended_already(lab: Lab) -> None:
    lab.furnish()
    script = SAVES + "trap 'while [ ! -e \"$LOG.go\" ]; do sleep 0.02; done; exit 0' TERM\n" + BEGIN + ONCE + WORK
    with lab.run(*MANUAL, script=script) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        run.says("its work is saved (step-7)")
        lab.reprieve(waiter)
        run.says("nobody needs the units any more")
        Path(f"{lab.log}.go").touch()
        second = lab.started(2)
        run.ends(4)
    assert (second.request, second.fence, second.resume, second.reference) == (first.request, first.fence, "1", "step-7")
    assert "it may stay after all, so it is started again" in run.err
    found = lab.request(first.request)
    assert (found["preemptions"], found["checkpoint_reference"], found["outcome"]) == (0, "step-7", "failed")


LEAVES_BEHIND = BEGIN + "(trap '' TERM; exec >/dev/null; echo $BASHPID >>\"$LOG.left\"; exec sleep 308) &\n"
LEAVES_BEHIND += 'while [ ! -e "$LOG.left" ]; do sleep 0.02; done; exit 0\n'
"""Is done, but for a process that it leaves behind, which is given two seconds."""


@pytest.mark.parametrize("grace_s", [0, 30])
def test_what_is_done_is_not_begun_again_because_of_what_it_has_left_behind(lab: Lab, grace_s: int) -> None:
    lab.furnish(f"grace_s={grace_s}")
    with lab.run(*ALL, script=LEAVES_BEHIND) as run:
        first = lab.started()
        nobody_lives({first.pid: ""})
        waiter = lab.preempt(first)
        run.ends(0)
    found = lab.request(first.request)
    assert (found["status"], found["outcome"]) in ((("released", "succeeded")), ("cancelled", None))
    assert (found["status"] == "cancelled") == (grace_s == 0), "its units had been taken"
    lab.is_now(waiter, "allocated")
    assert len(lab.lines()) == 1
    lab.release(waiter)
    lab.is_sound()


@pytest.mark.parametrize("code", [0, 6])
def test_who_may_stay_after_sigterm_is_left_alone_and_ends_as_it_ends(lab: Lab, code: int) -> None:
    lab.furnish("grace_s=3")
    with lab.run(*ALL, script=IGNORES_TERM + f"trap 'exit {code}' USR2\n" + BEGIN + WORK) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        until = datetime.fromisoformat(lab.request(first.request)["deadline"])
        lab.until("term")
        lab.reprieve(waiter)
        run.says("nobody needs the units any more: it may stay")
        wait_until(lambda: datetime.now(UTC) > until + timedelta(seconds=0.3), "it would have been killed")
        assert living({first.pid: ""})
        run.tell(signal.SIGUSR2)
        run.ends(code)
    assert lab.request(first.request)["outcome"] == ("failed" if code else "succeeded")
    assert lab.lines()[1:] == ["term"]
    lab.is_sound()


@pytest.mark.parametrize("code", [0, 6])
def test_who_may_stay_twice_ends_as_it_ends(lab: Lab, code: int) -> None:
    lab.furnish("grace_s=3")
    asked = 'echo asked >>"$LOG"; if [ ! -e "$LOG.no" ]; then touch "$LOG.no" "$POOLKEEPER_CHECKPOINT_FILE.failed"; fi'
    script = f"{IGNORES_TERM}trap '{asked}' USR1\ntrap 'exit {code}' USR2\n{BEGIN}{WORK}"
    with lab.run(*MANUAL, script=script) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        lab.until("term")
        until = datetime.fromisoformat(lab.request(first.request)["deadline"])
        lab.reprieve(waiter)
        run.says("it may stay")
        again = lab.preempt(first)
        lab.until("asked", times=2)
        lab.reprieve(again)
        wait_until(lambda: run.err.count("it may stay") == 2, "it may stay again")
        wait_until(lambda: datetime.now(UTC) > until + timedelta(seconds=0.3), "it would have been killed")
        run.tell(signal.SIGUSR2)
        run.ends(code)
    assert len([line for line in lab.lines() if line.startswith("start")]) == 1
    lab.is_sound()


def test_somebody_ends_what_was_done_while_its_leftovers_are_cleared_away(lab: Lab) -> None:
    lab.furnish()
    with lab.run(*ALL, script=LEAVES_BEHIND) as run:
        first = lab.started()
        nobody_lives({first.pid: ""})
        run.tell(signal.SIGTERM)
        run.ends(0)
    assert lab.request(first.request)["outcome"] == "succeeded"


def test_who_may_stay_after_sigterm_may_be_told_again(lab: Lab) -> None:
    lab.furnish("grace_s=4")
    with lab.run(*ALL, "--retries", "0", script=IGNORES_TERM + BEGIN + WORK) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        lab.until("term")
        lab.reprieve(waiter)
        run.says("it may stay")
        lab.preempt(first)
        lab.until("term", times=2)
        run.ends(ExitCode.ENDED)


def test_units_that_are_taken_by_force_and_a_place_in_the_queue(lab: Lab) -> None:
    lab.furnish("grace_s=0")
    with lab.run(*ALL, script=IGNORES_TERM + BEGIN + ONCE + WORK) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        lab.is_now(waiter, "allocated")
        run.says("its units were taken back: the command is killed")
        nobody_lives({first.pid: ""})
        lab.release(waiter)
        assert lab.started(2).fence > first.fence
        run.ends(4)
    assert "term" not in lab.lines()


def test_who_has_left_may_be_granted_elsewhere_at_once(lab: Lab) -> None:
    lab.furnish()
    lab.program("policy", "attach", "gpus", "other")
    with lab.run(*ALL, script="trap 'sleep 1; exit 0' TERM\n" + BEGIN + ONCE + WORK) as run:
        first = lab.started()
        lab.program("pool", "create", "spare", "--capacity", "gpu=4")
        waiter = lab.preempt_request(first.request, first.fence, "other")
        lab.program("policy", "attach", "spare", "team")
        assert lab.started(2).fence > first.fence
        run.ends(4)
    assert f"request {first.request} has gpu=4 in spare under fence" in run.err
    assert "waiting" not in run.err
    assert "no answer" not in run.err, "its lease begins with this grant"
    lab.release(waiter)
    lab.is_sound()


def test_units_that_are_taken_by_force_for_good(lab: Lab) -> None:
    lab.furnish("grace_s=0")
    with lab.run(*ALL, "--retries", "0", script=SLEEP) as run:
        waiter = lab.preempt(lab.started())
        run.ends(ExitCode.LOST)
    assert "is preempted: preempted for request" in run.err
    lab.release(waiter)
    lab.is_sound()


def test_a_routine_checkpoint_is_kept_in_the_books(lab: Lab) -> None:
    lab.furnish()
    script = f"{BEGIN}{ONCE}poolkeeper checkpoint done --reference step-3\n{WORK}"
    with lab.run(*ALL, script=script) as run:
        first = lab.started()
        run.says("checkpoint (step-3)")
        while lab.request(first.request)["checkpoint_reference"] != "step-3":
            assert run.process.poll() is None
        assert lab.request(first.request)["status"] == "allocated"
        waiter = lab.preempt(first)
        lab.is_now(waiter, "allocated")
        lab.release(waiter)
        second = lab.started(2)
        assert (second.resume, second.reference) == ("1", "step-3")
        run.ends(4)


def test_a_routine_checkpoint_just_as_it_has_to_leave_does_not_say_that_it_has_left(lab: Lab) -> None:
    """A heartbeat in three seconds: it has to leave, and does not know of it yet."""
    lab.furnish()
    script = f'trap "" USR1\n{BEGIN}{ONCE}read <"$LOG.go"; echo step-3 >"$POOLKEEPER_CHECKPOINT_FILE"\n{WORK}'
    os.mkfifo(f"{lab.log}.go")
    with lab.run(*MANUAL, "--lease", "9", script=script) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        Path(f"{lab.log}.go").write_text("go\n")
        run.says("others need the units: SIGUSR1")
        assert lab.request(first.request)["status"] == "preempting"
        lab.depart(first)
        lab.is_now(waiter, "allocated")
        assert living({first.pid: ""}) == {}
        lab.release(waiter)
        second = lab.started(2)
        assert (second.resume, second.reference) == ("1", "step-3")
        run.ends(4)
    said = run.err
    assert said.index("checkpoint (step-3)") < said.index("others need the units: SIGUSR1") < said.index("in the queue again")
    assert "taken back" not in said


def test_a_checkpoint_that_cannot_be_made(lab: Lab) -> None:
    lab.furnish()
    script = "trap 'poolkeeper checkpoint progress; poolkeeper checkpoint failed' USR1\n" + BEGIN + ONCE + WORK
    with lab.run(*MANUAL, script=script) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        run.says("the units are needed now: SIGTERM")
        lab.is_now(waiter, "allocated")
        lab.release(waiter)
        assert lab.started(2).resume == "0"
        run.ends(4)
    assert "terminating" in [told["event"] for told in lab.request(first.request)["story"]]


def test_a_checkpoint_that_takes_too_long_ends_with_sigterm(lab: Lab) -> None:
    lab.furnish()
    with lab.run(*MANUAL, script="trap 'echo asked >>\"$LOG\"' USR1\n" + BEGIN + ONCE + WORK) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        lab.until("asked")
        lab.depart(first)
        lab.is_now(waiter, "allocated")
        lab.release(waiter)
        run.ends(4)


def test_a_reference_the_service_does_not_take(lab: Lab) -> None:
    lab.furnish()
    script = 'trap \'printf "%01500d\\\\n" 0 >"$POOLKEEPER_CHECKPOINT_FILE"\' USR1\n' + BEGIN + ONCE + WORK
    with lab.run(*MANUAL, script=script) as run:
        waiter = lab.preempt(lab.started())
        lab.is_now(waiter, "allocated")
        lab.release(waiter)
        assert lab.started(2).resume == "0"
        run.ends(4)
    assert "checkpoint: the body is malformed: reference" in run.err


def test_ctrl_c_while_it_waits_for_its_second_start(lab: Lab) -> None:
    lab.furnish()
    with lab.run(*MANUAL, script=SAVES + BEGIN + WORK) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        run.says("is in the queue again")
        run.says("waiting in gpus")
        run.tell(signal.SIGINT)
        run.ends(ExitCode.INTERRUPTED)
    assert lab.request(first.request)["status"] == "cancelled"
    lab.release(waiter)
    lab.is_sound()
