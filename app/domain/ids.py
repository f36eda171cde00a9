"""Ids of requests: the time and random bits, so ids sort by age and need no counter."""

from __future__ import annotations

import secrets
import time

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]


def request_id() -> str:
    """Return an id of twenty letters and digits: milliseconds (45 bits), then random bits (55)."""
    number = time.time_ns() // 1_000_000 << 55 | secrets.randbits(55)
    return "".join([_PAIRS[number >> place & 1023] for place in range(90, -1, -10)])
