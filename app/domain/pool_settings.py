"""The settings of pools, groups and policies: one table.

A row holds the name of a setting, its values, its default, the defaults of the disciplines and its public texts. Made from the
table: the models `PoolSettings` and `AccountSettings` (and so the HTTP API, its OpenAPI document and the declaration file), the
constants of the Lua scripts (`const.GRACE_S`, `const.BACKOFF_S[discipline]`), the values of the planner where a pool has none,
the words of a plan, `docs/reference/pool-settings.md` and the copy of the command line. No default stands anywhere else.
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
            "Who goes first: by the policy's priority (`reserved`), by the preemption class (`classes`), or "
            "who lacks most of its fair share (`fair_share`).",
        ),
        PoolSetting(
            "order",
            Literal["share_first", "priority_first"],
            "share_first",
            "Whether those within their unused share go before a higher rank, or after it.",
        ),
        PoolSetting(
            "queueing",
            Literal["best_effort", "strict"],
            "best_effort",
            "Whether others may pass the first one that is blocked by capacity.",
        ),
        PoolSetting(
            "patience_s",
            Seconds,
            300,
            "How long a waiter blocked by capacity is passed before capacity is held for it; null is for ever.",
            nullable=True,
        ),
        PoolSetting(
            "grace_s",
            Seconds,
            30,
            "How long who has to leave is given between being told to terminate and being forced; 0: it is "
            "stopped at once, and not asked to save its work either.",
        ),
        PoolSetting(
            "checkpoint_timeout_s",
            Seconds,
            600,
            "How long who has to leave may take to save its work, if it can; half as long again if it is seen to be at it.",
        ),
        PoolSetting(
            "max_deferral_s",
            Seconds,
            300,
            "How long who has to leave may put that off, in all.",
        ),
        PoolSetting(
            "requeue_failed_checkpoint",
            bool,
            True,
            "Whether who had to leave and did not save its work, or did not leave in time, may go back to the queue.",
        ),
        PoolSetting(
            "near_completion_s",
            Seconds,
            None,
            "Who has so little left of its walltime is not stopped; null is as the discipline has it: 300 in "
            "`classes`, else 0.",
            nullable=True,
            by_discipline={"reserved": 0, "classes": 300, "fair_share": 0},
        ),
        PoolSetting(
            "min_runtime_s",
            Seconds,
            0,
            "Who has not yet run for so long is not stopped.",
        ),
        PoolSetting(
            "max_victims",
            Quantity,
            None,
            "How many may be stopped for one waiter; 0 is without bound, null as the discipline has it: 3 in "
            "`classes`, else 0.",
            nullable=True,
            by_discipline={"reserved": 0, "classes": 3, "fair_share": 0},
        ),
        PoolSetting(
            "max_preemptions_per_minute",
            Quantity,
            None,
            "How many may be stopped in a minute; 0 is nobody, ever, null without bound.",
            nullable=True,
        ),
        PoolSetting(
            "backoff_s",
            Seconds,
            None,
            "How long after somebody was stopped nobody else is; null is as the discipline has it: 5 in `fair_share`, else 0.",
            nullable=True,
            by_discipline={"reserved": 0, "classes": 0, "fair_share": 5},
        ),
        PoolSetting(
            "cost_key",
            ResourceKey,
            "gpu",
            "In `classes`: the key whose units, at least 1, tell what it costs to stop somebody.",
        ),
        PoolSetting(
            "value_per_class",
            Units,
            None,
            "In `classes`: what it may cost at most, in minutes for each class of the waiter and each unit it "
            "asks; null: no bound.",
            nullable=True,
        ),
        PoolSetting(
            "over_limit",
            OverLimit,
            None,
            "What becomes of what is beyond a lowered limit: it stays (`keep`), or as much as is beyond, the "
            "newest first, is stopped (`evict`); null is as the discipline has it: `evict` in `fair_share`, "
            "else `keep`.",
            nullable=True,
            by_discipline={"reserved": "keep", "classes": "keep", "fair_share": "evict"},
            account_description=(
                "Whether what is beyond its limit stays (`keep`) or is stopped, the newest first (`evict`); null is inherited."
            ),
        ),
        PoolSetting(
            "over_limit_after_s",
            Seconds,
            30,
            "How long who is beyond its limit is left alone before anything of it is stopped.",
            account_description=(
                "How long it is left alone beyond its limit before anything of it is stopped; null is inherited."
            ),
        ),
        PoolSetting(
            "fair_share_tolerance",
            Ratio,
            0.8,
            "In `fair_share`: who uses less than this part of its fair share, and wants more, is below it.",
            account_description=(
                "With less than this part of its fair share it is below it; null is inherited, of a policy's the lower counts."
            ),
            more_patient="lower",
        ),
        PoolSetting(
            "starvation_timeout_s",
            Seconds,
            30,
            "In `fair_share`: who is below its fair share for longer is starving, and may have preemptible work stopped.",
            account_description=(
                "Below its fair share for longer it is starving; null is inherited, of a policy's the longer counts."
            ),
            more_patient="higher",
        ),
        PoolSetting(
            "aggressive_starvation",
            bool,
            False,
            "In `fair_share`: whether who goes on starving may in the end have more stopped than that.",
            account_description=(
                "Whether it may starve aggressively; null is inherited, a policy does if it and what it inherits say so."
            ),
            more_patient="lower",
        ),
        PoolSetting(
            "aggressive_starvation_timeout_s",
            Seconds,
            120,
            "In `fair_share`: how long it has to be below its fair share for that.",
            account_description=(
                "How long it has to be below its fair share for that; null is inherited, of a policy's the longer counts."
            ),
            more_patient="higher",
        ),
        PoolSetting(
            "allow_aggressive_preemption",
            bool,
            True,
            "In `fair_share`: whether that may be stopped here for who is aggressively starving.",
            account_description="Whether it gives way to who is aggressively starving as well; null is inherited.",
        ),
        PoolSetting(
            "aggressive_preemption_threshold",
            Threshold,
            0.2,
            "In `fair_share`: the part of its fair share up to which nothing of anybody is stopped.",
            account_description="The part of its fair share up to which nothing of it is stopped; null is inherited.",
        ),
        PoolSetting(
            "preemption_threshold",
            Threshold,
            1,
            "In `fair_share`: the part of its fair share beyond which what somebody runs is preemptible.",
            account_description="The part of its fair share beyond which what it runs is preemptible; null is inherited.",
        ),
        PoolSetting(
            "non_preemptible_usage_threshold",
            Quantities,
            {},
            "In `fair_share`: resource key → units of everybody that are never stopped; keys not given do not "
            "count, none given protects nothing.",
            account_description=(
                "Resource key → units of it that are never stopped; null or empty is inherited, of a policy's the "
                "lower of each key."
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
            "How long an instance of a policy template is kept without a waiter or an allocation.",
            account_description=(
                "Of a template: how long an instance is kept without a waiter or an allocation; null is the value of the pool."
            ),
        ),
    )
}
"""Every setting by name, in the order in which they are shown."""

DEFAULT_DISCIPLINE = str(SETTINGS["discipline"].default)

ACCOUNT_SETTINGS: Mapping[str, PoolSetting] = {name: setting for name, setting in SETTINGS.items() if setting.is_inheritable}
"""The settings that groups and policies may have as well."""

TEMPLATE_SETTINGS: Final = ("template_max", "template_idle_s")
"""The settings that only templates may have as well."""

DEFAULT_PRIORITY: Final = 0
DEFAULT_WEIGHT: Final = 1
DEFAULT_PROFILE: Final = "batch"
DEFAULT_MODE: Final = "fair_share"
"""The other fields of a policy or a group that have a default."""


def unset_value(name: str) -> Setting:
    """Return the value of a setting that a pool has never written: null if it may be null, else its default."""
    setting = SETTINGS[name]
    return None if setting.nullable else setting.default


def default_value(name: str, discipline: str = "") -> Any:
    """Return the value that a pool goes by if it has none of its own; without a discipline, in the default one."""
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

if TYPE_CHECKING:  # what a type checker can know of the two models

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
