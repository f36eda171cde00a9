"""Barriers: a call joins one that has not begun, and calls that come during a barrier share the next one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
import redis.exceptions as errors

from app.store.replica_barrier import NotAcknowledged, ReplicaBarriers, Ticket

TIMEOUT_S = 0.01


@pytest.fixture
def barriers() -> ReplicaBarriers:
    return ReplicaBarriers()


@pytest.fixture
def run() -> list[str]:
    """Return the names of the calls that ran a barrier."""
    return []


def wait(barriers: ReplicaBarriers, ticket: Ticket, name: str, run: list[str]) -> None:
    barriers.wait(ticket, lambda: run.append(name), TIMEOUT_S)


def fail(error: Exception) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


def test_calls_that_come_during_a_barrier_share_the_next(barriers: ReplicaBarriers, run: list[str]) -> None:
    tickets = {name: barriers.join() for name in ("first", "second", "third", "fourth")}
    for name, ticket in tickets.items():
        wait(barriers, ticket, name, run)
    assert run == ["first", "second"]


def test_a_barrier_that_has_begun_is_too_early_for_a_new_call(barriers: ReplicaBarriers, run: list[str]) -> None:
    first, second, late = barriers.join(), barriers.join(), []
    wait(barriers, first, "first", run)
    barriers.wait(second, lambda: late.append(barriers.join()), TIMEOUT_S)
    assert late[0].runs_it
    wait(barriers, late[0], "late", run)
    assert run == ["first", "late"]


def test_a_call_alone_waits_for_no_other(barriers: ReplicaBarriers, run: list[str]) -> None:
    for name in ("first", "second"):
        wait(barriers, barriers.join(), name, run)
    assert run == ["first", "second"]


@pytest.mark.parametrize(
    ("error", "shared"),
    [
        (NotAcknowledged("0 of 1 replicas confirm it"), NotAcknowledged),
        (errors.TimeoutError("no answer"), errors.ConnectionError),
        (errors.ConnectionError("closed"), errors.ConnectionError),
    ],
    ids=["too few replicas", "no answer", "closed"],
)
def test_the_error_of_a_barrier_is_that_of_every_call(
    barriers: ReplicaBarriers, run: list[str], error: Exception, shared: type[Exception]
) -> None:
    first, second, third = barriers.join(), barriers.join(), barriers.join()
    wait(barriers, first, "first", run)
    with pytest.raises(type(error)):
        barriers.wait(second, fail(error), TIMEOUT_S)
    with pytest.raises(shared, match=str(error)):
        wait(barriers, third, "third", run)
    wait(barriers, barriers.join(), "later", run)
    assert run == ["first", "later"]


def test_a_barrier_that_takes_too_long_fails_the_calls_behind_it(barriers: ReplicaBarriers, run: list[str]) -> None:
    stuck, second, third = barriers.join(), barriers.join(), barriers.join()
    for ticket in (third, second):
        with pytest.raises(errors.TimeoutError):
            wait(barriers, ticket, "behind", run)
    later = barriers.join()
    assert later.runs_it
    wait(barriers, stuck, "stuck", run)
    wait(barriers, later, "later", run)
    assert run == ["stuck", "later"]


@pytest.mark.parametrize("tickets", [1, 2, 3])
def test_a_call_that_was_interrupted_before_its_barrier_does_not_stop_later_ones(
    barriers: ReplicaBarriers, run: list[str], tickets: int
) -> None:
    for _ in range(tickets):
        barriers.join()
    for _ in range(2):
        with suppress(errors.TimeoutError):
            wait(barriers, barriers.join(), "behind", run)
    wait(barriers, barriers.join(), "later", run)
    assert run[-1] == "later"


def test_an_interrupted_barrier_counts_for_no_call(barriers: ReplicaBarriers, run: list[str]) -> None:
    first, second, third = barriers.join(), barriers.join(), barriers.join()
    wait(barriers, first, "first", run)
    with pytest.raises(SystemExit):
        barriers.wait(second, fail_with_exit, TIMEOUT_S)
    with pytest.raises(errors.ConnectionError, match="interrupted"):
        wait(barriers, third, "third", run)
    wait(barriers, barriers.join(), "later", run)
    assert run == ["first", "later"]


def fail_with_exit() -> None:
    raise SystemExit
