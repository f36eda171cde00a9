"""The changes that end a long poll, and the number of polls."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from app.domain.states import RequestState
from app.service.long_poll import KnownState
from app.service.wait_slots import SlotKind, TokenShareUsed, WaitSlots
from tests.support.world import World


@pytest.mark.parametrize(
    ("known_state", "differs"),
    [
        (KnownState(RequestState.ALLOCATED, None), False),
        (KnownState(RequestState.ALLOCATED, "continue"), False),
        (KnownState(RequestState.ALLOCATED, "terminate"), True),
        (KnownState(RequestState.QUEUED, "continue"), True),
    ],
)
def test_a_request_differs_from_what_is_known_by_its_status_or_its_directive(
    world: World, known_state: KnownState, differs: bool
) -> None:
    world.pool(gpu=1)
    world.policy()
    assert known_state.differs_from(world.submit(gpu=1)) is differs


def test_no_more_wait_than_there_are_slots() -> None:
    slots = WaitSlots(polls=2, streams=1)
    with slots.slot("poll") as first, slots.slot("stream") as second, slots.slot("poll") as third:
        assert (first, second, third) == (True, True, False)
    with slots.slot("stream") as first, slots.slot("stream") as second, slots.slot("poll") as third:
        assert (first, second, third) == (True, False, True)


def test_a_token_holds_its_share_and_leaves_the_rest() -> None:
    slots = WaitSlots(polls=8, streams=4, share_percent=25)
    with slots.slot("poll", "a") as first, slots.slot("poll", "a") as second, slots.slot("poll", "a") as third:
        assert (first, second, third) == (True, True, False)
        with slots.slot("poll", "b") as other, slots.slot("stream", "a") as stream, slots.slot("stream", "a") as another:
            assert (other, stream, another) == (True, True, False)
            assert isinstance(slots.refusal("stream", "a"), TokenShareUsed)
            detail = "this token holds 1 of the 1 event streams that a token may hold in a process"
            assert str(slots.refusal("stream", "a")) == detail
            assert not isinstance(slots.refusal("stream", "b"), TokenShareUsed)
    with slots.slot("poll", "a") as freed:
        assert freed


def test_callers_without_tokens_share_all_slots() -> None:
    slots = WaitSlots(polls=4, streams=4, share_percent=25)
    with slots.slot("poll") as first, slots.slot("poll") as second, slots.slot("stream") as third:
        assert (first, second, third) == (True, True, True)


def test_a_share_is_one_slot_at_least() -> None:
    slots = WaitSlots(polls=2, streams=1, dashboards=1, share_percent=1)
    with slots.slot("poll", "a") as poll, slots.slot("stream", "a") as stream, slots.slot("dashboard", "a") as dashboard:
        assert (poll, stream, dashboard) == (True, True, True)


@pytest.mark.parametrize(("dashboards", "share"), [(1, 1), (8, 8), (20, 8), (40, 10)])
def test_a_token_has_some_pages_also_in_a_small_process(dashboards: int, share: int) -> None:
    slots = WaitSlots(polls=1, streams=1, dashboards=dashboards, share_percent=25)
    with ExitStack() as stack:
        assert [stack.enter_context(slots.slot("dashboard", "a")) for _ in range(share + 1)] == [True] * share + [False]


def test_dashboards_have_slots_of_their_own() -> None:
    slots = WaitSlots(polls=1, streams=1, dashboards=2)
    kinds: tuple[SlotKind, ...] = ("poll", "stream", "dashboard", "dashboard", "dashboard")
    with ExitStack() as stack:
        assert [stack.enter_context(slots.slot(kind)) for kind in kinds] == [True, False, True, True, False]
        assert slots.used() == {"poll": 1, "stream": 0, "dashboard": 2, "body": 0}
    with slots.slot("dashboard"), slots.slot("poll") as poll:
        assert poll
