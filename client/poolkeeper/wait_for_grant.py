"""Waiting for a grant: one long poll after another, through a busy server and through a short absence of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

from poolkeeper.errors import TimedOut, TooManyRequests, Unavailable
from poolkeeper.http_client import Calls, decoded, pause_s
from poolkeeper.models import Request

POLL_S = 30.0
"""How long one long poll waits at the server."""

OUTAGE_S = 300.0
"""How long to go on without an answer; by default a queued request expires ten minutes after its last poll."""

EARLY_S = 0.25
"""The pause after a poll that was answered early for no reason given, as by a server that is about to stop."""


def wait(calls: Calls, request: str, path: str, timeout_s: float | None, sleep: Callable[[float], object]) -> Request:
    """The request at this path as soon as it is no longer queued; TimedOut, or Unavailable after too long an absence."""
    answered = time.monotonic()
    until, failures = inf if timeout_s is None else answered + timeout_s, 0
    while True:
        now = time.monotonic()
        left = max(0.0, until - now)
        try:
            found, pause = _poll(calls, path, min(POLL_S, left))
        except (Unavailable, TooManyRequests) as trouble:
            failures += 1
            pause = pause_s(failures, trouble.retry_after_s)
            if now - answered > OUTAGE_S or now + pause >= until:
                raise
        else:
            answered, failures = time.monotonic(), 0
            if not found.queued:
                return found
            if answered >= until:
                raise TimedOut(found, f"request {request} is still queued after {timeout_s:g} s")
            if not pause and answered - now < min(POLL_S, left) / 2:
                pause = EARLY_S
            pause = min(pause, until - answered)
        sleep(pause)


def _poll(calls: Calls, path: str, wait_s: float) -> tuple[Request, float]:
    """One long poll: how it stands, and how long the server would like us to stay away."""
    query = {"wait_s": round(wait_s, 3), "status": "queued"}
    answer = calls.answer("GET", path, query=query, timeout_s=wait_s + calls.timeout_s, tries=1)
    return Request.from_json(decoded(answer)), answer.retry_after_s or 0.0
