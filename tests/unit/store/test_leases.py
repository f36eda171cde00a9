"""Leases, fences and staleness: a lapsed lease frees the units, and a late call is refused and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.errors import StaleFence
from app.domain.ledger_limits import LedgerLimits
from app.domain.models import CleanupCounts, HeartbeatResult, Request
from app.domain.reasons import ReasonCode
from app.domain.states import RequestState
from app.store.ledger import Ledger
from tests.support.world import World


def heartbeat(world: World, request: Request, fence: int | None = None) -> HeartbeatResult:
    """Send a heartbeat, under the fence of the grant by default."""
    own_fence = request.fence if fence is None else fence
    assert own_fence is not None
    return world.ledger.heartbeat(world.workspace, request.id, own_fence)


def refusals(world: World, request: Request, fence: int) -> list[str]:
    """Return the refusals of a heartbeat and a release with this fence; neither changes anything."""
    before, messages = world.state(), []
    for act in (heartbeat, World.release):
        with pytest.raises(StaleFence) as stale:
            act(world, request, fence)
        assert stale.value.code == "stale_fence"
        messages.append(str(stale.value))
    assert world.state() == before
    return messages


def test_silence_gives_the_units_back_and_a_late_holder_is_refused(world: World) -> None:
    world.pool(gpu=1)
    world.policy(priority=1)
    a, b = world.submit(gpu=1, lease_s=2), world.submit(gpu=1, lease_s=60)
    world.pass_time(1)
    assert heartbeat(world, a) == HeartbeatResult(RequestState.ALLOCATED, world.clock.now_ms() + 2000)
    world.pass_time(1.5)
    assert world.status(a, b) == ["allocated", "queued"]
    world.pass_time(0.5)
    expired, granted = world.get(a), world.get(b)
    assert (expired.status, expired.reason and expired.reason.code) == ("expired", ReasonCode.LEASE_LAPSED)
    assert (granted.status, granted.fence, granted.granted_ms) == ("allocated", 2, expired.ended_ms)
    assert (
        refusals(world, a, 1)
        == [f"this fence holds nothing of {a.id}, which is expired: no heartbeat came before the lease lapsed"] * 2
    )
    assert world.used() == {"gpu": 1}


def test_a_lease_counts_from_the_grant(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    a, b = world.submit(gpu=1), world.submit(gpu=1, lease_s=10)
    assert (a.lease_expires_ms, b.lease_expires_ms) == (None, None)
    world.pass_time(100)
    world.release(a)
    assert world.get(b).lease_expires_ms == world.clock.now_ms() + 10_000
    c = world.submit(lease_s=5)
    assert c.lease_expires_ms == world.clock.now_ms() + 5_000


def test_without_a_lease_nothing_lapses(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    a = world.submit(gpu=1, lease_s=None)
    world.pass_time(10**9)
    assert (heartbeat(world, a), world.status(a)) == (HeartbeatResult(RequestState.ALLOCATED, None), ["allocated"])


def test_fences_only_grow_across_all_pools(world: World) -> None:
    for pool in ("p", "q"):
        world.pool(pool, gpu=1)
        world.policy(pool, pool)
    fences = []
    for turn in range(4):
        request = world.submit("pq"[turn % 2], gpu=1)
        fences.append(request.fence)
        world.release(request)
    assert fences == [1, 2, 3, 4]


@pytest.mark.parametrize("fence", [0, 2, 999_999_999])
def test_a_stale_fence_changes_nothing(world: World, fence: int) -> None:
    world.pool(gpu=2)
    world.policy(priority=1)
    a = world.submit(gpu=1)
    assert refusals(world, a, fence) == [f"this fence holds nothing of {a.id}, which is allocated"] * 2
    assert (world.status(a), world.used()) == (["allocated"], {"gpu": 1})


def test_what_waits_or_was_cancelled_has_no_fence(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    world.submit(gpu=1)
    waiting, cancelled = world.submit(gpu=1), world.submit(gpu=1)
    world.cancel(cancelled)
    for request, status in ((waiting, "queued"), (cancelled, "cancelled")):
        assert refusals(world, request, 1) == [f"this fence holds nothing of {request.id}, which is {status}"] * 2


def test_the_outcome_of_a_release_is_kept(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    for outcome in ("succeeded", "failed"):
        request = world.submit(gpu=1)
        world.clock.advance(1)
        released = world.release(request, outcome=outcome)
        assert (released.status, released.outcome, released.reason) == ("released", outcome, None)
        assert (released.ended_ms, released.lease_expires_ms) == (world.clock.now_ms(), None)


def test_queued_and_forgotten_expires_by_itself(world: World) -> None:
    world.pool(gpu=1)
    world.policy(priority=1)
    a = world.submit(gpu=1)
    b = world.submit(gpu=1, queue_ttl_s=2)
    c = world.submit(gpu=1, queue_ttl_s=None)
    world.pass_time(1.999)
    assert world.status(b) == ["queued"]
    world.pass_time(0.001)
    expired = world.get(b)
    assert (expired.status, expired.reason and expired.reason.code) == ("expired", ReasonCode.NOT_POLLED)
    assert (world.status(a, c), world.queue()) == (["allocated", "queued"], [c.id])


def test_a_poll_keeps_a_waiter_and_a_look_does_not(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    world.submit(gpu=1)
    polled, looked = (world.submit(gpu=1, queue_ttl_s=10) for _ in range(2))
    world.clock.advance(6)
    world.get(polled, poll=True)
    world.get(looked)
    world.pass_time(6)
    assert world.status(polled, looked) == ["queued", "expired"]
    world.pass_time(4)
    assert world.status(polled) == ["expired"]


def test_a_refused_poll_keeps_a_waiter_of_the_components_that_may_be_seen(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    holder = world.submit(gpu=1)
    mine, matched, foreign, endless = (world.submit(gpu=1, queue_ttl_s=ttl_s) for ttl_s in (10, 10, 10, None))
    world.clock.advance(6)
    visible = (["x/y", "orchestrator/t"], ["orchestrator/*"], ["x/y", "x/*", "orchestrator/tt*"], None, None)
    for request, components in zip((mine, matched, foreign, endless, holder), visible, strict=True):
        world.ledger.record_refused_poll(world.workspace, request.id, components)
    world.pass_time(6)
    assert world.status(mine, matched, foreign, endless, holder) == ["queued", "queued", "expired", "queued", "allocated"]
    world.pass_time(4)
    assert world.status(mine, matched, endless) == ["expired", "expired", "queued"]


def test_time_in_the_queue_does_not_count_once_granted(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    a = world.submit(gpu=1)
    b = world.submit(gpu=1, queue_ttl_s=10)
    world.pass_time(9)
    world.release(a)
    world.get(b, poll=True)
    world.pass_time(100)
    assert world.status(b) == ["allocated"]


def test_a_forgotten_one_that_stood_first_lets_the_next_in(world: World) -> None:
    world.pool(gpu=4, settings={"queueing": "strict"})
    world.policy()
    world.submit(gpu=3)
    first, second = world.submit(gpu=2, queue_ttl_s=5), world.submit(gpu=1)
    assert world.status(first, second) == ["queued", "queued"]
    world.pass_time(5)
    assert world.status(first, second) == ["expired", "allocated"]


@pytest.mark.parametrize("chunk", [1, 3])
def test_what_lapses_together_is_ended_a_part_at_a_time_and_its_units_are_granted_with_it(client: Any, chunk: int) -> None:
    world = World(client, chunk=chunk)
    world.pool(gpu=5)
    world.policy()
    allocations = [world.submit(gpu=1, lease_s=10) for _ in range(5)]
    waiting = [world.submit(gpu=1) for _ in range(5)]
    world.clock.advance(10)
    rounds = 0
    while world.ledger.clean_up(world.workspace).expired_leases:
        rounds += 1
        ended = world.status(*allocations).count("expired")
        assert (ended, world.status(*waiting).count("allocated"), world.used()) == (min(5, rounds * chunk), ended, {"gpu": 5})
    assert world.status(*allocations, *waiting) == ["expired"] * 5 + ["allocated"] * 5


def test_ended_requests_are_kept_for_a_while(client: Any) -> None:
    world = World(client)
    world.ledger = Ledger(client, world.clock, LedgerLimits(retention_s=100))
    world.pool(gpu=1)
    world.policy()
    a, rejected, b = world.submit(gpu=1, labels={"a": "b"}), world.submit(gpu=2), world.submit(gpu=1)
    world.release(a)
    world.clock.advance(50)
    world.cancel(world.submit(gpu=1))
    world.clock.advance(50)
    assert world.ledger.clean_up(world.workspace) == CleanupCounts(pruned_requests=2)
    left = world.state()
    assert [key for key in left if a.id in key or rejected.id in key] == []
    assert [name for name, _ in left["pk:{test}:requests"]] == [b.id, left["pk:{test}:ended"][0][0]]
    world.clock.advance(50)
    assert world.ledger.clean_up(world.workspace) == CleanupCounts(pruned_requests=1)
    assert world.status(b) == ["allocated"]


def test_the_time_of_the_server_is_used_if_no_clock_is_given(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    ledger = Ledger(world.client)
    request = ledger.submit(world.workspace, world.request_spec(gpu=1, lease_s=60))
    seconds, micros = (int(part) for part in world.client.time())
    assert 0 <= seconds * 1000 + micros // 1000 - request.submitted_ms < 60_000
    assert request.lease_expires_ms == request.submitted_ms + 60_000
    assert ledger.clean_up(world.workspace) == CleanupCounts()
