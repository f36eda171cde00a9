"""`poolkeeper events`: past events, and new ones as they happen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from poolkeeper import formatting, request_origin
from poolkeeper.cli import options, output, param_types, request_details
from poolkeeper.cli.command_base import VerbCommand
from poolkeeper.cli.output import Column
from poolkeeper.cli.request_ids import last_option

COLUMNS = (
    Column("TIME", lambda row: formatting.timestamp(row["at"])),
    Column("ID", lambda row: request_origin.short_id(row["request"])),
    Column("NAME", lambda row: formatting.shorten(row.get("title") or ""), long=True),
    Column("OWNER", lambda row: row.get("owner")),
    Column("COMPONENT", formatting.component),
    Column("ASKS", formatting.requested_amounts),
    Column("WHAT", request_details.event_sentence, long=True),
    Column("REQUEST", lambda row: row["request"], wide=True),
    Column("EVENT", lambda row: row["id"], wide=True),
)


@click.command(
    "events",
    cls=VerbCommand,
    example="poolkeeper events --pool gpus --follow\npoolkeeper events --since 1763467200000-0 -o json",
)
@click.option("--follow", "-f", is_flag=True, help="Print new events until Ctrl-C; past ones only with --since.")
@click.option("--pool", type=param_types.POOL, help="Only events of this pool.")
@click.option("--component", type=param_types.COMPONENT, help="Only events of this component.")
@click.option("--request", type=param_types.REQUEST, help="Only events of this request.")
@last_option
@click.option("--since", metavar="ID", help="Only events after this id (-o wide shows ids); 0: from the beginning.")
def events(follow: bool, pool: str | None, component: tuple[str, str] | None, request: str | None, since: str | None) -> None:
    """Print past events, oldest first; with --follow new ones as they happen."""
    filters = {"pool": pool, "component": component[1] if component else None, "request": request}
    if follow:
        return _follow(options.client().events(after=since, **filters))
    rows = options.client().items("/events", query={**filters, "after": since or "0"})
    return output.show_list(rows, COLUMNS, lambda row: str(row["id"]))


def _follow(events: Iterator[Mapping[str, Any]]) -> None:
    for event in events:
        click.echo(_line(event))


def _line(event: Mapping[str, Any]) -> str:
    """Return one event as a line, or as a YAML document."""
    output_format = options.current_options().output
    if output_format == "json":
        return output.to_json(event)
    if output_format == "yaml":
        import yaml

        return "---\n" + str(yaml.safe_dump(dict(event), sort_keys=False, allow_unicode=True)).rstrip()
    if output_format == "name":
        return str(event["id"])
    cells = [column.cell(event) for column in COLUMNS if output_format == "wide" or not column.wide]
    return "  ".join(formatting.one_line(cell or "-") for cell in cells)
