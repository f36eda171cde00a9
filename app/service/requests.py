"""What requesters and holders do: submit, poll, heartbeat, release, cancel; and what an operator does: drop."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from app.domain.asks import RequestAsk
from app.domain.errors import NotFound, Refused
from app.domain.ids import request_id
from app.domain.models import Beat, Event, Request
from app.domain.names import is_idempotency_key, is_name
from app.domain.ordering import EXACT
from app.store.ledger import Ledger
from app.store.registry import Registry

BATCH = 50
"""Asks a single script call takes in."""
PAGE = 1000
"""Rows of a page, at most."""


class Requests:
    """The requests of every workspace."""

    def __init__(self, ledger: Ledger, registry: Registry) -> None:
        self._ledger, self._registry = ledger, registry

    def submit(self, workspace: str, ask: RequestAsk, key: str | None = None) -> Request:
        """Take in one ask: allocated, queued or rejected when this returns."""
        self._enter(workspace)
        return self._ledger.submit(workspace, ask, checked_key(key))

    def submit_all(
        self, workspace: str, asks: Sequence[RequestAsk], keys: Sequence[str | None] = ()
    ) -> list[Request | Refused]:
        """Take in many, in order, each wholly or not at all."""
        self._enter(workspace)
        given = [checked_key(key) for key in keys] or [None] * len(asks)
        named = [(request_id(), ask, key) for ask, key in zip(asks, given, strict=True)]
        answers: list[Request | Refused] = []
        for first in range(0, len(named), BATCH):
            answers += self._ledger.submit_all(workspace, named[first : first + BATCH])
        return answers

    def poll(self, workspace: str, request: str) -> Request:
        """A request as it stands; asked by its owner, so it does not go stale for a while."""
        return self._ledger.look(checked_name(workspace), checked_id(request), poll=True)

    def look(self, workspace: str, request: str) -> Request:
        """A request as it stands, for somebody else."""
        return self._ledger.look(checked_name(workspace), checked_id(request))

    def newest(self, workspace: str, before: int | None = None, count: int = 100) -> tuple[list[Request], int | None]:
        """A page of requests, newest first, and where the next page begins (None: that was all)."""
        return self._ledger.newest(checked_name(workspace), before and checked_number("before", before), checked_count(count))

    def heartbeat(self, workspace: str, request: str, fence: int) -> Beat:
        """Prolong a lease."""
        return self._ledger.heartbeat(checked_name(workspace), checked_id(request), checked_number("fence", fence))

    def release(self, workspace: str, request: str, fence: int, outcome: str = "succeeded") -> Request:
        """Give an allocation back; its work has `succeeded` or `failed`."""
        if outcome not in ("succeeded", "failed"):
            raise ValueError("an outcome is succeeded or failed")
        return self._ledger.release(checked_name(workspace), checked_id(request), checked_number("fence", fence), outcome)

    def cancel(self, workspace: str, request: str) -> Request:
        """Leave the queue."""
        return self._ledger.cancel(checked_name(workspace), checked_id(request))

    def drop(self, workspace: str, request: str) -> Request:
        """End a request whatever its state."""
        return self._ledger.drop(checked_name(workspace), checked_id(request))

    def events(self, workspace: str, after: str = "0", count: int = 100) -> Iterator[Event]:
        """A stretch of the workspace's events after one of them."""
        if not re.fullmatch(r"\d{1,16}(-\d{1,16})?", after, re.ASCII):
            raise ValueError("an event's id is two numbers with a - between them")
        return iter(self._ledger.events(checked_name(workspace), after, checked_count(count)))

    def _enter(self, workspace: str) -> None:
        self._registry.remember(checked_name(workspace))


def checked_name(name: str) -> str:
    """The name, if it is one; names become parts of keys, so nothing else may reach the store."""
    if not is_name(name):
        raise ValueError(f"{name!r} is no name: letters, digits and _ . -, at most 63, the first a letter or digit")
    return name


def checked_id(request: str) -> str:
    """The id of a request; what can be none is not there."""
    if not is_name(request):
        raise NotFound("request", ascii(request)[:80])
    return request


def checked_number(what: str, number: int) -> int:
    """A whole number from 1 that Redis counts exactly."""
    if type(number) is not int or not 1 <= number <= EXACT:
        raise ValueError(f"{what} is a whole number, at least 1")
    return number


def checked_count(count: int) -> int:
    """How many rows a page may have."""
    if type(count) is not int or not 1 <= count <= PAGE:
        raise ValueError(f"a page has 1 to {PAGE} rows")
    return count


def checked_key(key: str | None) -> str | None:
    """The idempotency key, if it may be one."""
    if key is not None and not is_idempotency_key(key):
        raise ValueError("an idempotency key is 1 to 255 printable ASCII characters")
    return key
