"""The table of states: total, with finals nothing leads out of."""

from __future__ import annotations

import pytest

from app.domain.states import FINAL, LIVE, TRANSITIONS, State

ROADS = [
    ("queued", "allocated"),
    ("queued", "cancelled"),
    ("queued", "rejected"),
    ("queued", "expired"),
    ("allocated", "preempting"),
    ("allocated", "preempted"),  # these two where no grace is given
    ("allocated", "queued"),
    ("allocated", "released"),
    ("allocated", "expired"),
    ("preempting", "allocated"),
    ("preempting", "preempted"),
    ("preempting", "queued"),
    ("preempting", "released"),
    ("preempting", "expired"),
]


def reachable(start: State) -> set[State]:
    seen, next_ones = set[State](), {start}
    while next_ones:
        seen |= next_ones
        next_ones = {after for state in next_ones for after in TRANSITIONS[state]} - seen
    return seen


def test_the_table_is_total() -> None:
    assert set(TRANSITIONS) == set(State)
    assert set[State]().union(*TRANSITIONS.values()) <= set(State)


def test_the_ways_are_those_documented() -> None:
    assert {(state.value, after.value) for state, ones in TRANSITIONS.items() for after in ones} == set(ROADS)


def test_finals_have_no_way_out() -> None:
    assert {State.PREEMPTED, State.RELEASED, State.EXPIRED, State.CANCELLED, State.REJECTED} == FINAL
    assert all(not TRANSITIONS[state] for state in FINAL)


def test_what_holds_units_is_not_final_and_not_waiting() -> None:
    assert {State.ALLOCATED, State.PREEMPTING} == LIVE
    assert {State.QUEUED} | LIVE | FINAL == set(State)
    assert not LIVE & FINAL


@pytest.mark.parametrize("state", State)
def test_no_state_leads_to_itself(state: State) -> None:
    assert state not in TRANSITIONS[state]


@pytest.mark.parametrize("state", State)
def test_every_state_comes_about_and_ends(state: State) -> None:
    assert state in reachable(State.QUEUED)
    assert reachable(state) & FINAL


def test_units_come_by_grant_or_reprieve_alone() -> None:
    assert {before for before, ones in TRANSITIONS.items() if State.ALLOCATED in ones} == {State.QUEUED, State.PREEMPTING}


@pytest.mark.parametrize("state", State)
def test_a_state_is_written_as_its_name(state: State) -> None:
    assert state.value == str(state) == state.name.lower()
