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
    """Show use, demand and fair share of the accounts of POOL.

    USED, DEMAND (used and queued), FAIR, GUARANTEE and LIMIT are percentages of the pool. In a pool of several keys, each key
    has a line below the account, such as :gpu. RATIO is the part of its fair share that a policy uses; a group has the least
    ratio below it. The lowest ratio is served first. SPLIT counts the allocations of a policy by the policies that may preempt
    them: none, aggressively starving ones, all starving ones. STATUS tells how long the account has been below its fair share.
    -o wide adds UNITS: used of demanded.
    """
    accounts = options.call("GET", options.path("pools", pool, "shares"))["accounts"]
    shown = accounts if options.current_options().for_programs else list(lines(accounts))
    output.show_list(shown, SHARES, name)


def lines(accounts: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield a line for each account, indented by its depth. If the pool has several keys, a line for each key follows."""
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
    """Yield each account with its depth. In the answer a parent stands before the accounts below it."""
    above: list[str] = []
    for account in accounts:
        while above and above[-1] != account["parent"]:
            above.pop()
        yield (len(above) + 1 if account["kind"] != "pool" else 0), account
        if account["kind"] == "group":
            above.append(str(account["name"]))


def name(account: Mapping[str, Any]) -> str:
    """Return the name of an account as it is typed on the command line."""
    if account["kind"] != "policy":
        return str(account["name"])
    return formatting.component({"component": account["name"], "component_type": account["component_type"]})


def percent(share: float) -> str:
    """Return a share in percent: whole numbers, with one decimal below 10 %."""
    if 0 < share < 0.0005:
        return "<0.1%"
    return f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}".replace(".0%", "%")


def satisfaction(account: Mapping[str, Any]) -> str:
    """Return the part of its fair share that an account uses; `inf` if it has no fair share."""
    ratio = account["satisfaction"]
    return "inf" if ratio is None else f"{ratio:.2f}"


def split(account: Mapping[str, Any]) -> str | None:
    """Return the number of allocations that no policy, an aggressively starving one, any starving one may preempt: `2/1/3`."""
    counts = [len(account["allocations"][group]) for group in SPLIT_PARTS]
    return "/".join(map(str, counts)) if any(counts) else None


def status(account: Mapping[str, Any]) -> str:
    """Return the state of the account: `starving for 2m`, or `below for 12s` before it counts as starving."""
    word, since = str(account["status"]).replace("_", " "), account["below_since"]
    if since is None:
        return word.replace(" ", "-")
    return f"{'below' if word == 'non starving' else word} for {formatting.age(since)}"


def _percent(row: Row, share: str) -> str | None:
    return percent(row[share].get(row["key"], 0.0)) if row["key"] else None


def _units(row: Row) -> str | None:
    return f"{row['usage'].get(row['key'], 0)} of {row['demand'].get(row['key'], 0)}" if row["key"] else None
