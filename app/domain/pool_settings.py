"""The settings of pools, groups and policies: one table.

A row holds the name of a setting, its values, its default, the defaults of the disciplines and its public texts. Made from the
table: the models `PoolSettings` and `AccountSettings` (and so the HTTP API, its OpenAPI document and the declaration file), the
constants of the Lua scripts (`const.GRACE_S`, `const.BACKOFF_S[discipline]`), the planner's values for a pool that sets none,
the words of a plan, `docs/reference/pool-settings.md` and the copy of the command line. No default occurs anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from pydantic import Field, create_model, field_validator

from app.domain.field_types import (
    Quantities,
    Quantity,
    Ratio,
    Seconds,
    SettingsModel,
    StrictModel,
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
            "How contention is settled: by policy priority (`reserved`), preemption class (`classes`) or fair share.",
        ),
        PoolSetting(
            "order",
            Literal["share_first", "priority_first"],
            "share_first",
            "Whether requests within an unused reserved share go before a higher rank (`share_first`) or after it.",
        ),
        PoolSetting(
            "queueing",
            Literal["best_effort", "strict"],
            "best_effort",
            "Whether requests may pass the first request that is blocked by capacity: yes (`best_effort`) or no (`strict`).",
        ),
        PoolSetting(
            "patience_s",
            Seconds,
            300,
            "Seconds for which a waiter blocked by capacity may be passed before capacity is held for it; null: for ever.",
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
            "Seconds that a victim has to save its work, if it can; half as long again if it reports progress.",
        ),
        PoolSetting(
            "max_deferral_s",
            Seconds,
            300,
            "Seconds by which a victim may put off its checkpoint, all deferrals together; 0: no deferral.",
        ),
        PoolSetting(
            "requeue_failed_checkpoint",
            bool,
            True,
            "Whether a victim that did not save its work, or did not leave in time, may go back to the queue.",
        ),
        PoolSetting(
            "near_completion_s",
            Seconds,
            None,
            "An allocation with at most so many seconds left of its walltime is not preempted; null: the value of the "
            "discipline, 300 in `classes`, else 0.",
            nullable=True,
            by_discipline={"reserved": 0, "classes": 300, "fair_share": 0},
        ),
        PoolSetting(
            "min_runtime_s",
            Seconds,
            0,
            "An allocation that has run for fewer seconds is not preempted; 0: no such protection.",
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
            "The most preemptions of the pool in a minute; 0: no allocation is ever preempted; null: no bound.",
            nullable=True,
        ),
        PoolSetting(
            "backoff_s",
            Seconds,
            None,
            "Seconds between two decisions to preempt; null: the value of the discipline, 5 in `fair_share`, else 0.",
            nullable=True,
            by_discipline={"reserved": 0, "classes": 0, "fair_share": 5},
        ),
        PoolSetting(
            "cost_key",
            ResourceKey,
            "gpu",
            "In `classes`: the key whose units, at least 1, measure the cost of a preemption.",
        ),
        PoolSetting(
            "value_per_class",
            Units,
            None,
            "In `classes`: the highest cost of a preemption, in minutes for each class of the waiter and each unit that it "
            "asks; null: no bound.",
            nullable=True,
        ),
        PoolSetting(
            "over_limit",
            OverLimit,
            None,
            "What happens to use beyond a lowered limit: it stays (`keep`), or the newest allocations beyond it are preempted"
            " (`evict`); null: the value of the discipline, `evict` in `fair_share`, else `keep`.",
            nullable=True,
            by_discipline={"reserved": "keep", "classes": "keep", "fair_share": "evict"},
            account_description="Use beyond its limit stays (`keep`) or is preempted, newest first (`evict`); null: inherited.",
        ),
        PoolSetting(
            "over_limit_after_s",
            Seconds,
            30,
            "Seconds for which use beyond a limit stays before the first allocation is preempted for it.",
            account_description="Seconds for which use beyond its limit stays before a preemption; null: inherited.",
        ),
        PoolSetting(
            "fair_share_tolerance",
            Ratio,
            0.8,
            "In `fair_share`: an account that wants more and uses less than this part of its fair share is below it.",
            account_description=(
                "The part of its fair share under which it is below; null is inherited, of a policy's the lower counts."
            ),
            more_patient="lower",
        ),
        PoolSetting(
            "starvation_timeout_s",
            Seconds,
            30,
            "In `fair_share`: an account that is below its fair share for more seconds is starving, and may preempt.",
            account_description=(
                "Seconds below its fair share after which it is starving; null is inherited, of a policy's the longer counts."
            ),
            more_patient="higher",
        ),
        PoolSetting(
            "aggressive_starvation",
            bool,
            False,
            "In `fair_share`: whether an account that goes on starving may in the end preempt more than that.",
            account_description=(
                "Whether it may starve aggressively; null is inherited, a policy does if it and what it inherits say so."
            ),
            more_patient="lower",
        ),
        PoolSetting(
            "aggressive_starvation_timeout_s",
            Seconds,
            120,
            "In `fair_share`: seconds below its fair share after which an account is aggressively starving.",
            account_description=(
                "Seconds below it until it is aggressively starving; null is inherited, of a policy's the longer counts."
            ),
            more_patient="higher",
        ),
        PoolSetting(
            "allow_aggressive_preemption",
            bool,
            True,
            "In `fair_share`: whether allocations may be preempted for accounts that are aggressively starving.",
            account_description="Whether it gives way to accounts that starve aggressively; null is inherited.",
        ),
        PoolSetting(
            "aggressive_preemption_threshold",
            Threshold,
            0.2,
            "In `fair_share`: the part of its fair share up to which no allocation of an account is preempted.",
            account_description="The part of its fair share up to which none of its work is preempted; null is inherited.",
        ),
        PoolSetting(
            "preemption_threshold",
            Threshold,
            1,
            "In `fair_share`: the part of its fair share beyond which the allocations of an account are preemptible.",
            account_description="The part of its fair share beyond which its work is preemptible; null is inherited.",
        ),
        PoolSetting(
            "non_preemptible_usage_threshold",
            Quantities,
            {},
            "In `fair_share`: resource key → units of each account that are never preempted. A key that is not given does not"
            " count; an empty map protects nothing.",
            account_description=(
                "Resource key → units of the account that are never preempted; null or empty is inherited, of a policy's "
                "the lower of each key."
            ),
            more_patient="lower",
            example={"gpu": 1},
        ),
        PoolSetting(
            "template_max",
            TemplateMax,
            1000,
            "The most instances that a policy template may have at a time. A request that needs one more is refused with 429.",
            account_description="Of a template: the most instances that it may have at a time; null is the value of the pool.",
        ),
        PoolSetting(
            "template_idle_s",
            Seconds,
            600,
            "Seconds for which an instance of a policy template is kept without a waiter or an allocation.",
            account_description=(
                "Of a template: seconds that an instance is kept without a waiter or an allocation; null: the pool's value."
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


def _pool_fields() -> dict[str, Any]:
    return {
        setting.name: (
            setting.values | None if setting.nullable else setting.values,
            Field(setting.default, description=setting.description, examples=setting.example and [setting.example]),
        )
        for setting in SETTINGS.values()
    }


def _account_fields(*, of_templates: bool) -> dict[str, Any]:
    return {
        setting.name: (
            setting.values | None,
            Field(None, description=setting.account_description, examples=setting.example and [setting.example]),
        )
        for setting in ACCOUNT_SETTINGS.values()
        if (setting.name in TEMPLATE_SETTINGS) == of_templates
    }


_ACCOUNT_SETTINGS = (
    "What a group or a policy says for itself of its pool's settings; what it does not say, or is null, is inherited.\n\n"
    "A group overrides what it inherits. A policy does, too, but of `fair_share_tolerance`, both timeouts,\n"
    "`aggressive_starvation` and `non_preemptible_usage_threshold` that counts which is the more patient.\n"
    "`template_max` and `template_idle_s` are for policy templates only."
)

if TYPE_CHECKING:  # the fields of the two models are made at run time

    class PoolSettings(SettingsModel):
        """The settings of a pool; each name of `SETTINGS` is a field."""

        def __init__(self, **settings: Setting) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

    class GroupSettings(StrictModel):
        """The settings of a group; each name of `ACCOUNT_SETTINGS` is a field, without those of templates."""

        def __init__(self, **settings: Setting) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

    class AccountSettings(GroupSettings):
        """The settings of a policy; each name of `ACCOUNT_SETTINGS` is a field."""

        def __init__(self, **settings: Setting) -> None: ...

else:
    PoolSettings = create_model(
        "PoolSettings", __base__=SettingsModel, __doc__="How a pool settles contention.", __module__=__name__, **_pool_fields()
    )
    GroupSettings = create_model(
        "GroupSettings",
        __base__=StrictModel,
        __doc__=_ACCOUNT_SETTINGS,
        __module__=__name__,
        __validators__={"empty_is_null": field_validator("non_preemptible_usage_threshold")(lambda value: value or None)},
        **_account_fields(of_templates=False),
    )
    _policy_fields = _account_fields(of_templates=True)
    AccountSettings = create_model(
        "AccountSettings", __base__=GroupSettings, __doc__=_ACCOUNT_SETTINGS, __module__=__name__, **_policy_fields
    )
