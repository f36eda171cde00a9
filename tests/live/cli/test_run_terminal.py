"""`poolkeeper run` in a terminal: the live line, preemption and return, the foreground process group, Ctrl-C and Ctrl-Z."""

from __future__ import annotations

import os
import re
import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.backends import wait_until
from tests.support.cli_program import PROGRAM, Program, Terminal
from tests.support.cli_runs import ALL, BEGIN, SLEEP, WORK, RunLab
from tests.support.poolkeeperd import living

LINE = re.compile(r"\r\x1b\[K([^\r\n]*)")


@pytest.fixture
def lab(poolkeeper: Program, beneath: str, tmp_path: Path) -> RunLab:
    return RunLab(poolkeeper, beneath, tmp_path).create_pool()


def lines(terminal: Terminal) -> list[str]:
    """Return the lines that stayed on the screen."""
    return [re.sub(r".*\r\x1b\[K", "", line) for line in terminal.screen.replace("\r\n", "\n").split("\n")]


def test_a_person_sees_the_queue_move_then_the_work_then_the_queue_and_the_work_again(lab: RunLab) -> None:
    first, second = lab.submit_for_all(), lab.submit_for_all()
    script = "trap 'echo step-7 >\"$POOLKEEPER_CHECKPOINT_FILE\"' USR1\n" + BEGIN
    script += 'echo "training from ${POOLKEEPER_CHECKPOINT_REFERENCE:-the beginning}"\n'
    script += f"if [ $POOLKEEPER_RESUME = 1 ]; then exit 5; fi\n{WORK}"
    with lab.on_a_terminal(*ALL, "--checkpoint", "manual", script=script) as terminal:
        output = terminal.wait_for(r"poolkeeper: waiting in gpus: 2nd in the queue, 1 ahead, since \d\d:\d\d \(0s\)")
        assert "\n" not in output, "it is one line, written anew"
        lab.program("request", "cancel", second)
        terminal.wait_for(r"\r\x1b\[Kpoolkeeper: waiting in gpus: 1st in the queue, since \d\d:\d\d \([2-9]s\)")
        lab.release(first)
        terminal.wait_for("training from the beginning")
        start = lab.wait_for_start()
        waiter = lab.preempt(start)
        terminal.wait_for("is in the queue again")
        terminal.wait_for(r"in the queue again[^\r]*\r\n\r\x1b\[Kpoolkeeper: waiting in gpus: 1st in the queue, since")
        lab.release(waiter)
        assert terminal.wait_for_end() == 5
    assert [re.sub(r"within (10m|9m\d+s)", "within N", line) for line in lines(terminal) if line] == [
        f"poolkeeper: request {start.request} has gpu=4 in gpus under fence 2",
        "training from the beginning",
        "poolkeeper: others need the units: SIGUSR1 to the command, to save its work and end within N",
        "poolkeeper: its work is saved (step-7): SIGTERM to the command, until the next grant",
        f"poolkeeper: request {start.request} is in the queue again: preempted for request {waiter}, which ranks higher",
        f"poolkeeper: request {start.request} has gpu=4 in gpus under fence 4, to go on from step-7",
        "training from step-7",
    ]
    lab.check_invariants()


def test_the_live_line_says_when_it_is_likely_to_start(lab: RunLab) -> None:
    holder = lab.submit_for_all("--walltime", "1h")
    with lab.on_a_terminal(*ALL, script="exit 5") as terminal:
        terminal.wait_for(
            r"1st in the queue, since \d\d:\d\d \(\d+s\), likely in [1-5]?\dm: it needs 4 gpu, and 0 of 4 are free"
        )
        lab.release(holder)
        assert terminal.wait_for_end() == 5


def test_the_live_line_fits_and_a_dumb_terminal_gets_lines(lab: RunLab) -> None:
    lab.submit_for_all()
    with lab.on_a_terminal(*ALL, "--timeout", "1", script=SLEEP, width=30) as terminal:
        assert terminal.wait_for_end() == 7
    drawn = [line for line in LINE.findall(terminal.screen) if line]
    assert drawn[0] == "poolkeeper: 1st in gpus"
    with lab.on_a_terminal(*ALL, "--timeout", "1", script=SLEEP, TERM="dumb") as terminal:
        assert terminal.wait_for_end() == 7
    assert "\x1b" not in terminal.screen
    assert re.search(r"request \w+: waiting in gpus: 1st in the queue, since \d\d:\d\d\r\n", terminal.screen)


