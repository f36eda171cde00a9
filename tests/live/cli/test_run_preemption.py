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
from tests.support.cli_runs import ALL, BEGIN, SLEEP, WORK, RunLab, Start, wait_until_dead
from tests.support.poolkeeperd import descendants, living

MANUAL = (*ALL, "--checkpoint", "manual")
SAVES = 'trap \'echo asked >>"$LOG"; echo step-7 >"$POOLKEEPER_CHECKPOINT_FILE"\' USR1\n'
IGNORES_TERM = "trap 'echo term >>\"$LOG\"' TERM\n"
ONCE = 'if [ "$(grep -c ^start "$LOG")" -gt 1 ]; then exit 4; fi\n'
"""The second start is done at once."""


@pytest.fixture
def lab(poolkeeper: Program, beneath: str, tmp_path: Path) -> RunLab:
    return RunLab(poolkeeper, beneath, tmp_path)


@pytest.mark.parametrize("how", [("manual",), ("auto", "--walltime", "2h", "--retries", "3")])
def test_the_work_is_saved_and_goes_on_from_there_when_the_units_are_back(lab: RunLab, how: tuple[str, ...]) -> None:
    lab.create_pool()
    with lab.run(*ALL, "--checkpoint", *how, script=SAVES + BEGIN + ONCE + WORK) as run:
        first = lab.wait_for_start()
        below = descendants(run.pid)
        waiter = lab.preempt(first)
        lab.wait_for_status(waiter, "allocated")
        assert living({first.pid: ""}) == {}, "it has ended before others have its units"
        lab.wait_for_status(first.request, "queued")
        run.wait_for_message("request " + first.request + " is in the queue again: preempted for request " + waiter)
        wait_until_dead({pid: args for pid, args in below.items() if pid != run.pid})
        lab.release(waiter)
        second = lab.wait_for_start(2)
        run.wait_for_end(4)
    assert (second.request, second.resume, second.reference) == (first.request, "1", "step-7")
    assert second.fence > first.fence
    assert (first.resume, first.reference) == ("0", "")
    assert lab.lines()[1] == "asked"
    assert "others need the units: SIGUSR1 to the command, to save its work and end within" in run.err
    assert "its work is saved (step-7): SIGTERM to the command, until the next grant" in run.err
    assert f"request {first.request} has gpu=4 in gpus under fence {second.fence}, to go on from step-7" in run.err
    document = lab.request(first.request)
    assert (document["preemptions"], document["outcome"]) == (1, "failed")
    lab.check_invariants()


WAYS = {
    "poolkeeper checkpoint done": "",
    'touch "$POOLKEEPER_CHECKPOINT_FILE"': "",
    "poolkeeper checkpoint done --reference 's3://a b'": "s3://a b",
    'printf half >"$POOLKEEPER_CHECKPOINT_FILE"': "half",
    'echo last >"$POOLKEEPER_CHECKPOINT_FILE"; exit 0': "last",
    'echo worse >"$POOLKEEPER_CHECKPOINT_FILE"; exit 1': "worse",
}
"""Command that says that the work is saved → the reference at the next start. Each start runs the next of these commands."""


def test_every_way_to_say_that_it_is_saved(lab: RunLab) -> None:
    lab.create_pool()
    cases = " ".join(f"{number}) {command} ;;" for number, command in enumerate(WAYS, 1))
    count = f'number=$(grep -c ^start "$LOG"); if [ $number -gt {len(WAYS)} ]; then exit 4; fi\n'
    script = f"saved() {{ case $number in {cases} esac; }}\n{BEGIN}{count}trap saved USR1\n" + 'echo ready >>"$LOG"\n' + WORK
    with lab.run(*MANUAL, "--retries", str(len(WAYS)), script=script) as run:
        for number, (command, reference) in enumerate(WAYS.items(), 1):
            start = lab.wait_for_start(number)
            lab.wait_for_line("ready", number)
            waiter = lab.preempt(start)
            lab.wait_for_status(waiter, "allocated")
            lab.release(waiter)
            following = lab.wait_for_start(number + 1)
            assert (following.resume, following.reference) == ("1", reference), command
        run.wait_for_end(4)


