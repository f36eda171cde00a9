"""`poolkeeper workspace`: the settings of a whole workspace."""

from __future__ import annotations

from typing import Any

import click

from poolkeeper.cli import options, output, param_types
from poolkeeper.cli.command_base import Noun
from poolkeeper.formatting import pairs

workspace = Noun("workspace", help="Settings of the whole workspace.")


@workspace.command("show", example="poolkeeper workspace show")
def show() -> None:
    """Show the workspace and its settings."""
    found = options.call("GET", "/workspace")
    facts = [("Workspace", found["name"]), ("Settings", pairs(found["settings"]))]
    output.one(found, str(found["name"]), lambda: output.fields(facts))


@workspace.command("update", example="poolkeeper workspace update --setting unmanaged=allow")
@click.option(
    "--setting", "settings", type=param_types.Setting(), multiple=True, required=True, help="unmanaged=reject or =allow."
)
def update(settings: tuple[dict[str, Any], ...]) -> None:
    """Change settings of the workspace.

    \b
    unmanaged=reject  a component without any policy is rejected (the default)
    unmanaged=allow   it is granted at once, tied to no pool, and counted nowhere
    """
    found = options.call("PATCH", "/workspace", body=param_types.merged(settings, "--setting"))
    output.done(found, str(found["name"]), f"updated workspace {found['name']}: {pairs(found['settings'])}")
