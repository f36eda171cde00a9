"""Every transition has exactly one event, on the workspace's stream and in the request's own story."""

from __future__ import annotations

from typing import Any

from app.domain.ledger_limits import LedgerLimits
from app.domain.models import Event, Request
from app.domain.states import RequestState
from app.store.ledger import Ledger
from tests.support.world import World


def transitions(world: World, request: Request) -> list[tuple[str, RequestState | None, RequestState]]:
    """Return the events of a request: event, from, to."""
    return [(event.event, event.from_status, event.to_status) for event in world.events() if event.request == request.id]


def after_submit(*after: tuple[str, RequestState, RequestState]) -> list[tuple[str, RequestState | None, RequestState]]:
    """Return the transitions of a request from its submission."""
    return [("submitted", None, RequestState.QUEUED), *after]


GRANTED = ("allocated", RequestState.QUEUED, RequestState.ALLOCATED)


def test_an_event_in_full(world: World) -> None:
    world.pool(gpu=2)
    world.policy("kind/name")
    request = world.submit("kind/name", gpu=1)
    common: dict[str, Any] = {
        "request": request.id, "at_ms": world.clock.now_ms(), "component": "kind/name", "resources": {"gpu": 1, "step_run": 1},
        "reason": None, "by": None,
    }  # fmt: skip
    first, second = world.events()
    assert first == Event(
        id=first.id, event="submitted", from_status=None, to_status=RequestState.QUEUED, pool=None, fence=None, **common,
    )  # fmt: skip
    assert second == Event(
        id=second.id, event="allocated", from_status=RequestState.QUEUED, to_status=RequestState.ALLOCATED,
        pool="p", fence=1, **common,
    )  # fmt: skip


def test_each_way_through_life(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    released = world.submit(gpu=1)
    cancelled, lost, forgotten = world.submit(gpu=1), world.submit(gpu=1), world.submit(gpu=1, queue_ttl_s=5)
    rejected, shut_out = world.submit(gpu=2), world.submit(gpu=1)
    world.cancel(cancelled)
    world.drop(lost)
    world.pass_time(5)
    world.policy(limit={"gpu": 0})
    world.release(released)
    world.policy()
    lapsed = world.submit(gpu=1, lease_s=5)
    dropped = world.submit(gpu=1)
    world.pass_time(5)
    world.drop(dropped)
    assert transitions(world, released) == after_submit(GRANTED, ("released", RequestState.ALLOCATED, RequestState.RELEASED))
    assert transitions(world, cancelled) == after_submit(("cancelled", RequestState.QUEUED, RequestState.CANCELLED))
    assert transitions(world, lost) == after_submit(("cancelled", RequestState.QUEUED, RequestState.CANCELLED))
    assert transitions(world, forgotten) == after_submit(("expired", RequestState.QUEUED, RequestState.EXPIRED))
    rejection = after_submit(("rejected", RequestState.QUEUED, RequestState.REJECTED))
    assert transitions(world, rejected) == transitions(world, shut_out) == rejection
    assert transitions(world, lapsed) == after_submit(GRANTED, ("expired", RequestState.ALLOCATED, RequestState.EXPIRED))
    assert transitions(world, dropped) == after_submit(GRANTED, ("released", RequestState.ALLOCATED, RequestState.RELEASED))
    reasons = [event.reason for event in world.events() if event.reason]
    assert reasons == ["exceeds_capacity", "dropped", "not_polled", "exceeds_limit", "lease_lapsed", "dropped"]


def test_a_request_tells_its_own_story(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    a, b = world.submit(gpu=1), world.submit(gpu=1)
    world.clock.advance(3)
    world.drop(a)
    for request in (a, b):
        of_stream = [
            (event.id, event.event, event.at_ms, event.pool, event.reason, event.by)
            for event in world.events() if event.request == request.id
        ]  # fmt: skip
        story = world.get(request).timeline
        assert [(line.id, line.event, line.at_ms, line.pool, line.reason, line.by) for line in story] == of_stream
    assert [(line.event, line.pool, line.reason) for line in world.get(a).timeline] == [
        ("submitted", None, None), ("allocated", "p", None), ("released", "p", "dropped"),
    ]  # fmt: skip


def test_events_are_read_from_where_one_stopped(world: World) -> None:
    world.pool(gpu=9)
    world.policy()
    world.submit_all([world.request_spec(gpu=1) for _ in range(5)])
    whole, read, after = world.events(), [], "0"
    while page := world.ledger.read_events(world.workspace, after, 3):
        read += page
        after = page[-1].id
    assert (read, len(whole)) == (whole, 10)
    assert world.ledger.read_events(world.workspace, whole[-1].id, 3) == []


def test_the_stream_is_capped_and_the_story_is_not_lost_with_it(world: World) -> None:
    world.ledger = Ledger(world.client, world.clock, LedgerLimits(events_kept=100))
    world.pool(gpu=1)
    world.policy()
    first = world.submit(gpu=1)
    for _ in range(10):
        world.submit_all([world.request_spec(gpu=2) for _ in range(50)])
    assert 100 <= len(world.events()) <= 300
    assert [line.event for line in world.get(first).timeline] == ["submitted", "allocated"]


def test_what_changes_nothing_tells_nothing(world: World) -> None:
    world.pool(gpu=1)
    world.policy()
    a, b = world.submit(gpu=1, lease_s=60), world.submit(gpu=1, queue_ttl_s=60)
    before = world.events()
    world.ledger.heartbeat(world.workspace, a.id, 1)
    world.get(b, poll=True)
    world.policy(priority=7)
    world.update_pool(gpu=1, settings={"queueing": "strict"})
    world.pass_time(1)
    assert world.events() == before
