"""`poolkeeper top` live on a terminal: keys, events, and a service that does not answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from poolkeeper.cli.exit_codes import ExitCode

from tests.support.backends import free_port
from tests.support.cli_program import Program, Terminal
from tests.support.stub_server import Action, StubHandler, StubServer, refuse, reply

STEERING = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def a_pool(name: str = "gpus", **more: Any) -> dict[str, Any]:
    """Return a pool as the service describes it: 4 of 8 gpu are used, one of them borrowed, two are held."""
    amounts = {"capacity": {"gpu": 8}, "used": {"gpu": 4}, "borrowed": {"gpu": 1}, "held": {"gpu": 2}, "free": {"gpu": 4}}
    return {"name": name, "description": "", "active_count": 2, "queue_length": 0, **amounts, **more}


@pytest.fixture
def gpus(poolkeeper: Program) -> Program:
    """Create a pool `gpus` of 4 gpu with a policy of `team`, which uses 3 of them and waits for 2; return the program."""
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=4")
    poolkeeper("policy", "attach", "gpus", "team", "--reserved", "gpu=2")
    for amount in (3, 2):
        submit(poolkeeper, amount)
    return poolkeeper


def submit(program: Program, amount: int) -> str:
    words = ("--component", "team", "--resource", f"gpu={amount}", "-o", "name", "--lease", "none")
    return program("request", "submit", *words).line


def test_it_draws_anew_as_soon_as_something_happens_and_q_ends_it(gpus: Program) -> None:
    with gpus.on_a_terminal("top", "--interval", "600") as terminal:
        assert "████▓▓" in terminal.wait_for("1 running, 1 waiting").replace("\x1b[0m\x1b[33m", "")
        _until_it_listens(gpus, terminal)
        terminal.type("q")
        assert terminal.wait_for_end() == ExitCode.OK
    assert terminal.screen.index("\x1b[?1049h") < terminal.screen.index("gpus") < terminal.screen.rindex("\x1b[?1049l")
    assert terminal.screen.rindex("\x1b[?25h") > terminal.screen.rindex("\x1b[?25l"), "the cursor is shown again"


def _until_it_listens(program: Program, terminal: Terminal) -> None:
    """Submit requests until one is seen: a stream does not tell events from before it was opened."""
    for number in range(2, 40):
        submit(program, 2)
        try:
            terminal.wait_for(rf"1 running, {number} waiting", within_s=2)
        except AssertionError:
            continue
        return
    raise AssertionError(terminal.screen)


def test_a_question_mark_shows_help_and_hides_it_in_80_columns(gpus: Program) -> None:
    labels = ("--label", "user=ana", "--label", f"host={'h' * 60}", "--name", "nightly training of the large model")
    gpus("request", "submit", "--component", "team", "--gpu", "1", *labels)
    with gpus.on_a_terminal("top", width=80) as terminal:
        terminal.wait_for("RUNNING ")
        terminal.type("?")
        terminal.wait_for("shows this help")
        terminal.screen, before = "", terminal.screen
        terminal.type("?")
        terminal.wait_for("RUNNING ")
        terminal.type("q")
        assert terminal.wait_for_end() == ExitCode.OK
    lines = STEERING.sub("", (before + terminal.screen).replace("\x1b[H", "\n")).replace("\r", "").split("\n")
    assert any("nightly" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_ctrl_c_ends_it_and_leaves_the_terminal_as_it_was(gpus: Program) -> None:
    with gpus.on_a_terminal("top") as terminal:
        terminal.wait_for("1 running, 1 waiting")
        assert terminal.interrupt() == ExitCode.INTERRUPTED
    assert "\x1b[?1049l" in terminal.screen
    assert "Traceback" not in terminal.screen


def test_of_many_pools_one_is_looked_at_closely(poolkeeper: Program) -> None:
    for number in range(1, 7):
        poolkeeper("pool", "create", f"pool-{number}", "--capacity", "gpu=1")
        poolkeeper("policy", "attach", f"pool-{number}", f"team-{number}")
    with poolkeeper.on_a_terminal("top", width=60) as terminal:
        terminal.wait_for("team-1 ")
        assert "team-2" not in terminal.wait_for("pool-6")
        for key, team in (("\x1b[B", 2), ("3", 3), ("k", 2), ("6", 6), ("j", 6)):
            terminal.screen = ""
            terminal.type(key)
            terminal.wait_for(f"team-{team} ")
        terminal.type("q")
        assert terminal.wait_for_end() == ExitCode.OK
    lines = STEERING.sub("", terminal.screen.replace("\x1b[H", "\n")).replace("\r", "").split("\n")
    assert max(map(len, lines)) <= 60


def answers(to: Mapping[str, Any]) -> list[Action]:
    """Return an action that answers by the path, any number of times."""

    def act(handler: StubHandler) -> None:
        document = next((body for part, body in to.items() if part in handler.path), None)
        (reply(document) if document is not None else refuse(404, "no_such_route"))(handler)

    return [act] * 1000


def test_a_service_that_is_away_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    program = Program(f"http://127.0.0.1:{port}", tmp_path, "default")
    with program.on_a_terminal("top", "--interval", "0.5") as terminal:
        terminal.wait_for(r"no answer from http://127.0.0.1:\d+: Connection refused; trying again")
        with StubServer(port) as stub:
            pools: dict[str, Any] = {"items": [a_pool()], "next_cursor": None}
            nothing = pools | {"items": []}
            stub.script(*answers({"/policies": nothing, "/requests": nothing, "/pools": pools}))
            terminal.wait_for("2 running, 0 waiting")
            stub.actions.clear()
            stub.script(*[refuse(503, "store_unavailable", "Redis is away")] * 1000)
            terminal.wait_for(r"Redis is away; trying again; this was \d+ s ago")
        terminal.type("q")
        assert terminal.wait_for_end() == ExitCode.OK


def test_a_token_that_is_not_good_ends_it(stubbed: Program, stub: StubServer) -> None:
    stub.script(*[refuse(401, "unknown_token", "this token is unknown, expired or revoked")] * 50)
    with stubbed.on_a_terminal("top") as terminal:
        assert terminal.wait_for_end() == ExitCode.DENIED
    assert "this token is unknown, expired or revoked" in terminal.screen.partition("\x1b[?1049l")[2]


def test_an_answer_that_is_none_ends_it_in_words(stubbed: Program, stub: StubServer) -> None:
    stub.script(*answers({"/pools": {"items": [{"name": "gpus"}], "next_cursor": None}}))
    with stubbed.on_a_terminal("top") as terminal:
        assert terminal.wait_for_end() == ExitCode.REFUSED
    assert "unexpected error" in terminal.screen.partition("\x1b[?1049l")[2]


def test_where_there_are_no_blocks_it_is_plain(gpus: Program) -> None:
    legend = gpus.process("top", "--once", PYTHONIOENCODING="ascii").out.splitlines()[-1]
    assert legend == "# in share  + borrowed  ~ held  . free"
