"""`poolkeeper request explain`: why a request is queued, for people."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click

from poolkeeper import formatting
from poolkeeper.cli import options, output, param_types
from poolkeeper.cli.command_base import VerbCommand
from poolkeeper.cli.output import Column, Row
from poolkeeper.cli.request_ids import id_argument
from poolkeeper.request_origin import short_id

KEY_COLUMNS = (
    Column("KEY", lambda row: row["key"]),
    Column("NEEDED", lambda row: row["needed"]),
    Column("FREE", lambda row: row["free"]),
    Column("KEPT FOR OTHERS", lambda row: row["held_for_others"]),
    Column("LIMIT", lambda row: row["limit"]),
    Column("RESERVED", lambda row: row["reserved"]),
)

HOLDER_COLUMNS = (
    Column("COMPONENT", formatting.component),
    Column("USED", lambda row: formatting.amounts(row["used"], all_keys=True)),
    Column("IN SHARE", lambda row: formatting.amounts(row["in_share"], all_keys=True)),
    Column("BORROWED", lambda row: formatting.amounts(row["borrowed"], all_keys=True)),
    Column("NEXT END", lambda row: formatting.timestamp(row["next_end"])),
)

CANDIDATE_COLUMNS = (
    Column("REQUEST", lambda row: short_id(row["request"])),
    Column("COMPONENT", formatting.component),
    Column("BY RULE", lambda row: row["rule"]),
    Column("WHY NOT", lambda row: row["why_not"], long=True),
)


@click.command(
    "explain",
    cls=VerbCommand,
    example="poolkeeper request explain 1v4f2t\npoolkeeper request explain --last\n"
    "poolkeeper request explain 01kad5rgbxn0fg1v4f2t -o json",
)
@id_argument(param_types.REQUEST)
def explain(request: str) -> None:
    """Explain why a request waits, and when it may start. It names the holders of the units and the possible victims."""
    explanation = options.call("GET", options.path("requests", request, "explain"))
    output.show_item(explanation, request, lambda: describe(explanation))


def describe(explanation: Mapping[str, Any]) -> None:
    """Print the sentence, and the reasons pool by pool."""
    click.echo(formatting.printable(explanation["sentence"]))
    for pool in explanation["pools"]:
        describe_pool(pool)


def describe_pool(pool: Mapping[str, Any]) -> None:
    """Print why the request is queued, or would be queued, in one pool."""
    output.show_heading(f"In {pool['pool']}: number {pool['position']} of {pool['waiting']}, {pool['verdict']}")
    keys = [key for key in pool["keys"] if _is_relevant(key, pool)]
    if keys:
        output.show_table([{**pool["keys"][key], "key": key} for key in keys], KEY_COLUMNS, indent=2)
    facts = [
        ("Blocked at", _blocked(pool["blocking_account"])),
        ("Starts if", pool["would_start_if"]),
        ("Estimated", format_estimate(pool["estimated_start"]) or pool.get("no_estimate") or "not known"),
        ("Preemption", _preemption(pool["preemption"])),
    ]
    for name, value in facts:
        if value:
            click.echo(f"  {name + ':':<13}{formatting.one_line(value)}")
    holders = [
        {**row, **{part: _nonzero(row[part], keys) for part in ("used", "in_share", "borrowed")}} for row in pool["holders"]
    ]
    _print_list("Holders of the units", holders, HOLDER_COLUMNS, pool["more_holders"])
    _print_list("Candidates for preemption", pool["preemption"]["candidates"], CANDIDATE_COLUMNS, pool["preemption"]["more"])


def format_estimate(document: Mapping[str, Any] | None) -> str:
    """Return the estimated start: `likely 12:40:00Z, from 12:30:00Z to 13:10:00Z (from promised walltimes)`."""
    if document is None:
        return ""
    latest = f"to {formatting.timestamp(document['latest'])}" if document["latest"] else "with no latest time"
    likely, earliest = formatting.timestamp(document["likely"]), formatting.timestamp(document["earliest"])
    return f"likely {likely}, from {earliest} {latest} ({document['basis']})"


def _blocked(account: Mapping[str, Any] | None) -> str:
    if account is None:
        return ""
    most = f"of {account['limit']} " if account["limit"] is not None else ""
    return f"{account['account']}, which uses {account['used']} {most}{account['key']}: {account['lacking']} lacking"


def _preemption(preemption: Mapping[str, Any]) -> str:
    separator = "" if preemption["code"] == "leaving" else "; leaving for it"
    victims = f"{separator}: {', '.join(preemption['leaving'])}" if preemption["leaving"] else ""
    return f"{preemption['reason']}{victims}"


def _print_list(title: str, rows: Sequence[Row], columns: Sequence[Column], more: int) -> None:
    if rows or more:
        click.echo(f"  {title}")
    if rows:
        output.show_table(rows, columns, indent=4)
    if more:
        click.echo(f"    and {more} more")


def _is_relevant(key: str, pool: Mapping[str, Any]) -> bool:
    """True if the key is shown. Every request has `step_run`, so it is shown only if units of it are lacking."""
    blocking, numbers = pool["blocking_account"], pool["keys"][key]
    is_short = numbers["needed"] > numbers["free"] - numbers["held_for_others"] or (
        blocking is not None and blocking["key"] == key
    )
    return key != "step_run" or is_short


def _nonzero(amounts: Mapping[str, int], keys: Collection[str]) -> dict[str, int]:
    return {key: amount for key, amount in amounts.items() if amount and key in keys}