def test_a_command_that_knows_nothing_of_it_dies_and_begins_anew(lab: RunLab) -> None:
    lab.create_pool()
    with lab.run(*MANUAL, script=BEGIN + ONCE + "exec sleep 300") as run:
        first = lab.wait_for_start()
        waiter = lab.preempt(first)
        lab.wait_for_status(waiter, "allocated")
        lab.release(waiter)
        second = lab.wait_for_start(2)
        assert (second.resume, second.reference) == ("0", "")
        run.wait_for_end(4)
    assert lab.request(first.request)["preemptions"] == 1


def test_without_a_checkpoint_it_is_sigterm_whatever_it_exits_with(lab: RunLab) -> None:
    lab.create_pool()
    with lab.run(*ALL, script="trap 'exit 0' TERM\n" + BEGIN + ONCE + WORK) as run:
        first = lab.wait_for_start()
        waiter = lab.preempt(first)
        lab.wait_for_status(waiter, "allocated")
        lab.wait_for_status(first.request, "queued")
        lab.release(waiter)
        run.wait_for_end(4)
    assert "the units are needed now: SIGTERM to the command, which has" in run.err


def test_what_ignores_sigterm_is_killed_in_time(lab: RunLab) -> None:
    lab.create_pool("grace_s=4")
    with lab.run(*ALL, "--retries", "0", script=IGNORES_TERM + BEGIN + "sleep 304 & " + WORK) as run:
        first = lab.wait_for_start()
        below = descendants(run.pid)
        waiter = lab.preempt(first)
        deadline = datetime.fromisoformat(lab.request(first.request)["deadline"])
        lab.wait_for_status(waiter, "allocated")
        assert datetime.fromisoformat(lab.request(waiter)["granted_at"]) < deadline, "before it is taken from us by force"
        wait_until_dead({pid: args for pid, args in below.items() if pid != run.pid})
        run.wait_for_end(ExitCode.ENDED)
    assert lab.lines()[1:] == ["term"]
    document = lab.request(first.request)
    assert [lines["event"] for lines in document["timeline"]][-1] == "preempted", "not forced: it has left in time"
    assert f"request {first.request} is preempted: preempted for request {waiter}" in run.err
    lab.release(waiter)
    lab.check_invariants()


def test_what_is_done_before_it_has_to_end_is_done(lab: RunLab) -> None:
    lab.create_pool()
    with lab.run(*MANUAL, script="trap 'exit 0' USR1\n" + BEGIN + WORK) as run:
        first = lab.wait_for_start()
        lab.preempt(first)
        run.wait_for_end(0)
    assert lab.request(first.request)["outcome"] == "succeeded"


def test_what_fails_on_its_way_out_has_failed(lab: RunLab) -> None:
    lab.create_pool()
    with lab.run(*MANUAL, script="trap 'exit 9' USR1\n" + BEGIN + WORK) as run:
        first = lab.wait_for_start()
        lab.preempt(first)
        run.wait_for_end(9)
    assert lab.request(first.request)["outcome"] == "failed"


def test_a_shell_around_the_work_dies_of_the_signal_and_the_work_has_its_time(lab: RunLab) -> None:
    lab.create_pool()
    inner = (
        SAVES.replace("; echo step", '; while [ ! -e "$LOG.go" ]; do sleep 0.02; done; echo step')
        + 'echo $$ >"$LOG.inside"\n'
        + WORK
    )
    inside_file = Path(f"{lab.log}.inside")
    script = BEGIN + ONCE + f"bash -c '{inner.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'\ntrue\n"
    with lab.run(*MANUAL, script=script) as run:
        first = lab.wait_for_start()
        wait_until(lambda: inside_file.exists() and inside_file.read_text().endswith("\n"), "the work has begun")
        inside = int(inside_file.read_text())
        waiter = lab.preempt(first)
        lab.wait_for_line("asked")
        wait_until_dead({first.pid: "the shell"})
        assert living({inside: ""})
        assert lab.request(first.request)["status"] == "preempting"
        Path(f"{lab.log}.go").touch()
        lab.wait_for_status(waiter, "allocated")
        wait_until_dead({inside: ""})
        lab.release(waiter)
        assert lab.wait_for_start(2).reference == "step-7"
        run.wait_for_end(4)


