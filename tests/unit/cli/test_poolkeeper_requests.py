"""`poolkeeper request` on the real service, and before a stand-in for what the service does not do yet."""

from __future__ import annotations

import re
import time
from types import SimpleNamespace
from typing import Any

import pytest
from poolkeeper.cli import wait_progress
from poolkeeper.cli.exit_codes import ExitCode

from tests.support.cli_program import Program
from tests.support.stub_server import Action, StubServer, cut, refuse, reply, reply_text

ID = "1m7qpcys14g0d208p8pc"


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


def test_from_submit_to_release(gpus: Program) -> None:
    first = gpus("request", "submit", "--component", "team", "--resource", "gpu=3", "--lease", "none")
    request = first.line.split()[1].rstrip(":")
    assert first.line == f"request {request}: allocated in gpus under fence 1"
    assert first.err == ""
    second = gpus("request", "submit", "--component", "team", "--gpu-count", "2")
    waits = second.line.split()[1].rstrip(":")
    assert second.line == f"request {waits}: queued, position 1 in gpus: it needs 2 gpu, and 1 of 4 is free"
    assert gpus("request", "release", request).line == f"request {request}: released"
    assert gpus("request", "wait", waits).line == f"request {waits}: allocated in gpus under fence 2"
    assert shown(gpus, request)["outcome"] == "succeeded"
    gpus("request", "release", waits, "--fence", "2", "--failed")
    assert shown(gpus, waits)["outcome"] == "failed"


def test_a_submit_waits_for_the_grant_in_one_call(stubbed: Program, stub: StubServer) -> None:
    stub.script(reply({**REQUEST, "status": "allocated", "fence": 3, "pool": "gpus", "lease_s": None}, 201))
    ran = stubbed("request", "submit", "--component", "team", "--resource", "gpu=1", "--wait", "--timeout", "1s")
    assert ran.line.endswith(": allocated in gpus under fence 3")
    assert [call.path for call in stub.calls] == ["/api/v1/requests?wait_s=1"]


def test_a_submit_that_names_pools(gpus: Program) -> None:
    gpus("pool", "create", "spare", "--capacity", "gpu=1")
    gpus("policy", "attach", "spare", "team")
    ran = gpus("request", "submit", "--component", "team", "--resource", "gpu=1", "--pool", "spare", "--pool", "gone")
    assert ": allocated in spare under fence 1" in ran.line
    request = ran.line.split()[1].rstrip(":")
    assert shown(gpus, request)["pools"] == ["gone", "spare"]
    assert "gone, spare" in gpus("request", "describe", request).out
    waits = gpus("request", "submit", "--component", "team", "--resource", "gpu=1", "--pool", "spare", "--dry-run")
    assert "queued" in waits.out
    typo = gpus("request", "submit", "--component", "team", "--resource", "gpu=1", "--pool", "gpu", ends=ExitCode.REJECTED)
    assert typo.line.endswith(": rejected: gpu: there is no such pool; did you mean gpus?")


def test_everything_that_can_be_asked_arrives(gpus: Program) -> None:
    request = submit(
        gpus, "--resource", "gpu=1,seat=1", "--resources", '{"licence": 2}', "--cpu-count", "0.29", "--memory", "16GiB",
        "--class", "7", "--checkpoint", "auto", "--checkpoint-minutes", "2", "--walltime", "2h", "--retries", "-1",
        "--lease", "5m", "--queue-ttl", "none", "--label", "owner=ana", "--label", "why=a=b", "--fixed", ends=ExitCode.REJECTED,
    )  # fmt: skip
    document = shown(gpus, request)
    assert document["resources"] == {"gpu": 1, "seat": 1, "licence": 2, "mcpu": 290, "memory_mb": 17180, "step_run": 1}
    assert (document["preemptible"], document["preemption_class"]) == (False, 7)
    assert (document["checkpoint"], document["checkpoint_minutes"], document["walltime_s"]) == ("auto", 2, 7200)
    assert (document["retries"], document["lease_s"], document["queue_ttl_s"]) == (-1, 300, None)
    assert document["labels"] == {"owner": "ana", "why": "a=b"}


