"""`poolkeeper run` when something dies: itself, its guard, its command, the way to the service. Nothing is leaked,
no process outlives its units unless that was asked for, and nothing runs twice."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import termios
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from poolkeeper import Client
from poolkeeper.cli.exit_codes import ExitCode
from poolkeeper.errors import Conflict
from poolkeeper.waiters import cancel_or_release

from tests.support.backends import wait_until
from tests.support.cli_program import PROGRAM, Program
from tests.support.cli_runs import ALL, BEGIN, SLEEP, WORK, Run, RunLab, Start, wait_until_dead
from tests.support.flaky_proxy import FlakyProxy
from tests.support.poolkeeperd import descendants, living

FAMILY = "sleep 305 & setsid --fork sleep 306\n" + SLEEP
"""A workload with a child in its group and one that has left it."""


@pytest.fixture
def lab(poolkeeper: Program, beneath: str, tmp_path: Path) -> RunLab:
    return RunLab(poolkeeper, beneath, tmp_path).create_pool()


@pytest.fixture
def proxy(lab: RunLab) -> Iterator[FlakyProxy]:
    """Yield a proxy in front of the service of the lab."""
    with FlakyProxy(int(lab.program.url.rpartition(":")[2])) as door:
        yield door


def guard_of(run: Run) -> int:
    """Return the process id of the guard between a run and its command."""
    return next(pid for pid, args in descendants(run.pid).items() if "guard.py" in args)


def family_of(run: Run) -> dict[int, str]:
    """Return all processes below a run, once the guard, the command and both its children exist."""
    wait_until(lambda: len(descendants(run.pid)) == 4, "the guard, the command and its two children")
    return descendants(run.pid)


def test_a_run_that_is_killed_leaves_no_process_and_its_lease_lapses(lab: RunLab) -> None:
    with lab.run(*ALL, script=FAMILY) as run:
        start = lab.wait_for_start()
        below = family_of(run)
        run.send_signal(signal.SIGKILL)
        wait_until_dead(below)
        lab.wait_for_expiry(start.request)
    lab.check_invariants()
    assert len(lab.lines()) == 1


def test_a_run_that_is_killed_while_it_waits_starts_nothing(lab: RunLab) -> None:
    holder = lab.submit_for_all()
    with lab.run(*ALL, script=FAMILY) as run:
        run.wait_for_message("waiting in gpus")
        run.send_signal(signal.SIGKILL)
        run.wait_for_end(-signal.SIGKILL)
    lab.release(holder)
    lab.wait_for_status(_other(lab, holder), "allocated")
    lab.wait_for_expiry(_other(lab, holder))
    assert lab.lines() == []
    lab.check_invariants()


def _other(lab: RunLab, holder: str) -> str:
    (document,) = [row["id"] for row in lab.program("request", "list", "--all", "-o", "json").json if row["id"] != holder]
    return str(document)


def test_the_system_kills_the_command_if_both_that_watch_it_die(lab: RunLab) -> None:
    with lab.run(*ALL, script=SLEEP) as run:
        start = lab.wait_for_start()
        guard = guard_of(run)
        run.send_signal(signal.SIGSTOP)  # it cannot notice
        os.kill(guard, signal.SIGKILL)
        run.send_signal(signal.SIGKILL)
        wait_until_dead({start.pid: "", guard: ""})
        lab.wait_for_expiry(start.request)
    lab.check_invariants()


ASKED = ("--component", "team", "--gpu", "4", "--checkpoint", "manual")
STAYS = "trap 'echo asked >>\"$LOG\"' USR1\n" + BEGIN + WORK


def test_a_run_that_is_killed_while_it_leaves_leaves_nothing(lab: RunLab) -> None:
    with lab.run(*ASKED, "--lease", "1", script=STAYS) as run:
        first = lab.wait_for_start()
        below = descendants(run.pid)
        waiter = lab.preempt(first)
        lab.wait_for_line("asked")
        run.send_signal(signal.SIGKILL)
        wait_until_dead(below)
        lab.wait_for_expiry(first.request)
    lab.wait_for_status(waiter, "allocated")
    lab.release(waiter)
    lab.check_invariants()


def test_a_command_that_is_killed_while_it_leaves_has_failed(lab: RunLab) -> None:
    with lab.run(*ASKED, "--lease", "1", script=STAYS) as run:
        first = lab.wait_for_start()
        waiter = lab.preempt(first)
        lab.wait_for_line("asked")
        os.kill(first.pid, signal.SIGKILL)
        run.wait_for_end(137)
    lab.wait_for_status(waiter, "allocated")
    assert lab.request(first.request)["outcome"] == "failed"
    lab.release(waiter)
    lab.check_invariants()


def test_a_guard_that_is_killed_takes_everything_with_it_and_the_units_are_given_back(lab: RunLab) -> None:
    with lab.run(*ALL, script=FAMILY) as run:
        start = lab.wait_for_start()
        below = family_of(run)
        os.kill(guard_of(run), signal.SIGKILL)
        run.wait_for_end(137)
        assert living(below) == {}
    assert lab.request(start.request)["outcome"] == "failed"
    lab.check_invariants()


def test_a_guard_is_not_in_the_way_of_signals(lab: RunLab) -> None:
    with lab.run(*ALL, script="trap 'exit 3' TERM\n" + BEGIN + WORK) as run:
        lab.wait_for_start()
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            os.kill(guard_of(run), sign)
        run.send_signal(signal.SIGTERM)
        run.wait_for_end(3)


def test_a_command_that_is_killed_has_failed(lab: RunLab) -> None:
    with lab.run(*ALL, script=FAMILY) as run:
        start = lab.wait_for_start()
        below = family_of(run)
        os.kill(start.pid, signal.SIGKILL)
        run.wait_for_end(137)
        assert living(below) == {}
    assert lab.request(start.request)["outcome"] == "failed"
    lab.check_invariants()


def lost(lab: RunLab, start: Start) -> None:
    """Let the lease of a run lapse without its knowledge."""
    lab.expire_leases()
    lab.wait_for_status(start.request, "expired")


def test_a_run_that_has_lost_its_units_is_stopped(lab: RunLab) -> None:
    with lab.run(*ALL, script="trap 'echo term >>\"$LOG\"; exit 0' TERM\n" + BEGIN + WORK) as run:
        lost(lab, lab.wait_for_start())
        run.wait_for_end(ExitCode.LOST)
    assert lab.lines()[1:] == ["term"]
    assert "the units are lost, so the command is stopped" in run.err
    lab.check_invariants()


def test_a_run_that_has_lost_its_units_and_ignores_sigterm_is_killed(lab: RunLab) -> None:
    with lab.run(*ALL, "--grace", "2", script="trap 'echo term >>\"$LOG\"' TERM\n" + BEGIN + WORK) as run:
        start = lab.wait_for_start()
        lab.program("request", "delete", start.request, "--yes")
        run.wait_for_end(ExitCode.LOST)
        assert living({start.pid: ""}) == {}
    assert f"request {start.request} is released" in run.err
    assert lab.lines()[1:] == ["term"]


def test_a_run_that_has_lost_its_units_goes_on_with_the_option(lab: RunLab) -> None:
    script = "trap 'exit 5' USR2\n" + BEGIN + WORK
    with lab.run(*ALL, "--on-lost", "keep", script=script) as run:
        start = lab.wait_for_start()
        lost(lab, start)
        run.wait_for_message("the units are lost, and the command goes on without them")
        os.kill(start.pid, signal.SIGUSR2)
        run.wait_for_end(5)
    lab.check_invariants()


def test_as_long_as_nothing_is_known_it_goes_on(lab: RunLab, proxy: FlakyProxy) -> None:
    with lab.run(*ALL, script="trap 'exit 5' USR2\n" + BEGIN + WORK, url=proxy.url) as run:
        start = lab.wait_for_start()
        proxy.close()
        run.wait_for_message("no heartbeat was answered for the length of the lease")
        assert living({start.pid: ""})
        proxy.open()
        run.wait_for_message("the service answers again, and the lease was kept")
        os.kill(start.pid, signal.SIGUSR2)
        run.wait_for_end(5)
    assert run.err.count("no heartbeat was answered for") == 1
    assert lab.request(start.request)["status"] == "released"


def test_it_learns_that_it_has_lost_them_when_the_way_is_open_again(lab: RunLab, proxy: FlakyProxy) -> None:
    with lab.run(*ALL, script=SLEEP, url=proxy.url) as run:
        start = lab.wait_for_start()
        proxy.close()
        run.wait_for_message("no heartbeat was answered for the length of the lease")
        lost(lab, start)
        other = lab.submit_for_all()
        proxy.open()
        run.wait_for_end(ExitCode.LOST)
        assert living({start.pid: ""}) == {}
    lab.release(other)
    lab.check_invariants()


def test_the_way_is_cut_just_as_it_is_granted(lab: RunLab, proxy: FlakyProxy) -> None:
    holder = lab.submit_for_all()
    with lab.run("--component", "team", "--gpu", "4", "--lease", "30", script=BEGIN + "exit 5", url=proxy.url) as run:
        run.wait_for_message("waiting in gpus")
        proxy.lose_answer_to(f"POST /api/v1/requests/{_other(lab, holder)}/start", times=12)
        lab.release(holder)
        run.wait_for_message("trying again")
        run.wait_for_end(5, within_s=40)
    assert lab.lines()[0].split()[3] == "2", "the fence of the first grant"
    lab.check_invariants()


def test_a_run_without_knowledge_of_its_fence_releases_nothing(lab: RunLab, proxy: FlakyProxy) -> None:
    with lab.run("--component", "team", "--gpu", "4", "--key", "nightly", script="trap 'exit 5' TERM\n" + BEGIN + WORK) as run:
        start = lab.wait_for_start()
        proxy.lose_answer_to(f"POST /api/v1/requests/{start.request}/start", times=7)
        with lab.run("--component", "team", "--gpu", "4", "--key", "nightly", script=SLEEP, url=proxy.url) as second:
            second.wait_for_message("trying again")
            second.wait_for_end(ExitCode.REFUSED)
        assert "of this key already holds units" in second.err
        with Client(lab.program.url, workspace=lab.program.workspace) as client, pytest.raises(Conflict) as other:
            cancel_or_release(client, {}, "nightly", client.request(start.request), "run:of another run")
        assert other.value.code == "already_started"
        assert lab.request(start.request)["status"] == "allocated"
        run.send_signal(signal.SIGTERM)
        run.wait_for_end(5)
    assert len(lab.lines()) == 1
    lab.check_invariants()


def test_ctrl_c_without_an_answer_of_the_service_does_not_take_long(lab: RunLab, proxy: FlakyProxy) -> None:
    holder = lab.submit_for_all()
    with lab.run(*ALL, script=SLEEP, url=proxy.url) as run:
        run.wait_for_message("waiting in gpus")
        proxy.silence()
        run.send_signal(signal.SIGINT)
        run.wait_for_end(ExitCode.INTERRUPTED, within_s=14)
    assert "the request may still wait or hold units" in run.err
    lab.release(holder)


def test_a_run_with_a_full_output_pipe_still_leaves(lab: RunLab) -> None:
    read, write = os.pipe()
    words = [*ALL, "--", "bash", "-c", BEGIN + "exec yes"]
    run = subprocess.Popen(
        [PROGRAM, "run", *words],
        env=lab.variables(),
        stdin=subprocess.DEVNULL,
        stdout=write,
        stderr=write,
        start_new_session=True,
    )
    os.close(write)
    try:
        first = lab.wait_for_start()
        output: list[int] = []
        wait_until(lambda: _stands_still(read, output), "the pipe is full")
        waiter = lab.preempt(first)
        lab.wait_for_status(waiter, "allocated")
        assert living({first.pid: ""}) == {}
        run.send_signal(signal.SIGTERM)
        assert run.wait(20) == 128 + signal.SIGTERM, "while it waits in the queue again"
    finally:
        os.close(read)
        below = descendants(run.pid)
        run.kill()
        run.wait()
        for pid in living(below):
            os.kill(pid, signal.SIGKILL)
    lab.release(waiter)
    lab.check_invariants()


def _stands_still(read: int, output: list[int]) -> bool:
    """True if the pipe holds bytes, and their number has not changed during many calls."""
    request = array("i", [0])
    fcntl.ioctl(read, termios.FIONREAD, request)
    output.append(request[0])
    return request[0] > 0 and output[-20:] == request.tolist() * 20


def test_the_answer_to_the_submit_is_lost(lab: RunLab, proxy: FlakyProxy) -> None:
    proxy.lose_answer_to("POST /api/v1/requests?wait_s=")
    with lab.run(*ALL, script=BEGIN + "exit 5", url=proxy.url) as run:
        run.wait_for_end(5)
    assert proxy.lost_answers == 1
    assert lab.only_request()["fence"] == 1
    lab.check_invariants()


def test_a_checkpoint_that_could_not_be_told_is_not_forgotten_when_the_units_are_taken(lab: RunLab, proxy: FlakyProxy) -> None:
    lab.program("pool", "update", "gpus", "--setting", "grace_s=0")
    script = BEGIN + 'read <"$LOG.go"; echo step-9 >"$POOLKEEPER_CHECKPOINT_FILE"\n' + WORK
    os.mkfifo(f"{lab.log}.go")
    with lab.run("--component", "team", "--gpu", "4", "--lease", "none", script=script, url=proxy.url) as run:
        first = lab.wait_for_start()
        proxy.close()
        Path(f"{lab.log}.go").write_text("go\n")
        run.wait_for_message("checkpoint (step-9)")
        waiter = lab.preempt(first)
        lab.wait_for_status(waiter, "allocated")
        proxy.open()
        run.wait_for_message("in the queue again")
        lab.release(waiter)
        second = lab.wait_for_start(2)
        assert (second.resume, second.reference) == ("1", "step-9")
        wait_until(lambda: lab.request(first.request)["checkpoint_reference"] == "step-9", "the service knows of it, too")
        run.send_signal(signal.SIGTERM)
        run.wait_for_end(143)


def test_the_answers_to_the_last_words_are_lost(lab: RunLab, proxy: FlakyProxy) -> None:
    script = "trap 'echo step-1 >\"$POOLKEEPER_CHECKPOINT_FILE\"' USR1\n" + BEGIN + WORK
    with lab.run(*ALL, "--checkpoint", "manual", script=script, url=proxy.url) as run:
        first = lab.wait_for_start()
        proxy.lose_answer_to(f"POST /api/v1/requests/{first.request}/checkpoint")
        waiter = lab.preempt(first)
        lab.wait_for_status(waiter, "allocated")
        lab.release(waiter)
        second = lab.wait_for_start(2)
        proxy.lose_answer_to(f"POST /api/v1/requests/{first.request}/release")
        run.send_signal(signal.SIGTERM)
        run.wait_for_end(143)
    assert proxy.lost_answers == 2
    assert second.reference == "step-1"
    assert lab.request(first.request)["preemptions"] == 1
    lab.check_invariants()


def test_a_run_that_ends_as_its_units_are_taken_does_not_wait_again(lab: RunLab, proxy: FlakyProxy) -> None:
    query = ("--component", "team", "--gpu", "4", "--lease", "30")
    os.mkfifo(f"{lab.log}.go")
    with lab.run(*query, script=BEGIN + 'read <"$LOG.go"; exit 0', url=proxy.url) as run:
        first = lab.wait_for_start()
        waiter = lab.preempt(first)
        proxy.close()
        lab.enforce_deadlines(first)
        lab.wait_for_status(waiter, "allocated")
        Path(f"{lab.log}.go").write_text("go\n")
        wait_until_dead({first.pid: ""})
        proxy.open()
        run.wait_for_end(0)
    assert lab.request(first.request)["status"] == "cancelled"
    assert "the units were lost before the command ended" in run.err
    lab.release(waiter)
    lab.check_invariants()


def test_a_burst_of_kills_never_leaks_a_unit_nor_runs_anything_beside_its_successor(lab: RunLab) -> None:
    # Each run writes its beginning and its end into the log as long as it lives; no two of them may overlap.
    script = BEGIN + 'while :; do echo $POOLKEEPER_FENCE >>"$LOG.beats"; sleep 0.01; done'
    for number in range(1, 4):
        with lab.run(*ALL, script=script) as run:
            start = lab.wait_for_start(number)
            below = descendants(run.pid)
            run.send_signal(signal.SIGKILL)
            wait_until_dead(below)
        lab.wait_for_expiry(start.request)
    beats = [int(line) for line in Path(f"{lab.log}.beats").read_text().split()]
    assert beats == sorted(beats)
    assert len({start.fence for start in map(lab.wait_for_start, (1, 2, 3))}) == 3
    lab.check_invariants()
