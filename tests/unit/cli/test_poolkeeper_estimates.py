"""`request explain`, `request submit --dry-run`, and the effect of `plan` on waiters, on the real service."""

from __future__ import annotations

from pathlib import Path

import pytest
from poolkeeper.cli.exit_codes import ExitCode

from tests.support.cli_program import Program
from tests.support.stub_server import StubServer, refuse, reply


@pytest.fixture
def gpus(poolkeeper: Program) -> Program:
    """Create a pool `gpus` of 4 gpu; `team`, which ranks below `lab`, holds all of it."""
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=4")
    poolkeeper("policy", "attach", "gpus", "team", "--priority", "1")
    poolkeeper("policy", "attach", "gpus", "lab", "--priority", "9")
    submit(poolkeeper, "--component", "team", "--resource", "gpu=4", "--walltime", "1h", "--lease", "none")
    return poolkeeper


def submit(program: Program, *words: str) -> str:
    """Submit a request, and return its id."""
    return program("request", "submit", "-o", "name", *words).line


def test_explain_gives_reason_holders_and_estimate(gpus: Program) -> None:
    waits = submit(gpus, "--component", "team", "--resource", "gpu=2")
    lines = gpus("request", "explain", waits).out.splitlines()
    assert lines[0] == f"Request {waits} waits in gpus as number 1 of 1: it needs 2 gpu, and 0 of 4 are free."
    assert lines[2] == "In gpus: number 1 of 1, no_capacity"
    assert [line.split() for line in lines[3:5]] == [
        ["KEY", "NEEDED", "FREE", "KEPT", "FOR", "OTHERS", "LIMIT", "RESERVED"],
        ["gpu", "2", "0", "0", "-", "0"],
    ]
    facts = dict(line.strip().split(":", 1) for line in lines[5:9])
    assert facts["Blocked at"].strip() == "pool, which uses 4 of 4 gpu: 2 lacking"
    assert facts["Starts if"].strip() == "2 gpu come free in gpus"
    assert facts["Estimated"].strip().startswith("likely 20")
    assert facts["Estimated"].endswith("(1 promised walltime)")
    assert "  Holders of the units" in lines
    assert "  Candidates for preemption" in lines
    document = gpus("request", "explain", waits, "-o", "json").json
    assert document["pools"][0]["no_estimate"] is None
    assert (document["pools"][0]["verdict"], document["pools"][0]["ahead"]) == ("no_capacity", 0)