def test_what_can_never_be_granted_is_rejected_with_why(gpus: Program) -> None:
    ran = gpus("request", "submit", "--component", "team", "--resource", "gpu=5", ends=ExitCode.REJECTED)
    assert ran.line.endswith(": rejected: gpus: asks 5 of gpu; the pool has 4 in all")
    assert ran.err == ""
    unmanaged = gpus(
        "request", "submit", "--component", "unmanaged", "--resource", "gpu=1", "-o", "json", ends=ExitCode.REJECTED
    )
    assert unmanaged.json["reason"]["code"] == "no_policy"
    assert unmanaged.err == ""


def test_nothing_but_a_step_is_asked_on_purpose_only(gpus: Program) -> None:
    gpus("request", "submit", "--component", "team", ends=ExitCode.USAGE)
    assert gpus("request", "list", "-o", "name").out == ""
    assert shown(gpus, submit(gpus, "--resource", "step_run=1"))["resources"] == {"step_run": 1}


def test_components_that_are_near_are_suggested(gpus: Program) -> None:
    gpus("policy", "attach", "gpus", "step_operator/vision")
    for typed, hint in {
        "teem": "did you mean team?",
        "vision": "did you mean step_operator/vision?",
        "orchestrator/vison": "did you mean step_operator/vision?",
        "zzz": "existing names: team, step_operator/vision",
    }.items():
        ran = gpus("request", "submit", "--component", typed, "--resource", "gpu=1", ends=ExitCode.REJECTED)
        assert ran.line.endswith(
            f": rejected: no pool has a policy for {typed.removeprefix('orchestrator/')}; pool gpus has gpu"
        )
        assert ran.err == f"  {hint}\n"


def test_keys_that_are_near_are_suggested(gpus: Program) -> None:
    gpus("pool", "create", "elsewhere", "--capacity", "gup=4")
    ran = gpus("request", "submit", "--component", "team", "--resource", "gup=1", "-o", "name", ends=ExitCode.REJECTED)
    assert ran.err == "  did you mean gpu?\n"
    gpus("policy", "attach", "elsewhere", "team")
    gpus("request", "submit", "--component", "team", "--resource", "gup=5", ends=ExitCode.REJECTED)
    other = gpus("request", "submit", "--component", "team", "--resource", "xyz=5", ends=ExitCode.REJECTED)
    assert other.err == "  existing names: gpu, gup\n"


@pytest.mark.parametrize(
    "trouble",
    [
        refuse(403, "not_permitted"),
        refuse(503, "away"),
        reply({"pools": [{"policies": [{}]}]}),
        reply_text(200, b"<html>"),
        cut,
    ],
    ids=["not allowed", "away", "not what is expected", "no JSON", "cut"],
)
def test_a_rejection_stays_one_when_nothing_can_be_suggested(stubbed: Program, stub: StubServer, trouble: Action) -> None:
    reason = {"code": "no_policy", "message": "no pool has a policy for team", "pools": []}
    stub.script(reply({**REQUEST, "status": "rejected", "reason": reason}), trouble)
    ran = stubbed("request", "submit", "--component", "team", "--resource", "gpu=1", ends=ExitCode.REJECTED)
    assert (ran.line, ran.err) == (f"request {ID}: rejected: no pool has a policy for team", "")
    assert [call.path for call in stub.calls] == ["/api/v1/requests", "/api/v1/declaration"]


def test_malformed_asks_are_told_field_by_field(gpus: Program) -> None:
    ran = gpus("request", "submit", "--component", "team", "--resource", "GPU=1", "--memory", "lots", ends=ExitCode.USAGE)
    lines = ran.err.splitlines()
    assert lines[0] == "poolkeeper: the body is malformed"
    assert {line.split(":")[0] for line in lines[1:]} == {"  --resource GPU", "  --memory"}


def test_what_is_wrong_is_told_by_the_option_that_said_it(gpus: Program) -> None:
    def get_error_line(words: str) -> str:
        return gpus(*words.split(), ends=ExitCode.USAGE).err.splitlines()[1]

    asks = "request submit --component team --resource gpu=1"
    assert get_error_line(f"{asks} --memory 1XB").startswith("  --memory: must be a number and one of ")
    assert get_error_line(f"{asks} --lease 99999d").startswith("  --lease: must be at most ")
    assert get_error_line(f"{asks} --walltime 0").startswith("  --walltime: must be at least ")
    assert get_error_line(f"{asks} --label /b=c").startswith("  --label /b: ")
    assert get_error_line("pool create p --capacity gpu=1 --setting patience=5").startswith(
        "  --setting patience: is not a field here"
    )
    assert get_error_line("policy attach gpus x --reserved GPU=1").startswith("  --reserved GPU: ")


