"""The cleanup of waiters that are not polled: time in which the API or Redis was away does not count."""

from __future__ import annotations

import pytest

from app.bootstrap import Services, make_services
from app.domain.clock import ManualClock
from app.domain.errors import StoreUnavailable
from app.domain.specs import PolicySpec, PoolSpec, PoolUpdate, RequestSpec
from app.service.availability import GAP_S, RECORD_INTERVAL_S
from app.service.cleanup import MAX_CALLS
from app.settings import Settings
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.ledger_calls import LedgerCalls

TTL_S = 60


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def here(client: RedisClient, clock: ManualClock) -> Services:
    services = make_services(client, Settings(), clock)
    services.pools.create("w", PoolSpec(name="p", capacity={"gpu": 1}))
    services.pools.set_policy("w", "p", "t", PolicySpec())
    services.requests.submit("w", RequestSpec(component="t", resources={"gpu": 1}, lease_s=None))
    return services


def submit(here: Services) -> str:
    """Submit a waiter, and return its id."""
    return here.requests.submit("w", RequestSpec(component="t", resources={"gpu": 1}, queue_ttl_s=TTL_S)).id


def answer(here: Services, clock: ManualClock, seconds: int) -> None:
    """Record the API as available for this time, and run the cleanup."""
    for _ in range(0, seconds, RECORD_INTERVAL_S):
        here.availability.record()
        here.cleanup.run("w")
        clock.advance(RECORD_INTERVAL_S)


def status(here: Services, request: str) -> str:
    """Return the status of a request after a cleanup; this is no poll."""
    here.cleanup.run("w")
    return here.requests.get("w", request).status


def test_a_waiter_that_is_not_polled_expires(here: Services, clock: ManualClock) -> None:
    answer(here, clock, 30)
    waiter = submit(here)
    answer(here, clock, TTL_S - RECORD_INTERVAL_S)
    assert status(here, waiter) == "queued"
    answer(here, clock, RECORD_INTERVAL_S)
    assert status(here, waiter) == "expired"


def test_without_any_record_a_waiter_expires_too(here: Services, clock: ManualClock) -> None:
    waiter = submit(here)
    clock.advance(TTL_S)
    assert status(here, waiter) == "expired"


def test_a_waiter_outlives_an_outage_of_the_api_and_has_its_whole_ttl_again(here: Services, clock: ManualClock) -> None:
    answer(here, clock, 30)
    waiter = submit(here)
    for _ in range(10):
        clock.advance(TTL_S)
        assert status(here, waiter) == "queued"
    clock.advance(TTL_S - 1)
    here.availability.record()
    clock.advance(1)
    assert status(here, waiter) == "queued"
    answer(here, clock, TTL_S - RECORD_INTERVAL_S)
    assert status(here, waiter) == "queued"
    answer(here, clock, RECORD_INTERVAL_S)
    assert status(here, waiter) == "expired"


def test_an_outage_of_redis_in_which_nothing_is_cleaned_up_does_not_count(here: Services, clock: ManualClock) -> None:
    answer(here, clock, 30)
    waiter = submit(here)
    clock.advance(10 * TTL_S)
    here.availability.record()
    assert status(here, waiter) == "queued"
    answer(here, clock, TTL_S)
    assert status(here, waiter) == "expired"


def test_a_pause_as_short_as_a_restart_is_no_outage(here: Services, clock: ManualClock) -> None:
    answer(here, clock, 30)
    waiter = submit(here)
    clock.advance(GAP_S - RECORD_INTERVAL_S)
    answer(here, clock, TTL_S - GAP_S + RECORD_INTERVAL_S)
    assert status(here, waiter) == "expired"


def test_a_clock_that_went_back_keeps_no_waiter_for_ever(here: Services, client: RedisClient, clock: ManualClock) -> None:
    an_hour_ahead = ManualClock(clock.now_ms() + 3_600_000)
    answer(make_services(client, Settings(), an_hour_ahead), an_hour_ahead, 30)
    waiter = submit(here)
    answer(here, clock, 2 * TTL_S)
    assert status(here, waiter) == "expired"


def test_an_outage_spares_no_lease_and_no_count(here: Services, clock: ManualClock) -> None:
    answer(here, clock, 30)
    waiter = submit(here)
    clock.advance(TTL_S)
    counts = here.cleanup.run("w")
    assert (counts.expired_waiters, status(here, waiter)) == (0, "queued")


def test_more_waiters_than_one_call_takes_outlive_an_outage(client: RedisClient, clock: ManualClock) -> None:
    here = make_services(client, Settings(chunk=10), clock)
    here.pools.create("w", PoolSpec(name="p", capacity={"gpu": 1}))
    here.pools.set_policy("w", "p", "t", PolicySpec())
    here.availability.record()
    specs = [RequestSpec(component="t", resources={"gpu": 1}, queue_ttl_s=TTL_S, lease_s=None)] * 45
    here.requests.submit_batch("w", specs)
    clock.advance(TTL_S)
    for _ in range(5):
        assert here.cleanup.run("w").expired_waiters == 0
    here.availability.record()
    answer(here, clock, TTL_S)
    assert here.cleanup.run("w").expired_waiters == 44


def test_a_recorder_records_and_outlasts_an_outage(here: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event

    from app.api.server.availability_recorder import AvailabilityRecorder

    attempts, is_recorded = [0], Event()

    def record() -> None:
        attempts[0] += 1
        if attempts[0] == 1:
            raise StoreUnavailable("redis_unreachable", "away")
        is_recorded.set()

    monkeypatch.setattr(here.availability, "record", record)
    recorder = AvailabilityRecorder(here.availability, interval_s=0.001)
    recorder.start()
    assert is_recorded.wait(20)
    recorder.stop()


def test_work_without_an_end_does_not_keep_the_cleanup_from_other_workspaces(
    here: Services, client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.sadd(key("unfinished", "w"), "p")
    calls: list[str] = []

    def resume(ledger: LedgerCalls, workspace: str) -> bool:
        calls.append(workspace)
        assert len(calls) <= 2 * MAX_CALLS
        return True

    monkeypatch.setattr(LedgerCalls, "resume_unfinished", resume)
    here.cleanup.run("w")
    assert calls


def test_a_worker_that_was_stopped_between_two_calls_takes_that_for_no_jump_of_the_clock(
    here: Services, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.pools.update("w", "p", PoolUpdate(capacity={"gpu": 3}))
    spec = RequestSpec(component="t", resources={"gpu": 1})
    short, long = (here.requests.submit("w", spec.model_copy(update={"lease_s": lease_s})).id for lease_s in (10, 40))
    here.cleanup.run("w")
    monotonic = here.cleanup._monotonic
    readings: list[float] = []

    def stop_before_the_second_call() -> float:
        if len(readings) == 2:
            clock.advance(60)
        readings.append(monotonic())
        return readings[-1]

    clock.advance(11)
    monkeypatch.setattr(here.cleanup, "_monotonic", stop_before_the_second_call)
    here.cleanup.run("w")
    assert [here.requests.get("w", request).status for request in (short, long)] == ["expired", "expired"]
