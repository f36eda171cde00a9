"""The models of the settings of pools, groups and policies, made from the table in `pool_settings.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model, field_validator

from app.domain.field_types import SettingsModel, StrictModel
from app.domain.models import Setting
from app.domain.pool_settings import ACCOUNT_SETTINGS, SETTINGS, TEMPLATE_SETTINGS


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
    "The settings of a group or a policy, which override those of its pool. A setting that is null is inherited.\n\n"
    "For `fair_share_tolerance`, both timeouts, `aggressive_starvation` and `non_preemptible_usage_threshold`, a policy can\n"
    "only become more patient than the accounts above it. `template_max` and `template_idle_s` are for policy templates only."
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
        "PoolSettings",
        __base__=SettingsModel,
        __doc__="The settings by which a pool settles contention.",
        __module__=__name__,
        **_pool_fields(),
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