def test_the_live_line_fits_the_terminal_that_it_is_on_wherever_stdout_goes(lab: RunLab) -> None:
    lab.submit_for_all()
    line = f"{PROGRAM} run {' '.join(ALL)} --timeout 1 -- true >'{lab.folder}/out'"
    with lab.terminal(["bash", "-c", line], width=30) as terminal:
        assert terminal.wait_for_end() == 7
    assert next(line for line in LINE.findall(terminal.screen) if line) == "poolkeeper: 1st in gpus"


def test_ctrl_s_stops_what_is_shown_and_nothing_else(lab: RunLab) -> None:
    with lab.on_a_terminal(*ALL, script=BEGIN + WORK) as terminal:
        first = lab.wait_for_start()
        terminal.type("\x13")
        waiter = lab.preempt(first)
        lab.wait_for_status(waiter, "allocated")
        assert living({first.pid: ""}) == {}
        assert "needed now" not in terminal.screen
        terminal.type("\x11")
        terminal.wait_for("(?s)the units are needed now.*in the queue again")
        terminal.type("\x03")
        assert terminal.wait_for_end() == 130
    lab.release(waiter)
    lab.check_invariants()


def test_ctrl_c_while_it_waits_leaves_nothing_behind(lab: RunLab) -> None:
    holder = lab.submit_for_all()
    with lab.on_a_terminal(*ALL, script=SLEEP) as terminal:
        terminal.wait_for("waiting in gpus")
        terminal.type("\x03")
        assert terminal.wait_for_end() == 130
    assert re.search(r"poolkeeper: SIGINT: request \w+ is cancelled\r\n$", terminal.screen)
    lab.release(holder)
    lab.check_invariants()


def test_ctrl_c_while_it_runs_is_the_commands_own_affair(lab: RunLab) -> None:
    script = "trap 'trap - INT; echo not yet' INT\n" + BEGIN + WORK
    with lab.on_a_terminal(*ALL, script=script) as terminal:
        start = lab.wait_for_start()
        terminal.type("\x03")
        terminal.wait_for("not yet")
        assert living({start.pid: ""})
        terminal.type("\x03")
        assert terminal.wait_for_end() == 130
    assert "SIGINT" not in terminal.screen, "the terminal is the command's: we have not heard of it"
    assert lab.request(start.request)["outcome"] == "failed"
    lab.check_invariants()


def test_it_can_be_typed_to(lab: RunLab) -> None:
    with lab.on_a_terminal(*ALL, script='read -p "your name? " name; echo "hello $name"') as terminal:
        terminal.wait_for(r"your name\? ")
        terminal.type("ana\n")
        terminal.wait_for("hello ana")
        assert terminal.wait_for_end() == 0


def test_ctrl_z_does_not_stop_what_holds_units(lab: RunLab) -> None:
    with lab.on_a_terminal(*ALL, script="trap 'exit 5' USR2\n" + BEGIN + WORK) as terminal:
        start = lab.wait_for_start()
        terminal.type("\x1a")
        terminal.wait_for("Ctrl-Z does not stop a command that holds units: the command goes on")
        os.kill(start.pid, signal.SIGUSR2)
        assert terminal.wait_for_end() == 5


def test_what_comes_from_a_pipe_leaves_the_terminal_with_run(lab: RunLab) -> None:
    script = "trap 'exit 5' INT\n" + BEGIN + WORK
    with shell(lab) as terminal:
        terminal.type(f"true | poolkeeper run {' '.join(ALL)} -- bash {written(lab, script)}; echo code $?\n")
        start = lab.wait_for_start()
        terminal.type("\x1a")
        terminal.wait_for("Ctrl-Z does not stop a command that holds units")
        terminal.type("\x03")
        terminal.wait_for("SIGINT to the command; SIGKILL follows in 30 s if it has not ended")
        terminal.wait_for(r"code 5")
    assert lab.request(start.request)["outcome"] == "failed"