def test_a_key_makes_it_once(gpus: Program) -> None:
    ids = {submit(gpus, "--resource", "gpu=1", "--key", "nightly") for _ in range(3)}
    assert len(ids) == 1
    other = gpus("request", "submit", "--component", "team", "--resource", "gpu=2", "--key", "nightly", ends=ExitCode.REFUSED)
    assert other.err.count("\n") == 1
    assert len({submit(gpus, "--resource", "gpu=1") for _ in range(2)}) == 2


def test_a_lease_is_spoken_of_to_people(gpus: Program) -> None:
    assert "lapses in 1m " in gpus("request", "submit", "--component", "team", "--resource", "gpu=1").err
    assert gpus("request", "submit", "--component", "team", "--resource", "gpu=1", "-o", "json").err == ""


def test_lists_and_their_filters(gpus: Program) -> None:
    gpus("policy", "attach", "gpus", "step_operator/other")
    request = submit(gpus, "--resource", "gpu=4", "--label", "owner=ana", "--label", "kind=x")
    waits = submit(gpus, "--resource", "gpu=1", "--label", "owner=bo")
    refused = submit(gpus, "--resource", "gpu=5", "--label", "owner=ana", ends=ExitCode.REJECTED)
    other = gpus("request", "submit", "--component", "step_operator/other", "--resource", "gpu=1", "-o", "name").line

    def listed(*words: str) -> list[str]:
        return gpus("request", "list", *words, "-o", "name").out.split()

    assert listed() == [other, waits, request]
    assert listed("--all") == [other, refused, waits, request]
    assert listed("--search", "owner=ana") == [request]
    assert listed("--search", refused[-5:], "--all") == [refused]
    assert listed("--status", "queued", "--status", "rejected") == [other, refused, waits]
    assert listed("--component", "team", "--all") == [refused, waits, request]
    assert listed("--component", "step_operator/other") == [other]
    assert listed("--component", "orchestrator/other") == []
    assert listed("--label", "owner=ana", "--label", "kind=x") == [request]
    assert listed("--pool", "gpus", "--status", "allocated") == [request]
    assert listed("--pool", "gpus") == [other, waits, request]
    assert listed("--limit", "2", "--all") == [other, refused]
    assert gpus("request", "list").out.count("\n") == 1 + 3
    lines = gpus("request", "list", "--all").out.splitlines()
    assert lines[0].split() == ["ID", "NAME", "OWNER", "COMPONENT", "ASKS", "STATUS", "POOL", "PLACE", "AGE", "WHY"]
    assert lines[2].endswith("gpus: asks 5 of gpu; the pool has 4 in all")
    assert re.search(rf"^{waits[-6:]} .* queued +- +1 in gpus ", lines[3])
    assert re.search(r" allocated +gpus +fence 1 ", lines[4])
    assert "kind=x owner=ana" in gpus("request", "list", "-o", "wide").out


def test_a_request_in_full_with_its_timeline(gpus: Program) -> None:
    request = submit(gpus, "--resource", "gpu=4", "--label", "owner=ana", "--walltime", "90m")
    gpus("request", "release", request)
    lines = gpus("request", "describe", request).out
    facts = dict(line.split(":", 1) for line in lines.split("\n\n")[0].splitlines())
    facts = {name: value.strip() for name, value in facts.items()}
    assert facts | {
        "Request": request, "Component": "team", "Asks": "gpu=4", "Status": "released", "Outcome": "succeeded", "Pool": "gpus",
        "Lease": "1m", "Preemptible": "yes, class 5", "Walltime": "1h30m", "Labels": "owner=ana", "Queue TTL": "10m",
    } == facts  # fmt: skip
    timeline = lines.split("Timeline\n")[1].splitlines()
    assert [re.sub(r"^  \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  ", "", line) for line in timeline] == [
        "was submitted",
        "was granted in gpus",
        "gave its units back: succeeded",
    ]


