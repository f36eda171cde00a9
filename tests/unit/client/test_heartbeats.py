"""The heartbeats of an allocation: their interval, and the time from which the lease counts."""

from __future__ import annotations

from threading import Event

import pytest
from poolkeeper import Client, heartbeats
from poolkeeper.heartbeats import HeartbeatThread

from tests.support.backends import wait_until
from tests.support.stub_server import StubHandler, StubServer, reply

ALLOCATED = reply({"id": "r", "status": "allocated", "directive": "continue"})


class ShortPauses(Event):
    """An event that records the length of each wait, returns at once, and is set after three waits."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0)
        if len(self.pauses) > 3:
            self.set()
        return self.is_set()


def test_three_heartbeats_are_sent_in_the_time_of_a_lease(stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = ShortPauses()
    monkeypatch.setattr(heartbeats, "LONGEST_INTERVAL_S", 60)
    monkeypatch.setattr(heartbeats, "Event", lambda: stop)
    stub.script(*[ALLOCATED] * 9)
    with Client(stub.url, tries=1) as client:
        HeartbeatThread(client, "r", 3, 6.0, heartbeats.now_s(), lambda _: None).start()
        wait_until(stop.is_set, "three heartbeats are sent")
    assert [round(pause) for pause in stop.pauses] == [2, 2, 2, 2]


def test_a_lease_counts_from_when_its_heartbeat_was_sent(stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(heartbeats, "now_s", lambda: clock[0])

    def answer_late(handler: StubHandler) -> None:
        clock[0] = 10.0
        ALLOCATED(handler)

    monkeypatch.setattr(heartbeats, "LONGEST_INTERVAL_S", 60)
    stub.script(answer_late)
    with Client(stub.url, tries=1) as client:
        thread = HeartbeatThread(client, "r", 3, 12.0, -100.0, lambda _: None)
        suspected = [thread.suspected]
        thread.start()
        wait_until(lambda: not thread.suspected, "the heartbeat is acknowledged")
        for clock[0] in (11.9, 12.0):
            suspected.append(thread.suspected)
        thread.stop()
    assert suspected == [True, False, True]
