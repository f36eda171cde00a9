"""Tasks that return and tasks that end: their waiting times, notices, deadlines and cancellations."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.domain.errors import Conflict, NotFound, StaleFence
from app.domain.reasons import ReasonCode
from app.domain.tasks import ReplacedAllocationSpec
from tests.unit.store.test_tasks import START_S, TRIES, Tasks, tasks

__all__ = ["tasks"]  # a fixture of another module


def test_what_has_begun_may_wait_for_ever_to_go_on(tasks: Tasks) -> None:
    sent = tasks.park_and_start(queue_ttl_s=5)
    assert not sent.started
    higher = tasks.world.submit(gpu=2, preemption_class=8)
    assert tasks.world.preempt(higher, tasks.world.get(str(sent.request))).applied
    tasks.over(sent, "vacated")
    tasks.world.get(str(sent.request), poll=True)
    tasks.world.pass_time(3600)
    assert tasks.status("a") == ["parked"]
    tasks.world.release(higher)
    (again,) = tasks.send()
    assert again.started
    tasks.start(again)
    tasks.over(again, "lost")
    other = tasks.world.submit(gpu=2)
    assert tasks.send() == []
    tasks.world.pass_time(3600)
    tasks.world.release(other)
    (third,) = tasks.send()
    assert third.started
    tasks.start(third)
    tasks.park(instead_of=ReplacedAllocationSpec(request=str(third.request), fence=third.fence or 0), queue_ttl_s=5)
    (anew,) = tasks.send()
    assert not anew.started, "it is another message, with an end of its own"


def test_a_task_waits_as_long_as_its_time_to_live(tasks: Tasks) -> None:
    tasks.world.submit(gpu=2)
    tasks.park(queue_ttl_s=5)
    tasks.world.pass_time(5)
    (verdict,) = tasks.send()
    assert verdict.end is not None
    assert verdict.end.code == "not_polled"


def test_the_end_of_a_task_is_reported_until_it_is_acknowledged_but_not_for_ever(tasks: Tasks) -> None:
    tasks.park(resources={"gpu": 3})
    for tries in range(1, TRIES + 1):
        (verdict,) = taken = tasks.take()
        tasks.store.mark_dispatched(tasks.world.workspace, taken, START_S)
        assert (verdict.end and verdict.end.status, verdict.attempts) == ("rejected", tries)
        assert tasks.take() == []
        tasks.world.pass_time(START_S)
    assert tasks.take() == []
    assert tasks.list_task_keys() == []


def test_an_acknowledgement_covers_the_end_and_nothing_else(tasks: Tasks) -> None:
    def hear_refused() -> str:
        with pytest.raises(Conflict) as error:
            tasks.hear()
        return error.value.code

    tasks.park(not_before=datetime.fromtimestamp(tasks.world.clock.now_ms() / 1000 + 5, UTC))
    assert hear_refused() == "not_ended"
    tasks.world.pass_time(5)
    (sent,) = tasks.send()
    assert hear_refused() == "not_ended"
    tasks.start(sent)
    assert hear_refused() == "not_ended"
    tasks.world.ledger.drop(tasks.world.workspace, str(sent.request))
    assert hear_refused() == "not_ended", "of its request nothing was said"
    tasks.hear(request=sent.request)
    with pytest.raises(NotFound):
        tasks.hear()
    assert tasks.list_task_keys() == []


def test_a_task_that_was_requeued_for_no_start_is_not_over(tasks: Tasks) -> None:
    tasks.park()
    while tasks.look().status != "delayed":
        tasks.send()
        tasks.world.pass_time(START_S)
    with pytest.raises(Conflict):
        tasks.hear()


def test_a_task_without_a_broker_holds_its_units_no_longer_than_one_that_does_not_begin(tasks: Tasks) -> None:
    first = tasks.park().request
    assert first is not None
    for _ in range(TRIES * 2):
        tasks.store.mark_dispatch_failed(tasks.world.workspace, tasks.take(), START_S / 2)
        tasks.world.pass_time(START_S / 2)
        assert tasks.world.status(first) == ["allocated"]
    tasks.world.pass_time(1)
    assert tasks.take() == []
    (again,) = tasks.take()
    assert (again.fence, again.attempts) == (2, 1)
    assert tasks.world.get(first).reason.code == ReasonCode.NOT_STARTED  # type: ignore[union-attr]
    tasks.store.mark_dispatch_failed(tasks.world.workspace, [again], START_S)
    tasks.world.pass_time(START_S * TRIES + 1)
    assert tasks.take() == []
    assert tasks.status("a") == ["delayed"], "and others may have them meanwhile"


def test_nor_does_what_a_broker_took_once_and_lost_before_it_went_away(tasks: Tasks) -> None:
    first = tasks.park().request
    assert first is not None
    tasks.send()
    tasks.world.pass_time(START_S)
    for _ in range(TRIES - 1):
        assert tasks.world.status(first) == ["allocated"]
        tasks.store.mark_dispatch_failed(tasks.world.workspace, tasks.take(), START_S)
        tasks.world.pass_time(START_S)
    tasks.world.pass_time(1)
    tasks.take()
    assert tasks.world.status(first) == ["expired"]


def test_a_lost_task_is_not_over(tasks: Tasks) -> None:
    sent = tasks.park_and_start()
    tasks.over(sent, "lost")
    with pytest.raises(Conflict):
        tasks.hear(request="r-of-before")
    assert [each.fence for each in tasks.send()] == [2]


def test_what_was_granted_and_not_begun_can_be_given_up(tasks: Tasks) -> None:
    waits = tasks.park().request
    (sent,) = tasks.send()
    given_up = tasks.store.cancel_task(tasks.world.workspace, "a")
    assert given_up.status == "ended"
    assert tasks.store.cancel_task(tasks.world.workspace, "a").status == "ended"
    assert waits is not None
    assert tasks.world.get(waits).status == "released"
    with pytest.raises(StaleFence):
        tasks.start(sent)
    (verdict,) = tasks.send()
    assert verdict.end is not None
    assert verdict.end.status == "cancelled"
    assert tasks.list_task_keys() == []
    started = tasks.park_and_start("b")
    with pytest.raises(Conflict):
        tasks.store.cancel_task(tasks.world.workspace, "b")
    tasks.over(started)
