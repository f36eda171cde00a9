"""Names and choices of pool settings, and the defaults of each discipline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poolkeeper.formatting import pairs

BOOLEAN = ("true", "false")

ACCOUNT_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "over_limit": ("keep", "evict"),
    "over_limit_after_s": (),
    "fair_share_tolerance": (),
    "starvation_timeout_s": (),
    "aggressive_starvation": BOOLEAN,
    "aggressive_starvation_timeout_s": (),
    "allow_aggressive_preemption": BOOLEAN,
    "aggressive_preemption_threshold": (),
    "preemption_threshold": (),
    "non_preemptible_usage_threshold": (),
}
"""Settings that groups and policies may have as well as pools, each with the words it may be; none: it is no word."""

POOL_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "discipline": ("reserved", "classes", "fair_share"),
    "order": ("share_first", "priority_first"),
    "queueing": ("best_effort", "strict"),
    "patience_s": (),
    "grace_s": (),
    "checkpoint_timeout_s": (),
    "max_deferral_s": (),
    "requeue_failed_checkpoint": BOOLEAN,
    "near_completion_s": (),
    "min_runtime_s": (),
    "max_victims": (),
    "max_preemptions_per_minute": (),
    "backoff_s": (),
    "cost_key": (),
    "value_per_class": (),
    **ACCOUNT_SETTINGS,
}

AMOUNT_SETTINGS = ("non_preemptible_usage_threshold",)
"""Settings that are amounts: `gpu=2,mcpu=4000`."""

DISCIPLINE_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "near_completion_s": {"reserved": 0, "classes": 300, "fair_share": 0},
    "max_victims": {"reserved": 0, "classes": 3, "fair_share": 0},
    "backoff_s": {"reserved": 0, "classes": 0, "fair_share": 5},
    "over_limit": {"reserved": "keep", "classes": "keep", "fair_share": "evict"},
}
"""What holds in each discipline where a pool has none of its own."""


def format_settings(settings: Mapping[str, Any]) -> str:
    """Return the settings of a pool on one line; a setting left to the discipline as `backoff_s=5 (as the discipline)`."""
    return " ".join(_format_setting(name, value, settings.get("discipline")) for name, value in settings.items()) or "-"


def _format_setting(name: str, value: Any, discipline: Any) -> str:
    defaults = DISCIPLINE_DEFAULTS.get(name, {})
    if value is None and discipline in defaults:
        return pairs({name: defaults[discipline]}) + " (as the discipline)"
    return pairs({name: value})
