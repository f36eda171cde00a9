"""The settings of pools, groups and policies as they are typed and shown; the table itself is generated (`setting_table`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poolkeeper.cli.setting_table import ACCOUNT_SETTINGS, AMOUNT_SETTINGS, DISCIPLINE_DEFAULTS, POOL_SETTINGS
from poolkeeper.formatting import pairs

__all__ = ["ACCOUNT_SETTINGS", "AMOUNT_SETTINGS", "POOL_SETTINGS", "format_settings"]


def format_settings(settings: Mapping[str, Any]) -> str:
    """Return the settings of a pool on one line; a setting left to the discipline as `backoff_s=5 (as the discipline)`."""
    return " ".join(_format_setting(name, value, settings.get("discipline")) for name, value in settings.items()) or "-"


def _format_setting(name: str, value: Any, discipline: Any) -> str:
    defaults = DISCIPLINE_DEFAULTS.get(name, {})
    if value is None and discipline in defaults:
        return pairs({name: defaults[discipline]}) + " (as the discipline)"
    return pairs({name: value})
