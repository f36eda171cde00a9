"""`poolkeeper pool`: named capacities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

import click

from poolkeeper.cli import columns, options, output, param_types
from poolkeeper.cli import pool_settings as known
from poolkeeper.cli.account_options import show_over_limit
from poolkeeper.cli.amount_options import AmountCommand
from poolkeeper.cli.command_base import NounGroup
from poolkeeper.cli.output import Column, Row
from poolkeeper.cli.shares import shares
from poolkeeper.formatting import amounts, pairs, plural

POOL = click.argument("pool", type=param_types.POOL)
CAPACITY = click.option(
    "--capacity",
    type=param_types.Amounts(),
    multiple=True,
    help="Units of each key: gpu=8,mcpu=64000, or as JSON or YAML. May be repeated. --gpu 8 is the same as --capacity gpu=8.",
)
SETTING = click.option(
    "--setting",
    "--settings",
    "settings",
    type=param_types.Setting(known.POOL_SETTINGS),
    multiple=True,
    help="Setting, such as discipline=fair_share, patience_s=5m or preemption_threshold=0.5; none: null. May be repeated.",
)
DESCRIPTION = click.option("--description", help="Description for people.")
REQUESTS_SHOWN = 10
OptionValues: TypeAlias = tuple[dict[str, Any], ...]

pool = NounGroup("pool", help="Pools: named capacities that teams share.")


@pool.command(
    "create",
    cls=AmountCommand,
    amounts="--capacity",
    example="poolkeeper pool create gpus --gpu 8 --mcpu 64000 --setting queueing=strict\n"
    "poolkeeper pool create shared --capacity gpu=8 --setting discipline=fair_share --setting starvation_timeout_s=60 "
    "--setting non_preemptible_usage_threshold=gpu=2",
)
@click.argument("name", type=param_types.ANY_NAME)
@CAPACITY
@DESCRIPTION
@SETTING
def create(name: str, capacity: OptionValues, description: str | None, settings: OptionValues) -> None:
    """Create a pool NAME."""
    if not capacity:
        raise click.UsageError("the pool has no capacity: --gpu 8", click.get_current_context())
    body = {"name": name, **_body(capacity, description, settings)}
    document = options.call("POST", "/pools", body=body)
    output.show_result(document, name, f"created pool {name}: {amounts(document['capacity'])}")


@pool.command("list", example="poolkeeper pool list\npoolkeeper pool list -o name")
def list_() -> None:
    """List the pools with their used and free units."""
    output.show_list(options.client().items("/pools"), columns.POOLS, lambda row: str(row["name"]))


@pool.command("describe", example="poolkeeper pool describe gpus --settings\npoolkeeper pool describe gpus -o json")
@POOL
@click.option("--settings", "all_settings", is_flag=True, help="List all settings, each with its default.")
def describe(pool: str, all_settings: bool) -> None:
    """Show a pool with its keys, groups and policies. Its oldest allocations and the head of its queue follow."""
    client = options.client()
    document = dict(client.call("GET", options.path("pools", pool)))
    document["groups"] = list(client.items(options.path("pools", pool, "groups")))
    document["policies"] = list(client.items(options.path("pools", pool, "policies")))
    for name, view in (("running", "active"), ("queue", "queued")):
        requests = client.items(options.path("pools", pool, "requests"), query={"view": view}, page=REQUESTS_SHOWN)
        document[name] = list(islice(requests, REQUESTS_SHOWN))
    output.show_item(document, pool, lambda: _describe(document, all_settings=all_settings))


@pool.command(
    "update",
    cls=AmountCommand,
    amounts="--capacity",
    example="poolkeeper pool update gpus --gpu 16\npoolkeeper pool update gpus --setting patience_s=none "
    "--setting min_runtime_s=10m --setting requeue_failed_checkpoint=false",
)
@POOL
@CAPACITY
@DESCRIPTION
@SETTING
def update(pool: str, capacity: OptionValues, description: str | None, settings: OptionValues) -> None:
    """Change a pool. Options and keys that are not given stay; 0 units remove a key."""
    body = _body(capacity, description, settings)
    if not body:
        raise click.UsageError("nothing to change: give amounts, --description or --setting", click.get_current_context())
    document = options.call("PATCH", options.path("pools", pool), body=body)
    output.show_result(document, pool, f"updated pool {pool}: {amounts(document['capacity'])}")
    show_over_limit(document)


@pool.command("delete", example="poolkeeper pool delete gpus")
@POOL
def delete(pool: str) -> None:
    """Delete a pool with its policies and groups. Refused while it has queued requests or allocations."""
    options.call("DELETE", options.path("pools", pool))
    output.show_result(None, pool, f"deleted pool {pool}")


@pool.command("requests", example="poolkeeper pool requests gpus --view all")
@POOL
@click.option(
    "--view", type=click.Choice(["queued", "active", "all"]), default="queued", show_default=True, help="Requests to list."
)
@columns.LIMIT
def requests(pool: str, view: str, limit: int) -> None:
    """List the requests of a pool. Queued ones are in the order of the queue, active ones in the order of grant."""
    columns.limited_requests(options.path("pools", pool, "requests"), {"view": view}, limit)


pool.add_command(shares)


def _body(capacity: OptionValues, description: str | None, settings: OptionValues) -> dict[str, Any]:
    """Return the fields that were given."""
    fields = {
        "capacity": param_types.merge(capacity, "--capacity") or None,
        "description": description,
        "settings": param_types.merge(settings, "--setting") or None,
    }
    return {field: value for field, value in fields.items() if value is not None}


def _describe(pool: Mapping[str, Any], *, all_settings: bool) -> None:
    settings = pool.get("settings") or {}
    output.show_fields(
        [
            ("Pool", pool["name"]),
            ("Description", pool.get("description")),
            ("Settings", None if all_settings else _settings_summary(settings)),
            ("Requests", f"{pool['active_count']} active, {pool['queue_length']} queued"),
        ]
    )
    output.show_heading("Capacity")
    output.show_table([{"key": key, **pool} for key in pool["capacity"]], columns.KEYS, indent=2)
    if pool["groups"]:
        output.show_heading(plural(len(pool["groups"]), "group").capitalize())
        output.show_table(columns.tree(pool["groups"]), columns.with_optional_columns(columns.GROUPS, pool["groups"]), indent=2)
    output.show_heading(plural(len(pool["policies"]), "policy").capitalize())
    if pool["policies"]:
        output.show_table(pool["policies"], columns.with_optional_columns(columns.POLICIES, pool["policies"]), indent=2)
    _show_requests("Running", pool["active_count"], pool["running"], columns.RUNNING)
    _show_requests("Queue", pool["queue_length"], pool["queue"], columns.QUEUE)
    if all_settings:
        output.show_heading("Settings")
        output.show_table(known.setting_rows(settings), columns.SETTINGS, indent=2)


def _settings_summary(settings: Mapping[str, Any]) -> str:
    """Return the settings that differ from their defaults, and the option that shows the others."""
    changed = known.changed_settings(settings)
    return f"{pairs(changed)}; the others are defaults (--settings)" if changed else "all are defaults (--settings)"


def _show_requests(title: str, count: int, requests: Sequence[Row], table: Sequence[Column]) -> None:
    """Print the first requests of a list under a heading with the number of all requests."""
    shown = len(requests)
    output.show_heading(f"{title}: {count}" + (f", the first {shown} of them" if 0 < shown < count else ""))
    if requests:
        output.show_table(requests, table, indent=2)
