"""`poolkeeper policy`: the policies of components in pools."""

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
COMPONENT = click.argument("component", type=param_types.POLICY_COMPONENT)
TYPE = click.option(
    "--type",
    "--component-type",
    "kind",
    type=param_types.ANY_NAME,
    help="Type of the component (default: orchestrator), if COMPONENT has none.",
)
PRIORITY = click.option("--priority", type=click.IntRange(0, 9999), help="Priority in the queue: higher is served first.")
PROFILE = click.option(
    "--profile",
    type=click.Choice(["batch", "training", "service", "sensitive", "interactive"]),
    help="Kind of its work (default: batch): with discipline classes, it sets the cost of a preemption, or forbids it.",
)
FIELDS = ("priority", "reserved", "limit", "weight", "group", "profile", "settings")

policy = NounGroup("policy", help="Policies: the components that may use a pool, with their reserved units and limits.")


@policy.command(
    "attach",
    example="poolkeeper policy attach gpus team-ml --priority 10 --reserved gpu=4 --limit gpu=8\n"
    "poolkeeper policy attach gpus trainer --type step_operator --group research --weight 2\n"
    "poolkeeper policy attach gpus 'intern/*' --limit gpu=1",
)
@POOL
@COMPONENT
@TYPE
@PRIORITY
@RESERVED
@LIMIT
@group_option("--group", "Group above it; without one, the pool.")
@WEIGHT
@PROFILE
@SETTING
@click.option("--replace", is_flag=True, help="Replace an existing policy as a whole: options that are not given are defaults.")
def attach(pool: str, component: tuple[str | None, str], kind: str | None, replace: bool, **values: Any) -> None:
    """Connect COMPONENT to POOL. From now on the pool may grant its requests.

    'user-*' is a template: a component whose name begins with user- and that has no policy gets one with its first request. '*'
    matches every component of the type.

    The command looks for an existing policy and then writes. Of two simultaneous calls, the later one counts.
    """
    owner = param_types.full_component(component, kind)
    client = options.client()
    if not replace and _exists(client, pool, owner):
        hint = "`policy update` changes it, --replace replaces it as a whole"
        raise CommandError(f"pool {pool} already has a policy for {_owner_name(owner)}", hints=[hint])
    document = client.call("PUT", _path(pool, owner), query=_query(owner), body=body_of(values))
    output.show_result(document, _owner_name(owner), f"attached {_owner_name(owner)} to pool {pool}: {_summary(document)}")
    show_over_limit(document)


@policy.command("list", example="poolkeeper policy list gpus\npoolkeeper policy list --component team-ml")
@click.argument("pool", type=param_types.POOL, required=False)
@click.option(
    "--component", type=param_types.COMPONENT, help="Instead of POOL: list the policies of this component in all pools."
)
@TYPE
def list_(pool: str | None, component: tuple[str | None, str] | None, kind: str | None) -> None:
    """List the policies of POOL, or of a component in all pools."""
    if (pool is None) == (component is None):
        raise click.UsageError("name a pool, or a component with --component", click.get_current_context())
    if pool is not None:
        rows = list(options.client().items(options.path("pools", pool, "policies")))
        return output.show_list(rows, columns.with_optional_columns(columns.POLICIES, rows), formatting.component)
    assert component
    owner = param_types.full_component(component, kind)
    rows = list(options.client().items(options.path("components", owner[1], "policies"), query=_query(owner)))
    shown = columns.with_optional_columns(columns.POLICIES_OF_A_COMPONENT, rows)
    return output.show_list(rows, shown, lambda row: str(row["pool"]))


@policy.command("show", example="poolkeeper policy show gpus team-ml")
@POOL
@COMPONENT
@TYPE
def show(pool: str, component: tuple[str | None, str], kind: str | None) -> None:
    """Show the policy of COMPONENT in POOL."""
    owner = param_types.full_component(component, kind)
    document = options.call("GET", _path(pool, owner), query=_query(owner))
    output.show_item(document, _owner_name(owner), lambda: _describe(document))