def test_a_reprieve_before_it_has_saved_its_work(lab: RunLab) -> None:
    lab.create_pool()
    with lab.run(*MANUAL, script="trap 'echo asked >>\"$LOG\"' USR1; trap 'exit 6' TERM\n" + BEGIN + WORK) as run:
        first = lab.wait_for_start()
        waiter = lab.preempt(first)
        lab.wait_for_line("asked")
        lab.reprieve(waiter)
        run.wait_for_message("no request needs the units any more: the command may stay")
        lab.wait_for_status(first.request, "allocated")
        lab.wait_for_line("asked")
        lab.preempt(first)
        lab.wait_for_line("asked", times=2)
        run.send_signal(signal.SIGTERM)
        run.wait_for_end(6)
    assert len(lab.lines()) == 3


def test_a_reprieve_after_the_command_has_ended(lab: RunLab) -> None:
    lab.create_pool()
    script = SAVES + "trap 'while [ ! -e \"$LOG.go\" ]; do sleep 0.02; done; exit 0' TERM\n" + BEGIN + ONCE + WORK
    with lab.run(*MANUAL, script=script) as run:
        first = lab.wait_for_start()
        waiter = lab.preempt(first)
        run.wait_for_message("its work is saved (step-7)")
        lab.reprieve(waiter)
        run.wait_for_message("no request needs the units any more")
        Path(f"{lab.log}.go").touch()
        second = lab.wait_for_start(2)
        run.wait_for_end(4)
    assert (second.request, second.fence, second.resume, second.reference) == (first.request, first.fence, "1", "step-7")
    assert "the allocation may stay after all, so the command is started again" in run.err
    document = lab.request(first.request)
    assert (document["preemptions"], document["checkpoint_reference"], document["outcome"]) == (0, "step-7", "failed")


LEAVES_BEHIND = BEGIN + '(trap \': >"$LOG.cleared"\' TERM; exec >/dev/null; echo $BASHPID >>"$LOG.left"\n' + WORK + ") &\n"
LEAVES_BEHIND += 'while [ ! -e "$LOG.left" ]; do sleep 0.02; done; exit 0\n'
"""Is done, but for a process that it leaves behind, which is given two seconds."""


def wait_until_clearing(lab: RunLab, start: Start) -> None:
    """Return when the command is done, and the run has begun to clear away what it has left behind."""
    wait_until_dead({start.pid: ""})
    wait_until(Path(f"{lab.log}.cleared").exists, "what was left behind has heard SIGTERM")


@pytest.mark.parametrize("grace_s", [0, 30])
def test_what_is_done_is_not_begun_again_because_of_what_it_has_left_behind(lab: RunLab, grace_s: int) -> None:
    lab.create_pool(f"grace_s={grace_s}")
    with lab.run(*ALL, script=LEAVES_BEHIND) as run:
        first = lab.wait_for_start()
        wait_until_clearing(lab, first)
        waiter = lab.preempt(first)
        run.wait_for_end(0)
    document = lab.request(first.request)
    assert (document["status"], document["outcome"]) in ((("released", "succeeded")), ("cancelled", None))
    assert (document["status"] == "cancelled") == (grace_s == 0), "its units had been taken"
    lab.wait_for_status(waiter, "allocated")
    assert len(lab.lines()) == 1
    lab.release(waiter)
    lab.check_invariants()


@pytest.mark.parametrize("code", [0, 6])
def test_a_reprieve_after_sigterm_keeps_the_exit_code_of_the_command(lab: RunLab, code: int) -> None:
    lab.create_pool("grace_s=3")
    with lab.run(*ALL, script=IGNORES_TERM + f"trap 'exit {code}' USR2\n" + BEGIN + WORK) as run:
        first = lab.wait_for_start()
        waiter = lab.preempt(first)
        until = datetime.fromisoformat(lab.request(first.request)["deadline"])
        lab.wait_for_line("term")
        lab.reprieve(waiter)
        run.wait_for_message("no request needs the units any more: the command may stay")
        wait_until(lambda: datetime.now(UTC) > until + timedelta(seconds=0.3), "it would have been killed")
        assert living({first.pid: ""})
        run.send_signal(signal.SIGUSR2)
        run.wait_for_end(code)
    assert lab.request(first.request)["outcome"] == ("failed" if code else "succeeded")
    assert lab.lines()[1:] == ["term"]
    lab.check_invariants()


