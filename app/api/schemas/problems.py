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
    hint: str | None = None
    """A remedy, as a sentence for people. Of a refused permission: the roles that have it."""
    errors: list[FieldError] | None = None
    """Of malformed input: every fault. Of a declaration that is refused: the field, such as `pools.0.groups.2.reserved.gpu`."""
    directive: Literal["kill"] | None = None
    """Of a stale fence: whoever sent it holds nothing, and has to stop at once what uses the units."""
    limit_of: str | None = None
    """The subject of the limit that is reached: `workspace`, `token/<id>` or `component/<type/name>`."""
    limit_name: str | None = None
    """The name of the limit that is reached, such as `max_waiting`."""
    limit: int | None = None
    """The limit that is reached."""
    present: int | None = None
    """The present number that the limit is compared with."""
    request_status: RequestState | None = None
    """Of a stale fence: how the request stands."""