def test_explain_says_why_it_cannot_say_when(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=1")
    poolkeeper("policy", "attach", "gpus", "team")
    submit(poolkeeper, "--component", "team", "--resource", "gpu=1", "--lease", "none")
    lines = poolkeeper("request", "explain", submit(poolkeeper, "--component", "team", "--resource", "gpu=1")).out.splitlines()
    assert "  Estimated:   no run times are known for the allocations that it waits for" in lines


def test_explain_of_what_does_not_wait_is_a_sentence(gpus: Program) -> None:
    never = gpus("request", "submit", "--component", "team", "--resource", "gpu=9", "-o", "name", ends=ExitCode.REJECTED).line
    lines = gpus("request", "explain", never).line
    assert lines == f"Request {never} was rejected, as it could never be granted: gpus: asks 9 of gpu; the pool has 4 in all."


def test_a_dry_run_says_what_would_come_of_it_and_does_nothing(gpus: Program) -> None:
    tried = gpus("request", "submit", "--component", "lab", "--resource", "gpu=2", "--dry-run").out
    assert tried.startswith("would be granted in gpus once 1 allocation left for it: ")
    waits = gpus("request", "submit", "--component", "team", "--resource", "gpu=2", "--dry-run").out.splitlines()
    assert (waits[0], waits[2]) == ("would be queued", "In gpus: number 1 of 1, no_capacity")
    never = gpus("request", "submit", "--component", "lab", "--resource", "gpu=9", "--dry-run", ends=ExitCode.REJECTED)
    assert never.line == "would be rejected: gpus: asks 9 of gpu; the pool has 4 in all"
    assert gpus("request", "submit", "--component", "lab", "--dry-run", "--resource", "gpu=2", "-o", "name").line == "preempts"
    wrong = gpus("request", "submit", "--component", "lab", "--resource", "gpu=2", "--dry-run", "--wait", ends=ExitCode.USAGE)
    assert "--dry-run excludes --wait and --key" in wrong.err
    assert len(gpus("request", "list", "-o", "name").out.split()) == 1


def test_a_plan_says_what_it_would_mean(gpus: Program, tmp_path: Path) -> None:
    waits = submit(gpus, "--component", "team", "--resource", "gpu=2")
    paper = tmp_path / "pools.yaml"
    gpus("export", "-f", str(paper))
    paper.write_text(paper.read_text().replace("gpu: 4", "gpu: 6"))
    lines = gpus("plan", "-f", str(paper)).out.splitlines()
    assert lines[-3:-1] == ["Effect on requests that wait or hold units", f"  1 request would be granted: {waits[-6:]}"]
    assert gpus("plan", "-f", str(paper), "-o", "json").json["effect"]["granted"] == [waits]
    assert "" not in lines
    paper.write_text(paper.read_text().replace("gpu: 6", "gpu: 4") + "\n")
    assert gpus("plan", "-f", str(paper)).line == "nothing to change"


def test_slots_are_told_where_they_are_what_lacks(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "steps", "--capacity", "gpu=4,step_run=1")
    poolkeeper("policy", "attach", "steps", "team")
    submit(poolkeeper, "--component", "team", "--resource", "gpu=1", "--lease", "none")
    waits = submit(poolkeeper, "--component", "team", "--resource", "gpu=1")
    lines = [line.split() for line in poolkeeper("request", "explain", waits).out.splitlines()]
    assert ["step_run", "1", "0", "0", "-", "0"] in lines
    assert ["team", "gpu=1,step_run=1", "-", "gpu=1,step_run=1", "-"] in lines


def test_where_none_of_what_it_asks_is_bounded_no_empty_table_is_shown(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "line", "--capacity", "gpu=1", "--setting", "queueing=strict")
    poolkeeper("policy", "attach", "line", "team")
    for gpus in ("1", "1"):
        submit(poolkeeper, "--component", "team", "--resource", f"gpu={gpus}", "--lease", "none")
    lines = poolkeeper("request", "explain", submit(poolkeeper, "--component", "team", "--resource", "mcpu=1")).out.splitlines()
    assert (lines[2], lines[3].split(":")[0].strip()) == ("In line: number 2 of 2, behind", "Starts if")
    assert lines.count("") == 1


def test_a_plan_that_would_be_refused_is_shown_and_says_so(gpus: Program, tmp_path: Path) -> None:
    paper = tmp_path / "pools.yaml"
    paper.write_text("pools: [{name: gpus, capacity: {gpu: 4}, policies: [{component: lab, priority: 9}]}]")
    request = gpus("request", "list", "-o", "name").line
    lines = gpus("plan", "-f", str(paper)).out.splitlines()
    assert lines[0] == "- policy gpus/orchestrator/team"
    assert lines[-2].startswith(f"applying this would be refused: {paper}: pool gpus: policy orchestrator/team")
    assert lines[-2].endswith("is in use: 0 queued, 1 active (line 1)")
    gpus("plan", "-f", str(paper), "--exit-code", ends=ExitCode.CHANGES)
    document = gpus("plan", "-f", str(paper), "-o", "json").json
    assert (document["effect"], document["refused"]["code"], len(document["changes"])) == (None, "in_use", 1)
    assert "in use" in gpus("apply", "-f", str(paper), "--yes", ends=ExitCode.REFUSED).err
    assert gpus("request", "list", "-o", "name").line == request


UNKNOWN = "the effect on requests that wait or hold units is not known"


@pytest.mark.parametrize(
    ("status", "code", "detail", "message"),
    [
        (503, "dry_run_impossible", "this API has no throwaway server", UNKNOWN),
        (403, "not_permitted", "not for you", UNKNOWN),
        (404, "no_such_route", "there is no such route", UNKNOWN),
        (422, "too_many_requests_live", "too many", UNKNOWN),
        (422, "too_large", "it is too large", "applying this would be refused"),
        (409, "in_use", "it is in use", "applying this would be refused"),
    ],
)
def test_where_nothing_can_be_tried_out_a_plan_is_a_plan(
    stubbed: Program, stub: StubServer, status: int, code: str, detail: str, message: str
) -> None:
    change = {"action": "create", "kind": "pool", "pool": "gpus", "name": "gpus", "lines": ["capacity: 4 gpu"]}
    stub.script(reply({"changes": [change], "sentence": "1 to create"}), refuse(status, code, detail, retry_after="300"))
    ran = stubbed("plan", "-f", "-", "--exit-code", feed="pools: [{name: gpus, capacity: {gpu: 4}}]", ends=ExitCode.CHANGES)
    assert ran.out.splitlines() == ["+ pool gpus", "    capacity: 4 gpu", f"{message}: {detail}", "1 to create"]
    assert [item.path.partition("?")[0] for item in stub.calls] == ["/api/v1/declaration/plan", "/api/v1/dry-run"]
