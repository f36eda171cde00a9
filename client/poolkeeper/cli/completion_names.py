"""Names for shell completion, read from the service within `TIMEOUT_S`, else left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import click

from poolkeeper import formatting

TIMEOUT_S = 1.0
MAX_NAMES = 100

Row = TypeVar("Row")


def names(ctx: click.Context, listing: Sequence[str]) -> list[str]:
    """Return the names in a list of the API. `{pool}` in its path stands for the pool on the command line."""
    parts = [str(ctx.params.get(part.strip("{}")) or "") if part.startswith("{") else part for part in listing]
    if not parts or not all(parts):
        return []
    return _unique_or_none(ctx, lambda: [str(row["name"]) for row in _read_rows(parts)])


def requests(ctx: click.Context, status: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the newest requests, those with this status if any is given."""
    return _rows_or_none(ctx, lambda: _read_rows(["requests"], status))


def components(ctx: click.Context) -> list[str]:
    """Return the components with a policy in the pool on the command line, else in any pool."""
    return _unique_or_none(
        ctx, lambda: [formatting.component(policy) for pool in _pools(ctx) for policy in pool.get("policies") or ()]
    )


def keys(ctx: click.Context) -> list[str]:
    """Return the keys of the pool on the command line, else of every pool."""
    return _unique_or_none(ctx, lambda: [key for pool in _pools(ctx) for key in pool["capacity"]])


def _unique_or_none(ctx: click.Context, read_names: Callable[[], list[str]]) -> list[str]:
    """Return each name once; nothing after any failure."""
    return list(dict.fromkeys(_rows_or_none(ctx, read_names)))


def _rows_or_none(ctx: click.Context, read_rows: Callable[[], list[Row]]) -> list[Row]:
    """Return the rows; nothing after any failure, because a shell is waiting."""
    try:
        with ctx.scope():
            return read_rows()
    except Exception:
        return []


def _read_rows(parts: list[str], status: Sequence[str] = ()) -> list[Mapping[str, Any]]:
    from poolkeeper.cli.options import client, path

    rows = client(timeout_s=TIMEOUT_S, tries=1).items(path(*parts), query={"status": status}, page=MAX_NAMES)
    return list(islice(rows, MAX_NAMES))


def _pools(ctx: click.Context) -> list[Mapping[str, Any]]:
    from poolkeeper.cli.options import client

    declared = client(timeout_s=TIMEOUT_S, tries=1).call("GET", "/declaration")
    pool = ctx.params.get("pool")
    return [each for each in declared["pools"] if pool in (None, each["name"])]
