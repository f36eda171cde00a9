"""The table of states: it is total, and no transition leads out of a final state."""

from __future__ import annotations

import pytest

from app.domain.states import FINAL_STATES, HOLDING_STATES, TRANSITIONS, RequestState

ROADS = [
    ("queued", "allocated"),
    ("queued", "cancelled"),
    ("queued", "rejected"),
    ("queued", "expired"),
    ("allocated", "preempting"),
    ("allocated", "preempted"),  # both without grace
    ("allocated", "queued"),
    ("allocated", "released"),
    ("allocated", "expired"),
    ("preempting", "allocated"),
    ("preempting", "preempted"),
    ("preempting", "queued"),
    ("preempting", "released"),
    ("preempting", "expired"),
]


def reachable(start: RequestState) -> set[RequestState]:
    states, next_ones = set[RequestState](), {start}
    while next_ones:
        states |= next_ones
        next_ones = {after for state in next_ones for after in TRANSITIONS[state]} - states
    return states


def test_the_table_is_total() -> None:
    assert set(TRANSITIONS) == set(RequestState)
    assert set[RequestState]().union(*TRANSITIONS.values()) <= set(RequestState)


def test_the_ways_are_those_documented() -> None:
    assert {(state.value, after.value) for state, next_states in TRANSITIONS.items() for after in next_states} == set(ROADS)


def test_finals_have_no_way_out() -> None:
    assert {
        RequestState.PREEMPTED,
        RequestState.RELEASED,
        RequestState.EXPIRED,
        RequestState.CANCELLED,
        RequestState.REJECTED,
    } == FINAL_STATES
    assert all(not TRANSITIONS[state] for state in FINAL_STATES)


def test_what_holds_units_is_not_final_and_not_waiting() -> None:
    assert {RequestState.ALLOCATED, RequestState.PREEMPTING} == HOLDING_STATES
    assert {RequestState.QUEUED} | HOLDING_STATES | FINAL_STATES == set(RequestState)
    assert not HOLDING_STATES & FINAL_STATES


@pytest.mark.parametrize("state", RequestState)
def test_no_state_leads_to_itself(state: RequestState) -> None:
    assert state not in TRANSITIONS[state]


@pytest.mark.parametrize("state", RequestState)
def test_every_state_comes_about_and_ends(state: RequestState) -> None:
    assert state in reachable(RequestState.QUEUED)
    assert reachable(state) & FINAL_STATES


def test_units_come_by_grant_or_reprieve_alone() -> None:
    assert {before for before, next_states in TRANSITIONS.items() if RequestState.ALLOCATED in next_states} == {
        RequestState.QUEUED,
        RequestState.PREEMPTING,
    }


@pytest.mark.parametrize("state", RequestState)
def test_a_state_is_written_as_its_name(state: RequestState) -> None:
    assert state.value == str(state) == state.name.lower()
