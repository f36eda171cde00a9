"""Periodic jobs: every workspace once, none in two workers at a time, and none that keeps a job from the others."""

from __future__ import annotations

import logging

import pytest

from app.bootstrap import Services, make_services
from app.domain.clock import ManualClock
from app.domain.errors import StoreUnavailable
from app.domain.pool_setting_models import PoolSettings
from app.domain.specs import PolicySpec, PoolSpec, RequestSpec
from app.domain.states import RequestState
from app.service.periodic_jobs import CLEANUP_RUN_S, PeriodicJobs
from app.service.reconcile_lock import ReconcileLock
from app.settings import Settings
from app.store.connection import RedisClient
from app.store.keys import WORKSPACES, key
from app.store.ledger import Ledger
from app.store.nudges import Nudges


@pytest.fixture
def here(client: RedisClient) -> Services:
    made = make_services(client, Settings())
    for workspace in ("a", "b", "c"):
        made.workspaces.add(workspace)
        client.zadd(key("ended", workspace), {"long-ago": 1})
    return made


class Idle:
    def run(self, workspace: str) -> bool:
        return False


def untidy(client: RedisClient) -> list[str]:
    return [workspace for workspace in ("a", "b", "c") if client.exists(key("ended", workspace))]


def test_a_round_comes_to_every_workspace_and_leaves_no_lease(client: RedisClient, here: Services) -> None:
    assert here.periodic_jobs.cleanup() == {"a": "done", "b": "done", "c": "done"}
    assert here.periodic_jobs.audit() == {"a": "done", "b": "done", "c": "done"}
    assert untidy(client) == []
    assert not any(client.exists(key("job_lock", workspace, task)) for workspace in "abc" for task in ("cleanup", "audit"))


def test_reconciling_gives_a_patience_hold_and_ends_nothing(client: RedisClient) -> None:
    clock = ManualClock()
    here = make_services(client, Settings(), clock)
    here.pools.create("a", PoolSpec(name="p", capacity={"gpu": 1}, settings=PoolSettings(patience_s=10)))
    here.pools.set_policy("a", "p", "t", PolicySpec())
    ask = RequestSpec(component="t", resources={"gpu": 1})
    allocated, queued = here.requests.submit("a", ask), here.requests.submit("a", ask)
    assert (here.periodic_jobs.reconcile(), here.pools.get("a", "p").holds) == ({"a": "done"}, ())
    clock.advance(3600)
    assert here.periodic_jobs.reconcile() == {"a": "done"}
    assert [hold.request for hold in here.pools.get("a", "p").holds] == [queued.id]
    assert [here.requests.get("a", request.id).status for request in (allocated, queued)] == [
        RequestState.ALLOCATED,
        RequestState.QUEUED,
    ]


def test_a_workspace_is_left_to_the_holder_of_its_lease(client: RedisClient, here: Services) -> None:
    ledger = Ledger(client)
    assert ledger.take_job_lock("b", "cleanup", "other", 60)
    assert here.periodic_jobs.cleanup() == {"a": "done", "b": "skipped", "c": "done"}
    assert (untidy(client), client.get(key("job_lock", "b", "cleanup"))) == (["b"], "other")
    assert here.periodic_jobs.audit()["b"] == "done"
    ledger.release_job_lock("b", "cleanup", "other")
    assert here.periodic_jobs.cleanup()["b"] == "done"


def test_a_lease_ends_by_itself_and_is_given_back_only_by_its_token(client: RedisClient) -> None:
    ledger, name = Ledger(client), key("job_lock", "a", "audit")
    assert ledger.take_job_lock("a", "audit", "first", 60)
    assert 50_000 < client.pttl(name) <= 60_000
    ledger.release_job_lock("a", "audit", "second")
    assert not ledger.take_job_lock("a", "audit", "second", 60)
    client.pexpire(name, 1)
    while client.exists(name):
        pass
    assert ledger.take_job_lock("a", "audit", "second", 60)
    ledger.release_job_lock("a", "audit", "first")
    assert client.get(name) == "second"


def test_one_that_fails_stops_no_other(client: RedisClient, here: Services, caplog: pytest.LogCaptureFixture) -> None:
    client.set(key("meta", "b"), "not a hash")
    assert here.periodic_jobs.cleanup() == {"a": "done", "b": "failed", "c": "done"}
    assert untidy(client) == ["b"]
    assert "cleanup of workspace b failed" in caplog.text
    assert not client.exists(key("job_lock", "b", "cleanup"))


def test_an_audit_says_what_differs(client: RedisClient, here: Services, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    client.hset(key("pools", "a"), "p", "")
    client.hset(key("pool", "a", "p"), mapping={"limit:gpu": 1, "used:gpu": 1})
    assert here.periodic_jobs.audit()["a"] == "done"
    assert "workspace a differs: account p pool used gpu: 1, should be 0" in caplog.text
    assert client.hget(key("pool", "a", "p"), "used:gpu") == "1"


def test_a_round_ends_when_its_time_is_up(client: RedisClient, here: Services, caplog: pytest.LogCaptureFixture) -> None:
    ticks = iter(range(0, 100, CLEANUP_RUN_S // 2))
    slow = PeriodicJobs(
        Ledger(client),
        here.workspaces,
        here.cleanup,
        here.audit,
        here.usage_history,
        ReconcileLock(Nudges(client), Idle()),
        lambda: float(next(ticks)),
    )
    assert len(slow.cleanup()) == 2
    assert "reached 2 of 3 workspaces" in caplog.text
    assert len(untidy(client)) == 1


def test_every_workspace_is_the_first_at_times(here: Services) -> None:
    assert {next(iter(here.periodic_jobs.cleanup())) for _ in range(100)} == {"a", "b", "c"}


def test_without_redis_a_round_ends_with_one_line(
    here: Services, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def away(*call: object) -> bool:
        calls.append(call)
        raise StoreUnavailable("unreachable", "Redis is gone")

    monkeypatch.setattr(Ledger, "take_job_lock", away)
    assert here.periodic_jobs.cleanup() == {}
    assert len(calls) == 1
    assert [record.getMessage() for record in caplog.records] == ["cleanup stopped after 0 workspaces: Redis is gone"]
    monkeypatch.setattr(type(here.workspaces), "list_names", away)
    assert here.periodic_jobs.audit() == {}


def test_no_workspace_no_round(client: RedisClient, here: Services) -> None:
    client.delete(WORKSPACES)
    assert here.periodic_jobs.cleanup() == {}
