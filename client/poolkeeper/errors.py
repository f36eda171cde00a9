"""Exceptions of calls. An ApiError carries the problem document of the server; its message is the sentence of it, on one line.

`repeated` is True if an earlier try of the same call may have been applied although it was not answered so. The caller of
something that can happen only once (a deletion, a cancel) then has to look before it believes the error. `answer_lost` is True
if the call changes something and the answer to one of its tries was lost.
"""

# ruff: noqa: N818 - an exception is named after what happened

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poolkeeper.models import Request


class PoolkeeperError(Exception):
    """Anything this package raises on purpose; the message is one line for people."""


class InvalidUrl(PoolkeeperError):
    """What was given as the URL of the server is none."""


class ApiError(PoolkeeperError):
    """The server says no, and why: a status, a stable code, a sentence, and the fields that are wrong."""

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
    """400: the ask itself is wrong; `errors` names the fields."""


class AccessDenied(ApiError):
    """401 or 403: no token, not a valid one, or not one for this."""


class NotFound(ApiError):
    """404: there is nothing of that name."""


class Conflict(ApiError):
    """409: the present state does not allow it."""


class StaleFence(Conflict):
    """409: the caller does not, or no longer, hold the units; they may be somebody else's by now, so it has to stop."""

    @property
    def directive(self) -> str:
        """What the holder has to do: `kill`."""
        return str(self.problem.get("directive") or "kill")

    @property
    def request_status(self) -> str | None:
        """What became of the request, if the server said so."""
        return self.problem.get("request_status")


class UnprocessableRequest(ApiError):
    """422: well-formed, but it cannot be."""


class TooManyRequests(ApiError):
    """429: slower; raised when the pauses that were asked for did not help."""


class Unavailable(ApiError):
    """503, a connection that was cut, or no server at all (then `status` is 0), and all tries are used up."""


class NotGranted(PoolkeeperError):
    """A request that was waited for ended in another way; `request` says how."""

    def __init__(self, request: Request, message: str | None = None) -> None:
        super().__init__(request, message)  # so that it can be pickled
        self.request, self._message = request, message

    def __str__(self) -> str:
        reason = self.request.reason.message if self.request.reason else "no reason is given"
        return self._message or f"request {self.request.id} is {self.request.status}: {reason}"


class RequestRejected(NotGranted):
    """It could never be granted; `request.reason` says what each pool answered."""


class WaitTimeout(NotGranted, TimeoutError):
    """It was still queued when the time was up; `request` is how it stood last."""


class AllocationLost(PoolkeeperError):
    """The units are not, or perhaps not (`suspected`), ours any more: stop what uses them."""

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
    502: Unavailable,  # what stands before the server could not reach it
    503: Unavailable,
    504: Unavailable,
}


def api_error(status: int, problem: Mapping[str, Any], retry_after_s: float | None, *, repeated: bool = False) -> ApiError:
    """The error of an answer; what is in its problem document may be missing, as when something else than the server spoke."""
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
