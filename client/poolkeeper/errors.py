"""Exceptions of calls. An ApiError has the problem document of the server; the message is its `detail`, on one line.

`repeated` is True if an earlier try of the same call may have been applied without an answer. After a change that can happen
only once (a deletion, a cancel), the caller then has to check the state before it trusts the error. `answer_lost` is True if
the call changes something and the answer to one of its tries was lost.
"""

# ruff: noqa: N818 - an exception is named after what happened

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poolkeeper.models import Request


class PoolkeeperError(Exception):
    """The base class of all errors of this package; the message is one line for people."""


class InvalidUrl(PoolkeeperError):
    """An invalid URL of the server."""


class ApiError(PoolkeeperError):
    """A refusal by the server: a status, a stable code, a sentence, and the wrong fields."""

    def __init__(
        self,
        detail: str,
        *,
        status: int = 0,
        code: str = "",
        problem: Mapping[str, Any] | None = None,
        retry_after_s: float | None = None,
        repeated: bool = False,
    ) -> None:
        super().__init__(" ".join(detail.split()))
        self.detail, self.status, self.code = str(self), status, code
        self.problem: dict[str, Any] = dict(problem or {})
        self.errors: list[dict[str, str]] = list(self.problem.get("errors") or [])
        self.retry_after_s, self.repeated, self.answer_lost = retry_after_s, repeated, False


class BadRequest(ApiError):
    """400: the call itself is wrong; `errors` names the fields."""


class AccessDenied(ApiError):
    """401 or 403: no token, no valid token, or a token without the permission."""


class NotFound(ApiError):
    """404: nothing has this name or id."""


class Conflict(ApiError):
    """409: the present state does not allow it."""


class StaleFence(Conflict):
    """409: the fence holds no units (any more). Another request may hold them, so the work has to stop."""

    @property
    def directive(self) -> str:
        """Return the directive for the work: `kill`."""
        return str(self.problem.get("directive") or "kill")

    @property
    def request_status(self) -> str | None:
        """Return the status of the request, if the server named it."""
        return self.problem.get("request_status")


class UnprocessableRequest(ApiError):
    """422: well-formed, but against the rules."""


class TooManyRequests(ApiError):
    """429: too many calls, also after the pauses that the server asked for."""


class Unavailable(ApiError):
    """503, a cut connection, or no server at all (`status` is 0), after all tries."""


_UNEXPLAINED = {"released": "it is over; other work needs an idempotency key of its own"}
"""The hint for a state that has no reason."""


class NotGranted(PoolkeeperError):
    """The end of a wait without a grant; `request` has its state."""

    def __init__(self, request: Request, message: str | None = None) -> None:
        super().__init__(request, message)  # so that it can be pickled
        self.request, self._message = request, message

    def __str__(self) -> str:
        reason = self.request.reason.message if self.request.reason else _UNEXPLAINED.get(self.request.status)
        state = f"request {self.request.id} is {self.request.status}"
        return self._message or (f"{state}: {reason}" if reason else state)


class RequestRejected(NotGranted):
    """A request that no pool can ever grant; `request.reason` has the answer of each pool."""


class WaitTimeout(NotGranted, TimeoutError):
    """A request that was still queued when the time was up; `request` has its last state."""


class AllocationLost(PoolkeeperError):
    """The loss, or the suspected loss (`suspected`), of the units: stop their use."""

    def __init__(self, message: str, *, suspected: bool = False) -> None:
        super().__init__(message)
        self.suspected = suspected


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: AccessDenied,
    403: AccessDenied,
    404: NotFound,
    409: Conflict,
    422: UnprocessableRequest,
    429: TooManyRequests,
    502: Unavailable,  # a proxy could not reach the server
    503: Unavailable,
    504: Unavailable,
}


def api_error(status: int, problem: Mapping[str, Any], retry_after_s: float | None, *, repeated: bool = False) -> ApiError:
    """Return the error for an answer. Its problem document may lack fields, as a proxy may have answered."""
    code = str(problem.get("code") or "")
    is_loss = code == "stale_fence" or (status == HTTPStatus.CONFLICT and problem.get("directive") == "kill")
    kind = StaleFence if is_loss else _BY_STATUS.get(status, ApiError)
    detail = str(problem.get("detail") or problem.get("title") or f"{status} {_phrase(status)}")
    return kind(detail, status=status, code=code, problem=problem, retry_after_s=retry_after_s, repeated=repeated)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "is not a status"
