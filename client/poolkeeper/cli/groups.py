"""`poolkeeper group`: inner nodes between a pool and its policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from poolkeeper import formatting
from poolkeeper.cli import columns, options, output, param_types
from poolkeeper.cli.account_options import LIMIT, RESERVED, SETTING, WEIGHT, changed, given, group_option
from poolkeeper.cli.command_base import Noun
from poolkeeper.cli.error_output import Failed

POOL = click.argument("pool", type=param_types.POOL)
GROUP = click.argument("group", type=param_types.GROUP)
MODE = click.option(
    "--mode",
    type=click.Choice(["fair_share", "fifo"]),
    help="In discipline fair_share: its children share by weight (fair_share), or are served one after the other.",
)
FIELDS = ("parent", "reserved", "limit", "weight", "mode", "settings")

group = Noun(
    "group", help="Groups: departments or projects between a pool and its policies, with shares and limits of their own."
)


@group.command(
    "create",
    example="poolkeeper group create gpus research --reserved gpu=4 --limit gpu=6\n"
    "poolkeeper group create gpus vision --parent research --weight 2\n"
    "poolkeeper group create gpus sweeps --mode fifo --setting starvation_timeout_s=2m",
)
@POOL
@click.argument("name", type=param_types.PLAIN)
@RESERVED
@LIMIT
@group_option("--parent", "The group it is part of.")
@WEIGHT
@MODE
@SETTING
def create(pool: str, name: str, **said: Any) -> None:
    """Create a group NAME in POOL.

    It is looked whether there is one already, and then put: of two who do that at the same moment the later one counts.
    """
    from poolkeeper.errors import NotFound

    client = options.client()
    try:
        client.call("GET", _path(pool, name))
    except NotFound as missing:
        if missing.code != "no_such_group":
            raise
    else:
        raise Failed(f"pool {pool} already has a group {name}", hints=["`group update` changes what is given"])
    made = client.call("PUT", _path(pool, name), body=given(said))
    output.done(made, name, f"created group {name} in pool {pool}")


@group.command("list", example="poolkeeper group list gpus")
@POOL
def list_(pool: str) -> None:
    """List the groups of POOL as a tree."""
    rows = list(options.client().items(options.path("pools", pool, "groups")))
    shown = rows if options.said().output in ("json", "yaml") else columns.tree(rows)
    output.listing(shown, columns.with_what_is_said(columns.GROUPS, rows), lambda row: str(row["name"]))


@group.command("show", example="poolkeeper group show gpus research")
@POOL
@GROUP
def show(pool: str, group: str) -> None:
    """Show a group of POOL."""
    found = options.call("GET", _path(pool, group))
    output.one(found, group, lambda: _described(found))


@group.command(
    "update",
    example="poolkeeper group update gpus vision --reserved gpu=2 --no-parent\n"
    "poolkeeper group update gpus vision --setting starvation_timeout_s=none",
)
@POOL
@GROUP
@RESERVED
@LIMIT
@group_option("--parent", "The group it is part of; with --no-parent, none.")
@click.option("--no-parent", is_flag=True, help="Directly below the pool.")
@WEIGHT
@MODE
@SETTING
def update(pool: str, group: str, no_parent: bool, **said: Any) -> None:
    """Change a group: what is not given stays, key by key; gpu=none takes a key away, NAME=none a setting."""
    news = changed(said, {"parent": no_parent})
    client = options.client()
    made = client.call("PUT", _path(pool, group), body=news(client.call("GET", _path(pool, group)), FIELDS))
    output.done(made, group, f"updated group {group} in pool {pool}")


@group.command("delete", example="poolkeeper group delete gpus vision")
@POOL
@GROUP
def delete(pool: str, group: str) -> None:
    """Delete a group; refused while policies or groups are below it."""
    options.call("DELETE", _path(pool, group))
    output.done(None, group, f"deleted group {group} of pool {pool}")


def _path(pool: str, group: str) -> str:
    return options.path("pools", pool, "groups", group)


def _described(found: Mapping[str, Any]) -> None:
    output.fields(
        [
            ("Pool", found["pool"]),
            ("Group", found["name"]),
            ("Parent", found["parent"]),
            ("Reserved", formatting.amounts(found["reserved"])),
            ("Limit", formatting.amounts(found["limit"])),
            ("Weight", str(found["weight"])),
            ("Mode", found.get("mode")),
            ("Settings", formatting.pairs(found["settings"]) if found.get("settings") else None),
            ("Used", formatting.amounts(found["used"])),
            ("Used, fixed", formatting.amounts(found["used_fixed"])),
            ("Borrowed", formatting.amounts(found["borrowed"])),
        ]
    )
