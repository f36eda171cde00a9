"""Having to leave, from the command line: what is shown of it, and what a holder says."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from poolkeeper.cli import request_details
from poolkeeper.cli.exit_codes import ExitCode

from tests.support import preemptions
from tests.support.cli_program import Program
from tests.support.client_api import Api

AT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"


def submit(program: Program, *words: str) -> dict[str, Any]:
    """Submit a request of `team` for all units."""
    query = ("request", "submit", "--component", "team", "--resource", "gpu=4", "-o", "json")
    document: dict[str, Any] = program(*query, *words).json
    return document


@pytest.fixture
def contended(api: Api, poolkeeper: Program) -> Callable[..., tuple[str, str, str]]:
    """Return a function that preempts a holder (with more options), and returns its id and fence and the waiter's id."""

    def make(*words: str) -> tuple[str, str, str]:
        poolkeeper("pool", "create", "gpus", "--capacity", "gpu=4")
        poolkeeper("policy", "attach", "gpus", "team", "--priority", "7")
        request, waits = submit(poolkeeper, *words), submit(poolkeeper, "--class", "8")
        with api.redis() as redis:
            preemptions.preempt(redis, waits["id"], [(request["id"], request["fence"])], workspace=poolkeeper.workspace)
        return request["id"], str(request["fence"]), waits["id"]

    return make


def test_a_notice_is_shown_with_its_deadline_and_waiter(
    poolkeeper: Program, contended: Callable[..., tuple[str, str, str]]
) -> None:
    request, fence, waits = contended()
    shown = poolkeeper("request", "describe", request).out
    assert re.search(rf"^Why: +preempted for request {waits[-6:]}, which ranks higher$", shown, re.MULTILINE)
    assert re.search(rf"^Directive: +terminate until {AT}$", shown, re.MULTILINE)
    assert re.search(rf"^Preempted by: +{waits}$", shown, re.MULTILINE)
    line = f"was told to leave in gpus for {waits[-6:]}: the request it leaves for ranks higher "
    assert line + "(priority 7 class 8 against priority 7 class 5)\n" in shown
    assert (
        f"is to be granted in gpus once {request[-6:]} (priority 7 class 5) has left\n"
        in poolkeeper("request", "describe", waits).out
    )
    assert re.search(rf"{request[-6:]} .* terminate until {AT}", poolkeeper("request", "list", "-o", "wide").out)
    beat = poolkeeper("request", "heartbeat", request).line
    assert re.fullmatch(rf"request {request}: terminate until {AT}, lease until {AT}", beat)
    assert re.fullmatch(
        rf"request {request}: preempting in gpus under fence {fence}: terminate until {AT}",
        poolkeeper("request", "wait", request).line,
    )


def test_a_checkpoint_from_its_beginning_to_its_end(
    poolkeeper: Program, contended: Callable[..., tuple[str, str, str]]
) -> None:
    request, fence, waits = contended("--checkpoint", "manual", "--lease", "none")

    def say(*words: str, ends: int = 0) -> str:
        ran = poolkeeper("request", "checkpoint", request, "--fence", fence, *words, ends=ends)
        return ran.line if not ends else ran.err

    assert re.fullmatch(rf"request {request}: checkpoint until {AT}, without a lease", say("--state", "started"))
    assert "checkpoint until" in say("--state", "defer", "--for", "2m")
    assert say("--state", "completed", "--reference", "step 9") == f"request {request}: queued, it has left"
    shown = poolkeeper("request", "describe", request).out
    assert re.search(r"^Resumes: +step 9$", shown, re.MULTILINE)
    assert re.search(r"^Preempted: +once$", shown, re.MULTILINE)
    assert poolkeeper("request", "describe", waits, "-o", "json").json["status"] == "allocated"
    assert "stale" not in say("--state", "progress", ends=ExitCode.REFUSED)


def test_a_checkpoint_that_is_said_wrongly(poolkeeper: Program, contended: Callable[..., tuple[str, str, str]]) -> None:
    request, fence, _ = contended()
    for words in (("--state", "defer"), ("--state", "failed", "--for", "5s")):
        wrong = poolkeeper("request", "checkpoint", request, *words, ends=ExitCode.USAGE)
        assert "--for is for --state defer" in wrong.err
    too_much = ("--fence", fence, "--state", "failed", "--reference", "x")
    wrong = poolkeeper("request", "checkpoint", request, *too_much, ends=ExitCode.USAGE)
    assert "--reference: goes with completed" in wrong.err


def test_vacated(poolkeeper: Program, contended: Callable[..., tuple[str, str, str]]) -> None:
    request, fence, waits = contended("--retries", "0")
    line = poolkeeper("request", "release", request, "--fence", fence, "--outcome", "vacated").line
    assert line == f"request {request}: preempted: preempted for request {waits[-6:]}, which ranks higher"
    refused = poolkeeper("request", "release", waits, "--outcome", "vacated", ends=ExitCode.REFUSED)
    assert refused.err.count("\n") == 1
    wrong = poolkeeper("request", "release", waits, "--failed", "--outcome", "vacated", ends=ExitCode.USAGE)
    assert "exclude each other" in wrong.err


def test_a_profile_is_set_shown_and_kept(poolkeeper: Program) -> None:
    poolkeeper("pool", "create", "gpus", "--capacity", "gpu=4", "--setting", "discipline=classes", "--setting", "max_victims=0")
    attached = poolkeeper("policy", "attach", "gpus", "team", "--profile", "training").line
    assert attached == "attached team to pool gpus: priority 0, profile training"
    poolkeeper("policy", "update", "gpus", "team", "--priority", "3")
    assert "Profile:     training\n" in poolkeeper("policy", "show", "gpus", "team").out
    assert "training" in poolkeeper("policy", "list", "gpus", "-o", "wide").out
    assert "training" not in poolkeeper("policy", "list", "gpus").out
    poolkeeper("pool", "update", "gpus", "--setting", "requeue_failed_checkpoint=false", "--setting", "near_completion_s=5m")
    settings = poolkeeper("pool", "describe", "gpus", "-o", "json").json["settings"]
    assert (settings["requeue_failed_checkpoint"], settings["near_completion_s"], settings["max_victims"]) == (False, 300, 0)
    assert "requeue_failed_checkpoint=false near_completion_s=300" in poolkeeper("pool", "describe", "gpus").out


def test_every_event_there_is_is_told_in_words() -> None:
    events = {"submitted", "allocated", "released", "expired", "cancelled", "rejected", "preempting", "preempted", "forced"}
    assert set(request_details.EVENT_SENTENCES) == events | {"reprieved", "terminating", "clearing", "passed_on", "started"}
