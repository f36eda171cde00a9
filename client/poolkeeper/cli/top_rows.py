"""The rows of `poolkeeper top`: allocations and waiters in one table that fits the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from poolkeeper import formatting
from poolkeeper.request_origin import owner, short_id, title

TITLES: Final = ("NAME", "OWNER", "COMPONENT", "ASKS", "FOR")
"""The titles of the columns after the first, which has the id."""
SHRINKABLE: Final = ("NAME", "OWNER", "COMPONENT", "ASKS")
"""The columns that become narrower if a row does not fit, in this order."""
MIN_WIDTH: Final = 8
GAP: Final = 2


def running_row(request: Mapping[str, Any], now: datetime) -> list[str]:
    """Return the cells of an allocation: id, name, owner, component, amounts, and the time that it has run."""
    leaving = " leaving" if request["status"] == "preempting" else ""
    return [short_id(request["id"]), *_origin(request), formatting.age(request["granted_at"], now) + leaving]


def waiting_row(request: Mapping[str, Any], pool: str, now: datetime) -> list[str]:
    """Return the cells of a waiter: position and id, name, owner, component, amounts, and the time that it has waited."""
    position = (request["position"] or {}).get(pool, "-")
    return [f"{position} {short_id(request['id'])}", *_origin(request), formatting.age(request["submitted_at"], now)]


def _origin(request: Mapping[str, Any]) -> list[str]:
    labels = request["labels"]
    words = title(request.get("name"), labels), owner(labels), formatting.component(request)
    return [*map(formatting.one_line, words), formatting.requested_amounts(request)]


def column_widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the widths of the columns, together at most `room` if possible. A column without text has the width 0.

    Each of `rows`, with or without titles, begins with the id; the columns of TITLES follow.
    """
    texts = [row for row in rows if tuple(row[1:]) != TITLES]
    filled = [any(row[index] for row in texts) for index in range(len(TITLES) + 1)]
    widths = [max(len(row[index]) for row in rows) if filled[index] else 0 for index in range(len(TITLES) + 1)]
    for name in SHRINKABLE:
        index = 1 + TITLES.index(name)
        over = sum(widths) + GAP * (sum(map(bool, widths)) - 1) - room
        if over > 0 and widths[index]:
            widths[index] = max(min(widths[index], MIN_WIDTH), widths[index] - over)
    return widths


def aligned(row: Sequence[str], widths: Sequence[int], ellipsis: str) -> str:
    """Return the cells of a row as one line, each cut or filled to the width of its column."""
    cells = [f"{cut(cell, width, ellipsis):<{width}}" for cell, width in zip(row, widths, strict=True) if width]
    return (" " * GAP).join(cells).rstrip()


def cut(text: str, width: int, ellipsis: str) -> str:
    """Return the text, cut to this width."""
    return text if len(text) <= width else text[: max(0, width - len(ellipsis))] + ellipsis
