"""Request ids on the command line: short ones, ambiguous ones, `--last`, and what shells are offered."""

from __future__ import annotations

from typing import Any

import pytest
from poolkeeper.cli import request_ids
from poolkeeper.cli.exit_codes import ExitCode
from poolkeeper.runner.origin_labels import user_name

from tests.support.cli_program import Program
from tests.support.stub_server import StubServer, reply
from tests.support.team_pool import create_team_pool, submit

ID, OTHER_ID = "1m7qpcys14g0d208p8pc", "1m7qpcz4dm04h6mr028r"
REQUEST = {
    "id": ID, "component": "vision", "component_type": "orchestrator", "name": "resnet", "status": "cancelled", "reason": None,
    "pool": None, "resources": {"gpu": 1}, "fence": 3, "position": {}, "lease_s": None, "labels": {}, "preemptions": 0,
}  # fmt: skip
OTHER = {**REQUEST, "id": OTHER_ID, "name": None, "labels": {"command": "python train.py"}, "status": "queued"}
VERBS = (
    "describe",
    "explain",
    "wait",
    "release",
    "heartbeat",
    "checkpoint --state started",
    "cancel",
    "delete --yes",
)


@pytest.fixture
def gpus(poolkeeper: Program) -> Program:
    """Return the program, with the pool of `team`."""
    return create_team_pool(poolkeeper)


def page(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"items": list(rows), "next_cursor": None}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("text", [ID[-6:], ID[-4:], ID[:12], ID[-6:].upper()])
def test_every_verb_takes_a_beginning_or_an_end(stubbed: Program, stub: StubServer, verb: str, text: str) -> None:
    stub.script(reply(page(REQUEST)))
    stubbed("request", *verb.split(), text, POOLKEEPER_TRACEBACK="", ends=ExitCode.REFUSED)  # the stub has no more to say
    assert stub.calls[0].path == f"/api/v1/requests?id={text.lower()}&limit=11"
    assert stub.calls[1].path.split("?")[0].startswith(f"/api/v1/requests/{ID}")


def test_a_full_id_needs_no_call_more(stubbed: Program, stub: StubServer) -> None:
    stub.script(reply(REQUEST))
    stubbed("request", "cancel", ID)
    assert [call.path for call in stub.calls] == [f"/api/v1/requests/{ID}/cancel"]


def test_events_take_a_short_id(gpus: Program) -> None:
    first, second = submit(gpus), submit(gpus)
    lines = gpus("events", "--request", second[-6:], "--no-headers").out.splitlines()
    assert [line.split()[2] for line in lines] == [second[-6:]]
    assert first[-6:] in gpus("events").out
    assert gpus("events", "--last", "-o", "json").json[0]["request"] == second


def test_an_ambiguous_id_lists_the_candidates(stubbed: Program, stub: StubServer) -> None:
    stub.script(reply(page(OTHER, REQUEST)))
    ran = stubbed("request", "describe", "1m7q", ends=ExitCode.USAGE)
    assert ran.err.splitlines() == [
        "poolkeeper: 1m7q is ambiguous: it is the beginning or the end of 2 ids",
        "  mr028r: python train.py, vision, queued",
        "  08p8pc: resnet, vision, cancelled",
    ]
    assert len(stub.calls) == 1


def test_of_very_many_candidates_ten_are_listed(gpus: Program) -> None:
    ids = [submit(gpus) for _ in range(11)]
    ran = gpus("request", "cancel", ids[0][:4], ends=ExitCode.USAGE)
    head, *candidates = ran.err.splitlines()
    assert head.endswith("of more than 10 ids")
    assert [line.split()[0] for line in candidates] == [f"{each[-6:]}:" for each in ids[:0:-1]]


def test_an_id_that_no_request_has_is_not_found(gpus: Program) -> None:
    hint = "  `poolkeeper request list --all` lists the requests that are kept"
    ran = gpus("request", "describe", "zzzz", ends=ExitCode.NOT_FOUND)
    assert ran.err.splitlines() == ["poolkeeper: there is no request zzzz: no id begins or ends with it", hint]
    full = gpus("request", "describe", "z" * 20, ends=ExitCode.NOT_FOUND)
    assert full.err.splitlines() == [f"poolkeeper: there is no request {'z' * 20}", hint]


def test_fewer_than_four_characters_are_too_few(stubbed: Program, stub: StubServer) -> None:
    ran = stubbed("request", "describe", "8pc", ends=ExitCode.USAGE)
    assert ran.err == "poolkeeper: 8pc is too short: an id is its beginning or end of at least 4 characters\n"
    assert not stub.calls


def test_last_is_the_newest_request_of_this_user(gpus: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_ids, "user_name", lambda: "ana")
    unlabelled = submit(gpus)
    own = submit(gpus, "--label", "user=ana", "--label", "host=gpu-01", "--name", "resnet")
    submit(gpus, "--label", "user=bo")
    ran = gpus("request", "describe", "--last")
    assert ran.out.splitlines()[0].split() == ["Request:", own]
    assert ran.err == f"the newest request: {own[-6:]}: resnet, team, queued\n"
    quiet = gpus("request", "explain", "--last", "-o", "name")
    assert (quiet.line, quiet.err) == (own, "")
    newest = submit(gpus)
    assert gpus("request", "cancel", "--last").line == f"request {newest}: cancelled"
    monkeypatch.setattr(request_ids, "user_name", lambda: "eva")
    assert gpus("request", "describe", "--last", "-o", "name").line == newest
    assert unlabelled != newest


def test_last_is_no_task_and_of_no_other_user(stubbed: Program, stub: StubServer) -> None:
    stub.script(reply(page({**REQUEST, "task": "t1"}, {**REQUEST, "labels": {"user": "bob"}})))
    ran = stubbed("request", "describe", "--last", ends=ExitCode.NOT_FOUND)
    assert ran.err.startswith(f"poolkeeper: there is no request of {user_name()} among the newest 200; tasks do not count\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--last", ID), f"--last and the id {ID} exclude each other"),
        ((), "Missing argument 'ID'; --last takes your newest request."),
    ],
)
def test_an_id_or_last_is_needed(stubbed: Program, stub: StubServer, words: tuple[str, ...], message: str) -> None:
    ran = stubbed("request", "describe", *words, ends=ExitCode.USAGE)
    assert ran.err.splitlines()[0] == f"poolkeeper: {message}"
    assert not stub.calls


def completions(program: Program, line: str, shell: str = "bash") -> list[str]:
    """Return what a shell is offered for the last word of this line."""
    word = str(len(line.split(" ")) - 1)
    return program(COMP_WORDS=line, COMP_CWORD=word, _POOLKEEPER_COMPLETE=f"{shell}_complete").out.splitlines()


def test_ids_and_short_ids_are_completed(gpus: Program) -> None:
    request = submit(gpus, "--name", "resnet")
    assert completions(gpus, "poolkeeper request describe ") == [f"plain,{request}"]
    assert completions(gpus, f"poolkeeper request describe {request[:8]}") == [f"plain,{request}"]
    assert completions(gpus, f"poolkeeper request describe {request[-6:-1]}") == [f"plain,{request[-6:]}"]
    offer = ["plain", request[-6:], "resnet, team, allocated"]
    assert completions(gpus, f"poolkeeper request describe {request[-6:-1]}", "zsh") == offer