def test_a_second_reprieve_keeps_the_exit_code_of_the_command(lab: RunLab) -> None:
    lab.create_pool("grace_s=3")
    query = 'echo asked >>"$LOG"; if [ ! -e "$LOG.no" ]; then touch "$LOG.no" "$POOLKEEPER_CHECKPOINT_FILE.failed"; fi'
    script = f"{IGNORES_TERM}trap '{query}' USR1\ntrap 'exit 6' USR2\n{BEGIN}{WORK}"
    with lab.run(*MANUAL, script=script) as run:
        first = lab.wait_for_start()
        waiter = lab.preempt(first)
        lab.wait_for_line("term")
        until = datetime.fromisoformat(lab.request(first.request)["deadline"])
        lab.reprieve(waiter)
        run.wait_for_message("the command may stay")
        again = lab.preempt(first)
        lab.wait_for_line("asked", times=2)
        lab.reprieve(again)
        wait_until(lambda: run.err.count("the command may stay") == 2, "it may stay again")
        wait_until(lambda: datetime.now(UTC) > until + timedelta(seconds=0.3), "it would have been killed")
        run.send_signal(signal.SIGUSR2)
        run.wait_for_end(6)
    assert len([line for line in lab.lines() if line.startswith("start")]) == 1
    lab.check_invariants()


def test_a_request_dropped_during_the_cleanup_of_its_processes(lab: RunLab) -> None:
    lab.create_pool()
    with lab.run(*ALL, script=LEAVES_BEHIND) as run:
        first = lab.wait_for_start()
        wait_until_clearing(lab, first)
        run.send_signal(signal.SIGTERM)
        run.wait_for_end(0)
    assert lab.request(first.request)["outcome"] == "succeeded"


def test_a_second_notice_after_a_reprieve(lab: RunLab) -> None:
    lab.create_pool("grace_s=4")
    with lab.run(*ALL, "--retries", "0", script=IGNORES_TERM + BEGIN + WORK) as run:
        first = lab.wait_for_start()
        waiter = lab.preempt(first)
        lab.wait_for_line("term")
        lab.reprieve(waiter)
        run.wait_for_message("the command may stay")
        lab.preempt(first)
        lab.wait_for_line("term", times=2)
        run.wait_for_end(ExitCode.ENDED)


def test_units_that_are_taken_by_force_and_a_place_in_the_queue(lab: RunLab) -> None:
    lab.create_pool("grace_s=0")
    with lab.run(*ALL, script=IGNORES_TERM + BEGIN + ONCE + WORK) as run:
        first = lab.wait_for_start()
        waiter = lab.preempt(first)
        lab.wait_for_status(waiter, "allocated")
        run.wait_for_message("the units were taken back, so the command is killed")
        wait_until_dead({first.pid: ""})
        lab.release(waiter)
        assert lab.wait_for_start(2).fence > first.fence
        run.wait_for_end(4)
    assert "term" not in lab.lines()


def test_a_vacated_run_may_be_granted_elsewhere_at_once(lab: RunLab) -> None:
    lab.create_pool()
    lab.program("policy", "attach", "gpus", "other")
    with lab.run(*ALL, script="trap 'sleep 1; exit 0' TERM\n" + BEGIN + ONCE + WORK) as run:
        first = lab.wait_for_start()
        lab.program("pool", "create", "spare", "--capacity", "gpu=4")
        waiter = lab.preempt_request(first.request, first.fence, "other")
        lab.program("policy", "attach", "spare", "team")
        assert lab.wait_for_start(2).fence > first.fence
        run.wait_for_end(4)
    assert f"request {first.request} has gpu=4 in spare under fence" in run.err
    assert "waiting" not in run.err
    assert "no answer" not in run.err, "its lease begins with this grant"
    lab.release(waiter)
    lab.check_invariants()


def test_units_that_are_taken_by_force_for_good(lab: RunLab) -> None:
    lab.create_pool("grace_s=0")
    with lab.run(*ALL, "--retries", "0", script=SLEEP) as run:
        waiter = lab.preempt(lab.wait_for_start())
        run.wait_for_end(ExitCode.LOST)
    assert "is preempted: preempted for request" in run.err
    lab.release(waiter)
    lab.check_invariants()


