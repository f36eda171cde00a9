"""`poolkeeper policy`: what connects a component to a pool."""

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
COMPONENT = click.argument("component", type=param_types.COMPONENT)
TYPE = click.option(
    "--type", "kind", type=param_types.PLAIN, help="Type of the component, orchestrator if not said; or TYPE/NAME."
)
PRIORITY = click.option("--priority", type=click.IntRange(0, 9999), help="The higher, the sooner.")
PROFILE = click.option(
    "--profile",
    type=click.Choice(["batch", "training", "service", "sensitive", "interactive"]),
    help="What its work is (batch): how dear it is to stop in a pool of discipline classes, and whether it may be.",
)
FIELDS = ("priority", "reserved", "limit", "weight", "group", "profile", "settings")

policy = Noun("policy", help="Policies: which component may use a pool, what is its own there, and how much it may use.")


@policy.command(
    "attach",
    example="poolkeeper policy attach gpus team-ml --priority 10 --reserved gpu=4 --limit gpu=8\n"
    "poolkeeper policy attach gpus trainer --type step_operator --group research --weight 2",
)
@POOL
@COMPONENT
@TYPE
@PRIORITY
@RESERVED
@LIMIT
@group_option("--group", "The group it is part of.")
@WEIGHT
@PROFILE
@SETTING
@click.option("--replace", is_flag=True, help="Even if there is one: it is then as said here, and nothing of it stays.")
def attach(pool: str, component: tuple[str | None, str], kind: str | None, replace: bool, **said: Any) -> None:
    """Connect COMPONENT to POOL; what it waits for may be granted here from now on.

    It is looked whether there is a policy already, and then put: of two who do that at the same moment the later one counts.
    """
    who = param_types.typed_component(component, kind)
    client = options.client()
    if not replace and _present(client, pool, who):
        hint = "`policy update` changes what is given, --replace puts this in its place"
        raise Failed(f"pool {pool} already has a policy for {_word(who)}", hints=[hint])
    made = client.call("PUT", _path(pool, who), query=_query(who), body=given(said))
    output.done(made, _word(who), f"attached {_word(who)} to pool {pool}: {_terms(made)}")


@policy.command("list", example="poolkeeper policy list gpus\npoolkeeper policy list --component team-ml")
@click.argument("pool", type=param_types.POOL, required=False)
@click.option("--component", type=param_types.COMPONENT, help="Instead of a pool: the policies of a component in all pools.")
@TYPE
def list_(pool: str | None, component: tuple[str | None, str] | None, kind: str | None) -> None:
    """List the policies of POOL, or of a component in all pools."""
    if (pool is None) == (component is None):
        raise click.UsageError("name a pool, or a component with --component", click.get_current_context())
    if pool is not None:
        rows = list(options.client().items(options.path("pools", pool, "policies")))
        return output.listing(rows, columns.with_what_is_said(columns.POLICIES, rows), formatting.component)
    assert component
    who = param_types.typed_component(component, kind)
    rows = list(options.client().items(options.path("components", who[1], "policies"), query=_query(who)))
    shown = columns.with_what_is_said(columns.POLICIES_OF_A_COMPONENT, rows)
    return output.listing(rows, shown, lambda row: str(row["pool"]))


@policy.command("show", example="poolkeeper policy show gpus team-ml")
@POOL
@COMPONENT
@TYPE
def show(pool: str, component: tuple[str | None, str], kind: str | None) -> None:
    """Show the policy of COMPONENT in POOL."""
    who = param_types.typed_component(component, kind)
    found = options.call("GET", _path(pool, who), query=_query(who))
    output.one(found, _word(who), lambda: _described(found))


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
@group_option("--group", "The group it is part of; with --no-group, none.")
@click.option("--no-group", is_flag=True, help="Directly below the pool.")
@WEIGHT
@PROFILE
@SETTING
def update(pool: str, component: tuple[str | None, str], kind: str | None, no_group: bool, **said: Any) -> None:
    """Change the policy of COMPONENT in POOL: what is not given stays, key by key; gpu=none takes a key away,
    NAME=none a setting."""
    who = param_types.typed_component(component, kind)
    news = changed(said, {"group": no_group})
    client = options.client()
    present = client.call("GET", _path(pool, who), query=_query(who))
    made = client.call("PUT", _path(pool, who), query=_query(who), body=news(present, FIELDS))
    output.done(made, _word(who), f"updated {_word(who)} in pool {pool}: {_terms(made)}")


@policy.command("detach", example="poolkeeper policy detach gpus team-ml")
@POOL
@COMPONENT
@TYPE
def detach(pool: str, component: tuple[str | None, str], kind: str | None) -> None:
    """Part COMPONENT from POOL; refused while it waits or holds anything there."""
    who = param_types.typed_component(component, kind)
    options.call("DELETE", _path(pool, who), query=_query(who))
    output.done(None, _word(who), f"detached {_word(who)} from pool {pool}")


def _present(client: Any, pool: str, who: tuple[str, str]) -> bool:
    from poolkeeper.errors import NotFound

    try:
        client.call("GET", _path(pool, who), query=_query(who))
    except NotFound as missing:
        if missing.code != "no_such_policy":
            raise
        return False
    return True


def _path(pool: str, who: tuple[str, str]) -> str:
    return options.path("pools", pool, "policies", who[1])


def _query(who: tuple[str, str]) -> dict[str, str]:
    return {"component_type": who[0]}


def _word(who: tuple[str, str]) -> str:
    return formatting.component({"component_type": who[0], "component": who[1]})


def _terms(policy: Mapping[str, Any]) -> str:
    """What it says, in a few words."""
    words = [f"priority {policy['priority']}"]
    words += [f"{word} {formatting.amounts(policy[word])}" for word in ("reserved", "limit") if policy[word]]
    words += [f"group {policy['group']}"] if policy["group"] else []
    words += [f"profile {policy['profile']}"] if policy["profile"] != "batch" else []
    return ", ".join(words + ([formatting.pairs(policy["settings"])] if policy.get("settings") else []))


def _described(found: Mapping[str, Any]) -> None:
    output.fields(
        [
            ("Pool", found["pool"]),
            ("Component", formatting.component(found)),
            ("Priority", str(found["priority"])),
            ("Reserved", formatting.amounts(found["reserved"])),
            ("Limit", formatting.amounts(found["limit"])),
            ("Group", found["group"]),
            ("Weight", str(found["weight"])),
            ("Profile", found["profile"]),
            ("Settings", formatting.pairs(found["settings"]) if found.get("settings") else None),
            ("Used", formatting.amounts(found["used"])),
            ("Used, fixed", formatting.amounts(found["used_fixed"])),
            ("Borrowed", formatting.amounts(found["borrowed"])),
            ("Queued", str(found["queued"])),
        ]
    )
