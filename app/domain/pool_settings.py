"""The settings of pools, groups and policies: one table.

A row holds the name of a setting, its values (a type of `field_types.py`), its default, the defaults of the disciplines and its
public texts. Made from the table: the models of `pool_setting_models.py` (and so the HTTP API, its OpenAPI document and the
declaration file), the constants of the Lua scripts (`const.GRACE_S`, `const.BACKOFF_S[discipline]`), the planner's values for a
pool that sets none, the words of a plan, `docs/reference/pool-settings.md` and the copy of the command line. No default occurs
anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from app.domain.field_types import (
    Quantities,
    Quantity,
    Ratio,
    Seconds,
    TemplateMax,
    Threshold,
    Units,
)
from app.domain.models import Setting
from app.domain.names import ResourceKey
from app.domain.pool_setting import PoolSetting

Discipline = Literal["reserved", "classes", "fair_share"]
OverLimit = Literal["keep", "evict"]

DISCIPLINES: tuple[str, ...] = get_args(Discipline)


SETTINGS: Mapping[str, PoolSetting] = {
    setting.name: setting
    for setting in (
        PoolSetting(
            "discipline",
            Discipline,
            "reserved",
            "The rule that settles contention: policy priority (`reserved`), preemption class (`classes`) or `fair_share`.",
        ),
        PoolSetting(
            "order",
            Literal["share_first", "priority_first"],
            "share_first",
            "The order of requests that fit an unused reserved share: before a higher rank (`share_first`) or after it "
            "(`priority_first`).",
        ),
        PoolSetting(
            "queueing",
            Literal["best_effort", "strict"],
            "best_effort",
            "The rule for requests behind one that lacks capacity: they may pass it (`best_effort`) or not (`strict`).",
        ),
        PoolSetting(
            "patience_s",
            Seconds,
            300,
            "Seconds for which others may pass a waiter that lacks capacity; then capacity is held for it; null: always.",
            nullable=True,
        ),
        PoolSetting(
            "grace_s",
            Seconds,
            30,
            "Seconds between the directive `terminate` and the forced release of a victim. 0 skips checkpoint and grace.",
        ),
        PoolSetting(
            "checkpoint_timeout_s",
            Seconds,
            600,
            "Seconds that a victim has to complete its checkpoint. If it reports progress, it gets half as long again, once.",
        ),
        PoolSetting(
            "max_deferral_s",
            Seconds,
            300,
            "Seconds by which a victim may defer its checkpoint, all deferrals together; 0: no deferral.",
        ),
        PoolSetting(
            "requeue_failed_checkpoint",
            bool,
            True,
            "True if a victim whose checkpoint failed, or that did not leave in time, may return to the queue.",
        ),
        PoolSetting(
            "near_completion_s",
            Seconds,
            None,
            "Seconds of remaining walltime at which an allocation is not preempted any more; 0: no such protection; null: the "
            "value of the discipline, 300 in `classes`, else 0.",
            nullable=True,
            by_discipline={"reserved": 0, "classes": 300, "fair_share": 0},
        ),
        PoolSetting(
            "min_runtime_s",
            Seconds,
            0,
            "Seconds that an allocation runs before it may be preempted; 0: no such protection.",
        ),
        PoolSetting(
            "max_victims",
            Quantity,
            None,
            "The most victims for one waiter; 0: no bound; null: the value of the discipline, 3 in `classes`, else 0.",
            nullable=True,
            by_discipline={"reserved": 0, "classes": 3, "fair_share": 0},
        ),
        PoolSetting(
            "max_preemptions_per_minute",
            Quantity,
            None,
            "The most preemptions of the pool per minute; 0: no allocation is ever preempted; null: no bound.",
            nullable=True,
        ),
        PoolSetting(
            "backoff_s",
            Seconds,
            None,
            "Seconds between two decisions to preempt; 0: none; null: the value of the discipline, 5 in `fair_share`, else 0.",
            nullable=True,
            by_discipline={"reserved": 0, "classes": 0, "fair_share": 5},
        ),
        PoolSetting(
            "cost_key",
            ResourceKey,
            "gpu",
            "In `classes`: the resource key whose units, at least 1, measure the cost of a preemption.",
        ),
        PoolSetting(
            "value_per_class",
            Units,
            None,
            "In `classes`: the cost that a preemption has to stay below, in minutes for each class of the waiter and each unit "
            "that it asks; null: no bound.",
            nullable=True,
        ),
        PoolSetting(
            "over_limit",
            OverLimit,
            None,
            "The effect of a limit below the use: the use stays (`keep`), or the newest allocations beyond it are preempted"
            " (`evict`); null: the value of the discipline, `evict` in `fair_share`, else `keep`.",
            nullable=True,
            by_discipline={"reserved": "keep", "classes": "keep", "fair_share": "evict"},
            account_description="Use beyond its limit stays (`keep`) or is preempted, newest first (`evict`); null: inherited.",
        ),
        PoolSetting(
            "over_limit_after_s",
            Seconds,
            30,
            "Seconds that use beyond a limit stays before the first allocation is preempted; 0: it is preempted at once.",
            account_description="Seconds that use beyond its limit stays before a preemption; null: inherited.",
        ),
        PoolSetting(
            "fair_share_tolerance",
            Ratio,
            0.8,
            "In `fair_share`: the part of its fair share, 0 to 1, under which an account with unmet demand counts as below it.",
            account_description=(
                "The part of its fair share under which the account counts as below it; null: inherited. For a policy "
                "the lower of its own and the inherited value counts."
            ),
            more_patient="lower",
        ),
        PoolSetting(
            "starvation_timeout_s",
            Seconds,
            30,
            "In `fair_share`: seconds below its fair share after which an account starves and may preempt.",
            account_description=(
                "Seconds below its fair share after which the account starves; null: inherited. For a policy the longer "
                "of its own and the inherited value counts."
            ),
            more_patient="higher",
        ),
        PoolSetting(
            "aggressive_starvation",
            bool,
            False,
            "In `fair_share`: true if an account that starves for longer may starve aggressively, and then preempt more.",
            account_description=(
                "True if the account may starve aggressively; null: inherited. For a policy its own and the inherited "
                "value have to be true."
            ),
            more_patient="lower",
        ),
        PoolSetting(
            "aggressive_starvation_timeout_s",
            Seconds,
            120,
            "In `fair_share`: seconds below its fair share after which an account starves aggressively.",
            account_description=(
                "Seconds below its fair share after which the account starves aggressively; null: inherited. For a policy "
                "the longer of its own and the inherited value counts."
            ),
            more_patient="higher",
        ),
        PoolSetting(
            "allow_aggressive_preemption",
            bool,
            True,
            "In `fair_share`: true if aggressively starving accounts may preempt down to `aggressive_preemption_threshold`.",
            account_description="True if others may preempt down to its `aggressive_preemption_threshold`; null: inherited.",
        ),
        PoolSetting(
            "aggressive_preemption_threshold",
            Threshold,
            0.2,
            "In `fair_share`: the part of its fair share up to which no allocation of an account is preempted.",
            account_description="The part of its fair share up to which none of its allocations is preempted; null: inherited.",
        ),
        PoolSetting(
            "preemption_threshold",
            Threshold,
            1,
            "In `fair_share`: the part of its fair share beyond which the allocations of an account are preemptible.",
            account_description="The part of its fair share beyond which its allocations are preemptible; null: inherited.",
        ),
        PoolSetting(
            "non_preemptible_usage_threshold",
            Quantities,
            {},
            "In `fair_share`: resource key → units of each account that are never preempted. An empty map protects no units.",
            account_description=(
                "Resource key → units of the account that are never preempted; null or empty: inherited. For a policy the "
                "lower units of each key count."
            ),
            more_patient="lower",
            example={"gpu": 1},
        ),
        PoolSetting(
            "template_max",
            TemplateMax,
            1000,
            "The most instances that a policy template has at a time. A request that needs one more is refused with 429.",
            account_description="For a template: the most instances that it has at a time; null: the value of the pool.",
        ),
        PoolSetting(
            "template_idle_s",
            Seconds,
            600,
            "Seconds that an instance of a policy template is kept without a waiter and without an allocation.",
            account_description=(
                "For a template: seconds that an instance without waiter and allocation is kept; null: the value of the pool."
            ),
        ),
    )
}
"""Every setting by name, in the order of display."""

DEFAULT_DISCIPLINE = str(SETTINGS["discipline"].default)

ACCOUNT_SETTINGS: Mapping[str, PoolSetting] = {name: setting for name, setting in SETTINGS.items() if setting.is_inheritable}
"""The settings that groups and policies may override."""

TEMPLATE_SETTINGS: Final = ("template_max", "template_idle_s")
"""The settings that only policy templates may override."""

DEFAULT_PRIORITY: Final = 0
DEFAULT_WEIGHT: Final = 1
DEFAULT_PROFILE: Final = "batch"
DEFAULT_MODE: Final = "fair_share"
"""The defaults of the other fields of policies and groups."""


def unset_value(name: str) -> Setting:
    """Return the value of a setting that a pool has never written: null if null is allowed, else its default."""
    setting = SETTINGS[name]
    return None if setting.nullable else setting.default


def default_value(name: str, discipline: str = "") -> Any:
    """Return the effective value if a pool has none of its own. Without a discipline, it is that of the default discipline."""
    return SETTINGS[name].by_discipline.get(discipline or DEFAULT_DISCIPLINE, unset_value(name))