def test_a_routine_checkpoint_is_kept_in_the_books(lab: RunLab) -> None:
    lab.create_pool()
    script = f"{BEGIN}{ONCE}poolkeeper checkpoint done --reference step-3\n{WORK}"
    with lab.run(*ALL, script=script) as run:
        first = lab.wait_for_start()
        run.wait_for_message("checkpoint (step-3)")
        while lab.request(first.request)["checkpoint_reference"] != "step-3":
            assert run.process.poll() is None
        assert lab.request(first.request)["status"] == "allocated"
        waiter = lab.preempt(first)
        lab.wait_for_status(waiter, "allocated")
        lab.release(waiter)
        second = lab.wait_for_start(2)
        assert (second.resume, second.reference) == ("1", "step-3")
        run.wait_for_end(4)


def test_a_routine_checkpoint_just_as_it_has_to_leave_does_not_say_that_it_has_left(lab: RunLab) -> None:
    # The next heartbeat is five seconds away: the run has been preempted, and does not know of it yet.
    lab.create_pool()
    script = f'trap "" USR1\n{BEGIN}{ONCE}read <"$LOG.go"; echo step-3 >"$POOLKEEPER_CHECKPOINT_FILE"\n{WORK}'
    os.mkfifo(f"{lab.log}.go")
    with lab.run(*MANUAL, "--lease", "15", script=script) as run:
        first = lab.wait_for_start()
        waiter = lab.preempt(first)
        Path(f"{lab.log}.go").write_text("go\n")
        run.wait_for_message("others need the units: SIGUSR1")
        assert lab.request(first.request)["status"] == "preempting"
        lab.enforce_deadlines(first)
        lab.wait_for_status(waiter, "allocated")
        assert living({first.pid: ""}) == {}
        lab.release(waiter)
        second = lab.wait_for_start(2)
        assert (second.resume, second.reference) == ("1", "step-3")
        run.wait_for_end(4)
    message = run.err
    assert (
        message.index("checkpoint (step-3)")
        < message.index("others need the units: SIGUSR1")
        < message.index("in the queue again")
    )
    assert "taken back" not in message


def test_a_checkpoint_that_cannot_be_made(lab: RunLab) -> None:
    lab.create_pool()
    script = "trap 'poolkeeper checkpoint progress; poolkeeper checkpoint failed' USR1\n" + BEGIN + ONCE + WORK
    with lab.run(*MANUAL, script=script) as run:
        first = lab.wait_for_start()
        waiter = lab.preempt(first)
        run.wait_for_message("the units are needed now: SIGTERM")
        lab.wait_for_status(waiter, "allocated")
        lab.release(waiter)
        assert lab.wait_for_start(2).resume == "0"
        run.wait_for_end(4)
    assert "terminating" in [lines["event"] for lines in lab.request(first.request)["timeline"]]


def test_a_checkpoint_that_takes_too_long_ends_with_sigterm(lab: RunLab) -> None:
    lab.create_pool()
    with lab.run(*MANUAL, script="trap 'echo asked >>\"$LOG\"' USR1\n" + BEGIN + ONCE + WORK) as run:
        first = lab.wait_for_start()
        waiter = lab.preempt(first)
        lab.wait_for_line("asked")
        lab.enforce_deadlines(first)
        lab.wait_for_status(waiter, "allocated")
        lab.release(waiter)
        run.wait_for_end(4)


def test_a_reference_the_service_does_not_take(lab: RunLab) -> None:
    lab.create_pool()
    script = 'trap \'printf "%01500d\\\\n" 0 >"$POOLKEEPER_CHECKPOINT_FILE"\' USR1\n' + BEGIN + ONCE + WORK
    with lab.run(*MANUAL, script=script) as run:
        waiter = lab.preempt(lab.wait_for_start())
        lab.wait_for_status(waiter, "allocated")
        lab.release(waiter)
        assert lab.wait_for_start(2).resume == "0"
        run.wait_for_end(4)
    assert "checkpoint: the body is malformed: reference" in run.err


def test_ctrl_c_while_it_waits_for_its_second_start(lab: RunLab) -> None:
    lab.create_pool()
    with lab.run(*MANUAL, script=SAVES + BEGIN + WORK) as run:
        first = lab.wait_for_start()
        waiter = lab.preempt(first)
        run.wait_for_message("is in the queue again")
        run.wait_for_message("waiting in gpus")
        run.send_signal(signal.SIGINT)
        run.wait_for_end(ExitCode.INTERRUPTED)
    assert lab.request(first.request)["status"] == "cancelled"
    lab.release(waiter)
    lab.check_invariants()
