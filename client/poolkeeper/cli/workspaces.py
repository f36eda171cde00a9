"""`poolkeeper workspace`: the settings of a whole workspace."""

from __future__ import annotations

from typing import Any

import click

from poolkeeper.cli import options, output, param_types
from poolkeeper.cli.command_base import NounGroup
from poolkeeper.formatting import pairs

workspace = NounGroup("workspace", help="Settings of the whole workspace.")


@workspace.command("show", example="poolkeeper workspace show")
def show() -> None:
    """Show the workspace and its settings."""
    document = options.call("GET", "/workspace")
    facts = [("Workspace", document["name"]), ("Settings", pairs(document["settings"]))]
    output.show_item(document, str(document["name"]), lambda: output.show_fields(facts))


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
    document = options.call("PATCH", "/workspace", body=param_types.merge(settings, "--setting"))
    output.show_result(document, str(document["name"]), f"updated workspace {document['name']}: {pairs(document['settings'])}")
