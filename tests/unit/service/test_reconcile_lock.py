"""The reconcile lock: one pass at a time, one more for each skipped trigger, and soon after the process with the lock died."""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable
from threading import Thread

import pytest

from app.bootstrap import Services, make_services
from app.domain.errors import StoreUnavailable
from app.service.periodic_jobs import PeriodicJobs
from app.service.reconcile_lock import MAX_PASSES, RECONCILE_LOCK_S, ReconcileLock
from app.settings import Settings
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.ledger import Ledger
from app.store.nudges import Nudges
from tests.support.backends import wait_until

LOCK_S = 60


class ScriptedReconciler:
    """Notes where it was, does what it is told, and has work left as often as it is told."""

    def __init__(self) -> None:
        self.workspaces: list[str] = []
        self.actions: dict[str, deque[Callable[[], object]]] = {}
        self.passes_with_more = 0

    def run(self, workspace: str) -> bool:
        self.workspaces.append(workspace)
        todo = self.actions.get(workspace)
        if todo:
            todo.popleft()()
        self.passes_with_more -= 1
        return self.passes_with_more >= 0

    def during_passes(self, workspace: str, *acts: Callable[[], object]) -> None:
        """Set the actions during the first pass, the second …"""
        self.actions[workspace] = deque(acts)


@pytest.fixture
def reconciler() -> ScriptedReconciler:
    return ScriptedReconciler()


@pytest.fixture
def nudges(client: RedisClient) -> Nudges:
    for workspace in ("a", "b", "c"):
        client.sadd("pk:workspaces", workspace)
        client.zadd(key("waiting", workspace), {"waiter": 1})
    return Nudges(client)


@pytest.fixture
def lock(nudges: Nudges, reconciler: ScriptedReconciler) -> ReconcileLock:
    return ReconcileLock(nudges, reconciler, lock_s=LOCK_S)


@pytest.fixture
def jobs(client: RedisClient, lock: ReconcileLock) -> PeriodicJobs:
    here: Services = make_services(client, Settings())
    return PeriodicJobs(Ledger(client), here.workspaces, here.cleanup, here.audit, here.usage_history, lock)


def is_locked(client: RedisClient, workspace: str = "a") -> bool:
    return bool(client.exists(key("job_lock", workspace, "reconcile")))


def test_a_round_passes_once_over_every_workspace_with_waiters(
    client: RedisClient, jobs: PeriodicJobs, reconciler: ScriptedReconciler
) -> None:
    client.delete(key("waiting", "b"))
    assert jobs.reconcile() == {"a": "done", "b": "idle", "c": "done"}
    assert sorted(reconciler.workspaces) == ["a", "c"]
    assert not any(is_locked(client, workspace) for workspace in "abc")
    assert jobs.reconcile_workspace("c") == "done"
    assert (jobs.reconcile_workspace("b"), jobs.reconcile_workspace("never used")) == ("idle", "idle")
    assert reconciler.workspaces[2:] == ["c"]


def test_it_says_how_long_it_took(client: RedisClient, nudges: Nudges, reconciler: ScriptedReconciler) -> None:
    clock = itertools.count(0, 0.25)
    lock = ReconcileLock(nudges, reconciler, lambda: next(clock), LOCK_S)
    lock.run("a")
    assert client.hgetall(key("counters", "a")) == {
        "reconciles": "1",
        "reconcile_ms": "250",
        "reconcile_last_ms": "250",
        "looks|6": "1",
    }
    lock.run("a")
    assert client.hgetall(key("counters", "a")) == {
        "reconciles": "2",
        "reconcile_ms": "500",
        "reconcile_last_ms": "250",
        "looks|6": "2",
    }


def test_the_holder_of_the_lease_repeats_the_pass_for_new_nudges(
    client: RedisClient, lock: ReconcileLock, reconciler: ScriptedReconciler
) -> None:
    other = ReconcileLock(Nudges(client), reconciler)
    outcomes: list[str] = []
    reconciler.during_passes("a", lambda: outcomes.append(other.run("a")))
    assert lock.run("a") == "done"
    assert (outcomes, reconciler.workspaces, is_locked(client)) == (["skipped"], ["a", "a"], False)


def test_what_is_left_is_done_at_once_but_not_for_ever(
    client: RedisClient, lock: ReconcileLock, reconciler: ScriptedReconciler
) -> None:
    reconciler.passes_with_more = 3
    assert lock.run("a") == "done"
    assert (len(reconciler.workspaces), client.get(key("nudge", "a"))) == (4, None)
    reconciler.passes_with_more = 1000
    assert lock.run("a") == "done"
    assert (len(reconciler.workspaces), client.get(key("nudge", "a")), is_locked(client)) == (4 + MAX_PASSES, "pending", False)


def test_a_turn_ends_when_its_time_is_up(client: RedisClient, nudges: Nudges, reconciler: ScriptedReconciler) -> None:
    reconciler.passes_with_more = 1000
    clock = itertools.count(0, 1)
    assert ReconcileLock(nudges, reconciler, lambda: float(next(clock)), LOCK_S).run("a") == "done"
    assert (len(reconciler.workspaces) < 5, client.get(key("nudge", "a"))) == (True, "pending")