@policy.command(
    "update",
    example="poolkeeper policy update gpus team-ml --reserved gpu=2\npoolkeeper policy update gpus team-ml --limit gpu=none\n"
    "poolkeeper policy update gpus team-ml --setting non_preemptible_usage_threshold=gpu=2",
)
@POOL
@COMPONENT
@TYPE
@PRIORITY
@RESERVED
@LIMIT
@group_option("--group", "Group above it.")
@click.option("--no-group", is_flag=True, help="Put it directly below the pool.")
@WEIGHT
@PROFILE
@SETTING
def update(pool: str, component: tuple[str | None, str], kind: str | None, no_group: bool, **values: Any) -> None:
    """Change the policy of COMPONENT in POOL.

    Options and keys that are not given stay; gpu=none removes a key, NAME=none a setting.
    """
    owner = param_types.full_component(component, kind)
    change = change_of(values, {"group": no_group})
    client = options.client()
    current = client.call("GET", _path(pool, owner), query=_query(owner))
    document = client.call("PUT", _path(pool, owner), query=_query(owner), body=change(current, FIELDS))
    output.show_result(document, _owner_name(owner), f"updated {_owner_name(owner)} in pool {pool}: {_summary(document)}")
    show_over_limit(document)


@policy.command("detach", example="poolkeeper policy detach gpus team-ml")
@POOL
@COMPONENT
@TYPE
def detach(pool: str, component: tuple[str | None, str], kind: str | None) -> None:
    """Detach COMPONENT from POOL. Refused while it has queued requests or allocations there."""
    owner = param_types.full_component(component, kind)
    options.call("DELETE", _path(pool, owner), query=_query(owner))
    output.show_result(None, _owner_name(owner), f"detached {_owner_name(owner)} from pool {pool}")


def _exists(client: Any, pool: str, owner: tuple[str, str]) -> bool:
    from poolkeeper.errors import NotFound

    try:
        client.call("GET", _path(pool, owner), query=_query(owner))
    except NotFound as error:
        if error.code != "no_such_policy":
            raise
        return False
    return True


def _path(pool: str, owner: tuple[str, str]) -> str:
    return options.path("pools", pool, "policies", owner[1])


def _query(owner: tuple[str, str]) -> dict[str, str]:
    return {"component_type": owner[0]}


def _owner_name(owner: tuple[str, str]) -> str:
    return formatting.component({"component_type": owner[0], "component": owner[1]})


def _summary(policy: Mapping[str, Any]) -> str:
    """Return the policy in a few words."""
    words = [f"priority {policy['priority']}"]
    words += [f"{word} {formatting.amounts(policy[word])}" for word in ("reserved", "limit") if policy[word]]
    words += [f"group {policy['group']}"] if policy["group"] else []
    words += [f"profile {policy['profile']}"] if policy["profile"] != "batch" else []
    return ", ".join(words + ([formatting.pairs(policy["settings"])] if policy.get("settings") else []))


def _describe(policy: Mapping[str, Any]) -> None:
    output.show_fields(
        [
            ("Pool", policy["pool"]),
            ("Component", formatting.component(policy)),
            ("Priority", str(policy["priority"])),
            ("Reserved", formatting.amounts(policy["reserved"])),
            ("Limit", formatting.amounts(policy["limit"])),
            ("Group", policy["group"]),
            ("Weight", str(policy["weight"])),
            ("Profile", policy["profile"]),
            ("Settings", formatting.pairs(policy["settings"]) if policy.get("settings") else None),
            ("Used", formatting.amounts(policy["used"])),
            ("Used, fixed", formatting.amounts(policy["used_fixed"])),
            ("Borrowed", formatting.amounts(policy["borrowed"])),
            ("Queued", str(policy["queued"])),
            ("Template", policy.get("template")),
            ("Policies", None if policy.get("policies") is None else str(policy["policies"])),
        ]
    )
