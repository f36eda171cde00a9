"""`poolkeeper request list --watch` on a terminal: intervals, windows of another size, the end, a service that is away."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from poolkeeper.cli.exit_codes import ExitCode

from tests.support.backends import free_port
from tests.support.cli_program import Program
from tests.support.stub_server import StubServer, refuse, reply
from tests.support.team_pool import create_team_pool, submit

CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
WATCH = ("request", "list", "--watch", "--interval", "0.5")


@pytest.fixture
def gpus(poolkeeper: Program) -> Program:
    """Return the program, with the pool of `team`."""
    return create_team_pool(poolkeeper)


def lines_after(screen: str, start: str) -> list[str]:
    """Return the lines that were drawn after the last occurrence of a text."""
    return CONTROL.sub("", screen.rpartition(start)[2].replace("\x1b[H", "\n")).replace("\r", "").split("\n")


def test_it_shows_what_changes_and_ctrl_c_ends_it_cleanly(gpus: Program) -> None:
    first = submit(gpus, "--name", "resnet")
    with gpus.on_a_terminal(*WATCH) as terminal:
        terminal.wait_for(rf"{first[-6:]}.*resnet.*allocated.*gpus.*fence 1")
        second = submit(gpus)
        terminal.wait_for(rf"{second[-6:]}.*queued.*1 in gpus")
        gpus("request", "release", first)
        terminal.wait_for(rf"{second[-6:]}[^\n]*allocated")
        assert terminal.interrupt() == ExitCode.INTERRUPTED
    end = terminal.screen.rpartition("\x1b[?1049l")[2]
    assert "Traceback" not in terminal.screen
    assert terminal.screen.index("\x1b[?1049h") < terminal.screen.rindex("\x1b[?1049l")
    assert terminal.screen.rindex("\x1b[?25h") > terminal.screen.rindex("\x1b[?25l"), "the cursor is shown again"
    assert CONTROL.sub("", end).replace("^C", "").strip() == "", "nothing but the echo of the key"


def test_q_ends_it(gpus: Program) -> None:
    with gpus.on_a_terminal(*WATCH) as terminal:
        terminal.wait_for("no request")
        terminal.type("q")
        assert terminal.wait_for_end() == ExitCode.OK


def test_a_smaller_window_is_drawn_at_once_and_never_overflows(gpus: Program) -> None:
    for number in range(12):
        submit(gpus, "--name", f"a rather long name of number {number}")
    with gpus.on_a_terminal("request", "list", "--watch", "--interval", "600", width=200) as terminal:
        terminal.wait_for("a rather long name of number 0")
        terminal.screen = ""
        terminal.resize(40, 8)
        terminal.wait_for("and 7 more")
        drawn = lines_after(terminal.screen, "requests")
        assert max(map(len, drawn)) <= 40
        assert len([line for line in drawn if line.strip()]) <= 8
        terminal.screen = ""
        terminal.resize(120, 30)
        terminal.wait_for("a rather long name of number 0")
        assert "more" not in terminal.screen
        terminal.type("q")
        assert terminal.wait_for_end() == ExitCode.OK


def test_without_a_terminal_a_sentence_says_so(gpus: Program) -> None:
    ran = gpus.process("request", "list", "--watch", ends=ExitCode.USAGE)
    assert ran.out == ""
    assert ran.err.startswith("poolkeeper: --watch needs a terminal")
    with gpus.on_a_terminal("request", "list", "--watch", "-o", "json") as terminal:
        assert terminal.wait_for_end() == ExitCode.USAGE
    assert "--watch draws for people" in terminal.screen
    assert "--interval needs --watch" in gpus.process("request", "list", "--interval", "1", ends=ExitCode.USAGE).err


def test_a_service_that_is_away_is_tried_again(tmp_path: Path) -> None:
    port = free_port()
    program = Program(f"http://127.0.0.1:{port}", tmp_path, "default")
    with program.on_a_terminal(*WATCH) as terminal:
        terminal.wait_for(r"no answer from http://127.0.0.1:\d+: Connection refused; trying again")
        with StubServer(port) as stub:
            stub.script(*[reply({"items": [], "next_cursor": None})] * 1000)
            terminal.wait_for("no request")
            stub.actions.clear()
            stub.script(*[refuse(401, "unknown_token", "this token is unknown, expired or revoked")] * 10)
            assert terminal.wait_for_end() == ExitCode.DENIED
    assert "this token is unknown, expired or revoked" in terminal.screen.rpartition("\x1b[?1049l")[2]
