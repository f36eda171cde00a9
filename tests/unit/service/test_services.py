"""The services: bad names do not reach the store, many asks are taken in at once, the housekeeping finds every workspace."""

from __future__ import annotations

from typing import Any

import pytest

from app.bootstrap import Services, make_services
from app.domain.clock import ManualClock
from app.domain.errors import Conflict, NotFound, Refusal
from app.domain.models import CleanupCounts
from app.domain.specs import PolicySpec, PoolSpec, PoolUpdate, RequestSpec, WorkspaceSettings
from app.domain.states import RequestState
from app.domain.tasks import TaskSpec
from app.settings import Settings
from app.store.connection import RedisClient
from app.store.keys import key
from app.store.ledger_calls import LedgerCalls
from app.store.work_resumer import BackgroundResumer
from tests.support.in_process_api import BROKERS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def here(client: RedisClient, clock: ManualClock) -> Services:
    return make_services(client, Settings(), clock)


def seed(here: Services, workspace: str = "w", gpu: int = 2) -> None:
    here.pools.create(workspace, PoolSpec(name="p", capacity={"gpu": gpu}))
    here.pools.set_policy(workspace, "p", "t", PolicySpec())


BAD_NAMES = ["", "a b", "a:b", "a{b}", "ü", "x" * 64, "a\n", "-a", "a|b", "a/b"]


@pytest.mark.parametrize("bad", BAD_NAMES)
def test_no_bad_name_reaches_the_store(here: Services, bad: str) -> None:
    ask = RequestSpec(component="t")
    for call in (
        lambda: here.requests.submit(bad, ask),
        lambda: here.requests.submit_batch(bad, [ask]),
        lambda: here.requests.poll(bad, "r"),
        lambda: here.requests.release(bad, "r", 1),
        lambda: here.pools.get("w", bad),
        lambda: here.pools.update("w", bad, PoolUpdate()),
        lambda: here.pools.set_policy("w", "p", bad, PolicySpec()),
        lambda: here.pools.delete_policy("w", "p", "t", bad),
        lambda: here.pools.delete_group("w", "p", bad),
    ):
        with pytest.raises(ValueError, match="is no name"):
            call()


@pytest.mark.parametrize("bad", ["", "x" * 256, "ü", "a\nb"])
def test_no_bad_idempotency_key_reaches_the_store(here: Services, bad: str) -> None:
    with pytest.raises(ValueError, match="printable"):
        here.requests.submit("w", RequestSpec(component="t"), bad)


def test_a_thousand_are_taken_in_in_order(here: Services) -> None:
    seed(here, gpu=400)
    asks = [RequestSpec(component="t", resources={"gpu": 1}) for _ in range(1000)]
    keys = [f"k{number // 2}" for number in range(1000)]
    answers = here.requests.submit_batch("w", asks, keys)
    assert not any(isinstance(answer, Refusal) for answer in answers)
    granted = [answer for answer in answers if answer.status == RequestState.ALLOCATED]  # type: ignore[union-attr]
    assert len(granted) == 800, "every second one is the same request again"
    assert len({answer.id for answer in answers}) == 500  # type: ignore[union-attr]
    page, cursor = here.queries.list_pool_requests("w", "p", "queued", count=60)
    assert [(row.request.number, row.position) for row in page] == [(400 + place, place) for place in range(1, 61)]
    page, cursor = here.queries.list_pool_requests("w", "p", "queued", cursor, count=60)
    assert [(row.request.number, row.position) for row in page] == [(400 + place, place) for place in range(61, 101)]
    assert cursor is None


def test_one_refused_in_a_batch_stands_in_its_place(here: Services) -> None:
    seed(here)
    asks = [RequestSpec(component="t", resources={"gpu": amount}) for amount in (1, 2)]
    first, second = here.requests.submit_batch("w", asks, ["k", "k"])
    assert first.status == RequestState.ALLOCATED  # type: ignore[union-attr]
    assert isinstance(second, Conflict)


