"""`poolkeeper login`, `logout`, `whoami`, and `events`: the file that is kept, and what happened."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import yaml
from poolkeeper.cli import request_details
from poolkeeper.cli.exit_codes import ExitCode

from app.domain.reasons import ReasonCode
from tests.support.cli_program import Program
from tests.support.stub_server import StubServer, refuse, reply, stream

CALLER = {
    "name": "ana",
    "roles": ["operator"],
    "workspaces": ["lab"],
    "components": [],
    "workspace": "lab",
    "permissions": ["read"],
}


def config_path(program: Program) -> Path:
    return program.folder / "config" / "poolkeeper" / "config.json"


@pytest.fixture
def fresh(stubbed: Program) -> Program:
    """Return the program without any setting but its stored ones."""
    return Program("", stubbed.folder, "")


def test_login_keeps_what_was_checked(fresh: Program, stub: StubServer) -> None:
    stub.script(reply(CALLER), reply(CALLER))
    ran = fresh("login", "--url", f"{stub.url}/", "--token", "secret-1", "--workspace", "lab")
    assert ran.line == f"ana at {stub.url}, workspace lab; stored in {config_path(fresh)}"
    assert json.loads(config_path(fresh).read_text()) == {"url": stub.url, "token": "secret-1", "workspace": "lab"}
    assert stat.S_IMODE(config_path(fresh).stat().st_mode) == 0o600
    assert stat.S_IMODE(config_path(fresh).parent.stat().st_mode) == 0o700
    assert [path.name for path in config_path(fresh).parent.iterdir()] == ["config.json"]
    assert "Permissions: read" in fresh("whoami").out
    assert [call.headers["authorization"] for call in stub.calls] == ["Bearer secret-1"] * 2
    assert [calls.headers["poolkeeper-workspace"] for calls in stub.calls] == ["lab"] * 2


def test_a_token_comes_from_stdin_too(fresh: Program, stub: StubServer) -> None:
    stub.script(reply(CALLER))
    fresh("login", "--url", stub.url, feed="secret-2\n")
    assert json.loads(config_path(fresh).read_text())["token"] == "secret-2"


def test_no_token_is_none_even_if_one_was_kept(fresh: Program, stub: StubServer) -> None:
    stub.script(reply(CALLER), reply(CALLER))
    fresh("login", "--url", stub.url, "--token", "old")
    fresh("login", "--url", stub.url, feed="")
    assert "token" not in json.loads(config_path(fresh).read_text())
    assert "authorization" not in stub.calls[1].headers


def test_a_login_that_is_refused_keeps_nothing(fresh: Program, stub: StubServer) -> None:
    stub.script(reply(CALLER), refuse(401, "unknown_token", "this token is unknown, expired or revoked"))
    fresh("login", "--url", stub.url, "--token", "good")
    before = config_path(fresh).read_text()
    ran = fresh("login", "--url", stub.url, "--token", "bad", ends=ExitCode.DENIED)
    assert ran.err.splitlines()[0] == "poolkeeper: this token is unknown, expired or revoked"
    assert config_path(fresh).read_text() == before
    assert "bad" not in ran.out + ran.err


def test_a_file_that_others_could_read_is_replaced_by_one_they_cannot(fresh: Program, stub: StubServer) -> None:
    config_path(fresh).parent.mkdir(parents=True)
    config_path(fresh).write_text("{}")
    config_path(fresh).chmod(0o644)
    stub.script(reply(CALLER))
    fresh("login", "--url", stub.url, "--token", "t")
    assert stat.S_IMODE(config_path(fresh).stat().st_mode) == 0o600


def test_a_token_in_the_clear_is_warned_of(fresh: Program) -> None:
    ran = fresh("login", "--url", "http://nowhere.invalid:1", "--token", "t", ends=ExitCode.UNAVAILABLE)
    assert (
        ran.err.splitlines()[0]
        == "http://nowhere.invalid:1 is not encrypted: the token can be read on its way through the network"
    )
    assert not config_path(fresh).exists()


def test_logout_forgets(fresh: Program, stub: StubServer) -> None:
    stub.script(reply(CALLER))
    fresh("login", "--url", stub.url, "--token", "t")
    assert fresh("logout").line == f"removed {config_path(fresh)}"
    assert not config_path(fresh).exists()
    assert fresh("logout").line == "nothing was stored"


def test_a_broken_file_is_one_line(fresh: Program) -> None:
    config_path(fresh).parent.mkdir(parents=True)
    config_path(fresh).write_text("{")
    ran = fresh("whoami", ends=ExitCode.REFUSED)
    assert ran.err.startswith(f"poolkeeper: {config_path(fresh)} is not JSON")
    assert ran.err.count("\n") == 1


def test_whoami_of_the_real_service(poolkeeper: Program) -> None:
    facts = dict(line.split(": ", 1) for line in poolkeeper("whoami").out.splitlines())
    assert (facts["Name"].strip(), facts["Workspace"].strip()) == ("anonymous", poolkeeper.workspace)
    assert "submit" in facts["Permissions"]
    assert poolkeeper("whoami", "-o", "name").line == "anonymous"


def test_events_so_far(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=4")
    poolkeeper("policy", "attach", "gpus", "team")
    request = poolkeeper("request", "submit", "--component", "team", "--resource", "gpu=4", "-o", "name").line
    other = poolkeeper(
        "request", "submit", "--component", "unmanaged", "--resource", "gpu=1", "-o", "name", ends=ExitCode.REJECTED
    ).line
    every = poolkeeper("events", "-o", "json").json
    assert [(event["event"], event["request"]) for event in every] == [
        ("submitted", request), ("allocated", request), ("submitted", other), ("rejected", other),
    ]  # fmt: skip
    assert yaml.safe_load(poolkeeper("events", "-o", "yaml").out) == every
    assert poolkeeper("events", "-o", "name", "--since", every[1]["id"]).out.split() == [event["id"] for event in every[2:]]
    assert [line.split("  ")[-1].strip() for line in poolkeeper("events", "--request", request).out.splitlines()] == [
        "WHAT", "was submitted", "was granted in gpus",
    ]  # fmt: skip
    assert (
        poolkeeper("events", "--component", "unmanaged", "--no-headers")
        .out.splitlines()[-1]
        .endswith("was rejected: no pool has a policy for its component")
    )


def test_every_reason_there_is_is_told_in_words() -> None:
    assert set(request_details.REASON_SENTENCES) == {str(code) for code in ReasonCode}
    assert not any(code in sentence for code, sentence in request_details.REASON_SENTENCES.items() if "_" in code)


EVENT = {
    "id": "5-0", "event": "preempted", "request": "r1", "at": "2026-01-31T12:00:00.000Z", "component": "team",
    "component_type": "orchestrator", "resources": {"gpu": 2, "step_run": 1}, "pool": "gpus", "reason": "reclaim", "by": "r2",
    "by_rank": {"priority": 0, "preemption_class": 5}, "rank": {"priority": 9, "preemption_class": 5}, "victims": [],
    "title": "nightly training", "owner": "ana@gpu-01", "by_origin": "bob@gpu-02 python train.py",
}  # fmt: skip
SAID = (
    "2026-01-31 12:00:00Z  r1  nightly training  ana@gpu-01  team  gpu=2  was preempted in gpus for r2 bob@gpu-02 "
    "python train.py: the request it leaves for fits into what its policy has reserved "
    "(priority 0 class 5 against priority 9 class 5)"
)


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("table", f"{SAID}\n"),
        ("wide", f"{SAID}  r1  5-0\n"),
        ("name", "5-0\n"),
        ("yaml", "---\nid: 5-0\n"),
    ],
)
def test_a_line_of_what_happens(stubbed: Program, stub: StubServer, form: str, line: str) -> None:
    stub.script(
        stream(f"id: 5-0\nevent: preempted\ndata: {json.dumps(EVENT)}\n\n"),
        refuse(403, "not_permitted", "no more"),
    )
    ran = stubbed("events", "--follow", "-o", form, ends=ExitCode.DENIED)
    assert ran.out.startswith(line)
    assert form == "yaml" or ran.out == line
    assert stub.calls[0].headers["accept"] == "text/event-stream"
