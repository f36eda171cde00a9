"""Names for the shell to complete: asked of the service, quickly or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import click

PATIENCE_S = 1.0
MOST = 100


def names(ctx: click.Context, listing: Sequence[str], field: str = "") -> list[str]:
    """The names in a listing, whose `{pool}` is what was typed before; none if there is any trouble: a shell is waiting."""
    parts = [_typed_before(ctx, part) for part in listing]
    if not parts or not all(parts):
        return []
    try:
        with ctx.scope():
            return _asked(parts, field or ("id" if listing[0] == "requests" else "name"))
    except Exception:
        return []


def _typed_before(ctx: click.Context, part: str) -> str:
    return str(ctx.params.get(part.strip("{}")) or "") if part.startswith("{") else part


def _asked(parts: list[str], field: str) -> list[str]:
    from poolkeeper.cli.options import client, path

    found: dict[str, Any] = {}
    for item in islice(client(timeout_s=PATIENCE_S, tries=1).items(path(*parts), page=MOST), MOST):
        found[item[field]] = None
    return list(found)
