"""Names for shell completion, read from the service within `TIMEOUT_S` or left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import click

from poolkeeper import formatting

TIMEOUT_S = 1.0
MAX_NAMES = 100


def names(ctx: click.Context, listing: Sequence[str], status: Sequence[str] = ()) -> list[str]:
    """Return the names of a list, whose `{pool}` is the pool that was typed before; of requests, those with this status."""
    parts = [str(ctx.params.get(part.strip("{}")) or "") if part.startswith("{") else part for part in listing]
    field = "id" if listing[:1] == ("requests",) else "name"
    return _unique_or_none(ctx, lambda: _read_names(parts, field, status)) if parts and all(parts) else []


def components(ctx: click.Context) -> list[str]:
    """Return the components with a policy in the pool that was typed before, else in any pool."""
    return _unique_or_none(
        ctx, lambda: [formatting.component(policy) for pool in _pools(ctx) for policy in pool.get("policies") or ()]
    )


def keys(ctx: click.Context) -> list[str]:
    """Return the keys of the pool that was typed before, else of every pool."""
    return _unique_or_none(ctx, lambda: [key for pool in _pools(ctx) for key in pool["capacity"]])


def _unique_or_none(ctx: click.Context, read_names: Callable[[], list[str]]) -> list[str]:
    """Return each name once; nothing after any failure, because a shell is waiting."""
    try:
        with ctx.scope():
            return list(dict.fromkeys(read_names()))
    except Exception:
        return []


def _read_names(parts: list[str], field: str, status: Sequence[str]) -> list[str]:
    from poolkeeper.cli.options import client, path

    rows = client(timeout_s=TIMEOUT_S, tries=1).items(path(*parts), query={"status": status}, page=MAX_NAMES)
    return [str(row[field]) for row in islice(rows, MAX_NAMES)]


def _pools(ctx: click.Context) -> list[Mapping[str, Any]]:
    from poolkeeper.cli.options import client

    declared = client(timeout_s=TIMEOUT_S, tries=1).call("GET", "/declaration")
    pool = ctx.params.get("pool")
    return [each for each in declared["pools"] if pool in (None, each["name"])]
