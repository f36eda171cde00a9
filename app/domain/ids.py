"""Ids of requests: when and by chance, so that they sort by age and nobody has to ask for one."""

from __future__ import annotations

import secrets
import time

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]


def request_id() -> str:
    """Twenty letters and digits: milliseconds (45 bits), then chance (55 bits)."""
    number = time.time_ns() // 1_000_000 << 55 | secrets.randbits(55)
    return "".join([_PAIRS[number >> place & 1023] for place in range(90, -1, -10)])
