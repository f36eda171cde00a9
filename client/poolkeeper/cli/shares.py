"""`poolkeeper pool shares`: the accounts of a pool, with their usage, demand and fair share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from poolkeeper import formatting
from poolkeeper.cli import options, output, param_types
from poolkeeper.cli.command_base import VerbCommand
from poolkeeper.cli.output import Column, Row

SPLIT_PARTS = ("non_preemptible", "aggressively_preemptible", "preemptible")

SHARES = (
    Column("ACCOUNT", lambda row: row["line"]),
    Column("USED", lambda row: _percent(row, "usage_share")),
    Column("DEMAND", lambda row: _percent(row, "demand_share")),
    Column("FAIR", lambda row: _percent(row, "fair_share")),
    Column("GUARANTEE", lambda row: _percent(row, "guarantee_share")),
    Column("LIMIT", lambda row: _percent(row, "limit_share")),
    Column("RATIO", lambda row: satisfaction(row) if row["of_account"] else None),
    Column("SPLIT", lambda row: split(row) if row["of_account"] else None),
    Column("UNITS", lambda row: _units(row), wide=True),
    Column("WEIGHT", lambda row: str(row["weight"]) if row["of_account"] else None, wide=True),
    Column("MODE", lambda row: row["mode"] if row["of_account"] else None, wide=True),
    Column("STATUS", lambda row: status(row) if row["of_account"] else None, long=True),
)
"""A row is an account and one key of the pool; if `of_account`, the row also shows the columns of the account itself."""


@click.command("shares", cls=VerbCommand, example="poolkeeper pool shares gpus\npoolkeeper pool shares gpus -o wide")
@click.argument("pool", type=param_types.POOL)
def shares(pool: str) -> None:
    """Show what each group and policy of POOL has and is due by fair share.

    USED, DEMAND (used and waited for), FAIR, GUARANTEE and LIMIT are percentages of the pool; in a pool of several keys each
    has a line below the account, as :gpu. RATIO is how much a policy has of what is due to it, of a group the least below it:
    the lowest is served first. SPLIT counts the allocations of a policy: those that cannot be preempted, those that only an
    aggressively starving policy may preempt, those that any starving one may preempt. STATUS says for how long the account has
    been below its fair share. -o wide adds UNITS, used of demanded.
    """
    accounts = options.call("GET", options.path("pools", pool, "shares"))["accounts"]
    shown = accounts if options.current_options().for_programs else list(lines(accounts))
    output.show_list(shown, SHARES, name)


def lines(accounts: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """A line for each account, and below it one for each key if the pool has several; what is deeper stands further right."""
    for depth, account in _with_depth(accounts):
        row, lead = {**account, "of_account": True, "key": None}, "  " * depth
        keys = list(account["fair_share"])
        if len(keys) == 1:
            yield {**row, "line": lead + name(account), "key": keys[0]}
            continue
        yield {**row, "line": lead + name(account)}
        for key in keys:
            yield {**row, "line": f"{lead}:{key}", "key": key, "of_account": False}


def _with_depth(accounts: Sequence[Row]) -> Iterator[tuple[int, Row]]:
    """They come parents first, each followed by all that is below it."""
    above: list[str] = []
    for account in accounts:
        while above and above[-1] != account["parent"]:
            above.pop()
        yield (len(above) + 1 if account["kind"] != "pool" else 0), account
        if account["kind"] == "group":
            above.append(str(account["name"]))


def name(account: Mapping[str, Any]) -> str:
    """What an account is called where one has to type it."""
    if account["kind"] != "policy":
        return str(account["name"])
    return formatting.component({"component": account["name"], "component_type": account["component_type"]})


def percent(share: float) -> str:
    """A share as people read it: whole percents, one decimal where there are few of them."""
    if 0 < share < 0.0005:
        return "<0.1%"
    return f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}".replace(".0%", "%")


def satisfaction(account: Mapping[str, Any]) -> str:
    """How much of what is due to it a policy has; `inf` where nothing is due."""
    ratio = account["satisfaction"]
    return "inf" if ratio is None else f"{ratio:.2f}"


def split(account: Mapping[str, Any]) -> str | None:
    """How many of its allocations nobody may take, only the aggressively starving may, all who starve may: `2/1/3`."""
    counts = [len(account["allocations"][group]) for group in SPLIT_PARTS]
    return "/".join(map(str, counts)) if any(counts) else None


def status(account: Mapping[str, Any]) -> str:
    """`starving for 2m`; `below for 12s` of one that has not yet starved for it."""
    word, since = str(account["status"]).replace("_", " "), account["below_since"]
    if since is None:
        return word.replace(" ", "-")
    return f"{'below' if word == 'non starving' else word} for {formatting.age(since)}"


def _percent(row: Row, share: str) -> str | None:
    return percent(row[share].get(row["key"], 0.0)) if row["key"] else None


def _units(row: Row) -> str | None:
    return f"{row['usage'].get(row['key'], 0)} of {row['demand'].get(row['key'], 0)}" if row["key"] else None