def test_a_pager_behind_it_and_the_command_have_the_terminal_in_turn(lab: RunLab) -> None:
    # The command keeps the terminal from its first read to its end. A stop signal for the pager's group does not stop the run.
    go, pager = f"{lab.log}.go", lab.folder / "pager"
    os.mkfifo(go)
    pager.write_text('for i in 1 2; do read -r said; echo "$$ shows $said"; read -r key </dev/tty; echo "key $key"; done')
    script = BEGIN + f'echo first; read <{go}; read -r typed; echo "typed $typed"; read <{go}'
    with shell(lab) as terminal:
        run = f"poolkeeper run {' '.join(ALL)} -- bash {written(lab, script)}"
        terminal.type(f"{run} | bash {pager}; echo codes ${{PIPESTATUS[@]}}\n")
        terminal.wait_for("shows first\r\n")
        terminal.type("\x1a")
        terminal.wait_for("Ctrl-Z does not stop a command that holds units")
        terminal.type("q\n")
        terminal.wait_for("key q\r\n")
        Path(go).write_text("go\n")
        wait_until(
            lambda: _foreground(terminal) == lab.wait_for_start().pid, "the command, which wants to read, has the terminal"
        )
        terminal.type("this\n")
        shows = re.search(r"(\d+) shows typed this\r\n", terminal.wait_for("shows typed this\r\n"))
        assert shows
        wait_until(lambda: _state(int(shows[1])) == "T", "the pager stands still")
        Path(go).write_text("go\n")
        wait_until(lambda: _state(int(shows[1])) == "S", "the pager goes on")
        terminal.type("r\n")
        terminal.wait_for("key r\r\n")
        terminal.wait_for("codes 0 0\r\n")
    assert "stands still" not in terminal.screen
    assert lab.request(lab.wait_for_start().request)["outcome"] == "succeeded"


def test_a_shell_has_its_terminal_back_afterwards_and_can_bring_it_to_the_foreground(lab: RunLab) -> None:
    script = BEGIN + 'read -p "your name? " name; echo "hello $name"; exit 5'
    with shell(lab) as terminal:
        terminal.type(f"poolkeeper run {' '.join(ALL)} -- bash {written(lab, script)}; echo code $?\n")
        terminal.wait_for(r"your name\? ")
        terminal.type("ana\n")
        terminal.wait_for("hello ana\r\n")
        terminal.wait_for(r"code 5\r\n")
        terminal.type(f"poolkeeper run {' '.join(ALL)} -- bash {written(lab, script)} &\n")
        terminal.wait_for("the command is stopped, as it needs the terminal: enter `fg`, or start it with </dev/null")
        terminal.type("fg\n")
        wait_until(lambda: _foreground(terminal) == lab.wait_for_start(2).pid, "the command has the terminal")
        terminal.type("bea\n")
        terminal.wait_for("hello bea\r\n")
        terminal.type("echo still $((40 + 2))\n")
        terminal.wait_for(r"still 42\r\n")
    lab.check_invariants()


def test_a_script_around_it_can_be_typed_to_afterwards(lab: RunLab) -> None:
    command = f"poolkeeper run {' '.join(ALL)} -- true; read -p 'and now? ' answer; echo got $answer"
    terminal = Terminal(["bash", "-c", command], lab.variables(), 200)
    try:
        terminal.wait_for(r"and now\? ")
        terminal.type("this\n")
        terminal.wait_for("got this")
        assert terminal.wait_for_end() == 0
    finally:
        terminal.close()


def test_a_closed_terminal_leaves_nothing_behind(lab: RunLab) -> None:
    with lab.on_a_terminal(*ALL, script=BEGIN + WORK) as output:
        start = lab.wait_for_start()
        hang_up(output)
        assert output.process.wait(20) == 129
    assert lab.request(start.request)["outcome"] == "failed"
    lab.check_invariants()


def hang_up(terminal: Terminal) -> None:
    """Close the terminal, as closing its window does."""
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), terminal._inside)


def shell(lab: RunLab) -> AbstractContextManager[Terminal]:
    """Start an interactive shell, which hands the terminal to its commands as shells do."""
    return lab.terminal(["bash", "--norc", "-i"], PS1="$ ")


def written(lab: RunLab, script: str) -> Path:
    """Write the script to a file, and return its path."""
    path = lab.folder / "script"
    path.write_text(script)
    return path


def _foreground(terminal: Terminal) -> int:
    """Return the process group in the foreground of the terminal."""
    (line,) = Path(f"/proc/{terminal.process.pid}/stat").read_text().rpartition(")")[2].split("\n")[:1]
    return int(line.split()[5])


def _state(pid: int) -> str:
    """Return `T` if the process is stopped, `S` if it sleeps."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
