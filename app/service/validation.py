"""Checks of values before they reach the store, where names become parts of keys and numbers become scores."""

from __future__ import annotations

from app.domain.errors import NotFound
from app.domain.names import PATTERN_TEXTS, POLICY_PATTERN, component_id, is_idempotency_key, is_name, is_policy_name
from app.domain.queue_score import MAX_AMOUNT

BATCH_SEPARATOR = "\x1f"
"""The separator of the key of a batch and the number of a request in it; no key of a client can have it."""
MAX_PAGE_ROWS = 1000
"""The most rows of a page."""


def checked_name(name: str) -> str:
    """Return the name. Raise ValueError if it is invalid, as names become parts of keys."""
    if not is_name(name):
        raise ValueError(f"{name!r} is no name: letters, digits and _ . -, at most 63, the first a letter or digit")
    return name


def checked_component(kind: str, component: str) -> str:
    """Return `type/name` of a component or of a policy template. Raise ValueError if either part is invalid."""
    if not is_policy_name(component):
        raise ValueError(f"{component!r} is no name of a component: it {PATTERN_TEXTS[POLICY_PATTERN]}")
    return component_id(checked_name(kind), component)


def checked_id(request: str) -> str:
    """Return the id of a request. Raise NotFound if it cannot be an id."""
    if not is_name(request):
        raise NotFound("request", ascii(request)[:80])
    return request


def checked_number(field: str, number: int) -> int:
    """Return a whole number from 1 that Redis counts exactly. Raise ValueError if it is not one."""
    if type(number) is not int or not 1 <= number <= MAX_AMOUNT:
        raise ValueError(f"{field} is a whole number, at least 1")
    return number


def checked_count(count: int) -> int:
    """Return the number of rows of a page. Raise ValueError if a page may not have it."""
    if type(count) is not int or not 1 <= count <= MAX_PAGE_ROWS:
        raise ValueError(f"a page has 1 to {MAX_PAGE_ROWS} rows")
    return count


def checked_key(key: str | None) -> str | None:
    """Return the idempotency key of a client or of one request of a batch. Raise ValueError if it is invalid."""
    if key is not None and not is_idempotency_key(key.partition(BATCH_SEPARATOR)[0]):
        raise ValueError("an idempotency key is 1 to 255 printable ASCII characters")
    return key
