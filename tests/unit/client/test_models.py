"""Records from the answers of a server that is newer or older than the client."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import pytest
from poolkeeper.errors import PoolkeeperError
from poolkeeper.models import Plan, Pool, Reason, Request


def test_what_is_not_known_is_passed_over() -> None:
    newer = {"id": "r", "status": "queued", "reason": {"code": "c", "message": "m", "mood": "bad"}, "colour": "blue"}
    assert Request.from_json(newer) == Request(id="r", status="queued", reason=Reason("c", "m"))


def test_what_is_not_said_is_the_default() -> None:
    assert Pool.from_json({"name": "gpus"}) == Pool("gpus")


def test_times_are_times() -> None:
    request = Request.from_json({"id": "r", "status": "allocated", "granted_at": "2026-01-31T12:00:00.250Z", "ended_at": None})
    assert request.granted_at == datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)
    assert request.ended_at is None


def test_parts_are_records() -> None:
    plan = Plan.from_json({"changes": [{"action": "create", "kind": "pool", "pool": "p", "lines": ["a"]}], "sentence": "one"})
    assert [(change.action, change.lines) for change in plan.changes] == [("create", ("a",))]


@pytest.mark.parametrize("answer", [None, [], {"id": "r"}, {"id": "r", "status": "x", "ended_at": "soon"}, "text"], ids=repr)
def test_what_is_something_else_is_said_to_be(answer: object) -> None:
    with pytest.raises(PoolkeeperError, match="no answer of Poolkeeper's"):
        Request.from_json(answer)  # type: ignore[arg-type]


def test_a_record_stays_as_it_is() -> None:
    with pytest.raises(FrozenInstanceError):
        Pool("gpus").name = "cpus"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("status", "queued", "holds"), [("queued", True, False), ("preempting", False, True), ("released", False, False)]
)
def test_what_a_status_means(status: str, queued: bool, holds: bool) -> None:
    request = Request(id="r", status=status)
    assert (request.is_queued, request.is_allocated) == (queued, holds)
