"""Input and output of the settings of pools, groups and policies; their table is generated (`setting_table`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poolkeeper.cli.setting_table import ACCOUNT_SETTINGS, AMOUNT_SETTINGS, DEFAULTS, DISCIPLINE_DEFAULTS, POOL_SETTINGS
from poolkeeper.formatting import format_value

__all__ = ["ACCOUNT_SETTINGS", "AMOUNT_SETTINGS", "POOL_SETTINGS", "changed_settings", "setting_rows"]


def changed_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a pool that differ from their defaults, with those that this client does not know."""
    return {name: value for name, value in settings.items() if name not in DEFAULTS or value != DEFAULTS[name]}


def setting_rows(settings: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a row for each setting of a pool: its name, its value and its default."""
    discipline = settings.get("discipline")
    return [
        {"name": name, "value": _text(name, value, discipline), "default": _text(name, DEFAULTS.get(name), discipline)}
        for name, value in settings.items()
    ]


def _text(name: str, value: Any, discipline: Any) -> str:
    """Return a value as it is typed; a value that the discipline decides is `5 (as the discipline)`."""
    defaults = DISCIPLINE_DEFAULTS.get(name, {})
    if value is None and discipline in defaults:
        return f"{format_value(defaults[discipline])} (as the discipline)"
    return format_value(value)