def test_a_waiter_shows_when_it_was_last_asked_for(gpus: Program) -> None:
    holder, waiter = (submit(gpus, "--resource", "gpu=4") for _ in range(2))
    assert re.search(r"^Last polled: +\d{4}-\S+ \S+Z \(\d+s ago\)$", gpus("request", "describe", waiter).out, re.M)
    assert "Last polled" not in gpus("request", "describe", holder).out
    head, *rows = gpus("request", "list", "-o", "wide").out.splitlines()
    ages = {row.split()[0]: row[head.index("ASKED") :].split()[0] for row in rows}
    assert re.fullmatch(r"\d+s", ages[waiter[-6:]])
    assert ages[holder[-6:]] == "-"
    assert "ASKED" in gpus("pool", "describe", "gpus", "-o", "wide").out


def test_a_story_says_why(gpus: Program) -> None:
    gpus("pool", "create", "spare", "--capacity", "gpu=2")
    gpus("policy", "attach", "spare", "team")
    refused = submit(gpus, "--resource", "gpu=5", ends=ExitCode.REJECTED)
    lines = gpus("request", "describe", refused).out
    assert (
        "What each pool said\n  gpus: asks 5 of gpu; the pool has 4 in all\n  spare: asks 5 of gpu; the pool has 2 in all\n"
        in lines
    )
    request = submit(gpus, "--resource", "gpu=1")
    gpus("request", "delete", request)
    assert "gave its units back: an operator dropped it" in gpus("request", "describe", request).out


def test_cancel_and_delete(gpus: Program) -> None:
    request, waits = submit(gpus, "--resource", "gpu=4"), submit(gpus, "--resource", "gpu=1")
    assert gpus("request", "cancel", waits).line == f"request {waits}: cancelled"
    refused = gpus("request", "cancel", request, ends=ExitCode.REFUSED)
    assert "request release" in refused.err.splitlines()[1]
    assert gpus("request", "delete", request).line == f"request {request}: released: an operator dropped it"
    assert gpus("request", "delete", "nothing", ends=ExitCode.NOT_FOUND).err.startswith(
        "poolkeeper: there is no request nothing"
    )


