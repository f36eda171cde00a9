"""`poolkeeper` as a process: its imports, its encoding, its pipes and signals, and the same output as in-process."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from poolkeeper.cli.exit_codes import ExitCode

from tests.support.cli_program import PROGRAM, Program
from tests.support.stub_server import StubServer, reply


@pytest.fixture
def nowhere(tmp_path: Path) -> Program:
    """Return the program without a service at its address."""
    return Program("http://127.0.0.1:1", tmp_path, "default")


def test_help_imports_nothing_heavy(nowhere: Program) -> None:
    program = (
        "import sys\nfrom poolkeeper.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'rich', 'yaml', 'http.client', 'urllib.request', 'ssl'}\n"
        "heavy |= {'poolkeeper.cli.pools', 'poolkeeper.client', 'poolkeeper.models', 'poolkeeper.errors'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=nowhere.environment(), capture_output=True, text=True, timeout=30
    )
    assert done.stderr == "[]\n"


CALLER = {"name": "ana", "roles": ["admin"], "workspaces": ["*"], "components": [], "workspace": "w", "permissions": ["read"]}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_scripts(nowhere: Program, shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(nowhere.process("completion", shell).out)
    assert "_POOLKEEPER_COMPLETE" in script.read_text()
    checker = shutil.which(shell)
    assert checker or shell != "bash"
    if checker:
        subprocess.run([checker, "-n", script], check=True, timeout=10)


def test_a_name_that_is_no_ascii_is_escaped_where_it_must_be(stubbed: Program, stub: StubServer) -> None:
    component = {**CALLER, "name": "→na"}
    for form in ("json", "table", "name"):
        stub.script(reply(component), reply(component))
        assert "\\u2192na" in stubbed.process("whoami", "-o", form, PYTHONIOENCODING="latin-1").out
        assert "→na" in stubbed.process("whoami", "-o", form, PYTHONIOENCODING="utf-8").out


def test_closed_streams_are_nobodys_trouble(stubbed: Program, stub: StubServer) -> None:
    stub.script(reply({"items": [], "next_cursor": None}))
    command = f"{shlex.quote(str(PROGRAM))} pool list <&- >&-"
    done = subprocess.run(["bash", "-c", command], env=stubbed.environment(), stderr=subprocess.PIPE, timeout=30)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_real_program_prints_the_same(poolkeeper: Program) -> None:
    made = poolkeeper.process("pool", "create", "gpus", "--capacity", "gpu=8")
    assert (made.out, made.err) == ("created pool gpus: gpu=8\n", "")
    assert poolkeeper.process("pool", "list", "-o", "wide").out == poolkeeper("pool", "list", "-o", "wide").out
    missing = poolkeeper.process("pool", "describe", "gpu", ends=ExitCode.NOT_FOUND)
    assert (missing.out, missing.err) == ("", "poolkeeper: there is no pool gpu\n  did you mean gpus?\n")


def test_events_as_they_happen(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=4")
    poolkeeper("policy", "attach", "gpus", "team")
    first = poolkeeper("request", "submit", "--component", "team", "--resource", "gpu=4", "-o", "name").line
    with poolkeeper.start("events", "--follow", "--since", "0", "-o", "json") as following:
        assert following.stdout
        assert json.loads(following.stdout.readline())["event"] == "submitted"
        assert json.loads(following.stdout.readline())["event"] == "allocated"
        poolkeeper("request", "release", first)
        assert json.loads(following.stdout.readline())["event"] == "released"


@pytest.fixture
def gpus(poolkeeper: Program) -> Program:
    """Create a pool `gpus` of 4 gpu with a policy of `team`, which reserves 2; return the program."""
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=4")
    poolkeeper("policy", "attach", "gpus", "team", "--reserved", "gpu=2")
    return poolkeeper


def submit(program: Program, *words: str, ends: int = 0) -> str:
    """Submit a request of `team`, and return its id."""
    return program("request", "submit", "--component", "team", "-o", "name", *words, ends=ends).line


def shown(program: Program, request: str) -> dict[str, Any]:
    """Return the request as the service describes it."""
    document: dict[str, Any] = program("request", "describe", request, "-o", "json").json
    return document


def test_waiting_ends_when_it_is_granted(gpus: Program) -> None:
    request = submit(gpus, "--resource", "gpu=4")
    words = ("request", "submit", "--component", "team", "--resource", "gpu=2", "--wait", "--lease", "none")
    with gpus.start(*words) as waiting:
        assert waiting.stderr
        assert waiting.stdout
        assert waiting.stderr.readline().endswith(" queued, position 1 in gpus\n")
        gpus("request", "release", request)
        assert waiting.stdout.readline().endswith(": allocated in gpus under fence 2\n")
        assert waiting.wait(10) == ExitCode.OK


def test_ctrl_c_while_waiting_leaves_it_queued_and_says_so(gpus: Program) -> None:
    submit(gpus, "--resource", "gpu=4")
    waits = submit(gpus, "--resource", "gpu=1")
    with gpus.start("request", "wait", waits) as waiting:
        assert waiting.stderr
        assert waiting.stderr.readline() == f"{waits} queued, position 1 in gpus\n"
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=20)
    assert waiting.returncode == ExitCode.INTERRUPTED
    assert err == (
        f"no longer waiting; {waits} stays queued (for 10m without a poll). To cancel it: poolkeeper request cancel {waits}\n"
    )
    assert out == ""
    assert shown(gpus, waits)["status"] == "queued"


def test_waiting_for_what_is_cancelled_meanwhile(gpus: Program) -> None:
    submit(gpus, "--resource", "gpu=4")
    waits = submit(gpus, "--resource", "gpu=1")
    with gpus.start("request", "wait", waits) as waiting:
        assert waiting.stderr
        waiting.stderr.readline()
        gpus("request", "cancel", waits)
        assert waiting.wait(10) == ExitCode.ENDED
    assert gpus("request", "wait", waits, ends=ExitCode.ENDED).line == f"request {waits}: cancelled"


def test_no_space_follows_what_needs_an_amount(nowhere: Program) -> None:
    script = nowhere("completion", "bash").out
    assert "COMPREPLY+=($value)\n            [[ $value == *= ]] && compopt -o nospace\n" in script
