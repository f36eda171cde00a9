"""Lists that are short enough to be read whole and told in pages, and the cursors of those that are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from app.api.errors import Malformed
from app.api.schemas.inputs import Paged
from app.domain.queue_score import EXACT

Row = TypeVar("Row")


def page_of(rows: Sequence[Row], query: Paged) -> tuple[Sequence[Row], str | None]:
    """The part that was asked for, and the cursor of the next."""
    first = number_of(query.cursor) or 0
    until = first + query.limit
    return rows[first:until], str(until) if until < len(rows) else None


def number_of(cursor: str | None) -> int | None:
    """A cursor that is a number."""
    with told_by_us():
        if cursor is None:
            return None
        number = int(cursor) if cursor.isdecimal() and len(cursor) <= 16 else 0
        if not 1 <= number <= EXACT:
            raise ValueError
        return number


@contextmanager
def told_by_us() -> Iterator[None]:
    """What cannot be read as a cursor is said to be none."""
    try:
        yield
    except ValueError:
        raise Malformed([("cursor", "is not one that was answered")], "the query") from None
