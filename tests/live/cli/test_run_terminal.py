"""`poolkeeper run` before a person: the live line, preemption and return, who has the terminal, Ctrl-C and Ctrl-Z."""

from __future__ import annotations

import os
import re
import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.backends import wait_until
from tests.support.cli_program import PROGRAM, Program, Terminal
from tests.support.cli_runs import ALL, BEGIN, SLEEP, WORK, Lab
from tests.support.poolkeeperd import living

LINE = re.compile(r"\r\x1b\[K([^\r\n]*)")


@pytest.fixture
def lab(poolkeeper: Program, beneath: str, tmp_path: Path) -> Lab:
    return Lab(poolkeeper, beneath, tmp_path).furnish()


def lines(terminal: Terminal) -> list[str]:
    """What stayed on the screen, line by line."""
    return [re.sub(r".*\r\x1b\[K", "", line) for line in terminal.seen.replace("\r\n", "\n").split("\n")]


def test_a_person_sees_the_queue_move_then_the_work_then_the_queue_and_the_work_again(lab: Lab) -> None:
    first, second = lab.taken_by_somebody(), lab.taken_by_somebody()
    script = "trap 'echo step-7 >\"$POOLKEEPER_CHECKPOINT_FILE\"' USR1\n" + BEGIN
    script += 'echo "training from ${POOLKEEPER_CHECKPOINT_REFERENCE:-the beginning}"\n'
    script += f"if [ $POOLKEEPER_RESUME = 1 ]; then exit 5; fi\n{WORK}"
    with lab.on_a_terminal(*ALL, "--checkpoint", "manual", script=script) as terminal:
        seen = terminal.until(r"poolkeeper: waiting in gpus: 2nd in the queue, 1 ahead, since \d\d:\d\d \(0s\)")
        assert "\n" not in seen, "it is one line, written anew"
        lab.program("request", "cancel", second)
        terminal.until(r"\r\x1b\[Kpoolkeeper: waiting in gpus: 1st in the queue, since \d\d:\d\d \([2-9]s\)")
        lab.release(first)
        terminal.until("training from the beginning")
        start = lab.started()
        waiter = lab.preempt(start)
        terminal.until("is in the queue again")
        terminal.until(r"in the queue again[^\r]*\r\n\r\x1b\[Kpoolkeeper: waiting in gpus: 1st in the queue, since")
        lab.release(waiter)
        assert terminal.ended() == 5
    assert [re.sub(r"within (10m|9m\d+s)", "within N", line) for line in lines(terminal) if line] == [
        f"poolkeeper: request {start.request} has gpu=4 in gpus under fence 2",
        "training from the beginning",
        "poolkeeper: others need the units: SIGUSR1 to the command, to save its work and end within N",
        "poolkeeper: its work is saved (step-7); it ends here for now",
        f"poolkeeper: request {start.request} is in the queue again: preempted for request {waiter}, which ranks higher",
        f"poolkeeper: request {start.request} has gpu=4 in gpus under fence 4, to go on from step-7",
        "training from step-7",
    ]
    lab.is_sound()


def test_the_live_line_says_when_it_is_likely_to_start(lab: Lab) -> None:
    holder = lab.taken_by_somebody("--walltime", "1h")
    with lab.on_a_terminal(*ALL, script="exit 5") as terminal:
        terminal.until(r"1st in the queue, since \d\d:\d\d \(\d+s\), likely in [1-5]?\dm")
        lab.release(holder)
        assert terminal.ended() == 5


def test_the_live_line_fits_and_a_dumb_terminal_gets_lines(lab: Lab) -> None:
    lab.taken_by_somebody()
    with lab.on_a_terminal(*ALL, "--timeout", "1", script=SLEEP, width=30) as terminal:
        assert terminal.ended() == 7
    drawn = [line for line in LINE.findall(terminal.seen) if line]
    assert drawn[0] == "poolkeeper: waiting in gpus: 1st in the queue"[:29]
    with lab.on_a_terminal(*ALL, "--timeout", "1", script=SLEEP, TERM="dumb") as terminal:
        assert terminal.ended() == 7
    assert "\x1b" not in terminal.seen
    assert re.search(r"request \w+: waiting in gpus: 1st in the queue, since \d\d:\d\d\r\n", terminal.seen)


