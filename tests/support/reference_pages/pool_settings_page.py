"""The reference page of the settings of pools, groups and policies."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from app.domain.pool_setting import PoolSetting
from app.domain.pool_settings import ACCOUNT_SETTINGS, DISCIPLINES, SETTINGS
from tests.support.reference_pages.json_schema import BOUNDLESS
from tests.support.reference_pages.markdown import code, codes, page, table


def pool_settings_page() -> str:
    """Return the page: the settings of pools, and those that groups and policies may override."""
    return page(
        "Settings of pools, groups and policies",
        "This page lists the settings of a pool with their defaults, and those that a group or a policy may override. Set "
        "them with `poolkeeper pool update POOL --setting KEY=VALUE`, in the pools file below `settings`, or over HTTP.",
        "app/domain/pool_settings.py",
        "Names that end in `_s` are seconds, at most ten years.",
        "## Pools",
        table(
            ["setting", "values", "default", "meaning"],
            ([code(row.name), _values(row), _default(row), row.description] for row in SETTINGS.values()),
        ),
        "## Groups and policies",
        "A group or a policy may override these settings. If it does not set one, or sets null, the value of the account above "
        "it counts. The second column is for a policy below an account that sets the same setting.",
        table(
            ["setting", "if policy and account above set it", "meaning"],
            ([code(row.name), _combination(row), row.account_description] for row in ACCOUNT_SETTINGS.values()),
        ),
    )


def _values(row: PoolSetting) -> str:
    schema = TypeAdapter(row.values).json_schema()
    text = {
        "boolean": "`true`, `false`",
        "integer": f"whole number{_bounds(schema)}",
        "number": f"number{_bounds(schema)}",
        "object": "resource key → units",
        "string": codes(row.choices) or "resource key",
    }[schema["type"]]
    return text + (", null" if row.nullable else "")


def _bounds(schema: dict[str, Any]) -> str:
    if "minimum" not in schema:
        return ""
    least, most = f"{schema['minimum']:g}", schema["maximum"]
    return f" from {least}" if most in BOUNDLESS else f", {least} to {most:,.0f}"


def _default(row: PoolSetting) -> str:
    if row.by_discipline:
        return ", ".join(f"{code(str(row.by_discipline[discipline]))} in `{discipline}`" for discipline in DISCIPLINES)
    return "null" if row.default is None else code(TypeAdapter(Any).dump_json(row.default).decode().strip('"'))


def _combination(row: PoolSetting) -> str:
    """Return the value that counts if a policy and an account above it set the setting."""
    if not row.more_patient:
        return "the policy's value counts"
    if TypeAdapter(row.values).json_schema()["type"] == "boolean":
        return "true only if both are true"
    return f"the {row.more_patient} value counts"
