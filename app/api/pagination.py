"""Pages of lists that are short enough to be read whole, and the cursors of longer ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from app.api.errors import MalformedInput
from app.api.schemas.inputs import PageQuery
from app.domain.queue_score import MAX_AMOUNT

Row = TypeVar("Row")


def page_of(rows: Sequence[Row], query: PageQuery) -> tuple[Sequence[Row], str | None]:
    """Return the rows of the page, and the cursor of the next page or None."""
    first = parse_cursor(query.cursor) or 0
    until = first + query.limit
    return rows[first:until], str(until) if until < len(rows) else None


def parse_cursor(cursor: str | None) -> int | None:
    """Return the number of a cursor."""
    if cursor is None:
        return None
    with malformed_cursor():
        number = int(cursor) if cursor.isdecimal() and len(cursor) <= 16 else 0
        if not 1 <= number <= MAX_AMOUNT:
            raise ValueError
        return number


@contextmanager
def malformed_cursor() -> Iterator[None]:
    """Turn a ValueError into the refusal of a malformed cursor."""
    try:
        yield
    except ValueError:
        raise MalformedInput([("cursor", "is not one that was answered")], "the query") from None
