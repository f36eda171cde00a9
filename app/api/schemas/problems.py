"""The problem document (RFC 9457): the body of every error."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from app.api.schemas.response_model import ResponseModel
from app.domain.states import RequestState


class FieldError(ResponseModel):
    """The fault of one field."""

    field: str
    """The path of the field, such as `pools.0.capacity.gpu`."""
    reason: str
    """The fault, for people."""


class Problem(ResponseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    type: str
    """The constant `about:blank`; `code` has the type of the problem."""
    title: str
    """The name of the HTTP status."""
    status: int
    """The number of the HTTP status."""
    detail: str
    """The problem as a sentence for people."""
    code: str
    """The type of the problem, for programs; it never changes."""
    request_id: str | None = None
    """The id of this call, as in the access log and the header `X-Request-Id`."""
    hint: str | None = None
    """A remedy, as a sentence for people. If a permission is missing: the roles that have it."""
    errors: list[FieldError] | None = None
    """The faults of malformed input; for a refused declaration the field, such as `pools.0.groups.2.reserved.gpu`."""
    directive: Literal["kill"] | None = None
    """The directive `kill` after a stale fence: the caller holds no units, and has to stop its work at once."""
    limit_of: str | None = None
    """The subject of the limit that is reached: `workspace`, `token/<id>` or `component/<type/name>`."""
    limit_name: str | None = None
    """The name of the limit that is reached, such as `max_waiting`."""
    limit: int | None = None
    """The limit that is reached."""
    present: int | None = None
    """The present number that the limit bounds."""
    request_status: RequestState | None = None
    """The state of the request, after a stale fence."""
