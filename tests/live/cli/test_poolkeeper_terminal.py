"""`poolkeeper` before a person: colours, tables that fit, questions, the live line, Ctrl-C; and pipes that are closed."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest
from poolkeeper.cli.exit_codes import ExitCode

from tests.support.cli_program import PROGRAM, Program

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def gpus(poolkeeper: Program) -> Program:
    """Create a pool `gpus` of 4 gpu with a policy of `team`; return the program."""
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=4")
    poolkeeper("policy", "attach", "gpus", "team")
    return poolkeeper


def submit(program: Program, amount: int, *words: str, ends: int = 0) -> str:
    return program(
        "request", "submit", "--component", "team", "--resource", f"gpu={amount}", "-o", "name", *words, ends=ends
    ).line


def test_a_table_has_colours_on_a_terminal_only(gpus: Program) -> None:
    request = submit(gpus, 4)
    with gpus.on_a_terminal("request", "list") as terminal:
        assert terminal.wait_for_end() == ExitCode.OK
    assert COLOUR.search(terminal.screen)
    plain = COLOUR.sub("", terminal.screen).replace("\r", "")
    assert [line.split()[:6] for line in plain.splitlines()] == [
        ["ID", "NAME", "OWNER", "COMPONENT", "ASKS", "STATUS"],
        [request[-6:], "-", "-", "team", "gpu=4", "allocated"],
    ]
    assert not COLOUR.search(gpus.process("request", "list").out)


def test_no_color_is_honoured(gpus: Program) -> None:
    submit(gpus, 4)
    paper = gpus.folder / "pools.yaml"
    paper.write_text("pools: [{name: more, capacity: {gpu: 8}}]")
    for words in (("request", "list"), ("plan", "-f", str(paper))):
        with gpus.on_a_terminal(*words) as terminal:
            assert terminal.wait_for_end() == ExitCode.OK
        assert re.search(r"\x1b\[[0-9;]*3[0-9]m", terminal.screen)
        with gpus.on_a_terminal(*words, NO_COLOR="1") as terminal:
            assert terminal.wait_for_end() == ExitCode.OK
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", terminal.screen)


def test_a_table_fits_the_terminal_and_is_whole_in_a_pipe(gpus: Program) -> None:
    label = " ".join(["word"] * 20)
    request = submit(gpus, 9, "--label", f"note={label}", ends=ExitCode.REJECTED)
    with gpus.on_a_terminal("request", "list", "--all", "-o", "wide", width=160) as terminal:
        assert terminal.wait_for_end() == ExitCode.OK
    lines = COLOUR.sub("", terminal.screen).replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 160
    assert len(lines) > 2
    whole = gpus.process("request", "list", "--all", "-o", "wide").out
    assert label in whole
    assert len(whole.splitlines()) == 2
    assert request in whole


def test_an_id_is_never_cut(gpus: Program) -> None:
    request = submit(gpus, 9, ends=ExitCode.REJECTED)
    with gpus.on_a_terminal("request", "list", "--all", width=30) as terminal:
        assert terminal.wait_for_end() == ExitCode.OK
    assert request[-6:] in terminal.screen
    assert "rejected" in terminal.screen
    assert "…" not in terminal.screen


def test_json_on_a_terminal_is_json(gpus: Program) -> None:
    with gpus.on_a_terminal("pool", "list", "-o", "json") as terminal:
        assert terminal.wait_for_end() == ExitCode.OK
    assert terminal.screen.replace("\r", "") == gpus("pool", "list", "-o", "json").out


def test_dropping_is_asked_for_on_a_terminal(gpus: Program) -> None:
    request = submit(gpus, 4)
    with gpus.on_a_terminal("request", "delete", request) as terminal:
        terminal.wait_for(rf"drop it\? request {request}: allocated in gpus under fence 1 \(team, gpu=4\) \[y/N\]: ")
        terminal.type("n\n")
        assert terminal.wait_for_end() == ExitCode.REFUSED
    assert "nothing was dropped" in terminal.screen
    assert gpus("request", "describe", request, "-o", "json").json["status"] == "allocated"
    with gpus.on_a_terminal("request", "delete", request) as terminal:
        terminal.wait_for(r"\[y/N\]: ")
        terminal.type("y\n")
        assert terminal.wait_for_end() == ExitCode.OK
    assert gpus("request", "describe", request, "-o", "json").json["status"] == "released"


def test_ctrl_c_at_a_question_does_nothing(gpus: Program) -> None:
    request = submit(gpus, 4)
    with gpus.on_a_terminal("request", "delete", request) as terminal:
        terminal.wait_for(r"\[y/N\]: ")
        assert terminal.interrupt() == ExitCode.INTERRUPTED
    assert "Traceback" not in terminal.screen
    assert gpus("request", "describe", request, "-o", "json").json["status"] == "allocated"


def test_apply_shows_the_plan_and_asks(poolkeeper: Program, tmp_path: Path) -> None:
    paper = tmp_path / "pools.yaml"
    paper.write_text("pools:\n- {name: gpus, capacity: {gpu: 8}}\n")
    with poolkeeper.on_a_terminal("apply", "-f", str(paper)) as terminal:
        output = terminal.wait_for(r"apply these changes\? \[y/N\]: ")
        assert "+ pool gpus" in COLOUR.sub("", output)
        terminal.type("n\n")
        assert terminal.wait_for_end() == ExitCode.REFUSED
    assert poolkeeper("pool", "list", "-o", "name").out == ""
    with poolkeeper.on_a_terminal("apply", "-f", str(paper), "--yes") as terminal:
        assert terminal.wait_for_end() == ExitCode.OK
    assert "apply these changes?" not in terminal.screen
    assert poolkeeper("pool", "list", "-o", "name").line == "gpus"


def test_waiting_is_one_live_line(gpus: Program) -> None:
    request = submit(gpus, 4)
    waits = submit(gpus, 1)
    with gpus.on_a_terminal("request", "wait", waits) as terminal:
        output = terminal.wait_for(rf"{waits} queued, position 1 in gpus, for 0s; Ctrl-C stops waiting")
        assert "\n" not in output
        gpus("request", "release", request)
        assert terminal.wait_for_end() == ExitCode.OK
    assert terminal.screen.replace("\r\n", "\n").endswith(
        f"\r\x1b[Krequest {waits}: allocated in gpus under fence 2\n"
        "its lease lapses in 1m unless a heartbeat prolongs it (--lease none: never)\n"
    )


def test_the_live_line_is_never_wider_than_the_terminal(gpus: Program) -> None:
    submit(gpus, 4)
    waits = submit(gpus, 1)
    with gpus.on_a_terminal("request", "wait", waits, "--timeout", "1", width=30) as terminal:
        assert terminal.wait_for_end() == ExitCode.TIMED_OUT
    drawn = re.findall(r"\r\x1b\[K([^\r\n]*)", terminal.screen)
    assert drawn[0] == f"{waits} queued, position 1"[:29]


def test_ctrl_c_on_a_live_line(gpus: Program) -> None:
    submit(gpus, 4)
    with gpus.on_a_terminal("request", "submit", "--component", "team", "--resource", "gpu=1", "--wait") as terminal:
        terminal.wait_for(r"queued, position 1 in gpus")
        assert terminal.interrupt() == ExitCode.INTERRUPTED
    waits = re.search(r"no longer waiting; (\w+) stays queued", terminal.screen)
    assert waits
    assert f"poolkeeper request cancel {waits[1]}" in terminal.screen
    assert gpus("request", "describe", waits[1], "-o", "json").json["status"] == "queued"


def test_a_dumb_terminal_gets_lines(gpus: Program) -> None:
    submit(gpus, 4)
    waits = submit(gpus, 1)
    with gpus.on_a_terminal("request", "wait", waits, "--timeout", "1", TERM="dumb") as terminal:
        assert terminal.wait_for_end() == ExitCode.TIMED_OUT
    assert "\x1b" not in terminal.screen


def test_a_token_is_asked_for_and_not_shown(poolkeeper: Program) -> None:
    with poolkeeper.on_a_terminal("login") as terminal:
        terminal.wait_for(r"Token \(empty for none\): ")
        terminal.type("a-secret\n")
        assert terminal.wait_for_end() == ExitCode.DENIED
    assert "a-secret" not in terminal.screen
    assert not (poolkeeper.folder / "config").exists()


def test_ctrl_c_ends_following_silently(gpus: Program) -> None:
    with gpus.start("events", "--follow", "--since", "0") as following:
        submit(gpus, 1)
        assert following.stdout
        assert "was submitted" in following.stdout.readline()
        following.send_signal(signal.SIGINT)
        _, err = following.communicate(timeout=10)
    assert following.returncode == ExitCode.INTERRUPTED
    assert err.strip() == ""


@pytest.mark.parametrize("form", ["table", "json", "yaml", "name"])
def test_a_reader_that_goes_away_is_nobodys_trouble(gpus: Program, form: str) -> None:
    for number in range(3):
        submit(gpus, 1, "--label", f"n={number}", "--label", "x=" + "y" * 250)
    with subprocess.Popen([PROGRAM, "request", "list", "-o", form], env=gpus.environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:  # fmt: skip
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(10) == ExitCode.OK


def test_help_into_a_closed_pipe(gpus: Program) -> None:
    with subprocess.Popen(
        [PROGRAM, "--help"], env=gpus.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(10)
