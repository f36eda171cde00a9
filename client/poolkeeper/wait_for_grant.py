"""The wait for a grant: one long poll after another, through a busy server, a short outage and a replaced token."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

from poolkeeper.backoff import pause_s
from poolkeeper.errors import AccessDenied, ApiError, TooManyRequests, Unavailable, WaitTimeout
from poolkeeper.http_client import HttpClient, decode_json
from poolkeeper.models import Request

POLL_S = 30.0
"""The seconds that one long poll waits at the server."""

LONGEST_OUTAGE_S = 300.0
"""The seconds without an answer after which the wait fails; a queued request expires ten minutes after its last poll."""

EARLY_RESPONSE_PAUSE_S = 0.25
"""The pause in seconds after a poll that was answered early without a reason, as by a server that is about to stop."""


def wait_for_grant(
    client: HttpClient, request_id: str, path: str, timeout_s: float | None, sleep: Callable[[float], object]
) -> Request:
    """Return the request at this path when it is no longer queued. Raise WaitTimeout, or Unavailable after a long outage.

    If polls are refused (401 or 403) after one was accepted, they are repeated for the same time as in an outage.
    """
    began_s = answered_s = time.monotonic()
    until_s, failures = inf if timeout_s is None else began_s + timeout_s, 0
    while True:
        now_s = time.monotonic()
        left_s = max(0.0, until_s - now_s)
        try:
            request, pause = _poll(client, path, min(POLL_S, left_s))
        except (Unavailable, TooManyRequests, AccessDenied) as error:
            is_refused = isinstance(error, AccessDenied)
            if is_refused and answered_s == began_s:
                raise
            if is_refused and not failures:
                _log_refusal(request_id, error)
            failures += 1
            pause = pause_s(failures, error.retry_after_s)
            if now_s - answered_s > LONGEST_OUTAGE_S or now_s + pause >= until_s:
                raise
        else:
            answered_s, failures = time.monotonic(), 0
            if not request.is_queued:
                return request
            if answered_s >= until_s:
                raise WaitTimeout(request, f"request {request_id} is still queued after {timeout_s:g} s")
            if not pause and answered_s - now_s < min(POLL_S, left_s) / 2:
                pause = EARLY_RESPONSE_PAUSE_S
            pause = min(pause, until_s - answered_s)
        sleep(pause)


def _log_refusal(request_id: str, error: ApiError) -> None:
    import logging

    logging.getLogger("poolkeeper").warning("request %s: polls are refused, and repeated: %s", request_id, error)


def _poll(client: HttpClient, path: str, wait_s: float) -> tuple[Request, float]:
    """Return the request after one long poll, and the pause in seconds that the server asks for."""
    query = {"wait_s": round(wait_s, 3), "status": "queued"}
    response = client.send("GET", path, query=query, timeout_s=wait_s + client.timeout_s, tries=1)
    return Request.from_json(decode_json(response)), response.retry_after_s or 0.0