def test_a_drop_asks_whose_request_it_is(gpus: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poolkeeper.cli.confirm.is_interactive", lambda: True)
    labels = ("--label", "user=ana", "--label", "host=gpu-01", "--label", "command=python train.py")
    request = submit(gpus, "--resource", "gpu=4", *labels)
    refused = gpus("request", "delete", request, feed="n\n", ends=ExitCode.REFUSED)
    assert refused.err.splitlines()[0] == (
        f"drop it? request {request}: allocated in gpus under fence 1 (team, ana@gpu-01, python train.py, gpu=4) [y/N]: n"
    )
    assert gpus("request", "delete", request, feed="y\n").line == f"request {request}: released: an operator dropped it"


def test_release_of_what_holds_nothing(gpus: Program) -> None:
    request, waits = submit(gpus, "--resource", "gpu=4"), submit(gpus, "--resource", "gpu=1")
    queued = gpus("request", "release", waits, ends=ExitCode.REFUSED)
    assert queued.err.splitlines()[1] == f"  to leave the queue: poolkeeper request cancel {waits}"
    stale = gpus("request", "release", request, "--fence", "99", ends=ExitCode.REFUSED)
    assert stale.err.startswith("poolkeeper: this fence holds nothing of")


def test_heartbeat(gpus: Program) -> None:
    request = submit(gpus, "--resource", "gpu=1")
    before = shown(gpus, request)["lease_expires_at"]
    assert re.fullmatch(rf"request {request}: continue, lease until \d{{4}}-.*Z", gpus("request", "heartbeat", request).line)
    assert shown(gpus, request)["lease_expires_at"] > before
    assert gpus("request", "heartbeat", request, "--fence", "77", ends=ExitCode.REFUSED).out == ""


def test_waiting_in_vain_ends_with_its_own_code_and_leaves_it_queued(gpus: Program) -> None:
    submit(gpus, "--resource", "gpu=4")
    ran = gpus(
        "request",
        "submit",
        "--component",
        "team",
        "--resource",
        "gpu=1",
        "--wait",
        "--timeout",
        "1",
        "-o",
        "json",
        ends=ExitCode.TIMED_OUT,
    )
    waits = ran.json["id"]
    assert ran.err.splitlines()[0] == f"{waits} queued, position 1 in gpus"
    assert f"not granted within 1s; {waits} stays queued (for 10m without a poll)" in ran.err
    assert f"poolkeeper request cancel {waits}" in ran.err
    assert (
        gpus("request", "wait", waits, "--timeout", "0s", ends=ExitCode.TIMED_OUT).line
        == f"request {waits}: queued, position 1 in gpus"
    )


REQUEST = {
    "id": ID, "component": "team", "component_type": "orchestrator", "status": "queued", "reason": None, "pool": None,
    "resources": {"gpu": 1}, "fence": None, "position": {"gpus": 2}, "queue_ttl_s": None, "lease_s": None, "labels": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("allocated", ExitCode.OK), ("preempting", ExitCode.OK), ("rejected", ExitCode.REJECTED), ("released", ExitCode.ENDED),
        ("preempted", ExitCode.ENDED), ("expired", ExitCode.ENDED), ("cancelled", ExitCode.ENDED),
    ],
)  # fmt: skip
def test_how_a_wait_ends(stubbed: Program, stub: StubServer, status: str, code: ExitCode) -> None:
    stub.script(reply(REQUEST), reply({**REQUEST, "position": {"gpus": 1}}), reply({**REQUEST, "status": status, "fence": 3}))
    ran = stubbed("request", "wait", ID, ends=code)
    assert ran.out.startswith(f"request {ID}: {status}")
    assert ran.err.splitlines() == [f"{ID} queued, position 2 in gpus", f"{ID} queued, position 1 in gpus"]
    assert [call.path.split("?")[0] for call in stub.calls] == [f"/api/v1/requests/{ID}"] * 3
    assert all("status=queued" in calls.path and "wait_s=" in calls.path for calls in stub.calls[1:])


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of pauses between polls; no pause takes any time."""
    pauses: list[float] = []
    monkeypatch.setattr(wait_progress, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append))
    return pauses


def test_a_full_house_is_asked_again_when_it_says(stubbed: Program, stub: StubServer, pauses: list[float]) -> None:
    stub.script(reply(REQUEST), reply(REQUEST, retry_after="1"), reply({**REQUEST, "status": "allocated", "fence": 1}))
    stubbed("request", "wait", ID)
    assert len(stub.calls) == 3
    assert pauses == [1]


def test_a_wait_outlives_a_service_that_is_away_for_a_moment(stubbed: Program, stub: StubServer, pauses: list[float]) -> None:
    away = refuse(503, "redis_unreachable", "Redis is away", retry_after="1")
    stub.script(reply(REQUEST), away, reply({**REQUEST, "status": "allocated", "fence": 1}))
    ran = stubbed("request", "wait", ID)
    assert "Redis is away; trying again" in ran.err
    assert pauses == [1]


def test_submit_sends_a_key_even_if_none_is_given(stubbed: Program, stub: StubServer) -> None:
    stub.script(reply(REQUEST), reply(REQUEST))
    for _ in range(2):
        stubbed("request", "submit", "--component", "team", "--resource", "gpu=1")
    keys = [call.headers["idempotency-key"] for call in stub.calls]
    assert len(set(keys)) == 2
    assert all(len(key) == 32 for key in keys)


def test_what_was_not_said_is_left_to_the_service(stubbed: Program, stub: StubServer) -> None:
    stub.script(reply(REQUEST))
    stubbed("request", "submit", "--component", "team", "--resource", "gpu=1")
    assert stub.calls[0].body == {"component": "team", "component_type": "orchestrator", "resources": {"gpu": 1}}


def test_a_preempting_request_is_still_held(stubbed: Program, stub: StubServer) -> None:
    leaving = {**REQUEST, "status": "preempting", "pool": "gpus", "fence": 7}
    stub.script(reply(leaving), reply({**leaving, "status": "released"}))
    stubbed("request", "release", ID)
    assert stub.calls[1].body == {"fence": 7, "outcome": "succeeded"}