def test_the_live_line_fits_the_terminal_that_it_is_on_wherever_stdout_goes(lab: Lab) -> None:
    lab.taken_by_somebody()
    line = f"{PROGRAM} run {' '.join(ALL)} --timeout 1 -- true >'{lab.folder}/out'"
    with lab.terminal(["bash", "-c", line], width=30) as terminal:
        assert terminal.ended() == 7
    assert next(line for line in LINE.findall(terminal.seen) if line) == "poolkeeper: waiting in gpus: 1st in the queue"[:29]


def test_ctrl_s_stops_what_is_shown_and_nothing_else(lab: Lab) -> None:
    with lab.on_a_terminal(*ALL, script=BEGIN + WORK) as terminal:
        first = lab.started()
        terminal.type("\x13")
        waiter = lab.preempt(first)
        lab.is_now(waiter, "allocated")
        assert living({first.pid: ""}) == {}
        assert "needed now" not in terminal.seen
        terminal.type("\x11")
        terminal.until("(?s)the units are needed now.*in the queue again")
        terminal.type("\x03")
        assert terminal.ended() == 130
    lab.release(waiter)
    lab.is_sound()


def test_ctrl_c_while_it_waits_leaves_nothing_behind(lab: Lab) -> None:
    holder = lab.taken_by_somebody()
    with lab.on_a_terminal(*ALL, script=SLEEP) as terminal:
        terminal.until("waiting in gpus")
        terminal.type("\x03")
        assert terminal.ended() == 130
    assert re.search(r"poolkeeper: SIGINT: request \w+ is given up\r\n$", terminal.seen)
    lab.release(holder)
    lab.is_sound()


def test_ctrl_c_while_it_runs_is_the_commands_own_affair(lab: Lab) -> None:
    script = "trap 'trap - INT; echo not yet' INT\n" + BEGIN + WORK
    with lab.on_a_terminal(*ALL, script=script) as terminal:
        start = lab.started()
        terminal.type("\x03")
        terminal.until("not yet")
        assert living({start.pid: ""})
        terminal.type("\x03")
        assert terminal.ended() == 130
    assert "SIGINT" not in terminal.seen, "the terminal is the command's: we have not heard of it"
    assert lab.request(start.request)["outcome"] == "failed"
    lab.is_sound()


def test_it_can_be_typed_to(lab: Lab) -> None:
    with lab.on_a_terminal(*ALL, script='read -p "your name? " name; echo "hello $name"') as terminal:
        terminal.until(r"your name\? ")
        terminal.type("ana\n")
        terminal.until("hello ana")
        assert terminal.ended() == 0


def test_ctrl_z_does_not_stop_what_holds_units(lab: Lab) -> None:
    with lab.on_a_terminal(*ALL, script="trap 'exit 5' USR2\n" + BEGIN + WORK) as terminal:
        start = lab.started()
        terminal.type("\x1a")
        terminal.until("Ctrl-Z does not stop what holds units: the command goes on")
        os.kill(start.pid, signal.SIGUSR2)
        assert terminal.ended() == 5


def test_what_comes_from_a_pipe_leaves_the_terminal_with_run(lab: Lab) -> None:
    script = "trap 'exit 5' INT\n" + BEGIN + WORK
    with shell(lab) as terminal:
        terminal.type(f"true | poolkeeper run {' '.join(ALL)} -- bash {written(lab, script)}; echo code $?\n")
        start = lab.started()
        terminal.type("\x1a")
        terminal.until("Ctrl-Z does not stop what holds units")
        terminal.type("\x03")
        terminal.until("SIGINT to the command, and SIGKILL in 30 s if it needs that")
        terminal.until(r"code 5")
    assert lab.request(start.request)["outcome"] == "failed"


