"""The problem document (RFC 9457) that every error is answered with."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from app.api.schemas.response_model import ResponseModel
from app.domain.states import RequestState


class FieldError(ResponseModel):
    """What is wrong with one field."""

    field: str
    reason: str


class Problem(ResponseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    type: str
    """`about:blank`: the code says it all."""
    title: str
    status: int
    detail: str
    """What is wrong, in a sentence for people."""
    code: str
    """What is wrong, in a word for programs; it stays."""
    request_id: str | None = None
    errors: list[FieldError] | None = None
    """Of malformed input: every fault."""
    directive: Literal["kill"] | None = None
    """Of a stale fence: whoever sent it holds nothing, and has to stop at once what uses the units."""
    limit_of: str | None = None
    """Of a limit that is reached: what has it, `workspace`, `token/<id>` or `component/<type/name>`."""
    limit_name: str | None = None
    """Of a limit that is reached: its name, as in `max_waiting`."""
    limit: int | None = None
    """Of a limit that is reached: the limit."""
    present: int | None = None
    """Of a limit that is reached: how much there is at present."""
    request_status: RequestState | None = None
    """Of a stale fence: how the request stands."""
