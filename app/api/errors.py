"""The table from exceptions to HTTP statuses, and the problem document (RFC 9457) of each refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ValidationError
from werkzeug.exceptions import HTTPException

from app.api.schemas.problems import FieldError, Problem
from app.domain.dry_run import DryRunUnavailable
from app.domain.errors import (
    UNAVAILABLE_REASONS,
    Conflict,
    LimitReached,
    NotFound,
    Refusal,
    RuleViolation,
    StaleFence,
    StoreUnavailable,
)
from app.domain.states import RequestState
from app.domain.validation_errors import field_errors
from app.service.wait_slots import TokenShareUsed, TooManyWaiters

PROBLEM_TYPE = "application/problem+json"
RETRY_SOON = {"Retry-After": "1"}
"""The header for an outage of Redis, or if every wait slot is taken: either may change at any moment."""
RETRY_LATER = {"Retry-After": "300"}
"""The header for a refusal that lasts and is costly to compute: more seconds than clients wait by themselves."""


class HttpRefusal(Exception):  # noqa: N818
    """A refusal that exists in HTTP alone, with its status, code and sentence."""

    def __init__(
        self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None, *, hint: str | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.headers, self.hint = status, code, dict(headers or {}), hint


class MalformedInput(HttpRefusal):
    """Input that is malformed in itself, with the reason for each field."""

    def __init__(self, field_reasons: list[tuple[str, str]], where: str = "the body") -> None:
        first = "; ".join(f"{name} {reason}" if name else reason for name, reason in field_reasons[:3])
        more = f" (and {len(field_reasons) - 3} more)" if len(field_reasons) > 3 else ""
        super().__init__(400, "malformed", f"{where} is malformed: {first}{more}")
        self.field_reasons = field_reasons

    @classmethod
    def of(cls, error: ValidationError, where: str = "the body", model: type[BaseModel] | None = None) -> MalformedInput:
        """Return the refusal for the validation errors of an input of this model."""
        return cls(field_errors(error, model), where)


STATUSES: tuple[tuple[type[Exception], int], ...] = (  # the first that fits
    (NotFound, 404),
    (Conflict, 409),
    (LimitReached, 429),
    (RuleViolation, 422),
    (Refusal, 422),
    (StoreUnavailable, 503),
    (TokenShareUsed, 429),
    (TooManyWaiters, 503),
)
"""The exceptions of the service with their statuses. HttpRefusal and the exceptions of werkzeug have their own."""

WERKZEUG_CODES = {400: "malformed", 404: "no_such_route", 405: "method_not_allowed"}
"""Codes of the refusals of werkzeug itself."""

WERKZEUG_DETAILS = {404: "there is no such route; /docs lists all routes", 405: "this route does not have this method"}
"""Sentences for the refusals of werkzeug, whose own sentences are for browsers."""


@dataclass(frozen=True, slots=True)
class ProblemReply:
    """A problem document, with the status and headers of its response."""

    status: int
    body: Problem
    headers: dict[str, str] = field(default_factory=dict)


def problem_reply(error: Exception, request_id: str | None = None) -> ProblemReply | None:
    """Return the reply to an exception; None if it is a bug and not a refusal."""
    if isinstance(error, HttpRefusal):
        problem_fields = [FieldError(field=name, reason=reason) for name, reason in getattr(error, "field_reasons", [])]
        more: dict[str, Any] = {"errors": problem_fields} if problem_fields else {}
        return _reply(error.status, error.code, str(error), request_id, error.headers, hint=error.hint, **more)
    if isinstance(error, HTTPException):
        return _werkzeug_reply(error, request_id)
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), None)
    if status is None:
        return None
    if isinstance(error, DryRunUnavailable):
        retry = RETRY_LATER if error.reason in ("impossible", "late") else RETRY_SOON
        return _reply(status, f"dry_run_{error.reason}", str(error), request_id, retry)
    if isinstance(error, StoreUnavailable):
        return _reply(status, f"redis_{error.reason}", f"Redis {UNAVAILABLE_REASONS[error.reason]}", request_id, RETRY_SOON)
    if isinstance(error, TokenShareUsed):
        return _reply(status, "token_share_used", str(error), request_id, {"Retry-After": str(error.retry_after_s)})
    if isinstance(error, TooManyWaiters):
        return _reply(status, "too_many_waiters", str(error), request_id, RETRY_SOON)
    assert isinstance(error, Refusal)
    if isinstance(error, StaleFence):  # the work has to stop: its units may be granted to another request by now
        request_status = error.status if error.status in set(RequestState) else None  # None: the request is not kept any more
        return _reply(status, error.code, str(error), request_id, directive="kill", request_status=request_status)
    if isinstance(error, LimitReached):
        numbers: dict[str, Any] = {"limit": error.limit, "present": error.present}
        return _reply(status, error.code, str(error), request_id, limit_of=error.subject, limit_name=error.name, **numbers)
    fields: dict[str, Any] = {"errors": [FieldError(field=error.field, reason=str(error))]} if error.field else {}
    return _reply(status, error.code, str(error), request_id, **fields)


def internal_error(request_id: str | None) -> ProblemReply:
    """Return the reply to a bug; the log has its trace."""
    return _reply(500, "internal_error", "something went wrong here; the log has it under the request id", request_id)


def _reply(
    status: int, code: str, detail: str, request_id: str | None, headers: Mapping[str, str] | None = None, **more: Any
) -> ProblemReply:
    title = HTTPStatus(status).phrase
    body = Problem(type="about:blank", title=title, status=status, detail=detail, code=code, request_id=request_id, **more)
    return ProblemReply(status, body, dict(headers or {}))


def _werkzeug_reply(error: HTTPException, request_id: str | None) -> ProblemReply | None:
    status = error.code or 500
    if status >= 500 or status < 400:
        return None
    headers = {name: value for name, value in error.get_headers() if name == "Allow"}
    detail = WERKZEUG_DETAILS.get(status) or (error.description or HTTPStatus(status).phrase).strip()
    return _reply(status, WERKZEUG_CODES.get(status, "refused"), detail, request_id, headers)
