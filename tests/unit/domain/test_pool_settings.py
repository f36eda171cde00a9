"""Settings of a pool: all valid forms, and every kind of invalid value with its reason."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.domain.field_types import TEN_YEARS_S, StrictModel
from app.domain.pool_setting_models import AccountSettings, PoolSettings
from app.domain.queue_score import MAX_AMOUNT
from app.domain.specs import GroupSpec, PolicySpec, PoolSpec, PoolUpdate
from app.domain.validation_errors import field_errors

WHOLE = "must be a whole number"
NUMBER = "must be a number"
PLACES = "must have at most 6 decimal places"
KEY = "must be 1 to 63 of a-z 0-9 _ . - and begin with a letter"


@pytest.mark.parametrize("patience_s", [0, 1, TEN_YEARS_S, None])
def test_the_settings_of_a_pool(patience_s: int | None) -> None:
    settings = {
        "discipline": "fair_share",
        "order": "priority_first",
        "queueing": "strict",
        "patience_s": patience_s,
        "grace_s": 0,
        "checkpoint_timeout_s": TEN_YEARS_S,
        "max_deferral_s": 1,
        "requeue_failed_checkpoint": False,
        "near_completion_s": patience_s,
        "min_runtime_s": 1,
        "max_victims": 0,
        "max_preemptions_per_minute": 0,
        "backoff_s": patience_s,
        "cost_key": "tpu",
        "value_per_class": MAX_AMOUNT,
        "over_limit": "evict",
        "over_limit_after_s": 0,
        "fair_share_tolerance": 0.123456,
        "starvation_timeout_s": TEN_YEARS_S,
        "aggressive_starvation": True,
        "aggressive_starvation_timeout_s": 0,
        "allow_aggressive_preemption": False,
        "aggressive_preemption_threshold": 10,
        "preemption_threshold": 9.999999,
        "non_preemptible_usage_threshold": {"gpu": MAX_AMOUNT, "tpu": 0},
        "template_max": 100_000,
        "template_idle_s": TEN_YEARS_S,
    }
    ask = PoolSpec.model_validate({"name": "p", "capacity": {"gpu": 8}, "settings": settings})
    assert ask.settings.model_dump() == settings


SETTINGS: list[tuple[dict[str, Any], str, str]] = [
    ({"discipline": "fair"}, "discipline", "must be 'reserved', 'classes' or 'fair_share'"),
    ({"discipline": None}, "discipline", "must be 'reserved', 'classes' or 'fair_share'"),
    ({"order": "newest_first"}, "order", "must be 'share_first' or 'priority_first'"),
    ({"queueing": "fifo"}, "queueing", "must be 'best_effort' or 'strict'"),
    ({"patience_s": -1}, "patience_s", "must be at least 0"),
    ({"grace_s": None}, "grace_s", WHOLE),
    ({"grace_s": -1}, "grace_s", "must be at least 0"),
    ({"checkpoint_timeout_s": 0.5}, "checkpoint_timeout_s", WHOLE),
    ({"max_deferral_s": TEN_YEARS_S + 1}, "max_deferral_s", "must be at most 315360000"),
    ({"requeue_failed_checkpoint": None}, "requeue_failed_checkpoint", "must be true or false"),
    ({"requeue_failed_checkpoint": 1}, "requeue_failed_checkpoint", "must be true or false"),
    ({"near_completion_s": -1}, "near_completion_s", "must be at least 0"),
    ({"min_runtime_s": None}, "min_runtime_s", WHOLE),
    ({"max_victims": -1}, "max_victims", "must be at least 0"),
    ({"max_victims": "none"}, "max_victims", WHOLE),
    ({"max_preemptions_per_minute": 1.5}, "max_preemptions_per_minute", WHOLE),
    ({"backoff_s": "none"}, "backoff_s", WHOLE),
    ({"cost_key": "GPU"}, "cost_key", KEY),
    ({"cost_key": None}, "cost_key", "must be a text"),
    ({"value_per_class": 0}, "value_per_class", "must be at least 1"),
    ({"patience_s": 1.5}, "patience_s", WHOLE),
    ({"patience_s": True}, "patience_s", WHOLE),
    ({"patience_s": TEN_YEARS_S + 1}, "patience_s", "must be at most 315360000"),
    ({"colour": "red"}, "colour", "is not a field here"),
    ({"mode": "fifo"}, "mode", "is not a field here"),
]

OF_ALL: list[tuple[dict[str, Any], str, str]] = [
    ({"over_limit": "stop"}, "over_limit", "must be 'keep' or 'evict'"),
    ({"over_limit_after_s": -1}, "over_limit_after_s", "must be at least 0"),
    ({"fair_share_tolerance": 1.1}, "fair_share_tolerance", "must be at most 1"),
    ({"fair_share_tolerance": -0.1}, "fair_share_tolerance", "must be at least 0"),
    ({"fair_share_tolerance": True}, "fair_share_tolerance", NUMBER),
    ({"fair_share_tolerance": "0.8"}, "fair_share_tolerance", NUMBER),
    ({"fair_share_tolerance": float("nan")}, "fair_share_tolerance", "must be a finite number"),
    ({"fair_share_tolerance": 0.1234567}, "fair_share_tolerance", PLACES),
    ({"fair_share_tolerance": 1e-7}, "fair_share_tolerance", PLACES),
    ({"starvation_timeout_s": 1.5}, "starvation_timeout_s", WHOLE),
    ({"starvation_timeout_s": TEN_YEARS_S + 1}, "starvation_timeout_s", "must be at most 315360000"),
    ({"aggressive_starvation": 1}, "aggressive_starvation", "must be true or false"),
    ({"aggressive_starvation_timeout_s": True}, "aggressive_starvation_timeout_s", WHOLE),
    ({"allow_aggressive_preemption": "yes"}, "allow_aggressive_preemption", "must be true or false"),
    ({"aggressive_preemption_threshold": float("inf")}, "aggressive_preemption_threshold", "must be a finite number"),
    ({"aggressive_preemption_threshold": False}, "aggressive_preemption_threshold", NUMBER),
    ({"preemption_threshold": 10.000001}, "preemption_threshold", "must be at most 10"),
    ({"preemption_threshold": 10**400}, "preemption_threshold", NUMBER),
    ({"preemption_threshold": 0.30000000000000004}, "preemption_threshold", PLACES),
    ({"non_preemptible_usage_threshold": {"gpu": 0.5}}, "non_preemptible_usage_threshold.gpu", WHOLE),
    ({"non_preemptible_usage_threshold": {"gpu": -1}}, "non_preemptible_usage_threshold.gpu", "must be at least 0"),
    ({"non_preemptible_usage_threshold": {"GPU": 1}}, "non_preemptible_usage_threshold.GPU", KEY),
    ({"non_preemptible_usage_threshold": "gpu=1"}, "non_preemptible_usage_threshold", "must be an object"),
]
"""Settings that pools, groups and policies refuse."""

OF_ACCOUNTS: list[tuple[dict[str, Any], str, str]] = [
    ({"discipline": "fair_share"}, "discipline", "is not a field here"),
    ({"backoff_s": 5}, "backoff_s", "is not a field here"),
    ({"colour": "red"}, "colour", "is not a field here"),
]


@pytest.mark.parametrize(("settings", "field", "reason"), SETTINGS + OF_ALL)
def test_no_settings_of_a_pool(settings: dict[str, Any], field: str, reason: str) -> None:
    for kind, rest in ((PoolSpec, {"name": "p", "capacity": {"gpu": 8}}), (PoolUpdate, {})):
        with pytest.raises(ValidationError) as caught:
            kind.model_validate({**rest, "settings": settings})
        assert field_errors(caught.value) == [(f"settings.{field}", reason)]


OF_TEMPLATES: list[tuple[dict[str, Any], str, str]] = [
    ({"template_max": 0}, "template_max", "must be at least 1"),
    ({"template_max": 100_001}, "template_max", "must be at most 100000"),
    ({"template_idle_s": -1}, "template_idle_s", "must be at least 0"),
]


@pytest.mark.parametrize(("settings", "field", "reason"), OF_TEMPLATES)
def test_no_settings_of_a_template(settings: dict[str, Any], field: str, reason: str) -> None:
    for kind, fields in ((PoolSpec, {"name": "p", "capacity": {"gpu": 1}}), (PolicySpec, {})):
        with pytest.raises(ValidationError) as caught:
            kind.model_validate({**fields, "settings": settings})
        assert field_errors(caught.value) == [(f"settings.{field}", reason)]


@pytest.mark.parametrize("kind", [GroupSpec, PolicySpec])
@pytest.mark.parametrize(("settings", "field", "reason"), OF_ALL + OF_ACCOUNTS)
def test_no_settings_of_a_group_or_policy(kind: type[StrictModel], settings: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate({"settings": settings})
    assert field_errors(caught.value) == [(f"settings.{field}", reason)]


def test_a_group_or_policy_may_override_settings_of_its_pool() -> None:
    own = {name for name in PoolSettings.model_fields if name in AccountSettings.model_fields}
    assert own == AccountSettings.model_fields.keys()
    fields = {"over_limit": "keep", "aggressive_starvation": False, "preemption_threshold": 0, "starvation_timeout_s": 0}
    assert AccountSettings.model_validate(fields).model_dump(exclude_none=True) == fields
    assert AccountSettings.model_validate(dict.fromkeys(own)) == AccountSettings()


def test_protecting_nothing_in_particular_is_saying_nothing() -> None:
    assert AccountSettings.model_validate({"non_preemptible_usage_threshold": {}}) == AccountSettings()
    assert AccountSettings.model_validate({"non_preemptible_usage_threshold": {"gpu": 0}}) != AccountSettings()


@pytest.mark.parametrize("mode", ["fair_share", "fifo"])
def test_the_mode_of_a_group(mode: str) -> None:
    assert GroupSpec.model_validate({"mode": mode}).mode == mode
    with pytest.raises(ValidationError) as caught:
        GroupSpec.model_validate({"mode": mode.upper()})
    assert field_errors(caught.value) == [("mode", "must be 'fair_share' or 'fifo'")]


@pytest.mark.parametrize(("number", "expected"), [(1.0, 1), (-0.0, 0), (1e-6, 0.000001), (1e-400, 0)])
def test_a_whole_number_is_one_however_it_is_written(number: float, expected: float) -> None:
    tolerance = AccountSettings.model_validate({"fair_share_tolerance": number}).fair_share_tolerance
    assert (tolerance, repr(tolerance)) == (expected, repr(expected))
