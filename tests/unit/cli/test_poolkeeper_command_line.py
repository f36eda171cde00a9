"""The program as such: help, examples, options before and after the verb, completions, how it starts and how it refuses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from poolkeeper import Client
from poolkeeper.cli.command_base import VerbCommand
from poolkeeper.cli.exit_codes import MEANINGS, ExitCode
from poolkeeper.cli.main import COMMANDS, main
from poolkeeper.cli.pool_settings import ACCOUNT_SETTINGS
from poolkeeper.models import Request
from poolkeeper.runner.command_env import command_environment

from app.bootstrap import make_services
from app.settings import Settings
from tests.support.cli_program import PROGRAM, Program
from tests.support.client_api import Api
from tests.support.stub_server import Action, StubServer, cut, refuse, reply


def verbs() -> Iterator[tuple[str, VerbCommand]]:
    """Yield every command with its words."""
    with click.Context(main, info_name="poolkeeper") as ctx:
        for name in main.list_commands(ctx):
            command = main.get_command(ctx, name)
            assert command
            if isinstance(command, click.Group):
                for verb, inner in command.commands.items():
                    assert isinstance(inner, VerbCommand)
                    yield f"{name} {verb}", inner
            else:
                assert isinstance(command, VerbCommand)
                yield name, command


VERBS = dict(verbs())


def parses(words: list[str]) -> None:
    """Raise unless the program accepts the words."""
    with main.make_context("poolkeeper", list(words)) as ctx:
        command: click.Command = main
        name: str | None = None
        rest = [*ctx._protected_args, *ctx.args]
        while isinstance(command, click.Group):
            name, inner, rest = command.resolve_command(ctx, rest)
            assert inner
            command = inner
        with command.make_context(name or "", rest, parent=ctx):
            pass


@pytest.fixture
def nowhere(tmp_path: Path) -> Program:
    """Return the program without a service at its address."""
    return Program("http://127.0.0.1:1", tmp_path, "default")


@pytest.mark.parametrize("words", VERBS)
def test_every_verb_has_help_with_examples_that_work(nowhere: Program, words: str) -> None:
    shown = nowhere(*words.split(), "--help").out
    assert shown == nowhere(*words.split(), "-h").out
    lines = shown.split("Examples:\n")[1].strip().splitlines()
    assert lines
    for line in lines:
        typed = [shlex.split(part) for part in re.split(r"[|>]|&&|\$\(|\)", line.replace('"', ""))]
        used = [part[1:] for part in typed if " ".join(part).startswith(f"poolkeeper {words}")]
        assert used, line
        parses(used[0])


def test_every_verb_says_what_it_does() -> None:
    assert [words for words, verb in VERBS.items() if not (verb.help or "").strip().split("\n")[0].rstrip(".;")] == []


def test_the_help_page_names_every_command_and_every_exit_code(nowhere: Program) -> None:
    shown = nowhere("--help").out
    assert all(f"\n  {name} " in shown for name in COMMANDS)
    assert all(f" {code.value}  {MEANINGS[code]}" in " ".join(shown.split("\n")) for code in ExitCode)


@pytest.mark.parametrize("noun", [name for name in COMMANDS if f"{name} show" in VERBS or f"{name} list" in VERBS])
def test_the_help_page_names_the_verbs_of_a_noun(noun: str) -> None:
    named = COMMANDS[noun][1].split(": ")[1].rstrip(".").split(", ")
    assert set(named) == {words.split()[1] for words in VERBS if words.startswith(f"{noun} ")}


def test_the_help_page_leads_to_the_examples(nowhere: Program) -> None:
    assert "--help of each verb, such as `poolkeeper request submit --help`, has examples" in " ".join(
        nowhere("--help").out.split()
    )


def test_what_may_be_unmanaged_is_said(nowhere: Program) -> None:
    lines = nowhere("workspace", "update", "--help").out.splitlines()
    assert "  unmanaged=reject  requests of a component without any policy are rejected (the default)" in lines
    assert any(line.startswith("  unmanaged=allow   they are granted at once") for line in lines)


@pytest.mark.parametrize("words", ["policy attach", "group create"])
def test_what_two_do_at_the_same_moment_is_said(nowhere: Program, words: str) -> None:
    assert "Of two simultaneous calls, the later one counts." in " ".join(nowhere(*words.split(), "--help").out.split())


def test_version(nowhere: Program) -> None:
    assert nowhere("--version").line.startswith("poolkeeper 0.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pol list", "No such command 'pol'. (Did you mean one of: 'policy', 'pool'?)"),
        ("pool lst", "No such command 'lst'. Did you mean 'list'?"),
        ("explain ids", "No such command 'explain'. Did you mean 'request explain'?"),
        ("attach gpus", "No such command 'attach'. Did you mean 'policy attach'?"),
        ("create gpus", "No such command 'create'. Did you mean 'pool create' or 'group create'?"),
        ("pool create p --capacty gpu=8", "No such option '--capacty'. Did you mean '--capacity'?"),
        ("pool create p --capacity gpu=1.5", "Invalid value for '--capacity': gpu: must be a whole number, not 1.5"),
        ("pool create p --capacity gpu=1 --capacity gpu=2", "--capacity: gpu is given twice"),
        ("pool create p", "the pool has no capacity: --gpu 8"),
        ("pool create p --gpu 1.5", "--gpu takes a whole number, not 1.5"),
        ("pool create p --gpu 1 --gpu 2", "--gpu is given twice"),
        ("pool create p --gpu 1 --capacity gpu=2", "--capacity: gpu is given twice"),
        ("pool create p --cpu 0.5", "--cpu takes a whole number, not 0.5"),
        ("pool create a/b --capacity gpu=8", "'a/b' is no name"),
        ("pool update p", "nothing to change"),
        ("policy list", "name a pool, or a component with --component"),
        ("policy list p --component c", "name a pool, or a component with --component"),
        ("policy show p a/b/c", "'a/b/c' is no component"),
        ("policy show p step_operator/c --type orchestrator", "--type orchestrator is not the type of step_operator/c"),
        ("policy update p c", "nothing to change: give an option"),
        ("policy update p c --group g --no-group", "--group and --no-group exclude each other"),
        ("request submit --resource gpu=1", "Missing option '--component'"),
        ("request submit --component c --timeout 5m", "--timeout needs --wait"),
        ("request submit --component c", "the request has no amounts: give one, such as --gpu 1"),
        ("request submit --component c --gpu-count 0 --cpu-count 0", "the request has no amounts: give one, such as --gpu 1"),
        ("request submit --component c --resource memory=64GB", "not 64GB; --memory takes it"),
        ("request submit --component c --resource gpu=1,cpu=0.5", "not 0.5; --cpu-count takes it"),
        (
            "request submit --component c --gpu 1.5",
            "--gpu takes a whole number, not 1.5. For parts of a gpu let the pool count",
        ),
        ("run --component c --gpu 1.5 -- true", "such as mgpu=8000 for 8, and ask --mgpu 1500"),
        ("run --component c --gpu=,25 -- true", "--gpu takes a whole number, not ,25. For parts of a gpu"),
        ("run --component c --seats 0.0001 -- true", "such as mseats=8000 for 8"),
        ("run --component c --cpu 0.5 -- true", "--cpu takes a whole number, not 0.5; --cpu-count takes it"),
        ("run --component c --gpu 2x -- true", "--gpu takes a whole number, not 2x"),
        ("request submit --component c --gpu -1", "--gpu takes a whole number, not -1"),
        ("request submit --component c --gpu two", "an amount needs a whole number, not two"),
        ("request submit --component c --gpu", "an amount needs a whole number, not nothing"),
        ("request submit --component c --memory_mb=16GiB", "--memory_mb takes a whole number, not 16GiB; --memory takes it"),
        ("request submit --component c --cpu 0.5", "--cpu takes a whole number, not 0.5; --cpu-count takes it"),
        ("request submit --component c --gpu 1 --waltime 2h", "No such option '--waltime'. Did you mean '--walltime'?"),
        ("request submit --component c --walltime none", "'none' is no duration"),
        ("request submit --component c --class 11", "11 is not in the range 0<=x<=10"),
        ("request submit --component c --label owner", "'owner' is no label"),
        ("request list --status waiting", "'waiting' is not one of"),
        ("pool list -o jsn", "'jsn' is not one of"),
    ],
)
def test_wrong_usage_is_told_in_two_lines(nowhere: Program, words: str, message: str) -> None:
    ran = nowhere(*words.split(), ends=ExitCode.USAGE)
    first, second = ran.err.splitlines()
    assert first.startswith("poolkeeper: ")
    assert message in first
    assert second.startswith("  see: poolkeeper")
    assert ran.out == ""


def test_no_service_is_one_line_and_what_to_do(nowhere: Program) -> None:
    ran = nowhere("pool", "list", ends=ExitCode.UNAVAILABLE)
    first, second = ran.err.splitlines()
    assert first == "poolkeeper: no answer from http://127.0.0.1:1: Connection refused"
    assert "--url" in second
    assert ran.out == ""


@pytest.mark.parametrize(
    ("url", "lacks"),
    [
        ("ftp://x", "http://host:port or https://host:port"),
        ("127.0.0.1:18701", "http:// or https:// is missing"),
        ("http://127.0.0.1:18701/docs", "leave out /docs"),
    ],
)
def test_a_wrong_address_is_one_line(nowhere: Program, url: str, lacks: str) -> None:
    for ran in (
        nowhere("pool", "list", "--url", url, ends=ExitCode.USAGE),
        nowhere("whoami", ends=ExitCode.USAGE, POOLKEEPER_URL=url),
    ):
        assert ran.err.count("\n") == 1
        assert url in ran.err
        assert lacks in ran.err


def test_an_address_with_the_path_of_every_call_is_an_address(stubbed: Program, stub: StubServer) -> None:
    stub.script(reply(CALLER))
    assert f"Service:     {stub.url}\n" in stubbed("whoami", "--url", f"{stub.url}/api/v1/").out


def test_an_address_with_another_path_is_doubted_when_nothing_is_there(poolkeeper: Program) -> None:
    ran = poolkeeper("pool", "list", "--url", f"{poolkeeper.url}/elsewhere", ends=ExitCode.NOT_FOUND)
    assert "check --url" in ran.err.splitlines()[1]


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (400, "malformed", ExitCode.USAGE),
        (401, "no_token", ExitCode.DENIED),
        (403, "not_permitted", ExitCode.DENIED),
        (404, "no_such_route", ExitCode.NOT_FOUND),
        (409, "key_in_use", ExitCode.REFUSED),
        (413, "body_too_large", ExitCode.REFUSED),
        (422, "overpromised", ExitCode.REFUSED),
        (500, "internal_error", ExitCode.REFUSED),
    ],
)
def test_refusals_have_their_exit_codes(
    stubbed: Program, stub: StubServer, status: int, code: str, exit_code: ExitCode
) -> None:
    stub.script(refuse(status, code, "it\ncannot \x1b[31mbe"))
    ran = stubbed("whoami", ends=exit_code)
    assert ran.err.splitlines()[0] == "poolkeeper: it cannot ?[31mbe"
    assert ran.out == ""


def test_fields_that_are_wrong_are_listed(stubbed: Program, stub: StubServer) -> None:
    faults = [{"field": "capacity.gpu", "reason": "must be at least 1"}, {"field": "", "reason": "must be an object"}]
    stub.script(refuse(400, "malformed", "the body is malformed: capacity.gpu must be at least 1", errors=faults))
    ran = stubbed("whoami", ends=ExitCode.USAGE)
    assert ran.err.splitlines() == [
        "poolkeeper: the body is malformed",
        "  capacity.gpu: must be at least 1",
        "  body: must be an object",
    ]


CALLER = {"name": "ana", "roles": ["admin"], "workspaces": ["*"], "components": [], "workspace": "w", "permissions": ["read"]}


@pytest.mark.parametrize(
    "words",
    [
        "--token t1 --workspace w1 -o json whoami",
        "whoami --token t1 --workspace w1 -o json",
        "--token t0 --workspace w0 -o yaml whoami --token t1 --workspace w1 -o json",
    ],
)
def test_global_options_stand_before_or_after_the_verb(stubbed: Program, stub: StubServer, words: str) -> None:
    stub.script(reply(CALLER))
    assert stubbed(*words.split()).json == CALLER
    call = stub.calls[0].headers
    assert (call["authorization"], call["poolkeeper-workspace"]) == ("Bearer t1", "w1")


def test_variables_are_heard_and_options_go_before_them(stubbed: Program, stub: StubServer) -> None:
    stub.script(reply(CALLER), reply(CALLER))
    stubbed("whoami", "--workspace", "w1", "-o", "name")
    stubbed("whoami", "-o", "name", POOLKEEPER_TOKEN="t2")
    assert [call.headers["poolkeeper-workspace"] for call in stub.calls] == ["w1", "default"]
    assert stub.calls[1].headers["authorization"] == "Bearer t2"


def test_an_unknown_variable_is_refused_before_any_call(stubbed: Program, stub: StubServer) -> None:
    ran = stubbed("whoami", ends=ExitCode.USAGE, POOLKEEPER_WORKSPCE="w1")
    assert ran.err == "poolkeeper: POOLKEEPER_WORKSPCE: there is no such variable; did you mean POOLKEEPER_WORKSPACE?\n"
    assert (stub.calls, ran.out) == ([], "")
    assert "Examples" in stubbed("whoami", "--help", POOLKEEPER_WORKSPCE="w1").out


def test_variables_of_the_service_and_of_a_run_are_accepted(stubbed: Program, stub: StubServer) -> None:
    stub.script(reply(CALLER))
    request = Request("r1", "allocated", resources={"a100.80-gb": 1}, pool="gpus", fence=7)
    environ = command_environment({}, Client(stubbed.url), request, Path("/x"), resume=False, reference=None)
    settings: dict[str, Any] = {f"POOLKEEPER_{field.name.upper()}": "x" for field in fields(Settings)}
    link = {"POOLKEEPER_SERVICE_HOST": "10.0.0.1", "POOLKEEPER_SERVICE_PORT": "8080", "POOLKEEPER_SERVICE_PORT_HTTP": "8080"}
    stubbed("whoami", "-o", "name", **settings | environ | link, POOLKEEPER_CONFIG="/x")
    assert len(stub.calls) == 1


def completed(program: Program, line: str) -> list[str]:
    """Return the completions that bash gets for the last word of this line."""
    word = str(len(line.split(" ")) - 1)
    ran = program(COMP_WORDS=line, COMP_CWORD=word, _POOLKEEPER_COMPLETE="bash_complete")
    assert ran.err == ""
    return [offer.partition(",")[2] for offer in ran.out.split()]


def test_commands_and_options_are_completed(nowhere: Program) -> None:
    assert completed(nowhere, "poolkeeper po") == ["pool", "policy"]
    assert completed(nowhere, "poolkeeper pool de") == ["describe", "delete"]
    assert completed(nowhere, "poolkeeper pool list -o ") == ["table", "wide", "json", "yaml", "name"]
    assert completed(nowhere, "poolkeeper pool create --cap") == ["--capacity"]


def test_names_are_completed(poolkeeper: Program) -> None:
    for name in ("gpus", "gpus-old", "licences"):
        poolkeeper("pool", "create", name, "--capacity", "gpu=1")
    poolkeeper("policy", "attach", "gpus", "team-ml")
    request = poolkeeper("request", "submit", "--component", "team-ml", "--resource", "gpu=1", "-o", "name").line
    assert completed(poolkeeper, "poolkeeper pool describe g") == ["gpus", "gpus-old"]
    assert completed(poolkeeper, "poolkeeper policy show gpus t") == ["team-ml"]
    assert completed(poolkeeper, "poolkeeper policy show licences ") == []
    assert completed(poolkeeper, f"poolkeeper request describe {request[:3]}") == [request]
    assert completed(poolkeeper, f"poolkeeper --workspace absent-{request} pool describe ") == []


def test_only_requests_that_fit_the_verb_are_completed(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=1")
    poolkeeper("policy", "attach", "gpus", "team-ml")
    made = [
        poolkeeper("request", "submit", "--component", "team-ml", "--resource", "gpu=1", "-o", "name").line for _ in range(3)
    ]
    poolkeeper("request", "cancel", made[2])
    fitting = {"release": made[:1], "heartbeat": made[:1], "cancel": made[1:2], "wait": made[1:2], "describe": made[::-1]}
    assert {verb: completed(poolkeeper, f"poolkeeper request {verb} ") for verb in fitting} == fitting


def test_components_and_keys_are_completed(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=1,mcpu=1000")
    poolkeeper("pool", "create", "seats", "--capacity", "seat=1,gpu=1")
    for pool, component in (("gpus", "team-ml"), ("seats", "team-ml"), ("seats", "step_operator/other")):
        poolkeeper("policy", "attach", pool, component)
    assert set(completed(poolkeeper, "poolkeeper request submit --component ")) == {"team-ml", "step_operator/other"}
    assert completed(poolkeeper, "poolkeeper request list --component step") == ["step_operator/other"]
    assert completed(poolkeeper, "poolkeeper policy show gpus ") == ["team-ml"]
    assert completed(poolkeeper, "poolkeeper request submit --resource ") == ["gpu=", "mcpu=", "seat="]
    assert completed(poolkeeper, "poolkeeper pool update seats --capacity g") == ["gpu="]


def test_settings_are_completed(nowhere: Program) -> None:
    assert completed(nowhere, "poolkeeper pool create gpus --setting dis") == ["discipline="]
    assert completed(nowhere, "poolkeeper policy update gpus team --setting ") == [f"{name}=" for name in ACCOUNT_SETTINGS]
    assert completed(nowhere, "poolkeeper group create gpus lab --setting over") == ["over_limit=", "over_limit_after_s="]
    assert completed(nowhere, "poolkeeper pool update gpus --setting discipline=f") == ["discipline=fair_share"]
    assert completed(nowhere, "poolkeeper group create gpus lab --mode f") == ["fair_share", "fifo"]


def test_completion_is_silent_without_a_service(nowhere: Program) -> None:
    assert completed(nowhere, "poolkeeper pool describe g") == []


def test_the_program_is_installed() -> None:
    assert PROGRAM.exists()


def test_what_is_no_poolkeeper_is_told_without_a_traceback(stubbed: Program, stub: StubServer) -> None:
    stub.script(reply({"items": [{}], "next_cursor": None}))
    ran = stubbed("pool", "list", ends=ExitCode.REFUSED, POOLKEEPER_TRACEBACK="")
    assert ran.err.splitlines()[0] == "poolkeeper: unexpected error: KeyError: 'name'"
    assert ran.err.count("\n") == 2


def test_a_refused_permission_names_the_roles_that_may(poolkeeper: Program, api: Api) -> None:
    with api.redis() as redis:
        tokens = make_services(redis, Settings()).tokens
        (_, admin), (_, operator) = (tokens.create(role, role, ["*"]) for role in ("admin", "operator"))
    create = ("pool", "create", "gpus", "--capacity", "gpu=8")
    ran = poolkeeper(*create, "--token", operator, ends=ExitCode.DENIED)
    refusal, hint = ran.err.splitlines()
    assert refusal.startswith("poolkeeper: the role operator may not create, delete or configure pools")
    assert refusal.endswith("(permission shape); the role admin may")
    assert hint == "  use a token of the role admin"
    assert poolkeeper(*create, "--token", admin).code == 0


def test_an_answer_that_was_lost_is_spoken_of(stubbed: Program, stub: StubServer) -> None:
    stub.script(cut, refuse(409, "pool_exists", "there is a pool gpus already"))
    ran = stubbed("pool", "create", "gpus", "--capacity", "gpu=1", ends=ExitCode.REFUSED)
    assert "the change may be made already" in ran.err.splitlines()[1]


@pytest.mark.parametrize(
    ("acts", "words", "ends"),
    [
        ([cut, refuse(404, "no_such_request")], "request describe 1m7qpcys14g0d208p8pc", ExitCode.NOT_FOUND),
        ([refuse(503, "redis_unreachable", retry_after="0")] * 5, "pool create gpus --capacity gpu=1", ExitCode.UNAVAILABLE),
    ],
    ids=["a read", "answers that did arrive"],
)
def test_nothing_is_said_to_be_lost_that_was_not(
    stubbed: Program, stub: StubServer, acts: list[Action], words: str, ends: ExitCode
) -> None:
    stub.script(*acts)
    assert "an earlier try" not in stubbed(*words.split(), ends=ends).err


def test_tls_with_a_plain_port_is_told_in_plain_words(stubbed: Program, stub: StubServer) -> None:
    url = stub.url.replace("http:", "https:")
    ran = stubbed("pool", "create", "gpus", "--capacity", "gpu=1", "--url", url, ends=ExitCode.UNAVAILABLE)
    first, second = ran.err.splitlines()
    assert first == f"poolkeeper: the server at {url} does not speak TLS: try {stub.url}"
    assert "--url" in second
