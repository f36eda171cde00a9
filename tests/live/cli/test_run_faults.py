"""`poolkeeper run` when something dies: itself, its guard, its command, the service, Redis, the way between. Nothing is leaked,
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
from poolkeeper.allocation import cancel_or_release
from poolkeeper.cli.exit_codes import ExitCode
from poolkeeper.errors import Conflict

from tests.support.backends import wait_until
from tests.support.cli_program import PROGRAM, Program
from tests.support.cli_runs import ALL, BEGIN, SLEEP, WORK, Lab, Run, Start, nobody_lives
from tests.support.flaky_proxy import Door
from tests.support.gunicorn_service import Service, service
from tests.support.poolkeeperd import descendants, living

FAMILY = "sleep 305 & setsid --fork sleep 306\n" + SLEEP
"""A workload with a child in its group and one that has left it."""


@pytest.fixture
def lab(poolkeeper: Program, beneath: str, tmp_path: Path) -> Lab:
    return Lab(poolkeeper, beneath, tmp_path).furnish()


@pytest.fixture
def shaky(tmp_path: Path) -> Iterator[tuple[Service, Lab]]:
    """A service that can be stopped and started, and a lab there."""
    with service(tmp_path / "service", api_processes=1, api_threads=16) as here:
        program = Program(f"http://127.0.0.1:{here.port}", tmp_path, "default")
        yield here, Lab(program, here.redis.url, tmp_path).furnish()


@pytest.fixture
def door(lab: Lab) -> Iterator[Door]:
    """A door before the service of the lab."""
    with Door(int(lab.program.url.rpartition(":")[2])) as door:
        yield door


def guard_of(run: Run) -> int:
    """The process between a run and its command."""
    return next(pid for pid, args in descendants(run.pid).items() if "guard.py" in args)


def family_of(run: Run) -> dict[int, str]:
    """All that lives below a run, once all of the family is there."""
    wait_until(lambda: len(descendants(run.pid)) == 4, "the guard, the command and its two children")
    return descendants(run.pid)


def test_a_run_that_is_killed_leaves_no_process_and_its_lease_lapses(lab: Lab) -> None:
    with lab.run(*ALL, script=FAMILY) as run:
        start = lab.started()
        below = family_of(run)
        run.tell(signal.SIGKILL)
        nobody_lives(below)
        lab.lapses_by_itself(start.request)
    lab.is_sound()
    assert len(lab.lines()) == 1


def test_a_run_that_is_killed_while_it_waits_starts_nothing(lab: Lab) -> None:
    holder = lab.taken_by_somebody()
    with lab.run(*ALL, script=FAMILY) as run:
        run.says("waiting in gpus")
        run.tell(signal.SIGKILL)
        run.ends(-signal.SIGKILL)
    lab.release(holder)
    lab.is_now(_other(lab, holder), "allocated")
    lab.lapses_by_itself(_other(lab, holder))
    assert lab.lines() == []
    lab.is_sound()


def _other(lab: Lab, holder: str) -> str:
    (found,) = [row["id"] for row in lab.program("request", "list", "-o", "json").json if row["id"] != holder]
    return str(found)


def test_the_system_kills_the_command_if_both_that_watch_it_die(lab: Lab) -> None:
    with lab.run(*ALL, script=SLEEP) as run:
        start = lab.started()
        guard = guard_of(run)
        run.tell(signal.SIGSTOP)  # it cannot notice
        os.kill(guard, signal.SIGKILL)
        run.tell(signal.SIGKILL)
        nobody_lives({start.pid: "", guard: ""})
        lab.lapses_by_itself(start.request)
    lab.is_sound()


ASKED = ("--component", "team", "--gpu", "4", "--checkpoint", "manual")
STAYS = "trap 'echo asked >>\"$LOG\"' USR1\n" + BEGIN + WORK


def test_a_run_that_is_killed_while_it_leaves_leaves_nothing(lab: Lab) -> None:
    with lab.run(*ASKED, "--lease", "1", script=STAYS) as run:
        first = lab.started()
        below = descendants(run.pid)
        waiter = lab.preempt(first)
        lab.until("asked")
        run.tell(signal.SIGKILL)
        nobody_lives(below)
        lab.lapses_by_itself(first.request)
    lab.is_now(waiter, "allocated")
    lab.release(waiter)
    lab.is_sound()


def test_a_command_that_is_killed_while_it_leaves_has_failed(lab: Lab) -> None:
    with lab.run(*ASKED, "--lease", "1", script=STAYS) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        lab.until("asked")
        os.kill(first.pid, signal.SIGKILL)
        run.ends(137)
    lab.is_now(waiter, "allocated")
    assert lab.request(first.request)["outcome"] == "failed"
    lab.release(waiter)
    lab.is_sound()


def test_redis_is_killed_and_comes_back_while_it_leaves(shaky: tuple[Service, Lab]) -> None:
    here, lab = shaky
    script = 'trap \'echo asked >>"$LOG"; read <"$LOG.go"; echo step-2 >"$POOLKEEPER_CHECKPOINT_FILE"\' USR1\n' + BEGIN + WORK
    os.mkfifo(f"{lab.log}.go")
    with lab.run(*ASKED, "--lease", "9", script=script) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        lab.until("asked")
        here.kill_redis()
        Path(f"{lab.log}.go").write_text("go\n")
        nobody_lives({first.pid: ""})
        here.redis.start()
        run.says("in the queue again")
        lab.is_now(waiter, "allocated")
        lab.release(waiter)
        assert lab.started(2).reference == "step-2"
        run.tell(signal.SIGTERM)
        run.ends(143)
    lab.is_sound()


def test_a_guard_that_is_killed_takes_everything_with_it_and_the_units_are_given_back(lab: Lab) -> None:
    with lab.run(*ALL, script=FAMILY) as run:
        start = lab.started()
        below = family_of(run)
        os.kill(guard_of(run), signal.SIGKILL)
        run.ends(137)
        assert living(below) == {}
    assert lab.request(start.request)["outcome"] == "failed"
    lab.is_sound()


def test_a_guard_is_not_in_the_way_of_signals(lab: Lab) -> None:
    with lab.run(*ALL, script="trap 'exit 3' TERM\n" + BEGIN + WORK) as run:
        lab.started()
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            os.kill(guard_of(run), sign)
        run.tell(signal.SIGTERM)
        run.ends(3)


def test_a_command_that_is_killed_has_failed(lab: Lab) -> None:
    with lab.run(*ALL, script=FAMILY) as run:
        start = lab.started()
        below = family_of(run)
        os.kill(start.pid, signal.SIGKILL)
        run.ends(137)
        assert living(below) == {}
    assert lab.request(start.request)["outcome"] == "failed"
    lab.is_sound()


def test_the_service_is_stopped_and_started_while_it_waits_and_while_it_runs(shaky: tuple[Service, Lab]) -> None:
    here, lab = shaky
    holder = lab.taken_by_somebody()
    with lab.run("--component", "team", "--gpu", "4", "--lease", "30", script=BEGIN + 'read <"$LOG.go"; exit 5') as run:
        os.mkfifo(f"{lab.log}.go")
        run.says("waiting in gpus")
        here.stop()
        here.start()
        lab.release(holder)
        start = lab.started()
        here.stop()
        Path(f"{lab.log}.go").write_text("go\n")
        nobody_lives({start.pid: ""})
        run.says("trying again")
        here.start()
        run.ends(5)
    assert lab.request(start.request)["outcome"] == "failed"
    assert len(lab.lines()) == 1
    lab.is_sound()


def test_redis_is_killed_and_comes_back_while_it_waits_and_while_it_runs(shaky: tuple[Service, Lab]) -> None:
    here, lab = shaky
    holder = lab.taken_by_somebody()
    with lab.run("--component", "team", "--gpu", "4", "--lease", "30", script="trap 'exit 5' TERM\n" + BEGIN + WORK) as run:
        run.says("waiting in gpus")
        here.kill_redis()
        here.redis.start()
        wait_until(lambda: lab.request(holder)["status"] == "allocated", "the service is there again")
        lab.release(holder)
        start = lab.started()
        here.kill_redis()
        here.redis.start()
        wait_until(lambda: lab.request(start.request)["status"] == "allocated", "the service is there again")
        run.tell(signal.SIGTERM)
        run.ends(5)
    assert len(lab.lines()) == 1
    lab.is_sound()


def test_the_service_is_away_longer_than_somebody_likes_to_wait(shaky: tuple[Service, Lab]) -> None:
    here, lab = shaky
    with lab.run(*ALL, "--lease", "none", script=SLEEP) as run:
        start = lab.started()
        here.stop()
        os.kill(start.pid, signal.SIGTERM)
        run.says("trying again")
        run.tell(signal.SIGINT)
        run.ends(ExitCode.INTERRUPTED)
    assert "the request may still wait or hold units" in run.err


def lost(lab: Lab, start: Start) -> None:
    """Its lease lapses, without its knowledge."""
    lab.lapse()
    lab.is_now(start.request, "expired")


def test_who_has_lost_the_units_is_stopped(lab: Lab) -> None:
    with lab.run(*ALL, script="trap 'echo term >>\"$LOG\"; exit 0' TERM\n" + BEGIN + WORK) as run:
        lost(lab, lab.started())
        run.ends(ExitCode.LOST)
    assert lab.lines()[1:] == ["term"]
    assert "the units are lost, so the command is stopped" in run.err
    lab.is_sound()


def test_who_has_lost_the_units_and_does_not_heed_it_is_killed(lab: Lab) -> None:
    with lab.run(*ALL, "--grace", "2", script="trap 'echo term >>\"$LOG\"' TERM\n" + BEGIN + WORK) as run:
        start = lab.started()
        lab.program("request", "delete", start.request, "--yes")
        run.ends(ExitCode.LOST)
        assert living({start.pid: ""}) == {}
    assert f"request {start.request} is released" in run.err
    assert lab.lines()[1:] == ["term"]


def test_who_has_lost_the_units_may_go_on_if_that_is_wanted(lab: Lab) -> None:
    script = "trap 'exit 5' USR2\n" + BEGIN + WORK
    with lab.run(*ALL, "--on-lost", "keep", script=script) as run:
        start = lab.started()
        lost(lab, start)
        run.says("the units are lost, and the command goes on without them")
        os.kill(start.pid, signal.SIGUSR2)
        run.ends(5)
    lab.is_sound()


def test_as_long_as_nothing_is_known_it_goes_on(lab: Lab, door: Door) -> None:
    with lab.run(*ALL, script="trap 'exit 5' USR2\n" + BEGIN + WORK, url=door.url) as run:
        start = lab.started()
        door.close()
        run.says("no answer for as long as the lease lasts")
        assert living({start.pid: ""})
        door.open()
        run.says("the service answers again, and the lease was kept")
        os.kill(start.pid, signal.SIGUSR2)
        run.ends(5)
    assert run.err.count("no answer for as long") == 1
    assert lab.request(start.request)["status"] == "released"


def test_it_learns_that_it_has_lost_them_when_the_way_is_open_again(lab: Lab, door: Door) -> None:
    with lab.run(*ALL, script=SLEEP, url=door.url) as run:
        start = lab.started()
        door.close()
        run.says("no answer for as long as the lease lasts")
        lost(lab, start)
        other = lab.taken_by_somebody()
        door.open()
        run.ends(ExitCode.LOST)
        assert living({start.pid: ""}) == {}
    lab.release(other)
    lab.is_sound()


def test_the_way_is_cut_just_as_it_is_granted(lab: Lab, door: Door) -> None:
    holder = lab.taken_by_somebody()
    with lab.run("--component", "team", "--gpu", "4", "--lease", "30", script=BEGIN + "exit 5", url=door.url) as run:
        run.says("waiting in gpus")
        door.loses_answer_to(f"POST /api/v1/requests/{_other(lab, holder)}/start", times=12)
        lab.release(holder)
        run.says("trying again")
        run.ends(5, within_s=40)
    assert lab.lines()[0].split()[3] == "2", "the fence of the first grant"
    lab.is_sound()


def test_who_cannot_tell_whose_the_units_are_does_not_give_them_back(lab: Lab, door: Door) -> None:
    with lab.run("--component", "team", "--gpu", "4", "--key", "nightly", script="trap 'exit 5' TERM\n" + BEGIN + WORK) as run:
        start = lab.started()
        door.loses_answer_to(f"POST /api/v1/requests/{start.request}/start", times=7)
        with lab.run("--component", "team", "--gpu", "4", "--key", "nightly", script=SLEEP, url=door.url) as second:
            second.says("trying again")
            second.ends(ExitCode.REFUSED)
        assert "of this key holds units already" in second.err
        with Client(lab.program.url, workspace=lab.program.workspace) as client, pytest.raises(Conflict) as other:
            cancel_or_release(client, {}, "nightly", client.request(start.request), "run:of somebody else")
        assert other.value.code == "already_started"
        assert lab.request(start.request)["status"] == "allocated"
        run.tell(signal.SIGTERM)
        run.ends(5)
    assert len(lab.lines()) == 1
    lab.is_sound()


def test_ctrl_c_while_nobody_answers_does_not_take_long(lab: Lab, door: Door) -> None:
    holder = lab.taken_by_somebody()
    with lab.run(*ALL, script=SLEEP, url=door.url) as run:
        run.says("waiting in gpus")
        door.silence()
        run.tell(signal.SIGINT)
        run.ends(ExitCode.INTERRUPTED, within_s=14)
    assert "the request may still wait or hold units" in run.err
    lab.release(holder)


def test_nobody_reads_what_it_says_and_it_obeys_all_the_same(lab: Lab) -> None:
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
        first = lab.started()
        seen: list[int] = []
        wait_until(lambda: _stands_still(read, seen), "the pipe is full")
        waiter = lab.preempt(first)
        lab.is_now(waiter, "allocated")
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
    lab.is_sound()


def _stands_still(read: int, seen: list[int]) -> bool:
    """Whether there is something in the pipe, and has been no more of it for so many looks."""
    held = array("i", [0])
    fcntl.ioctl(read, termios.FIONREAD, held)
    seen.append(held[0])
    return held[0] > 0 and seen[-20:] == held.tolist() * 20


def test_the_answer_to_the_submit_is_lost(lab: Lab, door: Door) -> None:
    door.loses_answer_to("POST /api/v1/requests ")
    with lab.run(*ALL, script=BEGIN + "exit 5", url=door.url) as run:
        run.ends(5)
    assert door.lost == 1
    assert lab.only()["fence"] == 1
    lab.is_sound()


def test_a_checkpoint_that_could_not_be_told_is_not_forgotten_when_the_units_are_taken(lab: Lab, door: Door) -> None:
    lab.program("pool", "update", "gpus", "--setting", "grace_s=0")
    script = BEGIN + 'read <"$LOG.go"; echo step-9 >"$POOLKEEPER_CHECKPOINT_FILE"\n' + WORK
    os.mkfifo(f"{lab.log}.go")
    with lab.run("--component", "team", "--gpu", "4", "--lease", "none", script=script, url=door.url) as run:
        first = lab.started()
        door.close()
        Path(f"{lab.log}.go").write_text("go\n")
        run.says("checkpoint (step-9)")
        waiter = lab.preempt(first)
        lab.is_now(waiter, "allocated")
        door.open()
        run.says("in the queue again")
        lab.release(waiter)
        second = lab.started(2)
        assert (second.resume, second.reference) == ("1", "step-9")
        wait_until(lambda: lab.request(first.request)["checkpoint_reference"] == "step-9", "the service knows of it, too")
        run.tell(signal.SIGTERM)
        run.ends(143)


def test_the_answers_to_the_last_words_are_lost(lab: Lab, door: Door) -> None:
    script = "trap 'echo step-1 >\"$POOLKEEPER_CHECKPOINT_FILE\"' USR1\n" + BEGIN + WORK
    with lab.run(*ALL, "--checkpoint", "manual", script=script, url=door.url) as run:
        first = lab.started()
        door.loses_answer_to(f"POST /api/v1/requests/{first.request}/checkpoint")
        waiter = lab.preempt(first)
        lab.is_now(waiter, "allocated")
        lab.release(waiter)
        second = lab.started(2)
        door.loses_answer_to(f"POST /api/v1/requests/{first.request}/release")
        run.tell(signal.SIGTERM)
        run.ends(143)
    assert door.lost == 2
    assert second.reference == "step-1"
    assert lab.request(first.request)["preemptions"] == 1
    lab.is_sound()


def test_who_is_done_just_as_its_units_are_taken_does_not_wait_again(lab: Lab, door: Door) -> None:
    asked = ("--component", "team", "--gpu", "4", "--lease", "30")
    os.mkfifo(f"{lab.log}.go")
    with lab.run(*asked, script=BEGIN + 'read <"$LOG.go"; exit 0', url=door.url) as run:
        first = lab.started()
        waiter = lab.preempt(first)
        door.close()
        lab.depart(first)
        lab.is_now(waiter, "allocated")
        Path(f"{lab.log}.go").write_text("go\n")
        nobody_lives({first.pid: ""})
        door.open()
        run.ends(0)
    assert lab.request(first.request)["status"] == "cancelled"
    assert "the units were lost before the command was done" in run.err
    lab.release(waiter)
    lab.is_sound()


def test_a_burst_of_kills_never_leaks_a_unit_nor_runs_anything_beside_its_successor(lab: Lab) -> None:
    """Each run writes its beginning and its end into the log as long as it lives; no two of them may overlap."""
    script = BEGIN + 'while :; do echo $POOLKEEPER_FENCE >>"$LOG.beats"; sleep 0.01; done'
    for number in range(1, 4):
        with lab.run(*ALL, script=script) as run:
            start = lab.started(number)
            below = descendants(run.pid)
            run.tell(signal.SIGKILL)
            nobody_lives(below)
        lab.lapses_by_itself(start.request)
    beats = [int(line) for line in Path(f"{lab.log}.beats").read_text().split()]
    assert beats == sorted(beats)
    assert len({start.fence for start in map(lab.started, (1, 2, 3))}) == 3
    lab.is_sound()