def test_the_housekeeping_finds_every_workspace_and_one_broken_does_not_stop_it(
    here: Services, client: RedisClient, clock: ManualClock
) -> None:
    for workspace in ("a", "b", "c"):
        seed(here, workspace)
        here.requests.submit(workspace, RequestSpec(component="t", resources={"gpu": 2}, lease_s=5))
        here.requests.submit(workspace, RequestSpec(component="t", resources={"gpu": 1}, queue_ttl_s=4))
        here.requests.submit(workspace, RequestSpec(component="t", resources={"gpu": 1}, queue_ttl_s=60))
    client.delete("pk:{b}:leases")
    client.set("pk:{b}:leases", "not a sorted set")
    clock.advance(5)
    assert here.cleanup.run_all() == {name: CleanupCounts(expired_leases=1, expired_waiters=1) for name in ("a", "c")}
    assert here.pools.get("a", "p").used["gpu"] == 1
    for _ in range(2):  # what was granted meanwhile lapses first, and is kept as long again
        clock.advance(8 * 86_400)
        here.cleanup.run("a")
    assert here.queries.list_requests("a")[0] == []


def test_a_pool_and_its_parts_by_name(here: Services) -> None:
    seed(here)
    assert here.pools.list_names("w") == ["p"]
    assert here.pools.get_policy("w", "p", "t")[1].name == "orchestrator/t"
    with pytest.raises(NotFound, match="no policy orchestrator/u in pool p"):
        here.pools.get_policy("w", "p", "u")
    here.pools.update_workspace("w", WorkspaceSettings(unmanaged="allow"))
    assert here.requests.submit("w", RequestSpec(component="stranger")).status == RequestState.ALLOCATED
    here.pools.delete_policy("w", "p", "t")
    here.pools.delete("w", "p")
    assert here.pools.list_names("w") == []


@pytest.mark.parametrize("bad", ["done", "", "\ud800", "x" * 60_000])
def test_no_other_outcome_reaches_the_store(here: Services, bad: str) -> None:
    with pytest.raises(ValueError, match="succeeded, failed, vacated"):
        here.requests.release("w", "r", 1, bad)


@pytest.mark.parametrize("bad", [0, -1, 2**53, True, "2", 1.0])
def test_no_bad_number_reaches_the_store(here: Services, bad: Any) -> None:
    for call in (
        lambda: here.requests.heartbeat("w", "r", bad),
        lambda: here.requests.release("w", "r", bad),
        lambda: here.queries.list_requests("w", count=bad),
        lambda: here.queries.list_pool_requests("w", "p", count=bad),
    ):
        with pytest.raises(ValueError, match=r"whole number|rows"):
            call()


@pytest.mark.parametrize("bad", ["x", "1-2-3", "", "-", "1\n", "٣"])
def test_no_bad_cursor_reaches_the_store(here: Services, bad: str) -> None:
    with pytest.raises(ValueError, match="event's id"):
        here.requests.list_events("w", bad)


@pytest.mark.parametrize("bad", ["\ud800", "a b", "x" * 64])
def test_what_can_be_no_id_is_not_there(here: Services, bad: str) -> None:
    for call in (here.requests.poll, here.requests.get, here.requests.cancel, here.requests.drop):
        with pytest.raises(NotFound):
            call("w", bad)


def test_no_answer_waits_for_unfinished_work(client: RedisClient, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[str] = []
    monkeypatch.setattr(BackgroundResumer, "add", lambda _, workspace, script_s: later.append(workspace))
    monkeypatch.setattr(LedgerCalls, "resume_unfinished", lambda *_: pytest.fail("an answer waits for unfinished work"))
    here = make_services(client, Settings(brokers=BROKERS), clock, in_background=True)
    for workspace in ("w", "default"):
        seed(here, workspace)
        client.sadd(key("unfinished", workspace), "p")
    spec = RequestSpec(component="t", resources={"gpu": 1})
    request = here.requests.submit("w", spec)
    assert request.fence is not None
    here.requests.release("w", request.id, request.fence)
    here.tasks.park_task("default", TaskSpec(task="a", request=spec, name="train", message={}))
    here.tasks.cancel("default", "a")
    assert later == ["w"] * 2 + ["default"] * 2
