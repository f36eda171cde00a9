"""Settings of a pool: all of them as they can be given, and every kind of bad value with its reason."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.domain.asks import TEN_YEARS_S, PoolAsk, PoolChange, malformed
from app.domain.ordering import EXACT

WHOLE = "must be a whole number"
KEY = "must be 1 to 63 of a-z 0-9 _ . - and begin with a letter"


@pytest.mark.parametrize("patience_s", [0, 1, TEN_YEARS_S, None])
def test_the_settings_of_a_pool(patience_s: int | None) -> None:
    settings = {
        "discipline": "classes",
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
        "backoff_s": 1,
        "cost_key": "tpu",
        "value_per_class": EXACT,
    }
    ask = PoolAsk.model_validate({"name": "p", "capacity": {"gpu": 8}, "settings": settings})
    assert ask.settings.model_dump() == settings


SETTINGS: list[tuple[dict[str, Any], str, str]] = [
    ({"discipline": "fair_share"}, "discipline", "must be 'reserved' or 'classes'"),
    ({"discipline": None}, "discipline", "must be 'reserved' or 'classes'"),
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
    ({"backoff_s": None}, "backoff_s", WHOLE),
    ({"cost_key": "GPU"}, "cost_key", KEY),
    ({"cost_key": None}, "cost_key", "must be a text"),
    ({"value_per_class": 0}, "value_per_class", "must be at least 1"),
    ({"patience_s": 1.5}, "patience_s", WHOLE),
    ({"patience_s": True}, "patience_s", WHOLE),
    ({"patience_s": TEN_YEARS_S + 1}, "patience_s", "must be at most 315360000"),
    ({"colour": "red"}, "colour", "is not a field here"),
]


@pytest.mark.parametrize(("given", "field", "reason"), SETTINGS)
def test_no_settings_of_a_pool(given: dict[str, Any], field: str, reason: str) -> None:
    for kind, rest in ((PoolAsk, {"name": "p", "capacity": {"gpu": 8}}), (PoolChange, {})):
        with pytest.raises(ValidationError) as caught:
            kind.model_validate({**rest, "settings": given})
        assert malformed(caught.value) == [(f"settings.{field}", reason)]
