"""A submit is one script call, and its answer is the request as a read right after it returns it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from app.domain.clock import ManualClock
from app.domain.errors import Conflict
from app.domain.explanations import WaitReason, WaitSummary
from app.domain.ledger_limits import LedgerLimits
from app.domain.specs import PolicySpec, RequestSpec
from app.domain.states import RequestState
from app.service.requests import Requests
from app.store.connection import RedisClient
from app.store.ledger import Ledger
from app.store.queue_status import QueueStatusStore
from app.store.scripts import observe
from app.store.workspaces import WorkspaceRegistry
from tests.support.world import World, full_component

SETTINGS: dict[str, dict[str, Any]] = {
    "share first": {},
    "priority first": {"order": "priority_first"},
    "strict": {"queueing": "strict"},
    "classes": {"discipline": "classes"},
    "fair share": {"discipline": "fair_share"},
}


class Submits:
    """The requests of one workspace, and the scripts that were called for them."""

    def __init__(self, client: RedisClient, chunk: int) -> None:
        self.scripts: list[str] = []
        observe(client, self._note)
        self.ledger = Ledger(client, ManualClock(), LedgerLimits(chunk=chunk))
        self.requests = Requests(self.ledger, WorkspaceRegistry(client))

    @contextmanager
    def _note(self, script: str) -> Iterator[None]:
        self.scripts.append(script)
        yield


@pytest.fixture
def submits(client: RedisClient) -> Iterator[Submits]:
    yield Submits(client, chunk=200)
    observe(client)


def set_up(world: World, settings: dict[str, Any] | None = None) -> None:
    """Create two pools of one unit; `low` borrows in both, `high` ranks before it and has a share in the first."""
    for pool in ("p", "q"):
        world.pool(pool, settings, gpu=1)
        world.policy("low", pool, priority=1)
        world.policy("high", pool, priority=2, reserved={"gpu": 1} if pool == "p" else {})


def spec(component: str = "low", **fields: Any) -> RequestSpec:
    return RequestSpec(component=component, resources={"gpu": 1}, **fields)


@pytest.mark.parametrize("name", SETTINGS)
def test_each_answer_is_what_a_read_right_after_it_returns(world: World, submits: Submits, name: str) -> None:
    set_up(world, SETTINGS[name])
    specs = [spec(), spec("high"), spec(), spec("high"), spec(preemption_class=9), spec("high", walltime_s=60), spec()]
    for each in specs:
        submits.scripts.clear()
        answer = submits.requests.submit(world.workspace, each)
        assert submits.scripts == ["submit"]
        if answer.status is RequestState.QUEUED:
            assert (answer, set(answer.position)) == (submits.ledger.get_request(world.workspace, answer.id), {"p", "q"})


def test_a_submit_in_the_middle_of_the_queue_has_its_position_there(world: World, submits: Submits) -> None:
    set_up(world)
    answers = [submits.requests.submit(world.workspace, spec(component)) for component in ("low", "low", "low", "low", "high")]
    assert [answer.position for answer in answers] == [{}, {}, {"p": 1, "q": 1}, {"p": 2, "q": 2}, {"p": 1, "q": 1}]


def test_a_repeated_submit_is_one_call_and_has_the_positions_of_now(world: World, submits: Submits) -> None:
    set_up(world)
    holders = [submits.requests.submit(world.workspace, spec()) for _ in range(2)]
    first, second = (submits.requests.submit(world.workspace, spec(), key) for key in ("first", "second"))
    assert (first.position, second.position) == ({"p": 1, "q": 1}, {"p": 2, "q": 2})
    submits.requests.cancel(world.workspace, first.id)
    submits.scripts.clear()
    again = submits.requests.submit(world.workspace, spec(), "second")
    assert (again.id, again.position, submits.scripts) == (second.id, {"p": 1, "q": 1}, ["submit"])
    submits.requests.release(world.workspace, holders[0].id, holders[0].fence or 0)
    assert submits.requests.submit(world.workspace, spec(), "second").status is RequestState.ALLOCATED


@pytest.mark.parametrize("explained", [True, False])
def test_another_body_under_the_key_of_a_queued_request_is_a_conflict(world: World, submits: Submits, explained: bool) -> None:
    set_up(world)
    for _ in range(2):
        submits.requests.submit(world.workspace, spec())
    submit = submits.requests.submit if explained else submits.ledger.submit
    queued = submit(world.workspace, spec(), "key")
    assert queued.status is RequestState.QUEUED
    with pytest.raises(Conflict, match="another body"):
        submit(world.workspace, spec(labels={"a": "b"}), "key")


def test_a_queued_submit_says_why_it_waits_in_the_same_call(world: World, submits: Submits) -> None:
    set_up(world)
    for _ in range(2):
        submits.requests.submit(world.workspace, spec())
    submits.scripts.clear()
    summary = submits.requests.submit_explained(world.workspace, spec())
    assert submits.scripts == ["submit"]
    assert [(status.pool, status.wait_reason) for status in summary.statuses] == [
        ("p", WaitReason.NO_CAPACITY),
        ("q", WaitReason.NO_CAPACITY),
    ]
    record, statuses = QueueStatusStore(world.client, world.clock).list_statuses(world.workspace, summary.request.id)
    assert summary == WaitSummary(record, tuple(replace(status, last_event="") for status in statuses))


def test_a_granted_or_rejected_submit_is_one_call_that_reads_no_positions(world: World, submits: Submits) -> None:
    set_up(world)
    submits.scripts.clear()
    answers = [submits.requests.submit(world.workspace, each) for each in (spec(), spec("unmanaged"))]
    assert [(answer.status, answer.position, answer.timeline) for answer in answers] == [
        (RequestState.ALLOCATED, {}, ()),
        (RequestState.REJECTED, {}, ()),
    ]
    assert submits.scripts == ["submit", "submit"]


def test_a_batch_is_one_call_that_reads_no_positions(world: World, submits: Submits) -> None:
    set_up(world)
    submits.scripts.clear()
    answers = submits.requests.submit_batch(world.workspace, [spec()] * 4)
    assert [getattr(answer, "status", None) for answer in answers] == ["allocated", "allocated", "queued", "queued"]
    assert [getattr(answer, "position", None) for answer in answers] == [{}] * 4
    assert submits.scripts == ["submit"]


class InterruptedLedger(Ledger):
    """A ledger that leaves the unfinished work of a change to others."""

    def resume_unfinished(self, workspace: str) -> bool:
        return False


def test_a_submit_amid_unfinished_work_is_read_again_when_that_is_done(client: RedisClient, world: World) -> None:
    set_up(world)
    for number in range(8):
        world.submit("low", gpu=1, preemption_class=1 + number % 2)
    interrupted = InterruptedLedger(client, world.clock, LedgerLimits(chunk=1))
    interrupted.set_policy(world.workspace, "p", full_component("low"), PolicySpec(priority=3))
    submits = Submits(client, chunk=1)
    try:
        answer = submits.requests.submit(world.workspace, spec("high"))
        assert (submits.scripts[0], submits.scripts[-1]) == ("submit", "get_request")
        assert set(submits.scripts[1:-1]) == {"resume_unfinished", "take_job_lock", "release_job_lock"}
        assert answer == submits.ledger.get_request(world.workspace, answer.id)
        assert set(answer.position) == {"p", "q"}
    finally:
        observe(client)
