"""`poolkeeper workspace`: the settings of a whole workspace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from poolkeeper.cli import options, output, param_types
from poolkeeper.cli.command_base import NounGroup
from poolkeeper.formatting import DEFAULT_TYPE, pairs

COMPONENT_LIMITS = "component_limits"
COLUMNS = [
    output.Column("OF", lambda row: row["of"]),
    output.Column("LIMIT", lambda row: row["limit"]),
    output.Column("USED", lambda row: row["used"]),
    output.Column("AT MOST", lambda row: row["at_most"]),
    output.Column("%", lambda row: row["part"]),
]

workspace = NounGroup("workspace", help="Settings of the whole workspace.")


@workspace.command("show", example="poolkeeper workspace show")
def show() -> None:
    """Show the workspace, its settings, and the use of its limits."""
    document = options.call("GET", "/workspace")
    output.show_item(document, str(document["name"]), lambda: _show(document))


def _show(document: Mapping[str, Any]) -> None:
    settings, use = document["settings"], document.get("use", {})
    facts = {name: value for name, value in settings.items() if name not in use and name != COMPONENT_LIMITS}
    output.show_fields([("Workspace", document["name"]), ("Settings", pairs(facts))])
    rows = [_limit_row("workspace", name, present, settings[name]) for name, present in use.items()]
    for component, numbers in document.get("component_use", {}).items():
        limits = settings[COMPONENT_LIMITS][component]
        rows += [
            _limit_row(component, name, present, limits[name]) for name, present in numbers.items() if limits[name] is not None
        ]
    output.show_table(rows, COLUMNS, wide=False)


def _limit_row(subject: str, name: str, present: int, limit: int | None) -> dict[str, str]:
    percent = "-" if not limit else f"{100 * present // limit}%"
    return {
        "of": subject,
        "limit": name,
        "used": str(present),
        "at_most": "none" if limit is None else str(limit),
        "part": percent,
    }


class ComponentLimits(click.ParamType[dict[str, Any]]):
    """Limits of a component: `team-ml:max_waiting=500,max_shapes=20`, or `team-ml:none`."""

    name = "limits"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the form of the value for the usage line."""
        return "COMPONENT:LIMIT=NUMBER[,…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """Return the limits in the form of the API; None removes them."""
        if isinstance(value, dict):
            return value
        component, colon, text = value.partition(":")
        kind, name = param_types.Component().convert(component, param, ctx)
        if not (colon and text):
            self.fail(f"{value!r} has no limits; write them like team-ml:max_waiting=500, or team-ml:none", param, ctx)
        setting = param_types.Setting()
        limits = [] if text == param_types.NONE else [setting.convert(part, param, ctx) for part in text.split(",")]
        return {f"{kind or DEFAULT_TYPE}/{name}": param_types.merge(limits, "--component-limit") or None}


@workspace.command(
    "update",
    example="poolkeeper workspace update --setting max_waiting=20000 --component-limit team-ml:max_waiting=500",
)
@click.option(
    "--setting", "settings", type=param_types.Setting(), multiple=True, help="Setting, such as unmanaged=allow; see above."
)
@click.option(
    "--component-limit", "limits", type=ComponentLimits(), multiple=True,
    help="Limits of a component: max_waiting, max_shapes; none removes them.",
)  # fmt: skip
def update(settings: tuple[dict[str, Any], ...], limits: tuple[dict[str, Any], ...]) -> None:
    """Change settings of the workspace.

    \b
    unmanaged=reject  requests of a component without any policy are rejected (the default)
    unmanaged=allow   they are granted at once without a pool, and count in no pool
    max_waiting, max_shapes, max_running, max_pools, max_policies, max_ended, max_bytes
                      limits, as in `poolkeeper workspace show`; none: no limit
    """
    changes = param_types.merge(settings, "--setting")
    if limits:
        changes[COMPONENT_LIMITS] = param_types.merge(limits, "--component-limit")
    if not changes:
        raise click.UsageError("give --setting or --component-limit")
    document = options.call("PATCH", "/workspace", body=changes)
    facts = {name: document["settings"][name] for name in changes if name != COMPONENT_LIMITS}
    sentence = f"updated workspace {document['name']}: {pairs(facts)}" if facts else f"updated workspace {document['name']}"
    output.show_result(document, str(document["name"]), sentence)
