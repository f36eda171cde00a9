"""Records in Redis: an absent newer field has its default, and a record of an older version is still read."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.domain.models import TimelineEntry
from app.domain.pool_setting_models import PoolSettings
from app.domain.specs import RequestSpec
from app.domain.states import RequestState
from app.store import codec

REQUEST = {
    "id": "r",
    "status": "queued",
    "component": "orchestrator/t",
    "resources": "gpu=1",
    "preemptible": "1",
    "class": "5",
    "checkpoint": "none",
    "retries": "3",
    "submitted_ms": "7",
    "seq": "1",
}
ENTRY = {
    "event": "preempting",
    "request": "r",
    "at": "7",
    "component": "orchestrator/t",
    "resources": "gpu=1",
    "from": "allocated",
    "to": "preempting",
    "pool": "p",
    "fence": "2",
    "reason": "reclaim",
    "by": "w",
}


def test_a_request_that_was_never_preempted() -> None:
    request = codec.decode_request(REQUEST)
    assert (request.preemptions, request.resume, request.checkpoint_reference, request.preempted_by) == (0, False, None, None)


@pytest.mark.parametrize(
    ("status", "fields", "directive_and_deadline"),
    [
        ("queued", {}, (None, None)),
        ("allocated", {}, ("continue", None)),
        ("allocated", {"directive": "", "deadline_ms": ""}, ("continue", None)),
        ("preempting", {"directive": "checkpoint", "deadline_ms": "9"}, ("checkpoint", 9)),
        ("preempted", {"directive": "terminate", "deadline_ms": "9"}, (None, None)),
    ],
)
def test_only_allocations_have_a_directive(
    status: str, fields: dict[str, str], directive_and_deadline: tuple[Any, Any]
) -> None:
    request = codec.decode_request(REQUEST | {"status": status} | fields)
    assert (request.directive, request.deadline_ms) == directive_and_deadline


def test_after_a_preemption() -> None:
    fields = {"preemptions": "2", "resume": "1", "reference": "s3://é 1", "preempted_by": "w", "reason": "priority"}
    request = codec.decode_request(REQUEST | fields)
    assert (request.preemptions, request.resume, request.checkpoint_reference, request.preempted_by) == (
        2,
        True,
        "s3://é 1",
        "w",
    )
    assert request.reason
    assert (request.reason.code, request.reason.by) == ("priority", "w")


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("1-0 submitted 7", TimelineEntry("1-0", "submitted", 7, None, None, None)),
        ("1-0 released 7 p dropped", TimelineEntry("1-0", "released", 7, "p", "dropped", None)),
        ("1-0 preempted 7 p reclaim w", TimelineEntry("1-0", "preempted", 7, "p", "reclaim", "w")),
        ("1-0 preempting 7 p reclaim w 0,5 9,5", TimelineEntry("1-0", "preempting", 7, "p", "reclaim", "w", "0,5", "9,5")),
        (
            "1-0 clearing 7 - reclaim - 9,5 - a@0,5;b@0,4",
            TimelineEntry("1-0", "clearing", 7, None, "reclaim", None, "9,5", None, (("a", "0,5"), ("b", "0,4"))),
        ),
    ],
)
def test_a_line_of_a_story_ends_where_there_is_nothing_more_to_say(line: str, entry: TimelineEntry) -> None:
    assert codec.decode_request(REQUEST | {"events": "1", "e1": line}, places=[]).timeline == (entry,)


def test_an_entry_of_the_stream_may_be_older_than_ranks() -> None:
    old = codec.decode_event("1-0", ENTRY)
    assert (old.rank, old.by_rank, old.victims) == (None, None, ())
    new = codec.decode_event("1-0", ENTRY | {"rank": "0,5", "by_rank": "9,5", "victims": ""})
    assert (new.rank, new.by_rank, new.victims, new.to_status) == ("0,5", "9,5", (), RequestState.PREEMPTING)


def a_pool(**limits: str) -> Any:
    """Return a pool in the form of a reply of `get_pool`."""
    flat = [word for pair in {"limit:gpu": "8", **limits}.items() for word in pair]
    policy = ["orchestrator/t", ["priority", "0", "weight", "1"], "0", ""]
    fields = {"pool": flat, "description": "", "queued": "0", "active": "0", "groups": [], "policies": [policy]}
    return codec.decode_pool("p", fields | {"holds": ["a", "patience 5", "b", "victims 6 1"]})


def test_a_setting_that_was_never_written_has_its_default() -> None:
    present = PoolSettings.model_fields
    may_be_null = {"patience_s", "near_completion_s", "max_victims", "max_preemptions_per_minute", "value_per_class"} | {
        "backoff_s",
        "over_limit",
    }
    assert a_pool().settings == {name: None if name in may_be_null else present[name].default for name in present}
    assert a_pool().policies["orchestrator/t"].profile == "batch"
    assert a_pool(backoff_s="0").settings["backoff_s"] == 0, "as it was written when it could not be null"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"fair_share_tolerance": 1.0, "preemption_threshold": 1e-6, "non_preemptible_usage_threshold": {"gpu": 0, "a": 2}},
        {"aggressive_starvation": True, "allow_aggressive_preemption": False, "over_limit": "keep", "backoff_s": 0},
        {"requeue_failed_checkpoint": False, "max_victims": 1, "near_completion_s": 0, "cost_key": "k1"},
    ],
)
def test_settings_come_back_as_they_were_given(settings: dict[str, Any]) -> None:
    spec = PoolSettings.model_validate(settings)
    written = {name: codec.encode_setting(value) for name, value in spec.model_dump().items()}
    assert a_pool(**{name: text for name, text in written.items() if text}).settings == spec.model_dump()


def test_both_kinds_of_holds_are_held_and_told() -> None:
    pool = a_pool(**{"patience_held:gpu": "1", "victim_held:gpu": "2", "victim_held:tpu": "3"})
    assert pool.on_hold == {"gpu": 3, "tpu": 3}
    assert [(hold.request, hold.kind, hold.since_ms) for hold in pool.holds] == [("a", "patience", 5), ("b", "victims", 6)]


def test_a_preemption_group_is_written_as_a_digest() -> None:
    spec = RequestSpec(component="t", labels={"preemption_group": "a b|c"})
    fields = codec.to_mapping(codec.encode_request("r", spec, None)["fields"])
    assert re.fullmatch("[0-9a-f]{16}", fields["preemption_group"])
