"""The names, choices and defaults of the settings of pools, groups and policies.

Generated from `app/domain/pool_settings.py` by `make generated`; edit the table there.
"""

from __future__ import annotations

from collections.abc import Mapping

ACCOUNT_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "over_limit": ("keep", "evict"),
    "over_limit_after_s": (),
    "fair_share_tolerance": (),
    "starvation_timeout_s": (),
    "aggressive_starvation": ("true", "false"),
    "aggressive_starvation_timeout_s": (),
    "allow_aggressive_preemption": ("true", "false"),
    "aggressive_preemption_threshold": (),
    "preemption_threshold": (),
    "non_preemptible_usage_threshold": (),
    "template_max": (),
    "template_idle_s": (),
}
"""Settings that groups and policies have, too → their choices; empty if any value of the type is allowed."""

POOL_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "discipline": ("reserved", "classes", "fair_share"),
    "order": ("share_first", "priority_first"),
    "queueing": ("best_effort", "strict"),
    "patience_s": (),
    "grace_s": (),
    "checkpoint_timeout_s": (),
    "max_deferral_s": (),
    "requeue_failed_checkpoint": ("true", "false"),
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
"""Settings whose values are amounts: `gpu=2,mcpu=4000`."""

DISCIPLINE_DEFAULTS: Mapping[str, Mapping[str, int | str]] = {
    "near_completion_s": {"reserved": 0, "classes": 300, "fair_share": 0},
    "max_victims": {"reserved": 0, "classes": 3, "fair_share": 0},
    "backoff_s": {"reserved": 0, "classes": 0, "fair_share": 5},
    "over_limit": {"reserved": "keep", "classes": "keep", "fair_share": "evict"},
}
"""Setting → its default in each discipline, if the discipline decides it."""

DEFAULTS: Mapping[str, str | int | float | bool | Mapping[str, int] | None] = {
    "discipline": "reserved",
    "order": "share_first",
    "queueing": "best_effort",
    "patience_s": 300,
    "grace_s": 30,
    "checkpoint_timeout_s": 600,
    "max_deferral_s": 300,
    "requeue_failed_checkpoint": True,
    "near_completion_s": None,
    "min_runtime_s": 0,
    "max_victims": None,
    "max_preemptions_per_minute": None,
    "backoff_s": None,
    "cost_key": "gpu",
    "value_per_class": None,
    "over_limit": None,
    "over_limit_after_s": 30,
    "fair_share_tolerance": 0.8,
    "starvation_timeout_s": 30,
    "aggressive_starvation": False,
    "aggressive_starvation_timeout_s": 120,
    "allow_aggressive_preemption": True,
    "aggressive_preemption_threshold": 0.2,
    "preemption_threshold": 1,
    "non_preemptible_usage_threshold": {},
    "template_max": 1000,
    "template_idle_s": 600,
}
"""Setting → its default; None if the discipline decides it, or if there is none."""