def test_one_that_fails_stops_no_other_and_is_not_nudged(
    client: RedisClient, jobs: PeriodicJobs, reconciler: ScriptedReconciler, caplog: pytest.LogCaptureFixture
) -> None:
    reconciler.during_passes("b", lambda: 1 / 0)
    assert jobs.reconcile() == {"a": "done", "b": "failed", "c": "done"}
    assert sorted(reconciler.workspaces) == ["a", "b", "c"]
    assert "reconcile of workspace b failed" in caplog.text
    assert (is_locked(client, "b"), client.get(key("nudge", "b")), client.get(key("nudge", "a"))) == (False, "suppressed", None)
    assert client.hget(key("counters", "b"), "reconciles") == "1"
    assert (jobs.reconcile_workspace("b"), reconciler.workspaces.count("b")) == ("done", 1)
    client.delete(key("pools", "c"), key("waiting", "c"))
    client.set(key("waiting", "b"), "no zset")
    client.set(key("pools", "c"), "no hash")
    assert jobs.reconcile() == {"a": "done", "b": "done", "c": "failed"}


def test_a_tick_takes_the_place_of_a_holder_that_died(
    client: RedisClient, nudges: Nudges, reconciler: ScriptedReconciler
) -> None:
    here = make_services(client, Settings())
    jobs = PeriodicJobs(
        Ledger(client), here.workspaces, here.cleanup, here.audit, here.usage_history, ReconcileLock(nudges, reconciler)
    )
    assert nudges.begin_reconcile("a", "of the dead", RECONCILE_LOCK_S) == "begun"
    started_s = time.monotonic()
    assert jobs.reconcile() == {"a": "done", "b": "done", "c": "done"}
    assert (sorted(reconciler.workspaces), time.monotonic() - started_s < 3) == (["a", "b", "c"], True)


def test_a_tick_does_not_disturb_a_long_pass_and_ends_with_it(
    client: RedisClient, nudges: Nudges, reconciler: ScriptedReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = make_services(client, Settings())
    jobs = PeriodicJobs(
        Ledger(client),
        here.workspaces,
        here.cleanup,
        here.audit,
        here.usage_history,
        ReconcileLock(nudges, reconciler, lock_s=0.2),
    )
    assert nudges.begin_reconcile("a", "other", LOCK_S) == "begun"
    assert jobs.reconcile() == {"a": "skipped", "b": "done", "c": "done"}

    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        nudges.finish_reconcile("a", "other", "other.2", LOCK_S, 0, "nothing")

    monkeypatch.setattr(time, "sleep", sleep)
    assert jobs.reconcile() == {"a": "done", "b": "done", "c": "done"}
    assert (len(pauses), reconciler.workspaces.count("a")) == (1, 0), "the holder has looked in its place"


def test_a_lease_is_prolonged_while_its_holder_looks(
    client: RedisClient, nudges: Nudges, reconciler: ScriptedReconciler
) -> None:
    lock = ReconcileLock(nudges, reconciler, lock_s=0.8)
    tried: list[str] = []

    def long() -> None:
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            tried.append(nudges.begin_reconcile("a", "another", LOCK_S))
            time.sleep(0.01)

    reconciler.during_passes("a", long)
    assert lock.run("a") == "done"
    assert (set(tried), len(reconciler.workspaces), is_locked(client)) == ({"held"}, 2, False)


def test_many_at_once_leave_nothing_that_came_unseen(
    client: RedisClient, nudges: Nudges, reconciler: ScriptedReconciler
) -> None:
    # Each thread adds a change; whatever `take` replies, a pass has seen the change when all threads are done.
    arrivals, last_seen = itertools.count(1), [0]
    newest = [0]

    def look() -> None:
        last_seen[0] = newest[0]

    class LastSeenPass:
        def run(self, workspace: str) -> bool:
            look()
            return False

    def arrive() -> None:
        lock = ReconcileLock(Nudges(client), LastSeenPass())
        for _ in range(10):
            newest[0] = next(arrivals)
            lock.run("a")

    threads = [Thread(target=arrive) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if client.get(key("nudge", "a")) == "pending":  # the last to look was not to go on, and asked for another
        ReconcileLock(nudges, LastSeenPass()).run("a")
    assert (last_seen[0], is_locked(client)) == (newest[0], False)


def test_without_redis_a_round_says_so(
    jobs: PeriodicJobs, reconciler: ScriptedReconciler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    def away(*_: object, **__: object) -> bool:
        raise StoreUnavailable("unreachable", "Redis is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Nudges, "begin_reconcile", away)
        assert jobs.reconcile() == {}
        assert jobs.reconcile_workspace("a") == "failed"
    assert [record.getMessage() for record in caplog.records] == [
        "reconcile stopped after 0 workspaces: Redis is gone",
        "reconcile of workspace a stopped: Redis is gone",
    ]


def test_a_prolongation_that_is_not_answered_ends_nothing(
    client: RedisClient, nudges: Nudges, reconciler: ScriptedReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def away(*_: object) -> bool:
        calls.append("")
        raise StoreUnavailable("unreachable", "Redis is gone")

    monkeypatch.setattr(Nudges, "extend_lock", away)
    reconciler.during_passes("a", lambda: wait_until(lambda: len(calls) > 1, "it is tried again"))
    assert ReconcileLock(nudges, reconciler, lock_s=0.2).run("a") == "done"
