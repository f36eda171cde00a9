"""The watch of Sentinels: the answer with the highest epoch counts, however old it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.store.master_id import tracker_of
from app.store.master_watch import Address, SentinelWatch, _Answer

OLD, NEW = ("10.0.0.1", 6379), ("10.0.0.2", 6379)


class StubClient:
    """A client that only names its service."""

    connection_pool = SimpleNamespace(service_name="main")


class WatchWithoutServers(SentinelWatch):
    """A watch whose servers answer as the test says."""

    def __init__(self, client: Any) -> None:
        super().__init__(client, SimpleNamespace(master_address=None, sentinels=[]))  # type: ignore[arg-type]
        self.masters: set[Address] = {OLD, NEW}

    def _replication(self, address: Address) -> tuple[str, str]:
        self._checked.add(address)
        return "master" if address in self.masters else "slave", "id"

    def answer(self, sentinel: int, at_s: float, epoch: int, address: Address) -> Address | None:
        """Judge the answer of a Sentinel; return the master that is followed."""
        self._judge(sentinel, _Answer(at_s, epoch, address))
        return self._manager.master_address


@pytest.fixture
def watch() -> WatchWithoutServers:
    return WatchWithoutServers(StubClient())


def test_a_newer_epoch_is_followed_as_soon_as_one_sentinel_knows_it(watch: WatchWithoutServers) -> None:
    assert watch.answer(0, at_s=0, epoch=1, address=OLD) == OLD
    assert watch.answer(1, at_s=1, epoch=2, address=NEW) == NEW
    assert watch.answer(0, at_s=2, epoch=1, address=OLD) == NEW
    assert watch._tracker.generation == 1


def test_an_older_epoch_is_not_followed_while_the_sentinel_of_the_newest_is_silent(watch: WatchWithoutServers) -> None:
    watch.answer(0, at_s=0, epoch=2, address=NEW)
    for at_s in (1, 10, 1000):
        assert watch.answer(1, at_s, epoch=1, address=OLD) == NEW
    assert watch._tracker.generation == 0


def test_a_sentinel_that_was_reset_takes_its_own_answer_back(watch: WatchWithoutServers) -> None:
    watch.answer(0, at_s=0, epoch=2, address=NEW)
    watch.answer(1, at_s=0, epoch=1, address=OLD)
    assert watch.answer(0, at_s=1, epoch=0, address=OLD) == OLD


def test_of_fresh_answers_with_the_same_epoch_the_one_that_is_followed_counts(watch: WatchWithoutServers) -> None:
    watch.answer(0, at_s=0, epoch=0, address=OLD)
    for at_s in (1, 2, 3):
        assert watch.answer(1, at_s, epoch=0, address=NEW) == OLD
        watch.answer(0, at_s, epoch=0, address=OLD)
    assert watch.answer(1, at_s=8, epoch=0, address=NEW) == NEW, "the other Sentinel is silent"


def test_the_doubt_ends_when_the_new_server_answers_as_a_master(watch: WatchWithoutServers) -> None:
    tracker = tracker_of(watch._client)
    watch.masters = {OLD}
    watch.answer(0, at_s=0, epoch=1, address=OLD)
    watch.answer(0, at_s=1, epoch=2, address=NEW)
    assert tracker.in_doubt
    watch.masters = {OLD, NEW}
    watch.answer(0, at_s=2, epoch=2, address=NEW)
    assert not tracker.in_doubt
