"""The columns of every table of pools, policies, groups, requests and events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from poolkeeper import formatting, request_origin
from poolkeeper.cli import options, output, pool_settings
from poolkeeper.cli.error_output import print_message
from poolkeeper.cli.output import Column, Row

if TYPE_CHECKING:
    from poolkeeper import Client

PAGE = 200
LIMIT = click.option(
    "--limit", type=click.IntRange(min=0), default=100, show_default=True, metavar="N", help="Most rows to list; 0: all."
)

POOLS = (
    Column("NAME", lambda row: row["name"]),
    Column("CAPACITY", lambda row: formatting.amounts(row["capacity"])),
    Column("USED", lambda row: formatting.amounts(_nonzero(row["used"]))),
    Column("FREE", lambda row: formatting.amounts(row["free"])),
    Column("BORROWED", lambda row: formatting.amounts(_nonzero(row["borrowed"])), wide=True),
    Column("HELD", lambda row: formatting.amounts(_nonzero(row["held"])), wide=True),
    Column("ACTIVE", lambda row: row["active_count"]),
    Column("QUEUED", lambda row: row["queue_length"]),
    Column("SETTINGS", lambda row: formatting.pairs(pool_settings.changed_settings(row["settings"])), wide=True, long=True),
    Column("DESCRIPTION", lambda row: row["description"], wide=True, long=True),
)

SETTINGS = (
    Column("SETTING", lambda row: row["name"]),
    Column("VALUE", lambda row: row["value"]),
    Column("DEFAULT", lambda row: row["default"]),
)

KEYS = (
    Column("KEY", lambda row: row["key"]),
    Column("CAPACITY", lambda row: row["capacity"][row["key"]]),
    Column("USED", lambda row: row["used"].get(row["key"], 0)),
    Column("BORROWED", lambda row: row["borrowed"].get(row["key"], 0)),
    Column("FREE", lambda row: row["free"].get(row["key"], 0)),
    Column("HELD", lambda row: row["held"].get(row["key"], 0)),
)

_ACCOUNT = (
    Column("RESERVED", lambda row: formatting.amounts(_nonzero(row["reserved"]))),
    Column("LIMIT", lambda row: formatting.amounts(row["limit"])),
    Column("USED", lambda row: formatting.amounts(_nonzero(row["used"]))),
    Column("BORROWED", lambda row: formatting.amounts(_nonzero(row["borrowed"])), rank=1),
)
_WEIGHT = Column("WEIGHT", lambda row: row["weight"], wide=True)

POLICIES = (
    Column("COMPONENT", formatting.component),
    Column("PRIORITY", lambda row: row["priority"]),
    *_ACCOUNT,
    Column("QUEUED", lambda row: row["queued"]),
    Column("GROUP", lambda row: row["group"]),
    _WEIGHT,
    Column("PROFILE", lambda row: row["profile"], wide=True),
)

POLICIES_OF_A_COMPONENT = (Column("POOL", lambda row: row["pool"]), *POLICIES)

GROUPS = (
    Column("GROUP", lambda row: "  " * row["depth"] + row["name"]),
    *_ACCOUNT,
    _WEIGHT,
)

_TEMPLATES = (Column("POLICIES", lambda row: row.get("policies")), Column("TEMPLATE", lambda row: row.get("template"), rank=2))
_MODE = Column("MODE", lambda row: row.get("mode"))
_SETTINGS = Column("SETTINGS", lambda row: formatting.pairs(row.get("settings")), long=True)

SHORT_ID = Column("ID", lambda row: request_origin.short_id(row["id"]))
NAME = Column("NAME", lambda row: formatting.shorten(request_origin.title(row.get("name"), row["labels"])), long=True)
OWNER = Column("OWNER", lambda row: request_origin.owner(row["labels"]), rank=2)
_REQUEST = (SHORT_ID, NAME, OWNER, Column("COMPONENT", formatting.component))

REQUESTS = (
    *_REQUEST,
    Column("ASKS", formatting.requested_amounts),
    Column("STATUS", lambda row: row["status"]),
    Column("POOL", lambda row: row["pool"], rank=1),
    Column("PLACE", lambda row: position_or_fence(row)),
    Column("AGE", lambda row: formatting.age(row["submitted_at"]), rank=3),
    Column("ASKED", lambda row: formatting.age(row["polled_at"]) if row.get("polled_at") else None, wide=True),
    Column("CLASS", lambda row: row["preemption_class"], wide=True),
    Column("PREEMPTIBLE", lambda row: "yes" if row["preemptible"] else "no", wide=True),
    Column("DIRECTIVE", formatting.directive, wide=True, long=True),
    Column("LABELS", lambda row: formatting.pairs(row["labels"]), wide=True, long=True),
    Column("REQUEST", lambda row: row["id"], wide=True),
    Column("WHY", formatting.reason, long=True, below=True),
)

QUEUE = (
    *_REQUEST,
    *(column for column in REQUESTS if column.title in ("ASKS", "PLACE", "AGE", "ASKED")),
)
RUNNING = (
    *_REQUEST,
    Column("HOLDS", formatting.requested_amounts),
    Column("STATUS", lambda row: row["status"]),
    Column("RUNS", lambda row: formatting.age(row["granted_at"])),
)


def position_or_fence(request: Mapping[str, Any]) -> str:
    """Return the fence of an allocation, the positions of a queued request, else nothing."""
    if request["status"] in ("allocated", "preempting"):
        return f"fence {request['fence']}"
    return formatting.position(request) if request["status"] == "queued" else ""


def tree(groups: Sequence[Row]) -> list[dict[str, Any]]:
    """Return groups below their parents, each with its depth, sorted by name."""
    children: dict[str | None, list[Row]] = {}
    for group in sorted(groups, key=lambda row: str(row["name"])):
        children.setdefault(group["parent"], []).append(group)

    def below(parent: str | None, depth: int) -> Iterator[dict[str, Any]]:
        for group in children.get(parent, ()):
            yield {**group, "depth": depth}
            yield from below(group["name"], depth + 1)

    return list(below(None, 0))


def with_optional_columns(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[Column, ...]:
    """Return the columns, without those of templates, modes and settings for which no row has a value."""
    has_templates = any(row.get("template") or row.get("policies") is not None for row in rows)
    has_modes = any(row.get("mode", "fair_share") != "fair_share" for row in rows)
    has_settings = any(row.get("settings") for row in rows)
    template_columns = _TEMPLATES if has_templates else ()
    return (*columns, *template_columns, *([_MODE] if has_modes else []), *([_SETTINGS] if has_settings else []))


def limited_requests(path: str, query: Mapping[str, Any], limit: int) -> None:
    """Print a list of requests. If there are more than `limit`, a line on stderr says so."""
    requests, is_cut = read_requests(options.client(), path, query, limit)
    output.show_list(requests, REQUESTS, lambda row: str(row["id"]))
    if is_cut:
        print_message(f"there are more than {limit}; --limit 0 lists all")


def read_requests(client: Client, path: str, query: Mapping[str, Any], limit: int) -> tuple[list[dict[str, Any]], bool]:
    """Return the first requests of a list (0: all), and whether there are more."""
    rows = client.items(path, query=query, page=min(limit + 1, PAGE) if limit else PAGE)
    requests = list(islice(rows, limit + 1) if limit else rows)
    return requests[: limit or None], bool(limit) and len(requests) > limit


def _nonzero(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts that are not 0."""
    return {key: amount for key, amount in amounts.items() if amount}
