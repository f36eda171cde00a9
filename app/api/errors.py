"""From what can go wrong to what is answered: the one table, and the problem document (RFC 9457) made by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError
from werkzeug.exceptions import HTTPException

from app.api.schemas.requests import FieldFault, Problem
from app.domain.errors import AgainstTheRules, Conflict, NotFound, Refused, StaleFence
from app.domain.specs import malformed
from app.domain.states import State
from app.service.long_poll import HouseFull
from app.store.connection import REASONS, StoreUnavailable
from app.store.workspace_copy import NoTrial

PROBLEM_TYPE = "application/problem+json"
AGAIN = {"Retry-After": "1"}
"""When Redis is away, or every seat is taken: soon, as either may change any moment."""
LATER = {"Retry-After": "300"}
"""What is not to change soon, and costs much to find out: longer than clients wait by themselves."""


class Refusal(Exception):  # noqa: N818
    """Something only HTTP can be wrong about: a status, a code and a sentence."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.code, self.headers = status, code, dict(headers or {})


class Malformed(Refusal):
    """Input that is wrong in itself, with every fault (field, reason)."""

    def __init__(self, faults: list[tuple[str, str]], where: str = "the body") -> None:
        first = "; ".join(f"{name} {reason}" if name else reason for name, reason in faults[:3])
        more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
        super().__init__(400, "malformed", f"{where} is malformed: {first}{more}")
        self.faults = faults

    @classmethod
    def of(cls, error: ValidationError, where: str = "the body") -> Malformed:
        """What pydantic found."""
        return cls(malformed(error), where)


STATUSES: tuple[tuple[type[Exception], int], ...] = (  # the first that fits
    (NotFound, 404),
    (Conflict, 409),
    (AgainstTheRules, 422),
    (Refused, 422),
    (StoreUnavailable, 503),
    (HouseFull, 503),
)
"""What the service says no with, and its status. A Refusal and werkzeug's own have theirs."""

CODES = {400: "malformed", 404: "no_such_route", 405: "method_not_allowed"}
"""Codes of what werkzeug refuses by itself."""

SENTENCES = {404: "there is no such route; /docs has those there are", 405: "this route does not know this verb"}
"""And its sentences, where werkzeug's own are for browsers."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A problem document on its way out."""

    status: int
    body: Problem
    headers: dict[str, str] = field(default_factory=dict)


def reply(error: Exception, request_id: str | None = None) -> Reply | None:
    """What an error is answered; None if it is no refusal but a bug."""
    if isinstance(error, Refusal):
        faults = [FieldFault(field=name, reason=reason) for name, reason in getattr(error, "faults", [])]
        more: dict[str, Any] = {"errors": faults} if faults else {}
        return _reply(error.status, error.code, str(error), request_id, error.headers, **more)
    if isinstance(error, HTTPException):
        return _of_werkzeug(error, request_id)
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), None)
    if status is None:
        return None
    if isinstance(error, NoTrial):
        when = LATER if error.reason in ("impossible", "late") else AGAIN
        return _reply(status, f"dry_run_{error.reason}", str(error), request_id, when)
    if isinstance(error, StoreUnavailable):
        return _reply(status, f"redis_{error.reason}", f"Redis {REASONS[error.reason]}", request_id, AGAIN)
    if isinstance(error, HouseFull):
        return _reply(status, "house_full", str(error), request_id, AGAIN)
    assert isinstance(error, Refused)
    if isinstance(error, StaleFence):  # the holder has to stop: the units may be somebody else's by now
        known = error.status if error.status in set(State) else None  # what is kept no more has none
        return _reply(status, error.code, str(error), request_id, directive="kill", request_status=known)
    return _reply(status, error.code, str(error), request_id)


def bug(request_id: str | None) -> Reply:
    """What is answered to what should not have happened; what it was is in the log."""
    return _reply(500, "internal_error", "something went wrong here; the log has it under the request id", request_id)


def _reply(
    status: int, code: str, detail: str, request_id: str | None, headers: Mapping[str, str] | None = None, **more: Any
) -> Reply:
    title = HTTPStatus(status).phrase
    body = Problem(type="about:blank", title=title, status=status, detail=detail, code=code, request_id=request_id, **more)
    return Reply(status, body, dict(headers or {}))


def _of_werkzeug(error: HTTPException, request_id: str | None) -> Reply | None:
    status = error.code or 500
    if status >= 500 or status < 400:
        return None
    headers = {name: value for name, value in error.get_headers() if name == "Allow"}
    said = SENTENCES.get(status) or (error.description or HTTPStatus(status).phrase).strip()
    return _reply(status, CODES.get(status, "refused"), said, request_id, headers)
