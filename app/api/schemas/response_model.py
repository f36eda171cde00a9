"""The base class of all response models, and the types of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}, examples=["2026-01-31T12:00:00.000Z"])]
"""RFC 3339 in UTC, with milliseconds."""
Amounts = Mapping[str, int]
Row = TypeVar("Row")
LAST_MS = 253_402_300_799_999
"""The last moment of the year 9999."""


def time_of(at_ms: int) -> str:
    """Return milliseconds since 1970 as RFC 3339. A time beyond the year 9999, which has no such form, is its last moment."""
    seconds, ms = divmod(min(at_ms, LAST_MS), 1000)
    return f"{_second(seconds)}.{ms:03}Z"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def optional_time_of(at_ms: int | None) -> str | None:
    """Return the time as RFC 3339; None if there is none."""
    return None if at_ms is None else time_of(at_ms)


class ResponseModel(BaseModel):
    """The base of response models. They are made from values of the domain, which are not validated again."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)


class ListResponse(ResponseModel, Generic[Row]):
    """A page of a list."""

    items: list[Row]
    """The rows of the page. A page may be short or empty and yet not be the last."""
    next_cursor: str | None = None
    """The `cursor` of the next page; null: this is the last page."""
