"""What a long poll waits for, and how many may wait."""

from __future__ import annotations

import pytest

from app.domain.states import RequestState
from app.service.long_poll import KnownState, WaitSlots
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
