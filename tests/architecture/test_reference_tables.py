"""The tables of which the reference pages are made are complete, and agree with each other."""

from __future__ import annotations

from app.api.metrics.registry import METRICS
from app.cli.exit_codes import MEANINGS, ExitCode
from app.domain.event_names import EVENTS
from app.domain.explanations import WAIT_REASON_TEXTS, WaitReason
from app.domain.states import STATE_TEXTS, TRANSITIONS, RequestState
from tests.properties.replay import NOTES, WAYS
from tests.support.reference_pages.metrics_page import SECTIONS


def test_the_events_are_those_of_all_transitions() -> None:
    written = {(before, after) for event in EVENTS.values() for before in event.before for after in event.after}
    assert written == {(before, after) for before, states in TRANSITIONS.items() for after in states}


def test_every_event_leads_where_the_random_histories_allow() -> None:
    rows = {name: (event.before or {""}, event.after) for name, event in EVENTS.items() if event.after}
    transitions = {(before, name, after) for name, (old, new) in rows.items() for before in old for after in new}
    assert transitions == {(before, name, after) for before, row in WAYS.items() for name in row for after in row[name]}
    assert EVENTS.keys() - rows.keys() == NOTES.keys()


def test_every_state_wait_reason_and_exit_code_has_a_meaning() -> None:
    assert list(STATE_TEXTS) == list(RequestState)
    assert list(WAIT_REASON_TEXTS) == list(WaitReason)
    assert list(MEANINGS) == list(ExitCode)


def test_the_page_of_metrics_has_every_metric() -> None:
    assert sorted(metric.name for _, metrics in SECTIONS for metric in metrics) == sorted(METRICS), (
        "SECTIONS is in tests/support/reference_pages/metrics_page.py"
    )
