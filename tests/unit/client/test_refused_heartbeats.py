"""Heartbeats of an allocation that the service answers and does not accept: 401, 403, 404 and 409."""

from __future__ import annotations

import pytest
from poolkeeper import Client, errors

from tests.support.backends import wait_until
from tests.support.stub_server import Action, StubServer, refuse, reply, reply_text
from tests.unit.client.conftest import LeaseClock

GRANTED = reply({"id": "r", "status": "allocated", "fence": 3, "lease_s": 60, "pool": "p"}, 201)
ALLOCATED = reply({"id": "r", "status": "allocated", "directive": "continue"})
EXPIRED = refuse(401, "unknown_token", "this token is expired")


def test_each_is_reported_at_once_with_the_time_left(stub: StubServer, caplog: pytest.LogCaptureFixture) -> None:
    stub.script(GRANTED, *[EXPIRED] * 999)
    with Client(stub.url, tries=1).allocation("team") as allocation:
        wait_until(lambda: allocation.refusal, "a heartbeat is refused")
        assert (allocation.lost, allocation.suspected, allocation.refusal) == (False, False, "this token is expired")
        stub.actions.clear()
        stub.actions.extend([ALLOCATED] * 999)
        wait_until(lambda: allocation.refusal is None, "a heartbeat is accepted")
        stub.actions.clear()
        stub.actions.extend([reply({"id": "r", "status": "released", "outcome": "succeeded"})] * 9)
    assert [record.message for record in caplog.records] == [
        "allocation r: heartbeats are refused: this token is expired; the lease ends in 1m",
        "allocation r: the service accepts heartbeats again, and the lease was kept",
    ]


@pytest.mark.parametrize("status", [401, 403])
def test_the_units_are_lost_when_the_lease_is_over(stub: StubServer, lease_clock: LeaseClock, status: int) -> None:
    directives = []
    stub.script(GRANTED, *[refuse(status, "other", "not you")] * 999)
    allocation = Client(stub.url, tries=1).allocation("team", on_directive=lambda _, directive: directives.append(directive))

    def work() -> None:
        with allocation:
            wait_until(lambda: allocation.refusal, "a heartbeat is refused")
            assert allocation.lost is False
            lease_clock.ahead_s = 60
            wait_until(lambda: allocation.lost, "the units are lost")
            wait_until(lambda: directives == ["kill"], "the block is told")

    with pytest.raises(errors.AllocationLost, match="the lease is over, and heartbeats are refused: not you"):
        work()


def test_a_server_that_does_not_answer_takes_nothing(stub: StubServer, lease_clock: LeaseClock) -> None:
    stub.script(GRANTED, EXPIRED, *[refuse(503, "redis_unreachable")] * 999)
    with Client(stub.url, tries=1).allocation("team") as allocation:
        wait_until(lambda: len(stub.calls) > 3, "heartbeats are not answered")
        lease_clock.ahead_s = 60
        count = len(stub.calls)
        wait_until(lambda: len(stub.calls) > count + 1, "heartbeats go on")
        assert (allocation.lost, allocation.suspected, allocation.refusal) == (False, True, None)
        stub.actions.clear()
        stub.actions.extend([EXPIRED] * 999)
        wait_until(lambda: allocation.lost, "the answer comes")
        stub.actions.clear()
        stub.actions.extend([reply({"id": "r", "status": "released", "outcome": "succeeded"})] * 9)


@pytest.mark.parametrize(
    "loss",
    [refuse(404, "no_such_request"), refuse(409, "deposed", directive="kill"), refuse(409, "stale_fence")],
    ids=["unknown", "to be killed", "stale fence"],
)
def test_a_request_that_is_unknown_or_to_be_killed_is_lost_at_once(stub: StubServer, loss: Action) -> None:
    stub.script(GRANTED, *[loss] * 999)

    def work() -> None:
        with Client(stub.url, tries=1).allocation("team") as allocation:
            wait_until(lambda: allocation.lost, "the units are lost")
            assert (allocation.directive, allocation.suspected) == ("kill", False)

    with pytest.raises(errors.AllocationLost):
        work()


def test_a_404_of_a_proxy_says_nothing_of_the_request(stub: StubServer) -> None:
    stub.script(GRANTED, *[reply_text(404, b"<html>no such page")] * 3, *[ALLOCATED] * 999)
    with Client(stub.url, tries=1).allocation("team") as allocation:
        wait_until(lambda: len(stub.calls) > 5, "heartbeats go on")
        assert allocation.lost is False
        stub.actions.clear()
        stub.actions.extend([reply({"id": "r", "status": "released", "outcome": "succeeded"})] * 9)