def test_a_pager_behind_it_and_the_command_have_the_terminal_in_turn(lab: Lab) -> None:
    """It is the command's from when that wants it to its end; what the pager's group is stopped for does not stop the run."""
    go, pager = f"{lab.log}.go", lab.folder / "pager"
    os.mkfifo(go)
    pager.write_text('for i in 1 2; do read -r said; echo "$$ shows $said"; read -r key </dev/tty; echo "key $key"; done')
    script = BEGIN + f'echo first; read <{go}; read -r typed; echo "typed $typed"; read <{go}'
    with shell(lab) as terminal:
        terminal.type(f"poolkeeper run {' '.join(ALL)} -- bash {written(lab, script)} | bash {pager}\n")
        terminal.until("shows first\r\n")
        terminal.type("\x1a")
        terminal.until("Ctrl-Z does not stop what holds units")
        terminal.type("q\n")
        terminal.until("key q\r\n")
        Path(go).write_text("go\n")
        wait_until(lambda: _foreground(terminal) == lab.started().pid, "the command, which wants to read, has the terminal")
        terminal.type("this\n")
        shows = re.search(r"(\d+) shows typed this\r\n", terminal.until("shows typed this\r\n"))
        assert shows
        wait_until(lambda: _state(int(shows[1])) == "T", "the pager stands still")
        Path(go).write_text("go\n")
        wait_until(lambda: _state(int(shows[1])) == "S", "the pager goes on")
        terminal.type("r\n")
        terminal.until("key r\r\n")
    assert "stands still" not in terminal.seen
    assert lab.request(lab.started().request)["outcome"] == "succeeded"


def test_a_shell_has_its_terminal_back_afterwards_and_can_bring_it_to_the_foreground(lab: Lab) -> None:
    script = BEGIN + 'read -p "your name? " name; echo "hello $name"; exit 5'
    with shell(lab) as terminal:
        terminal.type(f"poolkeeper run {' '.join(ALL)} -- bash {written(lab, script)}; echo code $?\n")
        terminal.until(r"your name\? ")
        terminal.type("ana\n")
        terminal.until("hello ana\r\n")
        terminal.until(r"code 5\r\n")
        terminal.type(f"poolkeeper run {' '.join(ALL)} -- bash {written(lab, script)} &\n")
        terminal.until("the command wants the terminal, and stands still: `fg`, or start it with </dev/null")
        terminal.type("fg\n")
        wait_until(lambda: _foreground(terminal) == lab.started(2).pid, "the command has the terminal")
        terminal.type("bea\n")
        terminal.until("hello bea\r\n")
        terminal.type("echo still $((40 + 2))\n")
        terminal.until(r"still 42\r\n")
    lab.is_sound()


def test_a_script_around_it_can_be_typed_to_afterwards(lab: Lab) -> None:
    command = f"poolkeeper run {' '.join(ALL)} -- true; read -p 'and now? ' answer; echo got $answer"
    terminal = Terminal(["bash", "-c", command], lab.variables(), 200)
    try:
        terminal.until(r"and now\? ")
        terminal.type("this\n")
        terminal.until("got this")
        assert terminal.ended() == 0
    finally:
        terminal.close()


def test_a_person_who_hangs_up_leaves_nothing_behind(lab: Lab) -> None:
    with lab.on_a_terminal(*ALL, script=BEGIN + WORK) as seen:
        start = lab.started()
        hang_up(seen)
        assert seen.process.wait(20) == 129
    assert lab.request(start.request)["outcome"] == "failed"
    lab.is_sound()


def hang_up(terminal: Terminal) -> None:
    """The window is closed."""
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), terminal._inside)


def shell(lab: Lab) -> AbstractContextManager[Terminal]:
    """An interactive shell, which gives its commands the terminal as shells do."""
    return lab.terminal(["bash", "--norc", "-i"], PS1="$ ")


def written(lab: Lab, script: str) -> Path:
    """The script in a file."""
    path = lab.folder / "script"
    path.write_text(script)
    return path


def _foreground(terminal: Terminal) -> int:
    """The process group that has the terminal."""
    (line,) = Path(f"/proc/{terminal.process.pid}/stat").read_text().rpartition(")")[2].split("\n")[:1]
    return int(line.split()[5])


def _state(pid: int) -> str:
    """`T` if the process is stopped, `S` if it sleeps."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
