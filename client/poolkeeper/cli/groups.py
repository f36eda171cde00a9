"""`poolkeeper group`: the accounts between a pool and its policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from poolkeeper import formatting
from poolkeeper.cli import columns, options, output, param_types
from poolkeeper.cli.account_options import LIMIT, RESERVED, SETTING, WEIGHT, body_of, change_of, group_option, show_over_limit
from poolkeeper.cli.command_base import NounGroup
from poolkeeper.cli.error_output import CommandError

POOL = click.argument("pool", type=param_types.POOL)
GROUP = click.argument("group", type=param_types.GROUP)
MODE = click.option(
    "--mode",
    type=click.Choice(["fair_share", "fifo"]),
    help="With discipline fair_share: its children share by weight (fair_share), or are served in order (fifo).",
)
FIELDS = ("parent", "reserved", "limit", "weight", "mode", "settings")

group = NounGroup(
    "group", help="Groups: departments or projects between a pool and its policies, with shares and limits of their own."
)


@group.command(
    "create",
    example="poolkeeper group create gpus research --reserved gpu=4 --limit gpu=6\n"
    "poolkeeper group create gpus vision --parent research --weight 2\n"
    "poolkeeper group create gpus sweeps --mode fifo --setting starvation_timeout_s=2m",
)
@POOL
@click.argument("name", type=param_types.ANY_NAME)
@RESERVED
@LIMIT
@group_option("--parent", "Group above it; without one, the pool.")
@WEIGHT
@MODE
@SETTING
def create(pool: str, name: str, **values: Any) -> None:
    """Create a group NAME in POOL.

    The command looks for an existing group and then writes. Of two simultaneous calls, the later one counts.
    """
    from poolkeeper.errors import NotFound

    client = options.client()
    try:
        client.call("GET", _path(pool, name))
    except NotFound as error:
        if error.code != "no_such_group":
            raise
    else:
        raise CommandError(f"pool {pool} already has a group {name}", hints=["`group update` changes it"])
    document = client.call("PUT", _path(pool, name), body=body_of(values))
    output.show_result(document, name, f"created group {name} in pool {pool}")


@group.command("list", example="poolkeeper group list gpus")
@POOL
def list_(pool: str) -> None:
    """List the groups of POOL as a tree."""
    rows = list(options.client().items(options.path("pools", pool, "groups")))
    shown = rows if options.current_options().output in ("json", "yaml") else columns.tree(rows)
    output.show_list(shown, columns.with_optional_columns(columns.GROUPS, rows), lambda row: str(row["name"]))


@group.command("show", example="poolkeeper group show gpus research")
@POOL
@GROUP
def show(pool: str, group: str) -> None:
    """Show a group of POOL."""
    document = options.call("GET", _path(pool, group))
    output.show_item(document, group, lambda: _describe(document))


@group.command(
    "update",
    example="poolkeeper group update gpus vision --reserved gpu=2 --no-parent\n"
    "poolkeeper group update gpus vision --setting starvation_timeout_s=none",
)
@POOL
@GROUP
@RESERVED
@LIMIT
@group_option("--parent", "Group above it.")
@click.option("--no-parent", is_flag=True, help="Put it directly below the pool.")
@WEIGHT
@MODE
@SETTING
def update(pool: str, group: str, no_parent: bool, **values: Any) -> None:
    """Change a group. Options and keys that are not given stay; gpu=none removes a key, NAME=none a setting."""
    change = change_of(values, {"parent": no_parent})
    client = options.client()
    document = client.call("PUT", _path(pool, group), body=change(client.call("GET", _path(pool, group)), FIELDS))
    output.show_result(document, group, f"updated group {group} in pool {pool}")
    show_over_limit(document)


@group.command("delete", example="poolkeeper group delete gpus vision")
@POOL
@GROUP
def delete(pool: str, group: str) -> None:
    """Delete a group. Refused while it has policies or groups below it."""
    options.call("DELETE", _path(pool, group))
    output.show_result(None, group, f"deleted group {group} of pool {pool}")


def _path(pool: str, group: str) -> str:
    return options.path("pools", pool, "groups", group)


def _describe(group: Mapping[str, Any]) -> None:
    output.show_fields(
        [
            ("Pool", group["pool"]),
            ("Group", group["name"]),
            ("Parent", group["parent"]),
            ("Reserved", formatting.amounts(group["reserved"])),
            ("Limit", formatting.amounts(group["limit"])),
            ("Weight", str(group["weight"])),
            ("Mode", group.get("mode")),
            ("Settings", formatting.pairs(group["settings"]) if group.get("settings") else None),
            ("Used", formatting.amounts(group["used"])),
            ("Used, fixed", formatting.amounts(group["used_fixed"])),
            ("Borrowed", formatting.amounts(group["borrowed"])),
        ]
    )
