"""`poolkeeper pool`: named capacities."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, TypeAlias

import click

from poolkeeper.cli import columns, options, output, param_types
from poolkeeper.cli import pool_settings as known
from poolkeeper.cli.command_base import Noun
from poolkeeper.cli.shares import shares
from poolkeeper.formatting import amounts, plural

POOL = click.argument("pool", type=param_types.POOL)
CAPACITY = click.option(
    "--capacity",
    type=param_types.Amounts(),
    multiple=True,
    help="Units of each key: gpu=8,mcpu=64000, or JSON or YAML. May be repeated.",
)
SETTING = click.option(
    "--setting",
    "settings",
    type=param_types.Setting(known.OF_POOLS),
    multiple=True,
    help="Such as discipline=fair_share, patience_s=5m or preemption_threshold=0.5; none is null. May be repeated.",
)
DESCRIPTION = click.option("--description", help="For people.")
QUEUE_SHOWN = 10
Given: TypeAlias = tuple[dict[str, Any], ...]

pool = Noun("pool", help="Pools: named capacities that teams share.")


@pool.command(
    "create",
    example="poolkeeper pool create gpus --capacity gpu=8,mcpu=64000 --setting queueing=strict\n"
    "poolkeeper pool create shared --capacity gpu=8 --setting discipline=fair_share --setting starvation_timeout_s=60 "
    "--setting non_preemptible_usage_threshold=gpu=2",
)
@click.argument("name", type=param_types.PLAIN)
@CAPACITY
@DESCRIPTION
@SETTING
def create(name: str, capacity: Given, description: str | None, settings: Given) -> None:
    """Create a pool NAME."""
    if not capacity:
        raise click.UsageError("what is in it? --capacity gpu=8", click.get_current_context())
    body = {"name": name, **_said(capacity, description, settings)}
    made = options.call("POST", "/pools", body=body)
    output.done(made, name, f"created pool {name}: {amounts(made['capacity'])}")


@pool.command("list", example="poolkeeper pool list\npoolkeeper pool list -o name")
def list_() -> None:
    """List the pools with what is used and free."""
    output.listing(options.client().items("/pools"), columns.POOLS, lambda row: str(row["name"]))


@pool.command("describe", example="poolkeeper pool describe gpus\npoolkeeper pool describe gpus -o json")
@POOL
def describe(pool: str) -> None:
    """Show a pool: each key, its groups and policies, and the head of its queue."""
    client = options.client()
    whole = dict(client.call("GET", options.path("pools", pool)))
    whole["groups"] = list(client.items(options.path("pools", pool, "groups")))
    whole["policies"] = list(client.items(options.path("pools", pool, "policies")))
    queued = client.items(options.path("pools", pool, "requests"), query={"view": "queued"}, page=QUEUE_SHOWN)
    whole["queue"] = list(islice(queued, QUEUE_SHOWN))
    output.one(whole, pool, lambda: _described(whole))


@pool.command(
    "update",
    example="poolkeeper pool update gpus --capacity gpu=16\npoolkeeper pool update gpus --setting patience_s=none "
    "--setting min_runtime_s=10m --setting requeue_failed_checkpoint=false",
)
@POOL
@CAPACITY
@DESCRIPTION
@SETTING
def update(pool: str, capacity: Given, description: str | None, settings: Given) -> None:
    """Change a pool: what is not given stays; 0 units take a key away."""
    body = _said(capacity, description, settings)
    if not body:
        raise click.UsageError("nothing to change: give --capacity, --description or --setting", click.get_current_context())
    made = options.call("PATCH", options.path("pools", pool), body=body)
    output.done(made, pool, f"updated pool {pool}: {amounts(made['capacity'])}")


@pool.command("delete", example="poolkeeper pool delete gpus")
@POOL
def delete(pool: str) -> None:
    """Delete a pool with its policies and groups; refused while anything of it is queued or held."""
    options.call("DELETE", options.path("pools", pool))
    output.done(None, pool, f"deleted pool {pool}")


@pool.command("requests", example="poolkeeper pool requests gpus --view all")
@POOL
@click.option(
    "--view", type=click.Choice(["queued", "active", "all"]), default="queued", show_default=True, help="Which of them."
)
@columns.LIMIT
def requests(pool: str, view: str, limit: int) -> None:
    """List a pool's requests: those waiting in the order of the queue, those active in the order of grant."""
    columns.limited_requests(options.path("pools", pool, "requests"), {"view": view}, limit)


pool.add_command(shares)


def _said(capacity: Given, description: str | None, settings: Given) -> dict[str, Any]:
    """The fields that were given."""
    given = {
        "capacity": param_types.merged(capacity, "--capacity") or None,
        "description": description,
        "settings": param_types.merged(settings, "--setting") or None,
    }
    return {field: value for field, value in given.items() if value is not None}


def _described(whole: Mapping[str, Any]) -> None:
    output.fields(
        [
            ("Pool", whole["name"]),
            ("Description", whole.get("description")),
            ("Settings", known.of_pool(whole.get("settings") or {})),
            ("Requests", f"{whole['active_count']} active, {whole['queue_length']} queued"),
        ]
    )
    output.heading("Capacity")
    output.table([{"key": key, **whole} for key in whole["capacity"]], columns.KEYS, indent=2)
    if whole["groups"]:
        output.heading(plural(len(whole["groups"]), "group").capitalize())
        output.table(columns.tree(whole["groups"]), columns.with_what_is_said(columns.GROUPS, whole["groups"]), indent=2)
    output.heading(plural(len(whole["policies"]), "policy").capitalize())
    if whole["policies"]:
        output.table(whole["policies"], columns.with_what_is_said(columns.POLICIES, whole["policies"]), indent=2)
    output.heading(_queue_heading(whole))
    if whole["queue"]:
        output.table(whole["queue"], columns.QUEUE, indent=2)


def _queue_heading(whole: Mapping[str, Any]) -> str:
    queued, shown = whole["queue_length"], len(whole["queue"])
    return f"Queue: {queued}" + (f", the first {shown} of them" if 0 < shown < queued else "")
