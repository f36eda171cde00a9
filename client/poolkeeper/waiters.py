"""Requests of processes that wait: polls prolong a short queue TTL, so that a request does not outlive its process for long.

If polls are refused or do not arrive for the length of the TTL, the request expires although its process still waits. It is
then submitted again, under a key made from the last one: two processes that wait under one key find the same new request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from poolkeeper.errors import Conflict

if TYPE_CHECKING:
    from poolkeeper.client import Client
    from poolkeeper.models import Request

FIRST_WAIT_S = 2.0
"""The time that a submit waits for the grant in a terminal; after it, a line shows the wait."""
QUEUE_TTL_S = 60
"""The queue TTL of a request whose body has none."""
LONGEST_REFUSAL_S = 300.0
"""The time for which polls are repeated while they are refused (401 or 403): the token may be replaced."""
MAX_KEY_LENGTH = 240
CLEANUP_TRIES, CLEANUP_TIMEOUT_S = 2, 3.0


def submit_waiter(client: Client, body: Mapping[str, Any], key: str, wait_s: float = 0) -> Request:
    """Submit a request that this process waits for, and wait `wait_s` for the grant.

    Return the earlier request if the service knows the key. The first call with the key may have been a plain submit, with the
    queue TTL of the server.
    """
    if "queue_ttl_s" in body:
        return client.submit_spec(body, key, wait_s)
    try:
        return client.submit_spec({**body, "queue_ttl_s": QUEUE_TTL_S}, key, wait_s)
    except Conflict as conflict:
        if conflict.code != "idempotency_conflict":
            raise
        return client.submit_spec(body, key, wait_s)


def has_expired_unpolled(request: Request) -> bool:
    """True if the request has expired because no poll arrived."""
    return request.status == "expired" and request.reason is not None and request.reason.code == "not_polled"


def next_key(key: str) -> str:
    """Return the idempotency key under which an expired request is submitted again: `key+2`, `key+3` …"""
    base, plus, number = key.rpartition("+")
    if plus and number.isdecimal():
        return f"{base}+{int(number) + 1}"
    return f"{key[:MAX_KEY_LENGTH]}+2"


def cancel_or_release(
    client: Client, body: Mapping[str, Any], key: str, request: Request | None, runner: str | None = None
) -> Request:
    """Cancel the request or release its units, also if only its key is known. Return the request afterwards.

    If `runner` is given and another runner has started the allocation, raise Conflict and keep the units. Raise PoolkeeperError
    if the service cannot be reached at once.
    """
    quick_client = client.clone(tries=CLEANUP_TRIES, timeout_s=min(CLEANUP_TIMEOUT_S, client.timeout_s))
    try:
        request = cancel_if_queued(quick_client, (request or submit_waiter(quick_client, body, key)).id)
        if request.is_allocated and request.fence is not None:
            if runner:
                quick_client.start(request.id, request.fence, runner)
            request = quick_client.release(request.id, request.fence, "failed")
        return request
    finally:
        quick_client.close()


def cancel_if_queued(client: Client, request_id: str) -> Request:
    """Return the request: cancelled if it was queued, else unchanged."""
    try:
        return client.cancel(request_id)
    except Conflict:
        return client.request(request_id)
